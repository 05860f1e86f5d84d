"""Rules of quantization, and what products of quantized operands ask of them.

What quantized arithmetic means is in `glowpy.opt.graph.lower_quantized`, which writes it out in plain nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import has_steps_of, sum_type
from glowpy.core.shape import broadcast_shapes
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type, spelled
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import (
    ConvolutionNode,
    DequantizeNode,
    DynamicQuantizeNode,
    FullyConnectedNode,
    LookupTableNode,
    MatMulNode,
    QuantizeNode,
    RescaleNode,
    SaturateNode,
    StorageCastNode,
    SubtractOffsetNode,
)
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import LookupTableInst, SaturateInst, StorageCastInst, SubtractOffsetInst
from glowpy.ir.verifier import verify_inst
from glowpy.lower import lower
from glowpy.opt.products import Product, columns_of
from glowpy.support.errors import UserError

__all__: list[str] = []

_TABLE = 256
_STEPS = 255.0
_BYTES = (ElemKind.I8, ElemKind.U8)
_LOOKED_UP = (*_BYTES, ElemKind.I32, ElemKind.F32)


@verify(QuantizeNode, DequantizeNode, RescaleNode)
def _verify_conversion(n: QuantizeNode | DequantizeNode | RescaleNode) -> Iterator[str]:
    if n.type.shape != n.input.type.shape:
        yield f"result has shape {n.type}, expected that of {n.input.type}"
    for name, type, numbers in (
        ("input", n.input.type, isinstance(n, QuantizeNode)),
        ("result", n.type, isinstance(n, DequantizeNode)),
    ):
        if numbers and type.kind is not ElemKind.F32:
            yield f"expected {name} of kind f32, got {type}"
        if not numbers and type.quant is None:
            yield f"expected a quantized {name}, got {type}"


def _conversion_types(stored: Type, offset: Type, numbers: Type, result: Type) -> Iterator[str]:
    if numbers.kind is not ElemKind.F32:
        yield f"expected numbers of kind f32, got {numbers}"
    if not stored.kind.is_integer or stored.kind.size > 4 or stored.kind is ElemKind.U32:
        yield f"expected stored integers of i8, i16, i32, u8 or u16, got {stored}"
    expected = broadcast_shapes(result.shape, offset.shape)
    if expected != result.shape:
        yield f"{offset} does not broadcast to {result}"


def _steps_types(lhs: Type, rhs: Type, result: Type) -> Iterator[str]:
    if lhs.kind is not rhs.kind:
        yield f"expected offsets of kind {lhs.kind.value}, got {rhs}"
    yield from _conversion_types(lhs, rhs, result, result)
    yield from _same_shape(result, lhs, rhs)


def _saturate_types(lhs: Type, rhs: Type, result: Type) -> Iterator[str]:
    if rhs.kind is not lhs.kind:
        yield f"expected offsets of kind {lhs.kind.value}, got {rhs}"
    numbers = lhs.with_kind(ElemKind.F32) if lhs.kind is ElemKind.I32 else lhs
    yield from _conversion_types(result, rhs, numbers, result)
    yield from _same_shape(result, lhs, rhs)


def _same_shape(result: Type, lhs: Type, rhs: Type) -> Iterator[str]:
    shape = broadcast_shapes(lhs.shape, rhs.shape)
    if result.shape != shape:
        yield f"result has shape {result}, expected {spelled(shape)}"


def _table_types(input: Type, table: Type, result: Type) -> Iterator[str]:
    if input.kind not in _BYTES or result.kind not in _LOOKED_UP:
        yield f"expected stored integers of 8 bits, and results of 8, i32 or f32, got {input} and {result}"
    if input.quant is not None and input.quant.axis is not None:
        yield f"expected an input quantized as a whole, got {input}"
    if table.shape != (_TABLE,) or (table.kind, table.quant) != (result.kind, result.quant):
        yield f"expected a table of {_TABLE} elements as the result's, got {table}"
    if result.shape != input.shape:
        yield f"result has shape {result}, expected that of {input}"


@infer(DynamicQuantizeNode)
def _infer_dynamic_quantize(input: Type) -> tuple[Type, Type, Type]:
    if input.kind is not ElemKind.F32:
        raise UserError(f"expected an input of kind f32, got {input}")
    scale = Type(ElemKind.F32, ())
    return Type(ElemKind.U8, input.shape), scale, scale.with_kind(ElemKind.U8)


@lower(DynamicQuantizeNode)
def _lower_dynamic_quantize(f: Function, n: DynamicQuantizeNode) -> tuple[Operand, ...]:
    axes = tuple(range(n.input.type.rank))
    scalar = Type(ElemKind.F32, ())
    nothing = f.create_splat(f"{n.name}_nothing", scalar, 0.0)

    def extreme(node: NodeValue) -> NodeValue:
        return f.create_reshape(n.name, scalar, node).result

    low = f.create_min(n.name, extreme(f.create_reduce_min(n.name, n.input, axes).result), nothing)
    high = f.create_max(n.name, extreme(f.create_reduce_max(n.name, n.input, axes).result), nothing)
    steps = f.create_splat(f"{n.name}_range", scalar, _STEPS)
    # A range of nothing but 0 has steps of 1, as in onnxruntime: by those of 0 nothing could be divided.
    extent = f.create_sub(n.name, high, low)
    one = f.create_splat(f"{n.name}_one", scalar, 1.0)
    step = f.create_div(n.name, extent, steps)
    scale = f.create_select(f"{n.name}_scale", f.create_eq(n.name, extent, nothing), one, step)
    below = f.create_sub(n.name, nothing, f.create_div(n.name, low, scale))
    zero = f.create_saturate(f"{n.name}_zero", Type(ElemKind.U8, ()), below, nothing)
    offset = f.create_convert(n.name, scalar, zero)
    type = Type(ElemKind.U8, n.input.type.shape)
    stored = f.create_saturate(n.name, type, f.create_div(n.name, n.input, scale), offset)
    return stored.result, scale.result, zero.result


@verify(SubtractOffsetNode)
def _verify_steps(n: SubtractOffsetNode) -> Iterator[str]:
    yield from _steps_types(n.lhs.type, n.rhs.type, n.type)


@verify(SaturateNode)
def _verify_saturate(n: SaturateNode) -> Iterator[str]:
    yield from _saturate_types(n.lhs.type, n.rhs.type, n.type)


@verify(LookupTableNode)
def _verify_table(n: LookupTableNode) -> Iterator[str]:
    yield from _table_types(n.input.type, n.table.type, n.type)


def _label_types(input: Type, result: Type) -> Iterator[str]:
    if (result.kind, result.shape) != (input.kind, input.shape):
        yield f"expected kind and shape of {input}, got {result}"


@verify(StorageCastNode)
def _verify_storage_cast(n: StorageCastNode) -> Iterator[str]:
    yield from _label_types(n.input.type, n.type)


@verify_inst(StorageCastInst)
def _storage_cast_inst(inst: StorageCastInst) -> Iterator[str]:
    yield from _label_types(inst.input.type, inst.result.type)


@verify_inst(SubtractOffsetInst)
def _subtract_offset_inst(inst: SubtractOffsetInst) -> Iterator[str]:
    yield from _steps_types(inst.lhs.type, inst.rhs.type, inst.result.type)


@verify_inst(SaturateInst)
def _saturate_inst(inst: SaturateInst) -> Iterator[str]:
    yield from _saturate_types(inst.lhs.type, inst.rhs.type, inst.result.type)


@verify_inst(LookupTableInst)
def _table_inst(inst: LookupTableInst) -> Iterator[str]:
    yield from _table_types(inst.input.type, inst.table.type, inst.result.type)


@interpret(LookupTableInst)
def _lookup_table(result: Tensor, input: Tensor, table: Tensor) -> None:
    lowest, _ = input.type.kind.limits
    result.array[...] = table.array[input.array.astype(np.int64) - lowest]


@verify(ConvolutionNode, FullyConnectedNode, MatMulNode)
def _verify_product(n: Product) -> Iterator[str]:
    """Checks quantized operands: parameters for each output channel at most, and a bias in steps of the sums."""
    data, weights = n.inputs[0].type, n.inputs[1].type
    if data.quant is None:
        return
    sums = sum_type(data, weights, columns_of(n), n.type.shape)
    if n.type.kind is ElemKind.I32 and not has_steps_of(n.type, sums):
        yield f"expected sums of type {sums}, got {n.type}"
    if len(n.inputs) == 3:
        bias = n.inputs[2].type
        if bias.kind is not ElemKind.I32 or not has_steps_of(bias, sums):
            yield f"expected a bias of kind i32 in steps of {sums}, got {bias}"
