"""Quantization by the range that a value has when the network runs, written out in nodes."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue

__all__ = ["dynamically_quantized"]

_STEPS = 255.0


def dynamically_quantized(
    f: Function, name: str, x: NodeValue
) -> tuple[NodeValue, NodeValue, NodeValue]:
    """Integers of u8 for the range of x, widened to hold 0; then scale and zero point.

    As ONNX's DynamicQuantizeLinear.
    """
    axes = tuple(range(x.type.rank))
    scalar = Type(ElemKind.F32, ())
    nothing = f.create_splat(f"{name}_nothing", scalar, 0.0)

    def extreme(node: NodeValue) -> NodeValue:
        return f.create_reshape(name, scalar, node).result

    low = f.create_min(name, extreme(f.create_reduce_min(name, x, axes).result), nothing)
    high = f.create_max(name, extreme(f.create_reduce_max(name, x, axes).result), nothing)
    steps = f.create_splat(f"{name}_range", scalar, _STEPS)
    scale = f.create_div(f"{name}_scale", f.create_sub(name, high, low), steps)
    below = f.create_sub(name, nothing, f.create_div(name, low, scale))
    zero = f.create_saturate(f"{name}_zero", Type(ElemKind.U8, ()), below, nothing)
    offset = f.create_convert(name, scalar, zero)
    type = Type(ElemKind.U8, x.type.shape)
    stored = f.create_saturate(name, type, f.create_div(name, x, scale), offset)
    return stored.result, scale.result, zero.result
