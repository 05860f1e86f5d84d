"""Import of matrix products whose weights are packed integers of few bits, with a scale for each block."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import ceil_div
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.contrib.heads import check_type
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.data_movement import convert, reshape, transpose
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError

__all__: list[str] = []

_BITS = (4, 8)


@from_onnx("MatMulNBits", domain=CONTRIB)
def _matmul_n_bits(n: OnnxNode) -> Value:
    """A times the transpose of N rows of weights, K elements each, packed in blocks from the lowest bits on."""
    depth, columns = n.integer("K", 0), n.integer("N", 0)
    block, bits = n.integer("block_size", 0), n.integer("bits", 4)
    if bits not in _BITS:
        raise n.unsupported(f"{bits} bits")
    if n.has(4):
        raise n.unsupported("g_idx")
    if min(depth, columns, block) < 1 or block * bits % 8:
        raise UserError(f"expected K, N and blocks of whole bytes, got {depth}, {columns}, {block}")
    kind, blocks = n.type(0).kind, ceil_div(depth, block)
    weights = _unpacked(n, 1, (columns, blocks * block), bits)
    zeros = Tensor.splat(Type(ElemKind.U8, (columns, blocks)), 1 << (bits - 1))
    if n.has(3):
        if n.type(3).kind is not ElemKind.U8:
            raise n.unsupported(f"zero points of kind {n.type(3).kind.value}")
        zeros = _unpacked(n, 3, (columns, blocks), bits)
    if n.type(2).count != columns * blocks:
        raise UserError(f"expected {columns} x {blocks} scales, got {n.type(2)}")
    scales = reshape(n, convert(n, n.value(2), ElemKind.F32), (columns, blocks))
    numbers = n.f.create_dequantize_blocks(
        f"{n.name}_weights",
        n.operand(transpose(n, _cut(weights, depth), (1, 0)), f"{n.name}_weights"),
        n.operand(transpose(n, scales, (1, 0)), f"{n.name}_scale"),
        n.operand(transpose(n, zeros, (1, 0)), f"{n.name}_zero"),
        axis=0,
        block=block,
        bits=bits,
    ).result
    result = standard(n, "MatMul", [convert(n, n.value(0), ElemKind.F32), numbers])
    product: NodeValue = n.operand(convert(n, result, kind))
    if n.has(5):
        check_type(n, 5, (columns,))
        product = n.f.create_add(n.name, product, n.input(5)).result
    return product


def _unpacked(n: OnnxNode, index: int, shape: tuple[int, int], bits: int) -> Tensor:
    """Integers of so many bits in a known tensor of bytes; each row begins with a byte."""
    packed, (rows, columns) = n.known(index), shape
    size = ceil_div(columns * bits, 8)
    if packed.type.count != rows * size:
        raise UserError(
            f"expected {rows} x {size} bytes as '{n.proto.input[index]}', got {packed.type}"
        )

    def unpack(array: Array) -> Array:
        lines = array.reshape(rows, size)
        if bits == 4:
            lines = np.stack([lines & 15, lines >> 4], axis=-1).reshape(rows, 2 * size)
        return np.ascontiguousarray(lines[:, :columns])

    type = Type(ElemKind.U8, shape)
    return Tensor.derived(type, f"unpack {bits} bits", [packed], unpack)


def _cut(tensor: Tensor, columns: int) -> Tensor:
    """The first columns: blocks are packed whole."""
    rows = tensor.type.shape[0]
    type = tensor.type.with_shape((rows, columns))
    return Tensor.derived(type, "cut", [tensor], lambda array: array[:, :columns])
