"""Packs the weights of convolutions and matrix products, and decides how they are tiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import ClassVar, TypeVar

import numpy as np

from glowpy.backend import Operation
from glowpy.backends.cpu.bf16_products import Bf16Products, is_in_bf16
from glowpy.backends.cpu.block_products import BlockProducts
from glowpy.backends.cpu.block_weights import packs_blocks
from glowpy.backends.cpu.byte_products import ByteProducts, multiplies_bytes
from glowpy.backends.cpu.derived import derived
from glowpy.backends.cpu.nodes_gen import (
    CpuDepthwiseConvNode,
    CpuMatmulNode,
    CpuStrassenNode,
    CpuWinogradNode,
    create_cpu_conv,
    create_cpu_depthwise_conv,
    create_cpu_matmul,
    create_cpu_pack_matrix,
    create_cpu_plain_conv,
    create_cpu_plain_matmul,
    create_cpu_row_matmul,
    create_cpu_strassen,
    create_cpu_strassen_sums,
    create_cpu_winograd,
)
from glowpy.backends.cpu.packing import (
    filter_pieces,
    matrix_pieces,
    pack_depthwise_filter,
    packed_shape,
)
from glowpy.backends.cpu.passes.volumes import bias_alone, by_planes
from glowpy.backends.cpu.strassen import pack_pairs, strassen_error, sums_shape
from glowpy.backends.cpu.strategy.depthwise import (
    Group,
    depthwise_ways,
    has_open_edges,
    share_vectors,
)
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import (
    WORTH_TRYING,
    Decision,
    Problem,
    conv_problem,
    fetched_ahead,
    matmul_problem,
    product_ways,
)
from glowpy.backends.cpu.strategy.strassen import (
    StrassenDecision,
    choose_strassen,
    strassen_ways,
)
from glowpy.backends.cpu.strategy.ways import BY_MODEL, Chooser
from glowpy.backends.cpu.strategy.winograd import (
    WinogradDecision,
    choose_winograd,
    winograd_ways,
)
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.backends.cpu.variant import Variant
from glowpy.backends.cpu.winograd import MOST_ERROR, pack_winograd_filter, relative_error
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import MAX_RANK, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode, MatMulNode, ReshapeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Expr, ceil_div, greatest, likely_extent, product

__all__ = ["PackProductsPass", "is_packed"]


def is_packed(operation: Operation) -> bool:
    """Whether the pass turns an operation into one of the backend's own: products of floats, doubles, and bytes."""
    if operation.mnemonic not in ("convolution", "mat_mul"):
        return False
    floats = operation.types["result"].kind in (ElemKind.F32, ElemKind.F64)
    return floats or multiplies_bytes(operation)


