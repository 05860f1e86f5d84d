"""How a kernel's symbol follows from the instruction that calls it."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.ir.inst import Instruction

__all__ = ["KernelSpec"]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The operands that name a kernel, and the kinds (`f32`) or element widths (`x32`) it exists for."""

    kinds: tuple[tuple[str, tuple[str, ...]], ...]

    def symbol(self, inst: Instruction) -> str:
        """`libjit_gather_x32_i64`; empty if there is no kernel for the instruction's element kinds."""
        types = {ref.name: ref.value.type for ref in inst.operands}
        parts = []
        for name, known in self.kinds:
            kind = types[name].kind
            suffix = f"x{8 * kind.size}" if known[0].startswith("x") else kind.suffix
            if suffix not in known:
                return ""
            parts.append(suffix)
        return f"libjit_{inst.SCHEMA.mnemonic}_{'_'.join(parts)}"
