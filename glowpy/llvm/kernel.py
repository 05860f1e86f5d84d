"""How the symbol of a kernel follows from the instruction that calls it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.ir.inst import Instruction

__all__ = ["KernelSpec"]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The kernels that one instruction was declared with; classgen writes one into a backend's table for each.

    Attributes:
        library: What the symbols begin with: the name of the kernel library.
        mnemonic: The instruction.
        kinds: The operands that name a kernel, and the kinds (`f32`) or element widths (`x32`) it exists for.
        source: The file with the declaration.
    """

    library: str
    mnemonic: str
    kinds: tuple[tuple[str, tuple[str, ...]], ...]
    source: str

    def symbol(self, inst: Instruction) -> str:
        """`libjit_gather_x32_i64`; empty if none was declared for the instruction's element kinds."""
        kinds = {ref.name: ref.value.type.kind for ref in inst.operands}
        suffixes = []
        for name, known in self.kinds:
            kind = kinds[name]
            suffix = f"x{8 * kind.size}" if known[0].startswith("x") else kind.suffix
            if suffix not in known:
                return ""
            suffixes.append(suffix)
        return self._symbol(suffixes)

    def symbols(self) -> list[str]:
        """The symbol of every kernel that was declared."""
        choices = [known for _, known in self.kinds]
        return [self._symbol(suffixes) for suffixes in itertools.product(*choices)]

    def _symbol(self, suffixes: Sequence[str]) -> str:
        return "_".join((self.library, self.mnemonic, *suffixes))
