"""Conversions that change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import ConvertNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["FoldConvertPass"]


@dataclass(frozen=True)
class FoldConvertPass(RewritePass):
    """Drops conversions to the same kind, and those to a kind that holds every value, before another conversion.

    One between integers stays if it is to a float and the last kind lacks values: floats saturate, integers wrap.

    Before:
        %x, %out : f16[4]
        %a = convert(%x) : f32[4]
        %b = convert(%a) : f64[4]
        %c = convert(%b) : f16[4]
        %d = convert(%c) : f16[4]
        save(%d, %out)
    After:
        %x, %out : f16[4]
        save(%x, %out)
    """

    name: ClassVar[str] = "fold-convert"

    @rule
    def convert(self, f: Function, n: ConvertNode, why: Why) -> Replacement:
        """Takes the input of the conversion before, or of this one."""
        if n.input.type == n.type:
            return n.input
        inner = n.input.node
        if not isinstance(inner, ConvertNode):
            return None
        first, between, last = inner.input.type.kind, inner.type.kind, n.type.kind
        if not holds(between, first):
            return why.no(f"{between.value} does not hold every {first.value}")
        if between.is_float and first.is_integer and last.is_integer and not holds(last, first):
            return why.no(
                f"{last.value} does not hold every {first.value}, which would wrap: {between.value} saturates"
            )
        if inner.input.type == n.type:
            return inner.input
        return f.create_convert(n.name, n.type, inner.input)


def holds(wide: ElemKind, narrow: ElemKind) -> bool:
    """Whether every value of `narrow` is exactly a value of `wide`."""
    if wide is narrow or narrow is ElemKind.BOOL:
        return True
    if wide is ElemKind.BOOL:
        return False
    if wide.is_float:
        if narrow.is_float:
            return _digits(wide) >= _digits(narrow) and _range(wide) >= _range(narrow)
        return 8 * narrow.size - narrow.is_signed <= _digits(wide)
    if narrow.is_float:
        return False
    room = 8 * wide.size - wide.is_signed
    return room >= 8 * narrow.size - narrow.is_signed and wide.is_signed >= narrow.is_signed


def _digits(kind: ElemKind) -> int:
    """Bits of the significand, the hidden one among them."""
    return {ElemKind.BF16: 8, ElemKind.F16: 11, ElemKind.F32: 24, ElemKind.F64: 53}[kind]


def _range(kind: ElemKind) -> int:
    """Bits of the exponent."""
    return {ElemKind.BF16: 8, ElemKind.F16: 5, ElemKind.F32: 8, ElemKind.F64: 11}[kind]
