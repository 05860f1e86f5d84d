"""Products of quantized operands as products of what is stored, whose kernels know of no offsets.

Sums of (a - oa) * (w - ow) over K pairs are those of a * w, less oa times the sum of w and ow times that of a, plus
K * oa * ow:

* oa and the sums of constant weights go into the bias, or into one row that is subtracted. What lies outside an
  image counts as oa, and zeros in packed weights add nothing.
* Weights with an offset take the sums of a as well, which are a product with ones.
* The input is brought into the kind that the processor multiplies, with the offset moved by 128; weights are i8.

Sums are plain integers on the way, and labelled with their type at the end. See docs/adr/0020-quantized-arithmetic.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from glowpy.backend import Operation
from glowpy.backends.cpu.byte_operands import (
    Images,
    Weights,
    images_of,
    in_i8,
    plane_shape,
    signed_offsets,
    taps_of,
)
from glowpy.backends.cpu.byte_winograd import has_exact_sums, pack_byte_filter
from glowpy.backends.cpu.nodes_gen import (
    create_cpu_byte_winograd,
    create_cpu_conv,
    create_cpu_depthwise_conv,
    create_cpu_matmul,
    create_cpu_pack_matrix,
    create_cpu_plain_conv,
    create_cpu_plain_matmul,
)
from glowpy.backends.cpu.packing import (
    filter_pieces,
    matrix_pieces,
    pack_depthwise_filter,
    pack_matrix,
    packed_shape,
)
from glowpy.backends.cpu.padded_channels import padded_channels
from glowpy.backends.cpu.strategy.depthwise import depthwise_ways, has_open_edges
from glowpy.backends.cpu.strategy.product import (
    Decision,
    Problem,
    conv_problem,
    fetched_ahead,
    matmul_problem,
    product_ways,
)
from glowpy.backends.cpu.strategy.ways import Chooser
from glowpy.backends.cpu.strategy.winograd import (
    WinogradDecision,
    choose_winograd,
    winograd_ways,
)
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import offsets_of, parameters
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import (
    ConvolutionNode,
    MatMulNode,
    SaturateNode,
)
from glowpy.opt.graph.lower_quantized import known_parameter
from glowpy.support.symbolic import (
    Dim,
    Expr,
    ceil_div,
    depends_on_symbols,
    greatest,
    likely_extent,
    static,
)

__all__ = ["ByteProducts", "multiplies_bytes"]

_BYTES = (ElemKind.I8, ElemKind.U8)
_WORD = 4
_HALF_RANGE = 128


def multiplies_bytes(operation: Operation) -> bool:
    """Whether a product is one of quantized integers of 8 bits, with sums of i32."""
    names = ("input", "filter") if operation.mnemonic == "convolution" else ("lhs", "rhs")
    operands = [operation.types[name] for name in names]
    return operation.types["result"].kind is ElemKind.I32 and all(
        type.kind in _BYTES and type.quant is not None for type in operands
    )


@dataclass(frozen=True)
class ByteProducts:
    """Rewrites products of quantized 8-bit integers for a variant.

    Attributes:
        variant: The variant that they are packed for.
        small: Whether code is to be small.
        chooser: Decides how they are tiled.
        plain: Whether no convolution is to be computed by Winograd's algorithm, whose weights are larger.
    """

    variant: Variant
    small: bool
    chooser: Chooser
    plain: bool = False

    def convolution(self, f: Function, n: ConvolutionNode) -> NodeValue:
        """A convolution with sums of i32."""
        if n.type.is_empty:
            return f.create_splat(n.name, n.type, 0.0).result
        images = images_of(f, n, self._activations(f, n, n.input))
        offsets = signed_offsets(n.filter.type)
        type = Type(ElemKind.I32, images.shape)
        if n.filter.constant is None:
            sums = self._computed_convolution(f, n, images, type)
        else:
            filter = n.filter.constant.tensor
            weights = Weights(plane_shape(filter.type.extents), "filter", [filter], taps_of)
            bias = _bias(f, n, filter, images.offset, offsets)
            sums = self._convolve(f, n, type, images, weights, bias)
        if offsets.any():
            sums = _less(f, n, sums, self._window_sums(f, n, images, type), offsets)
        if len(n.kernels) != 2:
            sums = f.create_reshape(n.name, Type(ElemKind.I32, n.type.shape), sums).result
        return f.create_storage_cast(n.name, n.type, sums).result

    def mat_mul(self, f: Function, n: MatMulNode) -> NodeValue:
        """A matrix product with sums of i32."""
        if n.type.is_empty or n.lhs.type.is_empty:
            return f.create_splat(n.name, n.type, 0.0).result
        lhs = self._activations(f, n, n.lhs)
        offset, offsets = parameters(lhs.type).offsets[0], signed_offsets(n.rhs.type)
        depth = lhs.type.shape[-1]
        if not self.small:
            lhs = padded_channels(f, n, lhs, -depth % _WORD)
        right = self._right_side(f, n)
        sums = self._multiply(f, n, n.type.shape, lhs, right)
        if offset:
            share = self._column_sums(f, n, offset, offsets, lhs, right)
            sums = f.create_sub(n.name, sums, share).result
        if offsets.any():
            shape = (*lhs.type.shape[:-1], 1)
            rows = self._multiply(f, n, shape, lhs, self._ones_column(f, n, depth))
            sums = _less(f, n, sums, rows, offsets)
        return f.create_storage_cast(n.name, n.type, sums).result

    def _activations(self, f: Function, n: Node, value: NodeValue) -> NodeValue:
        """The input in the kind that products are fast for."""
        return value if self.variant.activations in (None, value.type.kind) else _moved(f, n, value)

    def _convolve(
        self,
        f: Function,
        n: ConvolutionNode,
        type: Type,
        images: Images,
        weights: Weights,
        bias: Operand,
    ) -> NodeValue:
        """The sums of stored integers, and the bias."""
        group, taps = images.group, images.kernels
        lists: dict[str, Any] = {
            "kernels": taps, "strides": images.strides, "pads": images.pads, "dilation": images.dilation
        }  # fmt: skip
        outputs, depth = weights.shape[0], weights.shape[-1]
        if self.small:
            filter = weights.constant(f, n, "taps", weights.shape, lambda taps: taps)
            return create_cpu_plain_conv(
                f, n.name, type, images.input, filter, bias, **lists, group=group, outside=images.offset
            ).result  # fmt: skip
        machine = self.variant.machine_for(images.input.type.kind)
        if depth == 1 and group == outputs == images.input.type.shape[-1] and group > 1:
            filter = weights.constant(
                f, n, "packed_depthwise", (*taps, 1, outputs), pack_depthwise_filter
            )
            ways = depthwise_ways(type.likely, taps, images.strides, images.dilation, machine)
            choice = self.chooser.choose(n, ways)
            return create_cpu_depthwise_conv(
                f, n.name, type, images.input, filter, bias, **lists, outside=images.offset,
                tile_pixels=choice.pixels, slab=choice.slab, vectors=choice.vectors,
                single_edges=has_open_edges(type.shape, images.input.type.shape, images.pads),
            ).result  # fmt: skip
        input = padded_channels(f, n, images.input, -depth % _WORD, group)
        problem = conv_problem(
            type.likely,
            input.type.likely,
            taps,
            images.strides,
            tuple(map(likely_extent, images.pads)),
            images.dilation,
            group,
        )
        decision = self.chooser.choose(n, self._conv_ways(n, images, weights, problem))
        if isinstance(decision, WinogradDecision):
            return self._by_patches(f, n, type, images, weights, decision)
        return self._by_tiles(
            f, n, type, replace(images, input=input), weights, bias, problem, decision
        )

    def _by_tiles(
        self,
        f: Function,
        n: ConvolutionNode,
        type: Type,
        images: Images,
        weights: Weights,
        bias: Operand,
        problem: Problem,
        decision: Decision,
    ) -> NodeValue:
        """The sums by the direct algorithm."""
        group, taps, machine = images.group, images.kernels, self.variant.byte_machine
        outputs, words = weights.shape[0], ceil_div(weights.shape[-1], _WORD)
        lists: dict[str, Any] = {
            "kernels": taps, "strides": images.strides, "pads": images.pads, "dilation": images.dilation
        }  # fmt: skip
        block = decision.block
        shape = (group, ceil_div(outputs // group, block), *taps, words, block * _WORD)
        filter = weights.constant(
            f, n, "packed", shape, lambda taps: filter_pieces(taps, group, block, _WORD)
        )
        outside = np.full(words * _WORD if has_pads(images.pads) else 0, images.offset)
        zeros = f.module.create_constant(
            f"{n.name}_zeros", outside.astype(images.input.type.kind.dtype), loc=n.loc
        )
        return create_cpu_conv(
            f, n.name, type, images.input, filter, bias, zeros, **lists, group=group,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            line=greatest(type.shape[2], 1)  # a line of no pixels divides nothing
            if decision.line == type.likely[2] else decision.line,
            slab=decision.slab, fetch=fetched_ahead(problem, machine, decision, type),
        ).result  # fmt: skip

    def _conv_ways(
        self, n: ConvolutionNode, images: Images, weights: Weights, problem: Problem
    ) -> Iterator[Decision | WinogradDecision]:
        """How a convolution may be computed: directly, or by Winograd's algorithm, whose sums are to be as exact."""
        bytes, words = self.variant.byte_machine, self.variant.word_machine
        direct = product_ways(problem, bytes)
        ones = prod(images.strides) == prod(images.dilation) == 1
        computed = not weights.sources or signed_offsets(n.filter.type).any()
        if self.plain or words is None or not ones or computed:
            yield from direct
            return
        best = next(direct)
        shape = Type(ElemKind.I32, images.shape).likely
        sizes = shape, weights.shape[-1], images.kernels, images.group, words, best.cycles
        fastest = choose_winograd(*sizes)

        def is_exact(decision: WinogradDecision) -> bool:
            taps = weights.stored(*(tensor.array for tensor in weights.sources))
            return has_exact_sums(taps, decision.patch, images.input.type.kind, images.offset)

        if fastest is not None and is_exact(fastest):
            yield fastest
        yield best
        yield from (way for way in winograd_ways(*sizes) if way != fastest and is_exact(way))
        yield from direct

    def _by_patches(
        self,
        f: Function,
        n: ConvolutionNode,
        type: Type,
        images: Images,
        weights: Weights,
        chosen: WinogradDecision,
    ) -> NodeValue:
        """The sums by Winograd's algorithm, which subtracts the input's offset."""
        words, patch, group = self.variant.word_machine, chosen.patch, images.group
        assert words is not None
        block, (outputs, *_, depth) = chosen.vectors * words.lanes, weights.shape
        blocks = group * ceil_div(outputs // group, block)
        shape = blocks, prod(patch), depth // words.dot, words.dot * block
        filter = weights.constant(
            f, n, f"points_{patch[0]}x{patch[1]}_of_{group}", shape,
            lambda taps: pack_byte_filter(taps, patch, block, group), ElemKind.I16,
        )  # fmt: skip
        return create_cpu_byte_winograd(
            f, n.name, type, images.input, filter, _plain(f, n, n.bias),
            kernels=images.kernels, pads=images.pads, group=group, outside=images.offset, patch=patch,
            tile_pixels=chosen.pixels, tile_vectors=chosen.vectors, slab=chosen.slab,
            bands=chosen.bands, blocks=chosen.blocks,
        ).result  # fmt: skip

    def _window_sums(
        self, f: Function, n: ConvolutionNode, images: Images, type: Type
    ) -> NodeValue:
        """The sums of all that each window of each group sees, once for every output channel."""
        group, (outputs, channels) = (
            images.group,
            static([type.shape[-1], images.input.type.shape[-1]]),
        )
        depth = channels // group
        shape = (group, *images.kernels, depth)
        ones = Weights(shape, "ones", [], lambda: np.ones(shape, np.int8))
        bias = _constant(f, n, "none", np.zeros(group, np.int32))
        sums_type = type.with_shape((*type.shape[:-1], group))
        sums = self._convolve(f, n, sums_type, images, ones, bias)
        if group == 1 or group == outputs:
            return sums
        apart = sums.type.with_shape((*sums.type.shape, 1))
        wide = apart.with_shape((*sums.type.shape, outputs // group))
        copies = f.create_broadcast(n.name, wide, f.create_reshape(n.name, apart, sums))
        return f.create_reshape(n.name, sums.type.with_shape(type.shape), copies).result

    def _computed_convolution(
        self, f: Function, n: ConvolutionNode, images: Images, type: Type
    ) -> NodeValue:
        """Handles a computed filter, which is rare, one number at a time. Its sums are a product with ones."""
        filter = _plain(f, n, _in_i8(f, n, n.filter))
        if len(n.kernels) == 3:
            filter = f.create_transpose(n.name, filter, (0, 2, 3, 1, 4)).result
        taps = f.create_reshape(
            n.name, filter.type.with_shape(plane_shape(n.filter.type.extents)), filter
        )
        outputs, depth = n.filter.type.extents[0], prod(n.filter.type.extents[1:])
        bias = _plain(f, n, n.bias)
        if images.offset:
            rows = f.create_reshape(n.name, filter.type.with_shape((outputs, depth)), filter)
            ones = _constant(f, n, "ones", np.ones((1, depth), np.int8))
            sums = create_cpu_plain_matmul(f, n.name, Type(ElemKind.I32, (outputs, 1)), rows, ones)
            totals = f.create_reshape(n.name, bias.type, sums)
            less = f.create_sub(
                n.name, totals, _integers(f, n, depth * signed_offsets(n.filter.type))
            )
            share = f.create_mul(n.name, less, _integers(f, n, np.array([images.offset])))
            bias = f.create_sub(n.name, bias, share).result
        return create_cpu_plain_conv(
            f, n.name, type, images.input, taps, bias,
            kernels=images.kernels, strides=images.strides, pads=images.pads,
            dilation=images.dilation, group=images.group, outside=images.offset,
        ).result  # fmt: skip

    def _right_side(self, f: Function, n: MatMulNode) -> Operand:
        """The right side in i8, packed, or as rows of columns where code is to be small."""
        shape = n.rhs.type.shape
        constant = n.rhs.constant
        if self.small:
            if constant is not None:
                weights = Weights(static(shape), "matrix", [constant.tensor], in_i8)
                turned = static((*shape[:-2], shape[-1], shape[-2]))
                return weights.constant(f, n, "turned", turned, lambda m: matrix_pieces(m, 1))
            rank = len(shape) - 2
            return f.create_transpose(n.name, _in_i8(f, n, n.rhs), (*range(rank), rank + 1, rank))
        machine = self.variant.machine_for(ElemKind.I8)
        problem = _problem(n.type, n.lhs.type, prod(n.rhs.type.likely[:-2]))
        block = self.chooser.choose(n, product_ways(problem, machine)).block
        packed = packed_shape(shape, block, _WORD)
        if constant is not None:
            weights = Weights(static(shape), "matrix", [constant.tensor], in_i8)
            return weights.constant(
                f, n, "packed", static(packed), lambda m: matrix_pieces(m, block, _WORD)
            )
        type = Type(ElemKind.I8, packed)
        return create_cpu_pack_matrix(f, n.rhs.name, type, _in_i8(f, n, n.rhs), block=block)

    def _ones_column(self, f: Function, n: Node, depth: Dim) -> Operand:
        """A right side of one column, of ones."""
        lanes = self.variant.machine_for(ElemKind.I8).lanes
        if isinstance(depth, int):
            column = np.ones((depth, 1), np.int8)
            array = column.T if self.small else pack_matrix(column, lanes, _WORD)
            return _constant(f, n, "ones", array)
        if self.small:
            return _ones(f, n, (1, depth))
        type = Type(ElemKind.I8, packed_shape((depth, 1), lanes, _WORD))
        return create_cpu_pack_matrix(f, n.name, type, _ones(f, n, (depth, 1)), block=lanes)

    def _multiply(
        self, f: Function, n: Node, shape: Shape, lhs: Operand, right: Operand
    ) -> NodeValue:
        """The sums of stored integers."""
        type = Type(ElemKind.I32, shape)
        if self.small:
            return create_cpu_plain_matmul(f, n.name, type, lhs, right).result
        packed = value_of(right).type.likely
        machine = self.variant.machine_for(ElemKind.I8)
        problem = _problem(type, value_of(lhs).type, prod(packed[:-3]))
        decision = self.chooser.choose(n, product_ways(problem, machine))
        if decision.vectors % (block := packed[-1] // _WORD // machine.lanes):
            # Packed for a product of more rows.
            decision = replace(decision, pixels=1, vectors=block)
        return create_cpu_matmul(
            f, n.name, type, lhs, right,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            slab=decision.slab, fetch=fetched_ahead(problem, machine, decision, type),
        ).result  # fmt: skip

    def _column_sums(
        self,
        f: Function,
        n: MatMulNode,
        offset: int,
        offsets: Array,
        lhs: NodeValue,
        right: Operand,
    ) -> Operand:
        """Computes the addend of each column for the left side's offset: it times the sum of the column's weights."""
        *batch, depth, columns = n.rhs.type.shape
        shape = (*batch, 1, columns)
        constant = n.rhs.constant
        if constant is not None:
            (rows,) = static([depth])

            def compute(matrix: Array) -> Array:
                sums = in_i8(matrix).astype(np.int64).sum(axis=-2, keepdims=True)
                return _wrapped(offset * (sums - rows * offsets))

            type = Type(ElemKind.I32, shape)
            tensor = Tensor.derived(type, f"columns times {offset}", [constant.tensor], compute)
            return f.module.create_constant(f"{n.name}_columns", tensor, loc=n.loc)
        sums = self._multiply(f, n, shape, _ones(f, n, (1, lhs.type.shape[-1])), right)
        scaled = f.create_mul(n.name, sums, _integers(f, n, np.array([offset])))
        return f.create_sub(n.name, scaled, _times(f, n, depth, offset * offsets))


def _plain(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """Returns the stored elements as plain integers."""
    if value.type.quant is None:
        return value
    return f.create_storage_cast(n.name, Type(value.type.kind, value.type.shape), value).result


def _problem(result: Type, lhs: Type, matrices: int) -> Problem:
    """A product, of the likely extents."""
    problem = matmul_problem(result.likely, lhs.likely[-1], matrices)
    return problem.with_open_columns() if isinstance(result.shape[-1], Expr) else problem


def _constant(f: Function, n: Node, part: str, array: Array) -> Operand:
    return f.module.create_constant(f"{n.name}_{part}", array, loc=n.loc)


def _ones(f: Function, n: Node, shape: Shape) -> Operand:
    """Ones of i8."""
    if depends_on_symbols(shape):
        return f.create_splat(f"{n.name}_ones", Type(ElemKind.I8, shape), 1.0)
    return _constant(f, n, "ones", np.ones(static(shape), np.int8))


def _times(f: Function, n: Node, dim: Dim, values: Array) -> Operand:
    """A dimension times some numbers, in i32."""
    if isinstance(dim, int):
        return _integers(f, n, dim * values)
    number = f.create_convert(n.name, Type(ElemKind.I32, (1,)), f.create_extents(n.name, (dim,)))
    return f.create_mul(n.name, number, _integers(f, n, values))


def _integers(f: Function, n: Node, values: Array) -> Operand:
    """A constant of i32."""
    return _constant(f, n, "factor", _wrapped(values))


def _wrapped(sums: Array) -> Array:
    return sums.astype(np.int64).astype(np.int32)


def _in_i8(f: Function, n: Node, value: NodeValue) -> NodeValue:
    return value if value.type.kind is ElemKind.I8 else _moved(f, n, value)


def _moved(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """Moves numbers to the other kind of 8 bits: integers and offsets are 128 more, or less.

    What is rounded just before is rounded to the other kind, which gives the same.
    """
    quant, to_i8 = parameters(value.type), value.type.kind is ElemKind.U8
    moved = tuple(offset + (-_HALF_RANGE if to_i8 else _HALF_RANGE) for offset in quant.offsets)
    kind = ElemKind.I8 if to_i8 else ElemKind.U8
    type = Type(kind, value.type.shape, Quant(quant.scales, moved, quant.axis))

    node = value.node
    steps: Operand
    if isinstance(node, SaturateNode):
        steps = node.lhs
    else:
        floats = Type(ElemKind.F32, value.type.shape)
        own = known_parameter(f, n, "offset", offsets_of(value.type))
        steps = f.create_subtract_offset(f"{n.name}_steps", floats, value, own)
    offset = known_parameter(f, n, "moved", offsets_of(type).astype(steps.type.kind.dtype))
    return f.create_saturate(n.name, type, steps, offset).result


def _bias(f: Function, n: ConvolutionNode, filter: Tensor, offset: int, offsets: Array) -> Operand:
    """The bias, less what the offset of the input adds to every sum."""
    bias = _plain(f, n, n.bias)
    if not offset:
        return bias

    def share(filter: Array) -> Array:
        taps = in_i8(filter).astype(np.int64).reshape(len(filter), -1)
        return _wrapped(offset * (taps.sum(axis=1) - taps.shape[1] * offsets))

    tensor = Tensor.derived(bias.type, f"filter times {offset}", [filter], share)
    return f.create_sub(
        n.name, bias, f.module.create_constant(f"{n.name}_share", tensor, loc=n.loc)
    )


def _less(f: Function, n: Node, sums: NodeValue, elements: NodeValue, offsets: Array) -> NodeValue:
    """Sums less those of the input's elements times the offsets of the weights."""
    return f.create_sub(
        n.name, sums, f.create_mul(n.name, elements, _integers(f, n, offsets))
    ).result
