"""Right sides of 4 or 8 bits with a scale for each block, as `cpu_block_matmul` reads them.

Integers have a sign when they are packed: those without lose half of their range, and so do their zeros. Of 4 bits,
eight neighbours in depth are a word, the first of them its lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.backends.cpu.packing import pack_matrix
from glowpy.core.elemkind import ElemKind
from glowpy.core.four_bits import row_words
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import DequantizeBlocksNode, MatMulNode, RoundBlocksNode
from glowpy.opt.known import is_known
from glowpy.support.symbolic import ceil_div

__all__ = [
    "WORD",
    "block_columns",
    "is_read_in_blocks",
    "pack_integers",
    "pack_words",
    "packed_blocks",
    "packs_blocks",
    "rounded_with",
    "signed",
    "unpack_integers",
]

WORD = 8
"""Integers of 4 bits in a word. As in libjit/src/weights.c."""

_VECTORS = 4
"""Vectors of columns that are packed together. As there."""

_HALF_RANGES = 0x88888888
"""Half of the range of every integer of a word."""

_MOST_ROUNDED = ((1 << 31) - 1) // (127 * 255)
"""Products of rounded numbers, and of what weights lie above their zero, that a sum in 32 bits holds in any case."""

_PIECE = 1 << 22
"""Integers that are packed at a time."""


def block_columns(lanes: int) -> int:
    """How many columns are packed together where a vector has so many floats."""
    return _VECTORS * lanes


def packs_blocks(n: MatMulNode) -> bool:
    """Whether the right side of a product is read as it is stored."""
    source = n.rhs.node
    if not isinstance(source, DequantizeBlocksNode) or n.rhs.type.rank != 2:
        return False
    words = source.bits == 8 or source.block % WORD == 0 or source.block >= n.rhs.type.shape[0]
    are_known = all(is_known(value) for value in source.inputs)
    return are_known and words and source.axis == 0 and n.lhs.node is not source


def rounded_with(n: MatMulNode) -> RoundBlocksNode | None:
    """The rounding of the left side of a product that `packs_blocks` takes, if it has the blocks of the right side.

    None as well where these are so long that an integer of 32 bits may not hold their sum.
    """
    rounding, source, depth = n.lhs.node, n.rhs.node, n.rhs.type.shape[0]
    assert isinstance(source, DequantizeBlocksNode)
    if not isinstance(rounding, RoundBlocksNode):
        return None
    blocks = {min(node.block, depth) for node in (rounding, source)}
    if len(blocks) > 1 or max(blocks) > _MOST_ROUNDED:
        return None
    return rounding if source.block % WORD == 0 or source.block >= depth else None


def is_read_in_blocks(node: Node) -> bool:
    """Whether a node is a side of products that all of them take as it is stored, or as it is rounded."""
    if isinstance(node, DequantizeBlocksNode):
        users = node.result.users
        return bool(users) and all(
            isinstance(user, MatMulNode) and user.rhs.node is node and packs_blocks(user)
            for user in users
        )
    users = node.result.users if isinstance(node, RoundBlocksNode) else []
    return bool(users) and all(
        isinstance(user, MatMulNode)
        and user.lhs.node is node
        and packs_blocks(user)
        and rounded_with(user) is not None
        for user in users
    )


def signed(integers: Array, bits: int) -> Array:
    """Integers of so many bits as i8: those without a sign lose half of their range."""
    if integers.dtype == np.int8:
        return integers
    return (integers.astype(np.int16) - (1 << (bits - 1))).astype(np.int8)


def packed_blocks(shape: Shape, bits: int, block: int, word: int = 1) -> Type:
    """The type of packed integers of a matrix, `block` columns together; of 8 bits also `word` neighbours in depth."""
    depth, columns = shape
    if bits == 4:
        return Type(ElemKind.U32, (ceil_div(columns, block), ceil_div(depth, WORD), block))
    return Type(ElemKind.I8, (ceil_div(columns, block), ceil_div(depth, word), block * word))


def pack_integers(matrix: Array, bits: int, block: int) -> Iterator[Array]:
    """[K, N] to [ceil(N / block), K, block], or to words of 4 bits; in parts that follow each other."""
    depth, columns = matrix.shape
    step = max(_PIECE // max(depth * block, 1), 1) * block
    for first in range(0, columns, step):
        part = signed(matrix[:, first : first + step], bits)
        if bits == 8:
            yield pack_matrix(part, block)
            continue
        part = np.pad(part, ((0, -depth % WORD), (0, 0)))
        places = (part & 15).astype(np.uint32).reshape(-1, WORD, part.shape[1])
        shifts = np.arange(0, 32, 4, dtype=np.uint32).reshape(1, WORD, 1)
        words = np.bitwise_or.reduce(places << shifts, axis=1)
        yield pack_matrix(words, block)


def pack_words(rows: Array, depth: int, block: int) -> Iterator[Array]:
    """The same of integers without a sign that are two in a byte: rows of bytes [N, ...] with K integers each."""
    words = row_words(rows, depth)
    step = max(_PIECE // max(depth * block, 1), 1) * block
    for first in range(0, len(words), step):
        part = words[first : first + step] ^ np.uint32(_HALF_RANGES)
        if depth % WORD:
            part[:, -1] &= np.uint32((1 << (4 * (depth % WORD))) - 1)
        part = np.pad(part, ((0, -len(part) % block), (0, 0)))
        blocks = part.reshape(-1, block, part.shape[1])
        yield np.ascontiguousarray(blocks.transpose(0, 2, 1))


def unpack_integers(packed: Array, depth: int, columns: int) -> Array:
    """Restores the matrix that `pack_integers` packed: [K, N] in i8."""
    blocks, steps, block = packed.shape
    rows = packed.transpose(1, 0, 2).reshape(steps, blocks * block)[:, :columns]
    if packed.dtype == np.int8:
        return rows
    # Up to the highest bits and down again, which brings the sign.
    places = [(rows << np.uint32(28 - 4 * place)).view(np.int32) >> 28 for place in range(WORD)]
    return np.stack(places, axis=1).reshape(-1, columns)[:depth].astype(np.int8)
