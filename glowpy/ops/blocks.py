"""Integers with a scale for each block of neighbours: stored ones, and those that floats are rounded to."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import MAX_RANK, Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import DequantizeBlocksNode, RoundBlocksNode
from glowpy.lower import lower
from glowpy.ops.operands import expect_axis
from glowpy.opt.known import known_tensor
from glowpy.support.errors import UserError
from glowpy.support.symbolic import ceil_div, product, static

__all__: list[str] = []

_BITS = (4, 8)
_STEPS = 127.0
_LEAST_SCALE = 2.0**-126


@infer(DequantizeBlocksNode)
def _infer(input: Type, scale: Type, zero: Type, *, axis: int, block: int, bits: int) -> Type:
    if input.kind not in (ElemKind.I8, ElemKind.U8):
        raise UserError(f"expected an input of kind i8 or u8, got {input}")
    place = expect_axis(axis, input.rank)
    if block < 1:
        raise UserError(f"expected a block of at least 1, got {block}")
    if bits not in _BITS:
        raise UserError(f"expected 4 or 8 bits, got {bits}")
    blocks = ceil_div(input.shape[place], block)
    shape = (*input.shape[:place], blocks, *input.shape[place + 1 :])
    if scale != Type(ElemKind.F32, scale.shape) or not is_same_shape(scale.shape, shape):
        raise UserError(f"expected a scale of type {Type(ElemKind.F32, shape)}, got {scale}")
    if zero != Type(input.kind, zero.shape) or not is_same_shape(zero.shape, shape):
        raise UserError(f"expected a zero of type {Type(input.kind, shape)}, got {zero}")
    return Type(ElemKind.F32, input.shape)


@lower(DequantizeBlocksNode)
def _lower(f: Function, n: DequantizeBlocksNode) -> Operand:
    """Floats, where all is known; else steps above the zero of each element's block, times its scale."""
    axis, block = n.axis, n.block
    (size,) = static([n.type.shape[axis]])

    def numbers(input: Array, scale: Array, zero: Array) -> Array:
        places = np.arange(size) // block
        steps = input.astype(np.float32) - np.take(zero, places, axis).astype(np.float32)
        steps *= np.take(scale, places, axis)
        return steps

    tensors = [tensor for value in n.inputs if (tensor := known_tensor(value)) is not None]
    if len(tensors) == len(n.inputs):
        operation = f"dequantize blocks of {block} along {axis}"
        tensor = Tensor.derived(n.type, operation, tensors, numbers)
        return f.module.create_constant(n.name, tensor, loc=n.loc)
    places = f.module.create_constant(f"{n.name}_block", np.arange(size) // block, loc=n.loc)
    zero = f.create_gather(f"{n.name}_zero", n.zero, places, axis)
    scale = f.create_gather(f"{n.name}_scale", n.scale, places, axis)
    steps = f.create_subtract_offset(f"{n.name}_steps", n.type, n.input, zero)
    return f.create_uncontracted_mul(n.name, steps, scale)


@infer(RoundBlocksNode)
def _infer_rounded(input: Type, *, block: int) -> Type:
    if input.kind is not ElemKind.F32 or input.rank == 0:
        raise UserError(f"expected rows of kind f32, got {input}")
    if block < 1:
        raise UserError(f"expected a block of at least 1, got {block}")
    static(input.shape[-1:])
    return input


@lower(RoundBlocksNode)
def _lower_rounded(f: Function, n: RoundBlocksNode) -> Operand:
    """Rows in blocks, the last of which is filled up with zeros."""
    *outer, depth = n.type.shape
    (size,) = static([depth])
    blocks = ceil_div(size, n.block)
    rest = blocks * n.block - size
    whole = n.input
    if rest:
        pads = (0,) * (2 * n.type.rank - 1) + (rest,)
        whole = f.create_pad(n.name, n.input, pads, 0.0).result
    shape = (*outer, blocks, n.block)
    if len(shape) > MAX_RANK:
        shape = (product(outer), blocks, n.block)
    x = f.create_reshape(n.name, Type(ElemKind.F32, shape), whole).result
    rounded = f.create_reshape(n.name, whole.type, _rounded(f, n.name, x))
    if not rest:
        return rounded
    return f.create_slice(n.name, n.type, rounded, (0,) * n.type.rank, (1,) * n.type.rank)


def _rounded(f: Function, name: str, x: NodeValue) -> Operand:
    """Numbers rounded with a scale for all of the last dimension."""

    def number(value: float) -> Operand:
        return f.create_splat(f"{name}_number", Type(ElemKind.F32, ()), value)

    axes = (x.type.rank - 1,)
    largest = f.create_reduce_max(name, f.create_abs(name, x), axes)
    scale = f.create_div(f"{name}_scale", largest, number(_STEPS))
    counts = f.create_le(name, number(_LEAST_SCALE), scale)
    quotient = f.create_div(name, number(1.0), scale)
    inverse = f.create_select(f"{name}_inverse", counts, quotient, number(0.0))
    steps = f.create_round(name, f.create_uncontracted_mul(name, x, inverse))
    return f.create_uncontracted_mul(name, steps, scale)
