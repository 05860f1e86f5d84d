"""Rules of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import resized
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.core.window import Windows, windowed_shape
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import AvgPoolNode, MaxPoolNode, MaxPoolWithArgmaxNode, SumPoolNode
from glowpy.ir.insts_gen import AvgPoolInst, MaxPoolInst, MaxPoolWithArgmaxInst, SumPoolInst
from glowpy.ops.elementwise import scalar
from glowpy.ops.operands import accumulable, bounds, expect_floats, expect_numbers
from glowpy.ops.positions import number
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


@infer(MaxPoolNode)
def _infer_max_pool(
    input: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Type:
    expect_numbers("input", input)
    return _pooled(input, Windows(kernels, strides, pads, dilation), ceil=ceil)


@infer(MaxPoolWithArgmaxNode)
def _infer_max_pool_with_argmax(
    input: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> tuple[Type, Type]:
    expect_numbers("input", input)
    result = _pooled(input, Windows(kernels, strides, pads, dilation), ceil=ceil)
    return result, result.with_kind(ElemKind.I64)


@infer(AvgPoolNode)
def _infer_avg_pool(
    input: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    count_include_pads: bool,
) -> Type:
    del count_include_pads
    expect_floats("input", input)
    return _pooled(input, Windows(kernels, strides, pads, dilation), ceil=ceil)


@infer(SumPoolNode)
def _infer_sum_pool(
    input: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Type:
    if not input.kind.is_integer or input.kind.size > 2:
        raise UserError(f"expected input of i8, u8, i16 or u16, got {input}")
    counts = _counts(input, Windows(kernels, strides, pads, dilation), ceil=ceil)
    return Type(ElemKind.I32, (input.shape[0], *counts, input.shape[-1]))


def _pooled(input: Type, windows: Windows, *, ceil: bool) -> Type:
    counts = _counts(input, windows, ceil=ceil)
    axis = input.quant.axis if input.quant is not None else None
    if axis not in (None, 0, input.rank - 1):
        raise UserError(f"expected windows within a channel, got {input}")
    return resized(input, (input.shape[0], *counts, input.shape[-1]))


def _counts(input: Type, windows: Windows, *, ceil: bool) -> Shape:
    """How many windows there are; the only one may be larger than the image with its pads."""
    return windowed_shape(input, windows, ceil=ceil, partial=True)


def _reaching(
    input: Tensor,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
) -> Windows:
    """The windows, without taps that none of them has in the image."""
    return Windows(kernels, strides, pads, dilation).reaching(input.type.extents[1:-1])


def _tap_axes(windows: Windows) -> tuple[int, ...]:
    """The dimensions of a window view that are the taps."""
    return tuple(range(-windows.rank, 0))


@interpret(MaxPoolInst)
def _max_pool(
    result: Tensor,
    input: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> None:
    del ceil  # it is in the result's shape
    if result.array.size:
        windows = _reaching(input, kernels, strides, pads, dilation)
        lowest, _ = bounds(input.type.kind)
        view = windows.view(input.array, lowest, result.type.extents[1:-1])
        result.array[...] = np.maximum.reduce(view, axis=_tap_axes(windows))


@interpret(MaxPoolWithArgmaxInst)
def _max_pool_with_argmax(
    result: Tensor,
    argmax: Tensor,
    input: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> None:
    """Tap by tap: the first of equal elements wins, and a pad not even over the lowest."""
    del ceil
    if result.array.size == 0:
        return
    windows = _reaching(input, kernels, strides, pads, dilation)
    counts, (lowest, _) = result.type.extents[1:-1], bounds(input.type.kind)
    values = windows.view(input.array, lowest, counts)
    places = windows.view(_channels_first_index(input.type), -1, counts)
    best = np.full(result.type.extents, lowest, result.array.dtype)
    where = np.full(result.type.extents, -1, np.int64)
    for tap in np.ndindex(*windows.kernels):
        value, place = values[(..., *tap)], places[(..., *tap)]
        first_nan = (value != value) & (best == best)
        higher = (place >= 0) & ((value > best) | (where < 0) | first_nan)
        best, where = np.where(higher, value, best), np.where(higher, place, where)
    result.array[...] = best
    argmax.array[...] = where


def _channels_first_index(type: Type) -> Array:
    """Returns for each element of N, spatial..., C its index if the tensor were stored as N, C, spatial."""
    images, *spatial, channels = type.extents
    first = (images, channels, *spatial)
    return np.moveaxis(np.arange(math.prod(first), dtype=np.int64).reshape(first), 1, -1)


# Gradients.


@derivative(MaxPoolNode)
def _differentiate_max_pool(f: Function, n: MaxPoolNode, g: NodeValue) -> list[Operand | None]:
    window = (n.kernels, n.strides, n.pads, n.dilation, n.ceil)
    places = f.create_max_pool_with_argmax(n.name, n.input, *window).results[1]
    return [_given_back(f, n, g, places)]


@derivative(MaxPoolWithArgmaxNode)
def _differentiate_max_pool_with_argmax(
    f: Function, n: MaxPoolWithArgmaxNode, g: NodeValue | None, by_argmax: None
) -> list[Operand | None]:
    del by_argmax
    return [None if g is None else _given_back(f, n, g, n.results[1])]


def _given_back(
    f: Function, n: MaxPoolNode | MaxPoolWithArgmaxNode, g: NodeValue, places: NodeValue
) -> Operand:
    """The gradients added up where the largest elements are: the first of equal ones has all, as PyTorch has it.

    A window without a tap in the image has the place -1, and gives nothing.
    """
    input, count = n.input.type, places.type.count
    nowhere = f.create_lt(n.name, places, number(f, n.name, 0))
    flow = f.create_select(n.name, nowhere, scalar(f, n.name, g.type, 0), g)
    updates = f.create_reshape(n.name, g.type.with_shape((count, 1)), flow)
    flat = f.create_reshape(n.name, places.type.with_shape((count,)), places)
    nothing = f.create_splat(n.name, input.with_shape((input.count, 1)), 0)
    summed = f.create_scatter_add(n.name, nothing, flat, updates)
    images, *spatial, channels = input.shape
    first = f.create_reshape(n.name, input.with_shape((images, channels, *spatial)), summed)
    return f.create_transpose(n.name, first, (0, *range(2, input.rank), 1))


@derivative(AvgPoolNode)
def _differentiate_avg_pool(f: Function, n: AvgPoolNode, g: NodeValue) -> list[Operand | None]:
    """Each window gives the taps in the image equal shares: a transposed convolution of each channel."""
    channels, begins = n.type.shape[-1], n.pads[: len(n.kernels)]
    if not all(isinstance(size, int) for size in (channels, *begins)):
        raise UnsupportedError(
            f"avg_pool %{n.name} has no derivative: its channels or pads depend on open dimensions",
            loc=n.loc,
        )
    (group, *first) = static((channels, *begins))
    ones = f.create_splat(n.name, n.type.with_shape((group, *n.kernels, 1)), 1)
    nothing = f.create_splat(n.name, n.type.with_shape((group,)), 0)
    share = f.create_div(n.name, g, _divisor(f, n))
    return [
        f.create_transposed_convolution(
            n.name, n.input.type, share, ones, nothing,
            n.kernels, n.strides, tuple(first), n.dilation, group,
        )
    ]  # fmt: skip


def _divisor(f: Function, n: AvgPoolNode) -> Operand:
    """How many taps of each window count, at least 1: the sums of windows over an image of ones.

    It ends where the last window does, beyond the pads where `ceil` has it so.
    """
    rank, counts = len(n.kernels), n.type.shape[1:-1]
    image = n.type.with_shape((1, *n.input.type.shape[1:-1], 1))
    ones: Operand = f.create_splat(n.name, image, 1)
    begins, ends = list(n.pads[:rank]), list(n.pads[rank:])
    reaches = [
        (count - 1) * stride + (kernel - 1) * step + 1
        for count, stride, kernel, step in zip(
            counts, n.strides, n.kernels, n.dilation, strict=True
        )
    ]
    if n.count_include_pads:
        ones = f.create_pad(n.name, ones, (0, *begins, 0, 0, *ends, 0), 1.0)
        sizes = value_of(ones).type.shape[1:-1]
        begins = [0] * rank
    else:
        sizes = image.shape[1:-1]
    rests = [
        reach - size - begin for reach, size, begin in zip(reaches, sizes, begins, strict=True)
    ]
    around = f.create_pad(n.name, ones, (0, *begins, 0, 0, *rests, 0), 0.0)
    filter = f.create_splat(n.name, n.type.with_shape((1, *n.kernels, 1)), 1)
    nothing = f.create_splat(n.name, n.type.with_shape((1,)), 0)
    sums = f.create_convolution(
        n.name, around, filter, nothing, n.kernels, n.strides, (0,) * (2 * rank), n.dilation, 1
    )
    return f.create_max(n.name, sums, scalar(f, n.name, n.type, 1))


@interpret(AvgPoolInst)
def _avg_pool(
    result: Tensor,
    input: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    count_include_pads: bool,
) -> None:
    """A window without any counted tap gives 0."""
    del ceil
    if result.array.size == 0:
        return
    windows = Windows(kernels, strides, pads, dilation)
    counts = result.type.extents[1:-1]
    reaching = windows.reaching(input.type.extents[1:-1])
    view = reaching.view(accumulable(input.array), 0, counts)
    divisor = windows.counted(input.type.extents[1:-1], counts, pads=count_include_pads)
    sums = view.sum(axis=_tap_axes(windows))
    result.array[...] = (sums / np.maximum(divisor, 1)[..., None]).astype(result.array.dtype)


@interpret(SumPoolInst)
def _sum_pool(
    result: Tensor,
    input: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> None:
    del ceil
    if result.array.size:
        windows = _reaching(input, kernels, strides, pads, dilation)
        view = windows.view(input.array, 0, result.type.extents[1:-1])
        result.array[...] = view.sum(axis=_tap_axes(windows), dtype=np.int32)
