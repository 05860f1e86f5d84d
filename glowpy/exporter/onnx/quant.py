"""Conversions between numbers and stored integers."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import along_axis, parameters
from glowpy.core.type import Type
from glowpy.exporter.onnx.graph import OnnxGraph, elem_type_of, to_onnx
from glowpy.graph.nodes_gen import (
    DequantizeBlocksNode,
    DequantizeNode,
    DynamicQuantizeNode,
    HighByteNode,
    LookupTableNode,
    QuantizeNode,
    RoundBlocksNode,
    SaturateNode,
    StorageCastNode,
    SubtractOffsetNode,
)
from glowpy.support.symbolic import ceil_div, static

__all__: list[str] = []


@to_onnx(StorageCastNode)
def _storage_cast(g: OnnxGraph, n: StorageCastNode) -> None:
    """Nothing: stored integers are plain ones in ONNX."""
    del g, n


def _scale(g: OnnxGraph, type: Type) -> tuple[str, dict[str, int]]:
    """The scales, and the axis that they belong to."""
    quant = parameters(type)
    scales = np.array(quant.scales, np.float32)
    if quant.axis is None:
        return g.constant("scale", scales[0]), {}
    return g.constant("scale", scales), {"axis": quant.axis}


def _zero(g: OnnxGraph, type: Type) -> str:
    quant = parameters(type)
    offsets = np.array(quant.offsets, type.kind.dtype)
    return g.constant("zero_point", offsets[0] if quant.axis is None else offsets)


@to_onnx(QuantizeNode)
def _quantize(g: OnnxGraph, n: QuantizeNode) -> None:
    """`QuantizeLinear`, which has no 32 bits."""
    if n.type.kind is not ElemKind.I32:
        scale, axis = _scale(g, n.type)
        g.result("QuantizeLinear", g.operand(n.input), scale, _zero(g, n.type), **axis)
        return
    quant = parameters(n.type)
    scales = along_axis(n.type, np.array(quant.scales, np.float32))
    offsets = along_axis(n.type, np.array(quant.offsets, np.float64))
    steps = g.add("Div", g.operand(n.input), g.constant("scale", scales))
    _saturated(g, g.add("Round", steps), g.constant("zero_point", offsets), n.type.kind)


@to_onnx(DequantizeNode)
def _dequantize(g: OnnxGraph, n: DequantizeNode) -> None:
    """`DequantizeLinear`; of 32 bits it has no zero point other than 0."""
    type, x = n.input.type, g.operand(n.input)
    scale, axis = _scale(g, type)
    if type.kind is not ElemKind.I32:
        g.result("DequantizeLinear", x, scale, _zero(g, type), **axis)
        return
    offsets = np.array(parameters(type).offsets, np.int32)
    if offsets.any():
        x = g.add("Sub", x, g.constant("zero_point", along_axis(type, offsets)))
    g.result("DequantizeLinear", x, scale, **axis)


@to_onnx(DynamicQuantizeNode)
def _dynamic_quantize(g: OnnxGraph, n: DynamicQuantizeNode) -> None:
    g.results("DynamicQuantizeLinear", g.operand(n.input))


@to_onnx(DequantizeBlocksNode)
def _dequantize_blocks(g: OnnxGraph, n: DequantizeBlocksNode) -> None:
    """Integers of 4 bits are two in a byte of the file, if they are known."""
    integers, zero = n.input.constant, n.zero.constant
    if n.bits == 4 and integers is not None and zero is not None:
        names = [g.packed(integers), g.operand(n.scale), g.packed(zero)]
    else:
        names = [g.operand(value) for value in n.inputs]
    g.result("DequantizeLinear", *names, axis=n.axis, block_size=n.block)


@to_onnx(RoundBlocksNode)
def _round_blocks(g: OnnxGraph, n: RoundBlocksNode) -> None:
    """In the simplest operators: the blocks of a row become rows, and zeros fill up the last one."""
    (depth,) = static(n.type.shape[-1:])
    blocks, axis = ceil_div(depth, n.block), n.type.rank - 1
    rest = blocks * n.block - depth
    whole = g.operand(n.input)
    if rest:
        pads = np.array([0] * (2 * axis + 1) + [rest])
        whole = g.add("Pad", whole, g.constant("pads", pads))
    x = g.add("Reshape", whole, g.constant("blocks", np.array([-1, n.block])))
    axes = g.constant("axes", np.array([1]))
    largest = g.add("ReduceMax", g.add("Abs", x), axes)
    scale = g.add("Div", largest, g.scalar("steps", ElemKind.F32, 127))
    counts = g.add("GreaterOrEqual", scale, g.scalar("least", ElemKind.F32, 2.0**-126))
    zero, one = (g.scalar(f"number_{value}", ElemKind.F32, value) for value in (0, 1))
    inverse = g.add("Where", counts, g.add("Div", one, scale), zero)
    numbers = g.add("Mul", g.add("Round", g.add("Mul", x, inverse)), scale)
    # The last extent is known, and the others are those of what was given.
    rounded = g.add("Reshape", numbers, g.add("Shape", whole))
    if rest:
        ends = [g.constant(name, np.array([at])) for name, at in (("start", 0), ("end", depth))]
        g.result("Slice", rounded, *ends, g.constant("axis", np.array([axis])))
        return
    g.result("Identity", rounded)


@to_onnx(SubtractOffsetNode)
def _subtract_offset(g: OnnxGraph, n: SubtractOffsetNode) -> None:
    wide = [g.add("Cast", g.operand(value), to=elem_type_of(ElemKind.I32)) for value in n.inputs]
    g.result("Cast", g.add("Sub", *wide), to=elem_type_of(ElemKind.F32))


@to_onnx(SaturateNode)
def _saturate(g: OnnxGraph, n: SaturateNode) -> None:
    double = elem_type_of(ElemKind.F64)
    offset = g.add("Cast", g.operand(n.rhs), to=double)
    rounded = g.operand(n.lhs)
    if n.lhs.type.kind.is_float:
        rounded = g.add("Round", rounded)
    _saturated(g, rounded, offset, n.type.kind)


def _saturated(g: OnnxGraph, rounded: str, offset: str, kind: ElemKind) -> None:
    """Rounded steps plus the offset, in f64, within the limits of `kind`; NaN gives the lowest."""
    wide = g.add("Cast", rounded, to=elem_type_of(ElemKind.F64))
    low, high = (g.scalar("limit", ElemKind.F64, limit) for limit in kind.limits)
    limited = g.add("Clip", g.add("Add", wide, offset), low, high)
    number = g.add("Where", g.add("IsNaN", wide), low, limited)
    g.result("Cast", number, to=elem_type_of(kind))


@to_onnx(HighByteNode)
def _high_byte(g: OnnxGraph, n: HighByteNode) -> None:
    wide = g.add("Cast", g.operand(n.input), to=elem_type_of(ElemKind.F32))
    parts = g.add("Mul", wide, g.scalar("byte", ElemKind.F32, 1 / 256))
    g.result("Cast", g.add("Floor", parts), to=elem_type_of(ElemKind.I8))


@to_onnx(LookupTableNode)
def _lookup_table(g: OnnxGraph, n: LookupTableNode) -> None:
    """The first element of the table is for the lowest integer."""
    index = g.add("Cast", g.operand(n.input), to=elem_type_of(ElemKind.I64))
    lowest = g.scalar("lowest", ElemKind.I64, n.input.type.kind.limits[0])
    g.result("Gather", g.operand(n.table), g.add("Sub", index, lowest), axis=0)