@dataclass(frozen=True)
class PackProductsPass(RewritePass):
    """Turns products into the backend's own nodes.

    In f32 and f64 `convolution` becomes `cpu_conv`, or `cpu_depthwise_conv` where every channel is a group of its
    own, or several groups fill a vector; one over volumes becomes a sum of these. `mat_mul` becomes `cpu_matmul`. A
    filter or right side that is computed is packed by `cpu_pack_matrix`; one that is dequantized in blocks is read
    as it is stored, by `cpu_block_matmul`, or `cpu_byte_block_matmul` where the left side is rounded in these
    blocks; a computed one that a single row meets is read where it lies, by `cpu_row_matmul`. So is a left side
    that a single column meets: the column is a row then. Where code is to be small, they are `cpu_plain_conv` and
    `cpu_plain_matmul`. Weights are padded with zeros to whole vectors of the target's, here to 8 numbers of AVX2.
    Products over nothing are zeros, or the bias. Those of quantized 8-bit integers are the same nodes on what is
    stored; see `glowpy.backends.cpu.byte_products`. With `bf16`, products in f32 are computed in bf16 where that is
    faster; see `glowpy.backends.cpu.bf16_products`.

    Before:
        %x : f32[2x1]
        %out : f32[2x3]
        %w : f32[1x3] = [1.0, 2.0, 3.0]
        %p = mat_mul(%x, %w) : f32[2x3]
        save(%p, %out)
    After:
        %x : f32[2x1]
        %out : f32[2x3]
        %w : f32[1x3] = [1.0, 2.0, 3.0]
        %p_packed : f32[1x1x8] = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        %p = cpu_matmul(%x, %p_packed) {tile_pixels=2, tile_vectors=1, slab=1, fetch=0} : f32[2x3]
        save(%p, %out)
    """

    variant: Variant
    small: bool = False
    exact: bool = False
    chooser: Chooser = BY_MODEL
    low_memory: bool = False
    bf16: bool = False
    name: ClassVar[str] = "pack-products"
    is_required: ClassVar[bool] = True
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def convolution(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """The packed convolution."""
        if multiplies_bytes(Operation.of_node(n)):
            return self._bytes.convolution(f, n)
        if not is_packed(Operation.of_node(n)):
            return why.no("only f32, f64 and quantized 8-bit integers are packed")
        if n.type.is_empty or n.input.type.is_empty:
            return bias_alone(f, n)
        if len(n.kernels) == 3:
            return by_planes(f, n)
        if len(n.kernels) == 1:
            return _with_row(f, n)
        if self.small:
            return create_cpu_plain_conv(
                f, n.name, n.type, n.input, n.filter, n.bias,
                kernels=n.kernels, strides=n.strides, pads=n.pads, dilation=n.dilation, group=n.group,
                outside=0,
            )  # fmt: skip
        if self._is_depthwise(n):
            return self._depthwise(f, n)
        return self._in_plane(f, n)

    def _in_plane(self, f: Function, n: ConvolutionNode) -> Replacement:
        """A 2-D convolution with tiles."""
        machine, depth = self.variant.machine_for(n.type.kind), n.filter.type.extents[-1]
        problem = conv_problem(
            n.type.likely,
            n.input.type.likely,
            n.kernels,
            n.strides,
            tuple(map(likely_extent, n.pads)),
            n.dilation,
            n.group,
        )
        ways = (
            product_ways(problem, machine)
            if self.low_memory and prod(n.kernels) > 1
            else _conv_ways(n, problem, machine, exact=self.exact)
        )
        decision = self.chooser.choose(n, _with_faster(ways, self._halves.conv_ways(n)))
        if is_in_bf16(decision):
            return self._halves.convolution(f, n, decision)
        if isinstance(decision, WinogradDecision):
            return _winograd(f, n, decision, machine.lanes)
        if isinstance(decision, StrassenDecision):
            product = _strassen(f, n, n.input, n.filter, decision, machine.lanes)
            return f.create_add(n.name, product, bias_alone(f, n))
        packed = _packed_filter(f, n, decision.block)
        zeros = f.module.create_constant(
            f"{n.name}_zeros",
            np.zeros(depth if has_pads(n.pads) else 0, n.type.kind.dtype),
            loc=n.loc,
        )
        return create_cpu_conv(
            f, n.name, n.type, n.input, packed, n.bias, zeros,
            kernels=n.kernels, strides=n.strides, pads=n.pads, dilation=n.dilation, group=n.group,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            line=greatest(n.type.shape[2], 1)  # a line of no pixels divides nothing
            if decision.line == n.type.likely[2] else decision.line,
            slab=decision.slab, fetch=fetched_ahead(problem, machine, decision, n.type),
        )  # fmt: skip

    @property
    def _halves(self) -> Bf16Products:
        """Computes products in bf16, where that is asked for."""
        return Bf16Products(self.variant.bf16_machine if self.bf16 else None)

    @property
    def _bytes(self) -> ByteProducts:
        """Computes products of quantized 8-bit integers."""
        plain = self.exact or self.low_memory
        return ByteProducts(self.variant, self.small, self.chooser, plain)

    def _is_depthwise(self, n: ConvolutionNode) -> bool:
        """Whether every channel is a group, or several groups share a vector."""
        machine = self.variant.machine_for(n.type.kind)
        return n.group > 1 and share_vectors(*_group(n), machine)

    def _depthwise(self, f: Function, n: ConvolutionNode) -> CpuDepthwiseConvNode:
        packed: Operand
        if n.filter.constant is not None:
            channels, *taps = n.filter.type.extents
            type = n.filter.type.with_shape((*taps, channels))
            packed = derived(
                f, n, "packed", type, n.filter.constant, "pack depthwise", pack_depthwise_filter
            )
        else:
            packed = f.create_transpose(n.name, n.filter, (1, 2, 3, 0))
        machine = self.variant.machine_for(n.type.kind)
        ways = depthwise_ways(n.type.likely, n.kernels, n.strides, n.dilation, machine, _group(n))
        decision = self.chooser.choose(n, ways)
        return create_cpu_depthwise_conv(
            f, n.name, n.type, n.input, packed, n.bias,
            kernels=n.kernels, strides=n.strides, pads=n.pads, dilation=n.dilation, outside=0,
            tile_pixels=decision.pixels, slab=decision.slab, vectors=decision.vectors,
            single_edges=has_open_edges(n.type.shape, n.input.type.shape, n.pads),
        )  # fmt: skip

    @rule
    def mat_mul(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """The packed matrix product."""
        if multiplies_bytes(Operation.of_node(n)):
            return self._bytes.mat_mul(f, n)
        if not is_packed(Operation.of_node(n)):
            return why.no("only f32, f64 and quantized 8-bit integers are packed")
        if n.type.is_empty or n.lhs.type.is_empty:
            return f.create_splat(n.name, n.type, 0.0)
        if packs_blocks(n):
            return BlockProducts(self.variant).mat_mul(f, n)
        if self.small:
            return create_cpu_plain_matmul(f, n.name, n.type, n.lhs, _transposed(f, n))
        if _meets_each_matrix_once(n):
            return create_cpu_row_matmul(f, n.name, n.type, n.lhs, n.rhs)
        if _is_column(n):
            return _as_row(f, n)
        if n.rhs.type.rank == MAX_RANK:
            return _with_batches_joined(f, n)
        return self._in_tiles(f, n)

    def _in_tiles(self, f: Function, n: MatMulNode) -> CpuMatmulNode | CpuStrassenNode:
        """The product with a packed right side."""
        machine = self.variant.machine_for(n.type.kind)
        matrices = prod(n.rhs.type.likely[:-2])
        problem = matmul_problem(n.type.likely, n.lhs.type.likely[-1], matrices)
        if isinstance(n.type.shape[-1], Expr):
            problem = problem.with_open_columns()
        ways = _matmul_ways(n, problem, machine, exact=self.exact)
        decision = self.chooser.choose(n, _with_faster(ways, self._halves.matmul_ways(n)))
        if is_in_bf16(decision):
            return self._halves.mat_mul(f, n, decision)
        if isinstance(decision, StrassenDecision):
            return _strassen(f, n, n.lhs, n.rhs, decision, machine.lanes)
        block = decision.block
        type = n.rhs.type.with_shape(packed_shape(n.rhs.type.shape, block))
        constant = n.rhs.constant
        packed: Operand
        if constant is not None:
            packed = derived(
                f, n, "packed", type, constant, "pack", lambda matrix: matrix_pieces(matrix, block)
            )
        else:
            packed = create_cpu_pack_matrix(f, n.rhs.name, type, n.rhs, block=block)
        return create_cpu_matmul(
            f, n.name, n.type, n.lhs, packed,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            slab=decision.slab, fetch=fetched_ahead(problem, machine, decision, n.type),
        )  # fmt: skip


Way = TypeVar("Way", bound=Decision | WinogradDecision | StrassenDecision)


def _with_faster(ways: Iterator[Way], others: Iterator[Decision]) -> Iterator[Way | Decision]:
    """The ways, and others, if there are any: first the one that is thought to be the fastest of all."""
    best = [next(ways), *islice(others, 1)]
    yield from sorted(best, key=lambda way: way.cycles)
    yield from others
    yield from ways


def _group(n: ConvolutionNode) -> Group:
    """The channels of a group: of the input, and of the result."""
    outputs, *_, depth = n.filter.type.extents
    return depth, outputs // n.group


def _conv_ways(
    n: ConvolutionNode, problem: Problem, machine: Machine, *, exact: bool
) -> Iterator[Decision | WinogradDecision | StrassenDecision]:
    """How a convolution may be computed, what the models take first.

    That is Winograd's algorithm where it is faster, or Strassen's where it is a matrix product; never unless it is
    exact enough with this filter.
    """
    direct = product_ways(problem, machine)
    plain = prod(n.strides) == prod(n.dilation) == 1
    constant = n.filter.constant
    if exact or n.type.kind is not ElemKind.F32 or not plain or constant is None:
        yield from direct
        return
    if prod(n.kernels) == 1:
        other = n.group > 1 or has_pads(n.pads)
        yield from direct if other else _by_quarters(n.type, n.filter, direct, machine)
        return
    best = next(direct)
    sizes = n.type.likely, n.filter.type.extents[-1], n.kernels, n.group, machine, best.cycles
    fastest = choose_winograd(*sizes)

    def is_allowed(decision: WinogradDecision) -> bool:
        return relative_error(constant.array, decision.patch) <= MOST_ERROR

    if fastest is not None and is_allowed(fastest):
        yield fastest
    yield best
    yield from (way for way in winograd_ways(*sizes) if way != fastest and is_allowed(way))
    yield from direct


def _matmul_ways(
    n: MatMulNode, problem: Problem, machine: Machine, *, exact: bool
) -> Iterator[Decision | StrassenDecision]:
    """How a matrix product may be computed, what the models take first."""
    direct = product_ways(problem, machine)
    if exact or n.type.kind is not ElemKind.F32 or n.rhs.constant is None or n.rhs.type.rank != 2:
        return direct
    return _by_quarters(n.type, n.rhs, direct, machine)


def _by_quarters(
    result: Type, weights: NodeValue, direct: Iterator[Decision], machine: Machine
) -> Iterator[Decision | StrassenDecision]:
    """The ways of a matrix product with a constant right side, by Strassen's algorithm too where rows are known."""
    best = next(direct)
    if not result.is_static:
        yield best
        yield from direct
        return
    constant = weights.constant
    assert constant is not None
    *rows, columns = result.extents
    depth = prod(weights.type.extents) // columns
    sizes = prod(rows), depth, columns, machine
    fastest = choose_strassen(*sizes, best.cycles)

    def is_allowed(decision: StrassenDecision) -> bool:
        matrix = _matrix(constant.array)
        return strassen_error(matrix, decision.vectors * machine.lanes) <= MOST_ERROR

    if fastest is not None and is_allowed(fastest):
        yield fastest
    yield best
    limit = WORTH_TRYING * best.cycles
    ways = (way for way in strassen_ways(*sizes) if way != fastest and way.cycles <= limit)
    yield from filter(is_allowed, ways)
    yield from direct


def _matrix(weights: Array) -> Array:
    """A right side K x N, or a filter O x 1 x 1 x I as one."""
    return weights if weights.ndim == 2 else weights.reshape(len(weights), -1).T


def _strassen(
    f: Function, n: Node, lhs: NodeValue, weights: NodeValue, chosen: StrassenDecision, lanes: int
) -> CpuStrassenNode:
    """A product by Strassen's algorithm, with a constant right side or a filter of one pixel."""
    constant = weights.constant
    assert constant is not None
    *_, depth = lhs.type.extents
    columns = prod(weights.type.extents) // depth
    block = chosen.vectors * lanes
    shape = 2 * ceil_div(columns, 2 * block), depth, block
    packed = derived(
        f, n, "packed", weights.type.with_shape(shape), constant, "pack pairs",
        lambda array: pack_pairs(_matrix(array), block),
    )  # fmt: skip
    type = lhs.type.with_shape(sums_shape(lhs.type.shape))
    sums = create_cpu_strassen_sums(f, f"{n.name}_sums", type, lhs)
    return create_cpu_strassen(
        f, n.name, lhs.type.with_shape((*lhs.type.shape[:-1], columns)), lhs, sums, packed,
        tile_pixels=chosen.pixels, tile_vectors=chosen.vectors, slab=chosen.slab, bands=chosen.bands,
        pairs=chosen.pairs,
    )  # fmt: skip


def _winograd(
    f: Function, n: ConvolutionNode, chosen: WinogradDecision, lanes: int
) -> CpuWinogradNode:
    """A convolution by Winograd's algorithm."""
    constant = n.filter.constant
    assert constant is not None
    block = chosen.vectors * lanes
    outputs, *_, depth = n.filter.type.extents
    blocks = n.group * ceil_div(outputs // n.group, block)
    shape = blocks, prod(chosen.patch), depth, block
    patch = chosen.patch
    packed = derived(
        f, n, "points", n.filter.type.with_shape(shape), constant,
        f"pack filter of {n.group} groups at {patch[0]} x {patch[1]} points",
        lambda filter: pack_winograd_filter(filter, patch, block, n.group),
    )  # fmt: skip
    return create_cpu_winograd(
        f, n.name, n.type, n.input, packed, n.bias,
        kernels=n.kernels, pads=n.pads, group=n.group, patch=patch, pool=(1, 1),
        tile_pixels=chosen.pixels, tile_vectors=chosen.vectors,
        slab=chosen.slab, bands=chosen.bands, blocks=chosen.blocks,
    )  # fmt: skip


def _meets_each_matrix_once(n: MatMulNode) -> bool:
    """Whether each right side is computed, and read for one row only: to pack it would cost more."""
    matrices = product(n.rhs.type.shape[:-2])
    return n.rhs.constant is None and product(n.type.shape[:-1]) == matrices


def _is_column(n: MatMulNode) -> bool:
    """Whether each right side has one column: a tile would fill the others with zeros."""
    return n.rhs.type.shape[-1] == 1


def _as_row(f: Function, n: MatMulNode) -> ReshapeNode:
    """The product of the column, as a row, and the transposed left side, which is read where it lies."""
    *batch, depth, _ = n.rhs.type.shape
    row = f.create_reshape(n.name, n.rhs.type.with_shape((*batch, 1, depth)), n.rhs)
    rank = n.lhs.type.rank
    order = (*range(rank - 2), rank - 1, rank - 2)
    columns = f.create_transpose(n.name, n.lhs, order)
    *several, rows, _ = n.type.shape
    type = n.type.with_shape((*several, 1, rows))
    product = create_cpu_row_matmul(f, n.name, type, row, columns)
    return f.create_reshape(n.name, n.type, product)


def _transposed(f: Function, n: MatMulNode) -> Operand:
    """The right side of a product, transposed."""
    *batch, depth, columns = n.rhs.type.shape
    if n.rhs.constant is not None:
        type = n.rhs.type.with_shape((*batch, columns, depth))
        return derived(
            f, n, "packed", type, n.rhs.constant, "pack", lambda matrix: matrix_pieces(matrix, 1)
        )
    rank = len(batch)
    return f.create_transpose(n.name, n.rhs, (*range(rank), rank + 1, rank))


def _with_batches_joined(f: Function, n: MatMulNode) -> NodeValue:
    """A product whose first two dimensions are one: packed matrices have a dimension more, which would be too many.

    What repeats along one of the two but not along both is copied.
    """

    def joined(operand: NodeValue) -> Operand:
        type = operand.type
        first, second, *rest = (1,) * (MAX_RANK - type.rank) + type.shape
        batch = (1, 1) if first == second == 1 else n.type.shape[:2]
        reshaped = f.create_reshape(n.name, type.with_shape((first, second, *rest)), operand)
        copies = f.create_broadcast(n.name, type.with_shape((*batch, *rest)), reshaped)
        return f.create_reshape(n.name, type.with_shape((prod(batch), *rest)), copies)

    product = f.create_mat_mul(n.name, joined(n.lhs), joined(n.rhs))
    return f.create_reshape(n.name, n.type, product).result


def _packed_filter(f: Function, n: ConvolutionNode, block: int) -> Operand:
    """The filter of a 2-D convolution in blocks of output channels. Of each group it is a matrix, transposed."""
    outputs, *taps = n.filter.type.shape
    type, outputs, depth = n.filter.type, outputs // n.group, prod(taps)
    shape = packed_shape((n.group, depth, outputs), block)
    packed_type = type.with_shape((*shape[:2], *taps, block))
    if n.filter.constant is not None:
        return derived(
            f, n, "packed", packed_type, n.filter.constant, "pack filter",
            lambda filter: filter_pieces(filter, n.group, block),
        )  # fmt: skip
    rows = f.create_reshape(n.name, type.with_shape((n.group, outputs, depth)), n.filter)
    matrix = f.create_transpose(n.name, rows, (0, 2, 1))
    packed = create_cpu_pack_matrix(f, n.name, type.with_shape(shape), matrix, block=block)
    return f.create_reshape(n.name, packed_type, packed)


def _with_row(f: Function, n: ConvolutionNode) -> NodeValue:
    """A 1-D convolution as one over images of one row."""

    def row(type: Type) -> Type:
        return type.with_shape((type.shape[0], 1, *type.shape[1:]))

    result = f.create_convolution(
        n.name, f.create_reshape(n.name, row(n.input.type), n.input), _kernel_row(f, n), n.bias,
        (1, *n.kernels), (1, *n.strides), (0, n.pads[0], 0, n.pads[1]), (1, *n.dilation), n.group,
    )  # fmt: skip
    return f.create_reshape(n.name, n.type, result).result


def _kernel_row(f: Function, n: ConvolutionNode) -> Operand:
    """The filter of a 1-D convolution as that of a 2-D one."""
    outputs, *rest = n.filter.type.shape
    type = n.filter.type.with_shape((outputs, 1, *rest))
    if n.filter.constant is not None:
        return derived(
            f, n, "row", type, n.filter.constant, "reshape", lambda filter: filter[:, np.newaxis]
        )
    return f.create_reshape(n.name, type, n.filter)
