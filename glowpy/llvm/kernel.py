"""How the symbol of a kernel follows from the operation that it computes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glowpy.core.type import Type

__all__ = ["KernelSpec"]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The kernels that one instruction was declared with; classgen writes one into a backend's table for each.

    Attributes:
        mnemonic: The instruction.
        stem: The beginning of the symbols: `libjit_gather`.
        kinds: The operands that name a kernel, and the kinds (`f32`) or element widths (`x32`) it exists for.
        source: The file with the declaration.
    """

    mnemonic: str
    stem: str
    kinds: tuple[tuple[str, tuple[str, ...]], ...]
    source: str

    def symbol(self, types: Mapping[str, Type]) -> str:
        """`libjit_gather_x32_i64` for operands of these types; empty if none was declared for their element kinds."""
        suffixes = []
        for name, kinds in self.kinds:
            kind = types[name].kind
            suffix = f"x{8 * kind.size}" if kinds[0].startswith("x") else kind.suffix
            if suffix not in kinds:
                return ""
            suffixes.append(suffix)
        return self._symbol(suffixes)

    def symbols(self) -> list[str]:
        """The symbol of every kernel that was declared."""
        choices = [kinds for _, kinds in self.kinds]
        return [self._symbol(suffixes) for suffixes in itertools.product(*choices)]

    def _symbol(self, suffixes: Sequence[str]) -> str:
        return "_".join((self.stem, *suffixes))
