"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.passes import GraphPass, PassContext

__all__ = ["DcePass"]


@dataclass(frozen=True)
class DcePass(GraphPass):
    """Removes nodes without users and side effects, and constants that no function uses.

    Before:
        %x, %out : f32[4]
        %c : f32[4] = splat 1.0
        %unused = add(%x, %c) : f32[4]
        save(%x, %out)
    After:
        %x, %out : f32[4]
        save(%x, %out)
    """

    name: ClassVar[str] = "dce"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Erases dead nodes, and then what only they used."""
        del ctx
        changed = bool(f.erase_dead())
        for constant in f.module.constants:
            if not constant.value.num_users:
                f.module.erase(constant)
                changed = True
        return changed
