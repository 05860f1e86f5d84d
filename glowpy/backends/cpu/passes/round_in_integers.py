"""Rounds scaled sums to stored integers without floating point, for processors that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import SaturateNode, SubtractOffsetNode, UncontractedMulNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.graph.lower_quantized import known_parameter
from glowpy.opt.known import known
from glowpy.passes import RewritePass

__all__ = ["RoundInIntegersPass"]

_WIDEST = 2
"""Bytes of results: `scale_rounded` is limited to less than 32 bits."""


@dataclass(frozen=True)
class RoundInIntegersPass(RewritePass):
    """Turns `subtract_offset`, `uncontracted_mul` and `saturate` in a row into arithmetic on i32 with the same bits.

    `scale_rounded` is all three roundings of f32 in one; the floats that it multiplies by are known, as their bits, and
    `saturate` of integers limits. See docs/adr/0020-quantized-arithmetic.md.

    Before:
        %x : i32[4]
        %out : u8[4](s=0.25,o=7)
        %zero = splat() {value=0.0} : i32[]
        %steps = subtract_offset(%x, %zero) : f32[4]
        %ratio = splat() {value=0.5} : f32[]
        %scaled = uncontracted_mul(%steps, %ratio) : f32[4]
        %offset = splat() {value=7.0} : f32[]
        %y = saturate(%scaled, %offset) : u8[4](s=0.25,o=7)
        save(%y, %out)
    After:
        %x : i32[4]
        %out : u8[4](s=0.25,o=7)
        %y_ratio = splat() {value=1056964608.0} : i32[]
        %y_rounded = scale_rounded(%x, %y_ratio) : i32[4]
        %y_offset = splat() {value=7.0} : i32[]
        %y = saturate(%y_rounded, %y_offset) : u8[4](s=0.25,o=7)
        save(%y, %out)
    """

    name: ClassVar[str] = "round-in-integers"
    is_required: ClassVar[bool] = True
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def saturate(self, f: Function, n: SaturateNode, why: Why) -> Replacement:
        """Integers from end to end, if what they are scaled by is known."""
        steps, ratio = _factors(n.lhs)
        scale, offset = known(ratio) if ratio else np.float32(1), known(n.rhs)
        if n.lhs.type.kind is ElemKind.I32:
            return why.no("it is of integers")
        if not isinstance(steps.node, SubtractOffsetNode):
            return why.no("what is rounded is more than integers times a number")
        if scale is None or offset is None:
            return why.no("the scale or the offset is computed")
        if n.type.kind.size > _WIDEST:
            return why.no(f"the result is {n.type.kind.value}")
        value = _difference(f, n, steps.node)
        if ratio or steps.node.lhs.type.kind.size > _WIDEST:
            bits = known_parameter(f, n, "ratio", np.ascontiguousarray(scale).view(np.int32))
            value = f.create_scale_rounded(f"{n.name}_rounded", value, bits).result
        moved = known_parameter(f, n, "offset", offset.astype(np.int32))
        return f.create_saturate(n.name, n.type, value, moved)


def _factors(value: NodeValue) -> tuple[NodeValue, NodeValue | None]:
    """Steps, and what they are multiplied by; None for nothing."""
    if not isinstance(value.node, UncontractedMulNode):
        return value, None
    lhs, rhs = value.node.lhs, value.node.rhs
    return (lhs, rhs) if isinstance(lhs.node, SubtractOffsetNode) else (rhs, lhs)


def _difference(f: Function, n: SaturateNode, steps: SubtractOffsetNode) -> NodeValue:
    """The steps as integers."""
    value = _widened(f, n, "stored", steps.lhs)
    offset = known(steps.rhs)
    if offset is not None and not offset.any():
        return value
    return f.create_sub(f"{n.name}_steps", value, _widened(f, n, "below", steps.rhs)).result


def _widened(f: Function, n: SaturateNode, part: str, value: NodeValue) -> NodeValue:
    """Returns the stored integers, in i32."""
    type = value.type
    if type.quant is not None:
        value = f.create_storage_cast(f"{n.name}_{part}", Type(type.kind, type.shape), value).result
    if type.kind is ElemKind.I32:
        return value
    return f.create_convert(f"{n.name}_{part}", Type(ElemKind.I32, type.shape), value).result
