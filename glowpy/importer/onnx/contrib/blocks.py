"""Import of weights in blocks of 2, 4 or 8 bits, each with a scale and a zero point of its own.

Activations stay floats, unless a product's accuracy level says that 8 bits are enough: a product takes the stored
integers, and of a table only the rows that are looked up are dequantized.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.four_bits import columns_of_4_bits
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import DequantizeBlocksNode
from glowpy.importer.kit.moves import convert, reshape, transpose
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import check_type
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.narrow import unpacked
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.quant import dequantized, optional, spread
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import ceil_div

__all__: list[str] = []


_BYTES = 4
"""The accuracy level that lets what weights are multiplied by be rounded to 8 bits."""


def _bits(n: OnnxNode) -> int:
    bits = n.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise n.unsupported(f"{bits} bits")
    return bits


@from_onnx("MatMulNBits", domain=CONTRIB)
def _matmul_n_bits(n: OnnxNode) -> Value:
    """A times the transpose of N rows of weights, K elements each, packed in blocks from the lowest bits on."""
    depth, columns = n.integer("K", 0), n.integer("N", 0)
    block, bits = n.integer("block_size", 0), _bits(n)
    for name, given in (("g_idx", n.has(4)), ("weight_prepacked", n.flag("weight_prepacked"))):
        if given:
            raise n.unsupported(name)
    if min(depth, columns, block) < 1 or block * bits % 8:
        raise UserError(f"expected K, N and blocks of whole bytes, got {depth}, {columns}, {block}")
    kind, blocks = n.type(0).kind, ceil_div(depth, block)
    shape = columns, blocks * block
    _packed(n, 1, shape, bits)  # first what a wrong K or N shows in
    if n.type(2).count != columns * blocks:
        raise UserError(f"expected {columns} x {blocks} scales, got {n.type(2)}")
    scales = reshape(n, convert(n, n.value(2), ElemKind.F32), (columns, blocks))
    zeros = _zeros(n, (columns, blocks), bits)
    if bits == 2 or zeros.type.kind.is_float:
        weights = _cut(_unpacked(n, 1, shape, bits), depth)
        numbers = _numbers(n, weights, scales, zeros, block)
    else:
        numbers = _stored(n, shape, depth, scales, zeros)
    rows = convert(n, n.value(0), ElemKind.F32)
    if n.integer("accuracy_level", 0) == _BYTES and isinstance(numbers.node, DequantizeBlocksNode):
        rows = n.f.create_round_blocks(f"{n.name}_rows", n.operand(rows), block=block).result
    result = standard(n, "MatMul", [rows, numbers])
    product: NodeValue = n.operand(convert(n, result, kind))
    if n.has(5):
        check_type(n, 5, (columns,))
        product = n.f.create_add(n.name, product, n.input(5)).result
    return product


def _zeros(n: OnnxNode, shape: tuple[int, int], bits: int) -> Value:
    """The zero points of blocks: in the middle of what the bits can say, unless they are given, packed or as floats."""
    if not n.has(3):
        return Tensor.splat(Type(ElemKind.U8, shape), 1 << (bits - 1))
    if n.type(3).kind is ElemKind.U8:
        return _unpacked(n, 3, shape, bits)
    if not n.type(3).kind.is_float or n.type(3).count != shape[0] * shape[1]:
        raise UserError(f"expected {shape[0]} x {shape[1]} zero points, got {n.type(3)}")
    return reshape(n, convert(n, n.value(3), ElemKind.F32), shape)


def _numbers(n: OnnxNode, weights: Tensor, scales: Value, zeros: Value, block: int) -> NodeValue:
    """Dequantizes rows of weights, and transposes them."""
    if not zeros.type.kind.is_float:
        return n.operand(transpose(n, dequantized(n, weights, scales, zeros, 1, block), (1, 0)))
    zero, scale = (n.operand(spread(n, v, weights.type, 1, block)) for v in (zeros, scales))
    steps = n.f.create_sub(n.name, n.operand(convert(n, weights, ElemKind.F32)), zero)
    return n.operand(transpose(n, n.f.create_mul(n.name, steps, scale).result, (1, 0)))


def _stored(
    n: OnnxNode, shape: tuple[int, int], depth: int, scales: Value, zeros: Value
) -> NodeValue:
    """The transpose of rows of weights, without what fills up their last blocks, as they are stored."""
    bits = _bits(n)
    weights: Value = (
        columns_of_4_bits(_packed(n, 1, shape, bits), depth)
        if bits == 4
        else transpose(n, _cut(_unpacked(n, 1, shape, bits), depth), (1, 0))
    )
    return n.f.create_dequantize_blocks(
        f"{n.name}_weights",
        n.operand(weights, f"{n.name}_weights"),
        n.operand(transpose(n, scales, (1, 0)), f"{n.name}_scale"),
        n.operand(transpose(n, zeros, (1, 0)), f"{n.name}_zero"),
        axis=0,
        block=n.integer("block_size", 0),
        bits=bits,
    ).result


def _packed(n: OnnxNode, index: int, shape: tuple[int, int], bits: int) -> Tensor:
    """A known tensor of bytes as rows, each of which begins with a byte."""
    packed, (rows, columns) = n.known(index), shape
    size = ceil_div(columns * bits, 8)
    if packed.type.count != rows * size:
        raise UserError(
            f"expected {rows} x {size} bytes as '{n.proto.input[index]}', got {packed.type}"
        )
    result = reshape(n, packed, (rows, size))
    assert isinstance(result, Tensor)
    return result


def _unpacked(n: OnnxNode, index: int, shape: tuple[int, int], bits: int) -> Tensor:
    """Integers of so many bits in a known tensor of bytes."""
    columns = shape[1]

    def unpack(array: Array) -> Array:
        return np.ascontiguousarray(unpacked(array, bits)[:, :columns])

    rows = _packed(n, index, shape, bits)
    return Tensor.derived(Type(ElemKind.U8, shape), f"unpack {bits} bits", [rows], unpack)


def _cut(tensor: Tensor, columns: int) -> Tensor:
    """The first columns: blocks are packed whole."""
    rows = tensor.type.extents[0]
    type = tensor.type.with_shape((rows, columns))
    return Tensor.derived(type, "cut", [tensor], lambda array: array[:, :columns])


def _codes(tensor: Tensor, bits: int, extent: int) -> Tensor:
    """Known packed integers one by one: `extent` of them along the last dimension, which whole bytes fill."""
    shape = (*tensor.type.extents[:-1], extent)
    if tensor.type.kind is not ElemKind.U8 or ceil_div(extent * bits, 8) > tensor.type.extents[-1]:
        raise UserError(f"expected {extent} integers of {bits} bits in a row, got {tensor.type}")

    def codes(bytes: Array) -> Array:
        return np.ascontiguousarray(unpacked(bytes, bits)[..., :extent])

    return Tensor.derived(Type(ElemKind.U8, shape), f"unpack {bits}", [tensor], codes)


@from_onnx("GatherBlockQuantized", domain=CONTRIB)
def _gather_block_quantized(n: OnnxNode) -> Value:
    """Slices of a table along one dimension, in blocks along another; integers in bytes are packed in the last one."""
    block, rank = n.integer("block_size", 128), n.type(0).rank
    across = normalize_axis(n.integer("gather_axis", 0), rank)
    along = normalize_axis(n.integer("quantize_axis", 1), rank)
    data, scales, zeros = n.value(0), n.value(2), optional(n, 3)
    if block < 16 or block & (block - 1):
        raise UserError(f"expected a block_size that is a power of 2 from 16 on, got {block}")
    if scales.type.rank != rank:
        raise UserError(f"expected scales of rank {rank}, got {scales.type}")
    if n.narrow(0) is None:
        bits = _bits(n)
        last = rank - 1
        extent = n.type(0).extents[-1] * 8 // bits
        if across == last and bits < 8:
            raise UserError(f"expected a gather_axis before the packed dimension, got {across}")
        data = _codes(n.known(0), bits, extent)
        extents = scales.type.extents
        zeros = (
            Tensor.splat(Type(ElemKind.U8, extents), 1 << (bits - 1))
            if zeros is None
            else _codes(n.known(3), bits, extents[-1])
        )
    if across == along:
        table = dequantized(n, data, scales, zeros, along, block)
        result = standard(n, "Gather", [table, n.value(1)], axis=across)
        return convert(n, result, scales.type.kind)
    parts = [
        None if value is None else standard(n, "Gather", [value, n.value(1)], axis=across)
        for value in (data, scales, zeros)
    ]
    rows, steps, offsets = parts
    assert rows is not None
    assert steps is not None
    place = along if along < across else along + n.type(1).rank - 1
    return convert(n, dequantized(n, rows, steps, offsets, place, block), scales.type.kind)
