"""Strassen's algorithm for matrix products: the memory of its instructions, what they keep to, and how exact they are.

Winograd's form of it computes seven products of quarters, which `libjit/src/strassen.c` has in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.backends.cpu.insts_gen import CpuStrassenInst, CpuStrassenSumsInst
from glowpy.backends.cpu.nodes_gen import CpuStrassenNode, CpuStrassenSumsNode
from glowpy.backends.cpu.packing import matrix_pieces
from glowpy.backends.cpu.verify import tile_problems
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.support.symbolic import Expr, ceil_div, product

__all__ = ["left_sums", "pack_pairs", "strassen_error", "sums_shape"]

_Strassen = CpuStrassenNode | CpuStrassenInst
_MEASURED_ROWS = 32


def sums_shape(shape: Shape) -> Shape:
    """The shape of the sums of a left side [..., K]: [4, ceil(M / 2), K / 2], where M is the number of rows."""
    *rows, depth = shape
    return 4, ceil_div(product(rows), 2), depth // 2


def left_sums(lhs: Array) -> Array:
    """The sums of the quarters of a left side [..., K]; of an odd number of rows the middle one is in both halves."""
    matrix = lhs.reshape(-1, lhs.shape[-1])
    count, half = -(-len(matrix) // 2), lhs.shape[-1] // 2
    upper, lower = matrix[:count], matrix[len(matrix) - count :]
    first = lower[:, :half] + lower[:, half:]
    second = first - upper[:, :half]
    return np.stack([first, second, upper[:, :half] - lower[:, :half], upper[:, half:] - second])


def pack_pairs(matrix: Array, block: int) -> Iterator[Array]:
    """A right side K x N in parts: [2 ceil(N / (2 block))][K][block], zeros at the end."""
    yield from matrix_pieces(matrix, block)
    depth, columns = matrix.shape
    if ceil_div(columns, block) % 2:
        yield np.zeros((1, depth, block), matrix.dtype)


def strassen_error(matrix: Array, block: int) -> float:
    """The largest error that a right side K x N makes in f32, as a part of the largest result.

    It is measured with its first two blocks of so many columns, on a few rows of random numbers, against the same
    sums in f64. It is infinite where a number is not finite, which would get into columns of other blocks.
    """
    if not np.isfinite(matrix).all():
        return np.inf
    random = np.random.default_rng(0)
    lhs = random.standard_normal((_MEASURED_ROWS, len(matrix))).astype(np.float32)
    columns = matrix[:, : 2 * block]
    part = np.pad(columns, ((0, 0), (0, 2 * block - columns.shape[1])))
    exact = lhs.astype(np.float64) @ part
    largest = np.abs(exact).max(initial=0)
    error = np.abs(_by_quarters(lhs, part.astype(np.float32)) - exact).max(initial=0)
    return float(error / largest) if largest else 0.0


def _by_quarters(lhs: Array, rhs: Array) -> Array:
    """The product in the order of the kernel, of an even number of rows."""
    rows, half, block = len(lhs) // 2, len(rhs) // 2, rhs.shape[1] // 2
    a11, a12, a22 = lhs[:rows, :half], lhs[:rows, half:], lhs[rows:, half:]
    b11, b12, b21, b22 = (
        rhs[:half, :block],
        rhs[:half, block:],
        rhs[half:, :block],
        rhs[half:, block:],
    )
    s1, s2, s3, s4 = left_sums(lhs)
    t1 = b12 - b11
    t2 = b22 - t1
    first, fifth = a11 @ b11, s1 @ t1
    sixth = first + s2 @ t2
    seventh = sixth + s3 @ (b22 - b12)
    upper = first + a12 @ b21, sixth + fifth + s4 @ b22
    lower = seventh + a22 @ (b21 - t2), seventh + fifth
    return np.block([list(upper), list(lower)])


@scratch(CpuStrassenNode)
def _work(n: CpuStrassenNode) -> tuple[Type, ...]:
    """Scratch memory of a unit: four sums of a slab and a block of columns, and a quarter of two right blocks."""
    blocks, depth, block = n.rhs.type.extents
    units = n.bands * ceil_div(blocks // 2, n.pairs)
    return (n.type.with_shape((units, (4 * n.slab + depth // 2) * block)),)


@verify(CpuStrassenSumsNode)
@verify_inst(CpuStrassenSumsInst)
def _verify_sums(n: CpuStrassenSumsNode | CpuStrassenSumsInst) -> Iterator[str]:
    if n.lhs.type.kind is not ElemKind.F32 or n.result.type.kind is not ElemKind.F32:
        yield f"expected f32, got {n.lhs.type} and {n.result.type}"
        return
    yield from _left(n.lhs.type)
    expected = sums_shape(n.lhs.type.shape)
    if n.result.type.shape != expected:
        yield f"expected a result of shape {list(expected)}, got {n.result.type}"


@verify(CpuStrassenNode)
@verify_inst(CpuStrassenInst)
def _verify(n: _Strassen) -> Iterator[str]:
    operands = n.lhs, n.sums, n.rhs, n.result
    if any(value.type.kind is not ElemKind.F32 for value in operands):
        yield f"expected f32, got {', '.join(str(value.type) for value in operands)}"
        return
    yield from tile_problems(n.tile_pixels, n.tile_vectors)
    for name, number in (("slab", n.slab), ("bands", n.bands), ("pairs", n.pairs)):
        if number < 1:
            yield f"expected {name} of at least 1, got {number}"
    if min(n.slab, n.bands, n.pairs, n.tile_pixels, n.tile_vectors) >= 1:
        yield from _shapes(n)


def _left(lhs: Type) -> Iterator[str]:
    depth = lhs.shape[-1] if lhs.rank else 0
    if isinstance(depth, Expr) or depth < 2 or depth % 2:
        yield f"expected a left side of an even depth, got {lhs}"


def _shapes(n: _Strassen) -> Iterator[str]:
    """Yields mismatches of shapes with each other and with the decision."""
    problems = list(_left(n.lhs.type))
    if problems:
        yield from problems
        return
    *rows, depth = n.lhs.type.shape
    _, half_rows, half = expected = sums_shape(n.lhs.type.shape)
    if n.sums.type.shape != expected:
        yield f"expected sums of shape {list(expected)}, got {n.sums.type}"
    if n.result.type.rank != n.lhs.type.rank or n.result.type.shape[:-1] != tuple(rows):
        yield f"expected a result of {rows} rows, got {n.result.type}"
        return
    block = n.rhs.type.shape[-1] if n.rhs.type.rank == 3 else 0
    columns = n.result.type.shape[-1]
    if isinstance(block, Expr) or isinstance(columns, Expr) or not block or block % n.tile_vectors:
        yield f"expected a rhs packed in blocks of {n.tile_vectors} vectors, got {n.rhs.type}"
        return
    packed = 2 * ceil_div(columns, 2 * block), depth, block
    if n.rhs.type.shape != packed:
        yield f"expected a rhs packed to {list(packed)}, got {n.rhs.type}"
    if isinstance(half, int) and half < block // n.tile_vectors:
        yield f"expected a depth of at least two vectors of {block // n.tile_vectors}, got {depth}"
    if not isinstance(half_rows, int):
        yield f"expected a known number of rows, got {n.lhs.type}"
    elif n.tile_pixels > n.slab or (n.slab < half_rows and n.slab % n.tile_pixels):
        yield f"expected a slab that is a multiple of {n.tile_pixels} (tile_pixels), got {n.slab}"
    elif n.slab > half_rows:
        yield f"expected a slab of at most {half_rows} rows, got {n.slab}"
