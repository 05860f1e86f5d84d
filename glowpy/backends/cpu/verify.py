"""Verifies the attributes of the CPU backend's own products, so that a text with wrong ones is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from glowpy.backend import Operation
from glowpy.backends.cpu.block_weights import WORD, block_columns
from glowpy.backends.cpu.insts_gen import (
    CpuAttentionInst,
    CpuBlockMatmulInst,
    CpuByteBlockMatmulInst,
    CpuByteWinogradInst,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuGruInst,
    CpuLstmInst,
    CpuMatmulInst,
    CpuPackMatrixInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStandardizeInst,
    CpuStrassenInst,
    CpuWeightedGatherInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.nodes_gen import (
    CpuBlockMatmulNode,
    CpuByteBlockMatmulNode,
    CpuConvNode,
    CpuDepthwiseConvNode,
    CpuMatmulNode,
    CpuPackMatrixNode,
    CpuPlainConvNode,
    CpuPlainMatmulNode,
    CpuRowMatmulNode,
    CpuStandardizeNode,
    CpuWeightedGatherNode,
)
from glowpy.backends.cpu.packing import dot_of, packed_shape, tile_lanes
from glowpy.backends.cpu.strategy.depthwise import MAX_DEPTHWISE_PIXELS
from glowpy.backends.cpu.strategy.product import MAX_PIXELS, MAX_SUMS, MAX_VECTORS
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.infer import infer_types
from glowpy.graph.nodes_gen import MatMulNode
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.support.symbolic import Dim, Expr, ceil_div, greatest, lowest, static

__all__ = ["mismatch", "tile_problems"]


class _Typed(Protocol):
    """A value of either level."""

    @property
    def type(self) -> Type: ...


@verify(CpuConvNode)
@verify_inst(CpuConvInst)
def _conv(n: CpuConvNode | CpuConvInst) -> Iterator[str]:
    yield from _kinds(n.input, n.result, filter=n.filter, bias=n.bias)
    yield from _tile(n)
    result = n.result.type.shape
    row = greatest(result[2], 1)  # a line of no pixels divides nothing
    if n.line not in (row, n.tile_pixels):
        yield f"expected a line of {row} pixels (a row of the result) or {n.tile_pixels} (tile_pixels), got {n.line}"
    elif not isinstance(n.line, Expr) and n.tile_pixels > n.line:
        yield f"expected tile_pixels of at most a line, {n.line}, got {n.tile_pixels}"
    depth, channels = n.input.type.shape[3] // n.group, result[3] // n.group
    yield from _packed("filter", n.filter.type, (n.group,), channels, (*n.kernels, depth))
    if has_pads(n.pads) and n.zeros.type.count < depth:
        yield f"expected {depth} zeros for what lies outside the image, got {n.zeros.type.count}"
    if n.zeros.type.kind is not n.input.type.kind:
        yield f"expected zeros of {n.input.type.kind.value} as the input, got {n.zeros.type}"


@verify(CpuStandardizeNode)
@verify_inst(CpuStandardizeInst)
def _standardize(n: CpuStandardizeNode | CpuStandardizeInst) -> Iterator[str]:
    if (
        n.input.type != n.result.type
        or n.input.type.kind is not ElemKind.F32
        or not n.input.type.rank
    ):
        yield f"expected input and result of one type of f32, of rank 1 or more, got {n.input.type} and {n.result.type}"


@verify(CpuMatmulNode)
@verify_inst(CpuMatmulInst)
def _matmul(n: CpuMatmulNode | CpuMatmulInst) -> Iterator[str]:
    yield from _kinds(n.lhs, n.result, rhs=n.rhs)
    yield from _tile(n)
    rhs, depth = n.rhs.type, n.lhs.type.shape[-1]
    yield from _packed("rhs", rhs, rhs.shape[:-3], n.result.type.shape[-1], (depth,))


_Blocks = CpuBlockMatmulNode | CpuBlockMatmulInst | CpuByteBlockMatmulNode | CpuByteBlockMatmulInst


@verify(CpuBlockMatmulNode)
@verify_inst(CpuBlockMatmulInst)
def _block_matmul(n: CpuBlockMatmulNode | CpuBlockMatmulInst) -> Iterator[str]:
    yield from _block_kinds(n, ElemKind.F32)
    yield from _in_blocks(
        n, n.lhs.type.shape[-1], WORD if n.rhs.type.kind is ElemKind.U32 else 1, 1
    )


@verify(CpuByteBlockMatmulNode)
@verify_inst(CpuByteBlockMatmulInst)
def _byte_block_matmul(n: CpuByteBlockMatmulNode | CpuByteBlockMatmulInst) -> Iterator[str]:
    yield from _block_kinds(n, ElemKind.I8)
    together = 1 if n.rhs.type.kind is ElemKind.U32 else dot_of(ElemKind.I8)
    yield from _in_blocks(n, n.lhs.type.shape[-1], WORD if together == 1 else together, together)
    several = (*n.lhs.type.shape[:-1], *n.scales.type.shape[1:2])
    for name, operand, kind in (
        ("lhs_scales", n.lhs_scales, ElemKind.F32),
        ("lhs_sums", n.lhs_sums, ElemKind.I32),
    ):
        if operand.type != Type(kind, several):
            yield f"expected {name} of type {Type(kind, several)}, got {operand.type}"
    if n.lhs.type.shape[-1] % WORD != 0:
        yield f"expected rows of a multiple of {WORD} integers, got {n.lhs.type}"


def _in_blocks(n: _Blocks, depth: Dim, word: int, together: int) -> Iterator[str]:
    """Checks a right side, of which `word` neighbours in depth are a step, with `together` of them for each column."""
    lhs, rhs = n.lhs.type.shape, n.rhs.type.extents
    if n.block < 1:
        yield f"expected a block of at least 1, got {n.block}"
        return
    if len(rhs) != 3 or not rhs[-1] or rhs[-1] % together or len(lhs) < 2:
        yield f"expected matrices and a rhs packed in blocks, got {n.lhs.type} and {n.rhs.type}"
        return
    columns = rhs[-1] // together
    if n.block % word and n.block < depth:
        yield f"expected a block that is a multiple of {word}, got {n.block}"
    blocks = ceil_div(n.result.type.shape[-1], columns)
    steps = {ceil_div(depth, word), ceil_div(depth, word) - (together > 1)}
    if rhs[0] != blocks or rhs[1] not in steps:
        expected = (blocks, max(steps), rhs[-1])
        yield f"expected a rhs packed to {list(expected)}, got {list(rhs)}"
    expected = (blocks, ceil_div(depth, n.block), columns)
    if n.scales.type.shape != expected:
        yield f"expected scales packed to {list(expected)}, got {list(n.scales.type.extents)}"
    if not n.zeros.type.is_empty and n.zeros.type.shape != expected:
        yield f"expected zeros packed to {list(expected)}, or none, got {list(n.zeros.type.extents)}"
    shape = (*lhs[:-1], n.result.type.shape[-1])
    if n.result.type.shape != shape:
        yield f"expected a result of shape {list(shape)}, got {n.result.type}"


def _block_kinds(n: _Blocks, left: ElemKind) -> Iterator[str]:
    for name, operand, kinds in (
        ("lhs", n.lhs, (left,)),
        ("rhs", n.rhs, (ElemKind.I8, ElemKind.U32)),
        ("scales", n.scales, (ElemKind.F32,)),
        ("zeros", n.zeros, (ElemKind.I8,)),
        ("result", n.result, (ElemKind.F32,)),
    ):
        if operand.type.kind not in kinds:
            expected = " or ".join(kind.value for kind in kinds)
            yield f"expected {name} of {expected}, got {operand.type}"


@verify(CpuDepthwiseConvNode)
@verify_inst(CpuDepthwiseConvInst)
def _depthwise(n: CpuDepthwiseConvNode | CpuDepthwiseConvInst) -> Iterator[str]:
    yield from _kinds(n.input, n.result, filter=n.filter, bias=n.bias)
    yield from _outside(n)
    if not 1 <= n.tile_pixels <= MAX_DEPTHWISE_PIXELS:
        yield f"expected tile_pixels from 1 to {MAX_DEPTHWISE_PIXELS}, got {n.tile_pixels}"
    if n.slab < 1 or n.vectors < 1:
        yield f"expected at least 1 line and 1 vector in a unit, got {n.slab} and {n.vectors}"
    yield from _small_groups(n)


def _small_groups(n: CpuDepthwiseConvNode | CpuDepthwiseConvInst) -> Iterator[str]:
    """The filter says how many channels of the input a group has."""
    channels, outputs = n.input.type.shape[-1], n.result.type.shape[-1]
    *taps, depth = n.filter.type.shape[:-1]
    if (*taps, n.filter.type.shape[-1]) != (*n.kernels, outputs):
        expected = [*n.kernels, "I", outputs]
        yield f"expected a filter packed to {expected}, got {list(n.filter.type.shape)}"
    elif depth < 1 or channels % depth or outputs % (channels // depth):
        yield f"expected groups of {channels} and of {outputs} channels, got {depth} in each"


@verify(CpuPlainConvNode)
@verify_inst(CpuPlainConvInst)
def _plain_conv(n: CpuPlainConvNode | CpuPlainConvInst) -> Iterator[str]:
    yield from _kinds(n.input, n.result, filter=n.filter, bias=n.bias)
    yield from _outside(n)


@verify(CpuPlainMatmulNode)
@verify_inst(CpuPlainMatmulInst)
def _plain_matmul(n: CpuPlainMatmulNode | CpuPlainMatmulInst) -> Iterator[str]:
    yield from _kinds(n.lhs, n.result, rhs=n.rhs)


@verify(CpuRowMatmulNode)
@verify_inst(CpuRowMatmulInst)
def _row_matmul(n: CpuRowMatmulNode | CpuRowMatmulInst) -> Iterator[str]:
    yield from _kinds(n.lhs, n.result, rhs=n.rhs)
    (expected,) = infer_types(MatMulNode, [n.lhs.type, n.rhs.type], {})
    if n.result.type != expected:
        yield f"expected a result of {expected}, got {n.result.type}"
    if n.lhs.type.shape[-2] != 1:
        yield f"expected one row, got {n.lhs.type}"


@verify(CpuPackMatrixNode)
@verify_inst(CpuPackMatrixInst)
def _pack_matrix(n: CpuPackMatrixNode | CpuPackMatrixInst) -> Iterator[str]:
    input, result = n.input.type, n.result.type
    if n.block < 1:
        yield f"expected a block of at least 1 column, got {n.block}"
        return
    shape = packed_shape(input.shape, n.block, dot_of(input.kind))
    if result.kind is not input.kind or result.shape != shape:
        yield f"expected a result of {input.kind.value}{list(shape)}, got {result}"


@verify(CpuWeightedGatherNode)
@verify_inst(CpuWeightedGatherInst)
def _weighted_gather(n: CpuWeightedGatherNode | CpuWeightedGatherInst) -> Iterator[str]:
    input, indices, weights = n.input.type, n.indices.type, n.weights.type
    if not 0 <= n.axis < input.rank - 1:
        yield f"expected an axis from 0 to {input.rank - 2}, got {n.axis}"
        return
    if lowest(input.shape[n.axis]) < 1:
        yield f"expected something to gather, got {input}"
    if indices.kind is not ElemKind.I64 or weights.kind is not input.kind:
        yield f"expected indices of i64 and weights of {input.kind.value}, got {indices} and {weights}"
    if indices.rank != 2 or indices.shape != weights.shape or lowest(indices.shape[1]) < 1:
        yield f"expected indices and weights for each slice, got {indices} and {weights}"
        return
    shape = (*input.shape[: n.axis], indices.shape[0], *input.shape[n.axis + 1 :])
    if n.result.type != input.with_shape(shape):
        yield f"expected a result of {input.with_shape(shape)}, got {n.result.type}"


_WEIGHTS_AND_SUMS = {
    ElemKind.I8: (ElemKind.I8, ElemKind.I32),
    ElemKind.U8: (ElemKind.I8, ElemKind.I32),
    ElemKind.BF16: (ElemKind.BF16, ElemKind.F32),
}
"""The kinds of weights and of sums, where they are not that of the input."""


def _kinds(input: _Typed, result: _Typed, **weights: _Typed) -> Iterator[str]:
    """The kinds that there are kernels for: one float kind, or bf16 or 8-bit integers with wider sums."""
    kind = input.type.kind
    of_weights, of_sums = _WEIGHTS_AND_SUMS.get(kind, (kind, kind))
    for name, operand in {**weights, "result": result}.items():
        expected = of_sums if name in ("bias", "result") else of_weights
        if operand.type.kind is not expected:
            yield f"expected {name} of {expected.value} for an input of {kind.value}, got {operand.type}"


def _outside(
    n: CpuDepthwiseConvNode | CpuDepthwiseConvInst | CpuPlainConvNode | CpuPlainConvInst,
) -> Iterator[str]:
    kind = n.input.type.kind
    low, high = (0, 0) if kind.is_float else kind.limits
    if not low <= n.outside <= high:
        yield f"expected outside from {low} to {high}, got {n.outside}"


def tile_problems(pixels: int, vectors: int) -> Iterator[str]:
    """Yields problems of the size of a tile."""
    for name, number, most in (
        ("tile_pixels", pixels, MAX_PIXELS),
        ("tile_vectors", vectors, MAX_VECTORS),
    ):
        if not 1 <= number <= most:
            yield f"expected {name} from 1 to {most}, got {number}"
    sums = pixels * vectors
    if sums > MAX_SUMS:
        yield f"expected a tile of at most {MAX_SUMS} sums, got {pixels} x {vectors} = {sums}"


def _tile(n: CpuConvNode | CpuConvInst | CpuMatmulNode | CpuMatmulInst) -> Iterator[str]:
    yield from tile_problems(n.tile_pixels, n.tile_vectors)
    if n.slab < 1:
        yield f"expected a slab of at least 1 line, got {n.slab}"
    if lowest(n.fetch) < 0:
        yield f"expected at least 0 elements to fetch, got {n.fetch}"


def _packed(
    name: str, type: Type, before: Sequence[Dim], columns: Dim, inside: Sequence[Dim]
) -> Iterator[str]:
    """Weights for so many columns in blocks, as long as the last dimension says; `inside` ends with the depth."""
    dot = dot_of(type.kind)
    length = type.shape[-1] if type.rank else 0
    if isinstance(length, Expr) or not length or length % dot:
        yield f"expected a {name} packed in blocks, got {type}"
        return
    block = length // dot
    *taps, depth = inside
    if depth % dot != 0:
        yield f"expected a depth that is a multiple of {dot}, got {depth}"
    expected = (*before, ceil_div(columns, block), *taps, ceil_div(depth, dot), block * dot)
    if type.shape != expected:
        yield f"expected a {name} packed to {list(expected)}, got {list(type.shape)}"


def mismatch(operation: Operation, variant: Variant) -> str:
    """Why a product cannot use its weights, packed for other vectors or other tiles; empty if it can."""
    check = _CHECKS.get(operation.mnemonic)
    return "" if check is None else check(operation, variant)


def _product_mismatch(
    operand: str, operation: Operation, variant: Variant, *, several: bool = True
) -> str:
    """Explains the mismatch of an operand that is packed for tiles, each of which may have `several` of its blocks."""
    type, vectors = operation.types[operand], operation.attrs["tile_vectors"]
    full_lanes = variant.machine_for(type.kind).lanes
    lanes = tile_lanes(type, full_lanes) if several else full_lanes
    block = static([type.shape[-1]])[0] // dot_of(type.kind)
    columns = vectors * lanes if isinstance(vectors, int) else 0
    if block == columns or (several and block and block % lanes == 0 and columns % block == 0):
        return ""
    return (
        f"{operand}: expected blocks whose multiple {vectors} x {lanes} = {columns} numbers are "
        f"(tile_vectors, and the vectors of {variant.name}), got {block}: lower the model for this processor"
    )


def _cell_mismatch(operation: Operation, variant: Variant) -> str:
    type, vectors = operation.types["recurrence"], operation.attrs["tile_vectors"]
    (block,), lanes = static([type.shape[-1]]), variant.machine_for(type.kind).lanes
    if isinstance(vectors, int) and vectors and block % (vectors * lanes) == 0:
        return ""
    return (
        f"recurrence: expected blocks that are a multiple of {vectors} x {lanes} numbers (tile_vectors, and the "
        f"vectors of {variant.name}), got {block}: lower the model for this processor"
    )


def _attention_mismatch(operation: Operation, variant: Variant) -> str:
    group, lanes = operation.attrs["group"], variant.machine_for(ElemKind.F32).lanes
    if isinstance(group, int) and group % lanes == 0 and 1 <= group // lanes <= MAX_VECTORS:
        return ""
    return (
        f"group: expected a multiple of {lanes} queries (the vectors of {variant.name}), "
        f"at most {MAX_VECTORS * lanes}, got {group}: "
        "lower the model for this processor"
    )


def _block_misfit(operation: Operation, variant: Variant) -> str:
    columns, packed = (
        block_columns(variant.machine_for(ElemKind.F32).lanes),
        operation.types["rhs"].shape[-1],
    )
    if packed == columns:
        return ""
    return (
        f"rhs: expected blocks of {columns} columns (the vectors of {variant.name}), got {packed}: "
        "lower the model for this processor"
    )


_Check = Callable[[Operation, Variant], str]
_CHECKS: Mapping[str, _Check] = {
    CpuAttentionInst.SCHEMA.mnemonic: _attention_mismatch,
    CpuBlockMatmulInst.SCHEMA.mnemonic: _block_misfit,
    CpuConvInst.SCHEMA.mnemonic: partial(_product_mismatch, "filter"),
    CpuMatmulInst.SCHEMA.mnemonic: partial(_product_mismatch, "rhs"),
    CpuStrassenInst.SCHEMA.mnemonic: partial(_product_mismatch, "rhs", several=False),
    CpuByteWinogradInst.SCHEMA.mnemonic: partial(_product_mismatch, "filter", several=False),
    CpuWinogradInst.SCHEMA.mnemonic: partial(_product_mismatch, "filter", several=False),
    **{cell.SCHEMA.mnemonic: _cell_mismatch for cell in (CpuGruInst, CpuLstmInst, CpuRnnInst)},
}
"""Rules for every instruction with an attribute that depends on the length of vectors."""
