"""Rules of convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.shape import is_same, is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.core.window import Windows, windowed_shape
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import ConvolutionNode, FilterGradientNode, TransposedConvolutionNode
from glowpy.graph.verifier import verify
from glowpy.graph.work import largest_count, macs
from glowpy.ir.insts_gen import ConvolutionInst
from glowpy.lower import lower
from glowpy.ops.operands import as_stored, expect_floats, expect_numbers, expect_same_kind, factors
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.symbolic import Dim, ceil_div, greatest, least, lowest, product, static

__all__: list[str] = []


@infer(ConvolutionNode)
def _infer_convolution(
    input: Type,
    filter: Type,
    bias: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> Type:
    expect_numbers("input", input)
    expect_same_kind(input, filter=filter, bias=bias)
    counts = windowed_shape(input, Windows(kernels, strides, pads, dilation))
    _check_filter(input, filter, kernels, group)
    outputs = filter.shape[0]
    if not is_same_shape(bias.shape, (outputs,)):
        raise UserError(f"expected bias of shape [{outputs}], got {bias}")
    return Type(input.kind, (input.shape[0], *counts, outputs))


def _check_filter(input: Type, filter: Type, kernels: Sequence[int], group: int) -> None:
    if filter.rank != input.rank:
        raise UserError(f"expected filter of rank {input.rank} as the input, got {filter}")
    if not is_same_shape(filter.shape[1:-1], tuple(kernels)):
        raise UserError(f"expected filter windows of {list(kernels)}, got {filter}")
    channels, outputs = input.shape[-1], filter.shape[0]
    if group < 1:
        raise UserError(f"expected a group of at least 1, got {group}")
    if channels % group:
        raise UserError(f"input has {channels} channels, expected a multiple of group {group}")
    if outputs % group:
        raise UserError(f"filter has {outputs} outputs, expected a multiple of group {group}")
    if not is_same(filter.shape[-1], channels // group):
        raise UserError(
            f"filter has {filter.shape[-1]} input channels, expected {channels // group} "
            f"(input channels {channels} / group {group})"
        )


@macs(ConvolutionNode)
def _macs(n: ConvolutionNode) -> int:
    return largest_count((*n.type.shape, *n.filter.type.shape[1:]))


@macs(TransposedConvolutionNode)
def _transposed_macs(n: TransposedConvolutionNode) -> int:
    """Every element of the input meets the taps of each output channel of its group."""
    inputs, filters = n.input.type.shape, n.filter.type.shape
    return largest_count((*inputs, *filters[:-1])) // n.group


@verify(TransposedConvolutionNode)
def _verify_transposed_convolution(n: TransposedConvolutionNode) -> Iterator[str]:
    expect_numbers("input", n.input.type)
    expect_same_kind(n.input.type, filter=n.filter.type, bias=n.bias.type, result=n.type)
    rank = n.input.type.rank - 2
    if not 1 <= rank <= 3:
        yield f"expected an input with 1 to 3 spatial dimensions, got {n.input.type}"
        return
    lists = {"kernels": n.kernels, "strides": n.strides, "begins": n.begins, "dilation": n.dilation}
    for name, sizes in lists.items():
        if len(sizes) != rank or (name != "begins" and min(sizes) < 1):
            yield f"{name}: expected {rank} numbers of at least 1, got {list(sizes)}"
            return
    _check_filter(n.input.type, n.filter.type, n.kernels, n.group)
    outputs = n.filter.type.shape[0]
    if not is_same_shape(n.bias.type.shape, (outputs,)):
        yield f"expected bias of shape [{outputs}], got {n.bias.type}"
    if n.type.rank != rank + 2 or (n.type.shape[0], n.type.shape[-1]) != (
        n.input.type.shape[0],
        outputs,
    ):
        yield f"expected a result of {n.input.type.shape[0]} images with {outputs} channels, got {n.type}"


@dataclass(frozen=True)
class _Phase:
    """Phase of a transposed convolution: every `stride`th element of its result along one spatial dimension.

    A convolution of stride 1 with some taps of the kernel, from the last one on backwards.

    Attributes:
        first: The last tap.
        count: How many taps there are that meet the input; where there is none, the result is the bias.
        step: From one tap to the one before it.
        dilation: From one of the input's elements under the window to the next.
        pads: Begin and end; negative ones crop.
    """

    first: int
    count: int
    step: int
    dilation: int
    pads: tuple[int, Dim]


def _phase(n: TransposedConvolutionNode, axis: int, residue: int) -> _Phase:
    """Computes the phase of the elements `residue`, `residue` + stride and so on.

    Element number stride * j + residue sums input[i] * filter[k] where stride * i + dilation * k is number + begin.
    """
    kernel, stride, dilation = n.kernels[axis], n.strides[axis], n.dilation[axis]
    place = residue + n.begins[axis]
    common = math.gcd(stride, dilation)
    step, between = stride // common, dilation // common
    taps = [k for k in range(min(kernel, step)) if (place - k * dilation) % stride == 0]
    if not taps:
        return _Phase(0, 0, step, between, (0, 0))
    count = ceil_div(kernel - taps[0], step)
    shift = (place - taps[0] * dilation) // stride
    size, length = n.input.type.shape[axis + 1], ceil_div(n.type.shape[axis + 1], stride)
    pads = (count - 1) * between - shift, length + shift - size
    if any(lowest(-pad - size) >= 0 for pad in pads):  # of the input, nothing would be left
        return _Phase(0, 0, step, between, (0, 0))
    return _Phase(taps[0] + (count - 1) * step, count, step, between, pads)


@lower(TransposedConvolutionNode)
def _lower_transposed_convolution(f: Function, n: TransposedConvolutionNode) -> Operand:
    """A convolution for each phase, interleaved: nothing is multiplied by zeros between the input's elements.

    The phases lie side by side in [N, size / stride, stride, ..., O], so that each writes into its place in the result.
    """
    lengths = [
        ceil_div(size, stride) for size, stride in zip(n.type.shape[1:-1], n.strides, strict=True)
    ]

    def part(residues: tuple[int, ...]) -> Operand:
        axis = len(residues)
        if axis < len(n.strides):
            parts = [part((*residues, residue)) for residue in range(n.strides[axis])]
            return f.create_concat(n.name, parts, 2 + 2 * axis) if len(parts) > 1 else parts[0]
        phases = [_phase(n, axis, residue) for axis, residue in enumerate(residues)]
        pairs = (size for length in lengths for size in (length, 1))
        shape = (n.type.shape[0], *pairs, n.type.shape[-1])
        return f.create_reshape(
            n.name, n.type.with_shape(shape), _phase_result(f, n, phases, lengths)
        )

    extents = [length * stride for length, stride in zip(lengths, n.strides, strict=True)]
    shape = (n.type.shape[0], *extents, n.type.shape[-1])
    result = f.create_reshape(n.name, n.type.with_shape(shape), part(()))
    rank = len(shape)
    return f.create_slice(n.name, n.type, result, (0,) * rank, (1,) * rank)


def _phase_result(
    f: Function, n: TransposedConvolutionNode, phases: Sequence[_Phase], lengths: Sequence[Dim]
) -> Operand:
    """The result of one phase: N, spatial..., O."""
    images, outputs = n.type.shape[0], n.type.shape[-1]
    type = n.type.with_shape((images, *lengths, outputs))
    if not all(phase.count for phase in phases):
        row = f.create_reshape(
            n.name, n.type.with_shape((1,) * (type.rank - 1) + (outputs,)), n.bias
        )
        return f.create_broadcast(n.name, type, row)
    kernels = tuple(phase.count for phase in phases)
    starts = (0, *(phase.first for phase in phases), 0)
    steps = (1, *(-phase.step for phase in phases), 1)
    filter_type = n.filter.type.with_shape((outputs, *kernels, n.filter.type.shape[-1]))
    filter = f.create_slice(n.name, filter_type, n.filter, starts, steps)
    ends = [[phase.pads[end] for phase in phases] for end in (0, 1)]
    cropped: Operand = n.input
    if any(pad < 0 for pads in ends for pad in pads):
        crops = [[0, *(least(pad, 0) for pad in pads), 0] for pads in ends]
        cropped = f.create_pad(n.name, n.input, (*crops[0], *crops[1]), 0.0)
    return f.create_convolution(
        n.name, cropped, filter, n.bias, kernels, (1,) * len(phases),
        tuple(greatest(pad, 0) for pads in ends for pad in pads),
        tuple(phase.dilation for phase in phases), n.group,
    )  # fmt: skip


# Gradients.


@verify(FilterGradientNode)
def _verify_filter_gradient(n: FilterGradientNode) -> Iterator[str]:
    input, gradient, rank = n.input.type, n.gradient.type, n.input.type.rank - 2
    expect_floats("input", input)
    expect_same_kind(input, gradient=gradient, result=n.type)
    if not 1 <= rank <= 3 or gradient.rank != input.rank:
        yield f"expected an input and a gradient with 1 to 3 spatial dimensions, got {input} and {gradient}"
        return
    lists = {"kernels": n.kernels, "strides": n.strides, "begins": n.begins, "dilation": n.dilation}
    for name, sizes in lists.items():
        if len(sizes) != rank or (name != "begins" and min(sizes) < 1):
            yield f"{name}: expected {rank} numbers of at least 1, got {list(sizes)}"
            return
    if not is_same(input.shape[0], gradient.shape[0]):
        yield f"expected as many images in input and gradient, got {input} and {gradient}"
    _check_filter(input, n.type, n.kernels, n.group)
    if not is_same(n.type.shape[0], gradient.shape[-1]):
        yield f"expected a result of {gradient.shape[-1]} outputs, got {n.type}"


@macs(FilterGradientNode)
def _filter_gradient_macs(n: FilterGradientNode) -> int:
    return largest_count((*n.gradient.type.shape, *n.type.shape[1:]))


@lower(FilterGradientNode)
def _lower_filter_gradient(f: Function, n: FilterGradientNode) -> Operand:
    """A product over the pixels for each tap, of the part of the input that meets it."""
    images, *pixels, outputs = n.gradient.type.shape
    channels = n.input.type.shape[-1]
    geometry = zip(n.input.type.shape[1:-1], pixels, n.kernels, strict=True)
    steps = zip(n.strides, n.dilation, n.begins, strict=True)
    ends = [
        stride * (count - 1) + dilation * (kernel - 1) + 1 - size - begin
        for (size, count, kernel), (stride, dilation, begin) in zip(geometry, steps, strict=True)
    ]
    padded = f.create_pad(n.name, n.input, (0, *n.begins, 0, 0, *ends, 0), 0.0)

    def grouped(value: Operand, depth: Dim, shuffle: tuple[int, ...]) -> Operand:
        """A matrix for each group, of pixels and channels."""
        count = product((images, *pixels))
        rows = n.type.with_shape((count, n.group, depth // n.group))
        return f.create_transpose(n.name, f.create_reshape(n.name, rows, value), shuffle)

    flow = grouped(n.gradient, outputs, (1, 0, 2))
    taps: list[Operand] = []
    for tap in np.ndindex(*n.kernels):
        starts = (0, *(at * step for at, step in zip(tap, n.dilation, strict=True)), 0)
        met = n.input.type.with_shape((images, *pixels, channels))
        part = f.create_slice(n.name, met, padded, starts, (1, *n.strides, 1))
        sums = f.create_mat_mul(n.name, grouped(part, channels, (1, 2, 0)), flow)
        shape = n.type.with_shape((n.group, 1, channels // n.group, outputs // n.group))
        taps.append(f.create_reshape(n.name, shape, sums))
    whole = f.create_transpose(n.name, f.create_concat(n.name, taps, 1), (0, 3, 1, 2))
    return f.create_reshape(n.name, n.type, whole)


def _exchanged(f: Function, name: str, filter: NodeValue, group: int) -> Operand:
    """A filter whose outputs and input channels have changed places within each group."""
    outputs, *kernels, channels = filter.type.shape
    apart = filter.type.with_shape((group, outputs // group, *kernels, channels))
    shuffle = (0, len(kernels) + 2, *range(2, len(kernels) + 2), 1)
    turned = f.create_transpose(name, f.create_reshape(name, apart, filter), shuffle)
    joined = filter.type.with_shape((group * channels, *kernels, outputs // group))
    return f.create_reshape(name, joined, turned)


def _no_bias(f: Function, name: str, like: Type, outputs: Dim) -> Operand:
    return f.create_splat(name, like.with_shape((outputs,)), 0.0)


def _begins(n: ConvolutionNode) -> tuple[int, ...]:
    """The pads before the first element. Raises UnsupportedError where they depend on open dimensions."""
    begins = n.pads[: len(n.kernels)]
    if not all(isinstance(begin, int) for begin in begins):
        raise UnsupportedError(
            f"convolution %{n.name} has no derivative: its pads depend on open dimensions",
            loc=n.loc,
        )
    return static(begins)


@derivative(ConvolutionNode)
def _differentiate_convolution(
    f: Function, n: ConvolutionNode, g: NodeValue
) -> list[Operand | None]:
    begins, others = _begins(n), tuple(range(n.type.rank - 1))
    window = (n.kernels, n.strides, begins, n.dilation, n.group)
    nothing = _no_bias(f, n.name, n.type, n.input.type.shape[-1])
    exchanged = _exchanged(f, n.name, n.filter, n.group)
    total = f.create_reduce_add(n.name, g, others)
    return [
        f.create_transposed_convolution(n.name, n.input.type, g, exchanged, nothing, *window),
        f.create_filter_gradient(n.name, n.filter.type, n.input, g, *window),
        f.create_reshape(n.name, n.bias.type, total),
    ]


def _as_convolution(
    f: Function,
    n: TransposedConvolutionNode | FilterGradientNode,
    input: Operand,
    filter: Operand,
    pixels: Sequence[Dim],
) -> Operand:
    """The convolution of an input by a filter over the windows of a node, as many as there are `pixels`."""
    type, outputs = value_of(input).type, value_of(filter).type.shape[0]
    ends = [
        stride * (count - 1) + dilation * (kernel - 1) + 1 - size - begin
        for count, kernel, stride, dilation, size, begin in zip(
            pixels, n.kernels, n.strides, n.dilation, type.shape[1:-1], n.begins, strict=True
        )
    ]
    padded = f.create_pad(n.name, input, (0, *n.begins, 0, 0, *ends, 0), 0.0)
    nothing, pads = _no_bias(f, n.name, type, outputs), (0,) * (2 * len(n.kernels))
    return f.create_convolution(
        n.name, padded, filter, nothing, n.kernels, n.strides, pads, n.dilation, n.group
    )


@derivative(TransposedConvolutionNode)
def _differentiate_transposed_convolution(
    f: Function, n: TransposedConvolutionNode, g: NodeValue
) -> list[Operand | None]:
    """The convolution that it is the gradient of."""
    exchanged = _exchanged(f, n.name, n.filter, n.group)
    by_filter = f.create_filter_gradient(
        n.name, value_of(exchanged).type, g, n.input,
        n.kernels, n.strides, n.begins, n.dilation, n.group,
    )  # fmt: skip
    total = f.create_reduce_add(n.name, g, tuple(range(n.type.rank - 1)))
    return [
        _as_convolution(f, n, g, exchanged, n.input.type.shape[1:-1]),
        _exchanged(f, n.name, by_filter.result, n.group),
        f.create_reshape(n.name, n.bias.type, total),
    ]


@derivative(FilterGradientNode)
def _differentiate_filter_gradient(
    f: Function, n: FilterGradientNode, g: NodeValue
) -> list[Operand | None]:
    """It is linear in both operands; `g` takes the place of the filter."""
    nothing = _no_bias(f, n.name, n.type, n.input.type.shape[-1])
    by_input = f.create_transposed_convolution(
        n.name, n.input.type, n.gradient, _exchanged(f, n.name, g, n.group), nothing,
        n.kernels, n.strides, n.begins, n.dilation, n.group,
    )  # fmt: skip
    return [by_input, _as_convolution(f, n, n.input, g, n.gradient.type.shape[1:-1])]


@interpret(ConvolutionInst)
def _convolution(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> None:
    """An image's windows become the rows of a matrix for each group, times the group's filters."""
    if result.array.size == 0:
        return
    windows = Windows(kernels, strides, pads, dilation)
    images, *counts, outputs = result.type.extents
    pixels, taps, depth = math.prod(counts), math.prod(kernels), filter.type.extents[-1]
    data = factors(input)
    weights = factors(filter).reshape(group, outputs // group, taps * depth)
    for image in range(images):
        view = windows.view(data[image : image + 1], 0, counts)[0]
        # Channels last, so that the copy reads and writes runs of them.
        columns = np.moveaxis(view, len(counts), -1).reshape(pixels, taps, group, depth)
        columns = columns.transpose(2, 0, 1, 3).reshape(group, pixels, taps * depth)
        products = np.matmul(columns, weights.transpose(0, 2, 1))
        sums = products.transpose(1, 0, 2).reshape(*counts, outputs) + factors(bias)
        result.array[image] = as_stored(sums, result.type.kind)
