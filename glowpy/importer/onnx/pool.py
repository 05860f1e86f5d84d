"""Import of pooling: MaxPool, AveragePool, LpPool and their global forms, and MaxUnpool."""

from __future__ import annotations

from dataclasses import replace

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape, window_shape
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    channels_first,
    channels_last,
    convert,
    filled,
    reshape,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.kit.windows import Window
from glowpy.importer.onnx.conv import window
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import greatest, product, static

__all__ = ["means_of_windows", "whole_windows"]


def _pooled(n: OnnxNode) -> tuple[NodeValue, Window]:
    """The input as N, spatial..., C, and the window over it."""
    spatial = _spatial(n)
    if not spatial:
        raise UserError(f"expected an input of rank 3 or more, got {n.type(0)}")
    kernels = n.integers("kernel_shape") or ()
    return n.operand(channels_last(n, n.value(0)), n.proto.input[0]), window(n, spatial, kernels)


def _spatial(n: OnnxNode) -> Shape:
    if n.type(0).rank < 2:
        raise UserError(f"expected an input of rank 2 or more, got {n.type(0)}")
    return n.type(0).shape[2:]


@from_onnx("MaxPool")
def _max_pool(n: OnnxNode) -> tuple[Result, ...]:
    value, win = _pooled(n)
    args = (win.kernels, win.strides, win.pads, win.dilation, n.flag("ceil_mode"))
    if not n.wants(1):
        return (channels_first(n, n.f.create_max_pool(n.name, value, *args).result),)
    node = n.f.create_max_pool_with_argmax(n.name, value, *args)
    indices = channels_first(n, node.results[1])
    if n.flag("storage_order"):
        indices = _column_major(n, indices)
    return channels_first(n, node.results[0]), indices


def _column_major(n: OnnxNode, indices: Value) -> Value:
    """Indices that count the spatial dimensions from the first to the last, instead of from the last to the first."""
    spatial = _spatial(n)
    if len(spatial) == 1:
        return indices
    if len(spatial) != 2:
        raise n.unsupported(f"storage_order 1 with {len(spatial)} spatial dimensions")
    height, width = static(spatial)

    def number(value: int) -> NodeValue:
        return n.f.create_splat(f"{n.name}_size", Type(indices.type.kind, ()), float(value)).result

    f, row_major = n.f, n.operand(indices)
    row = f.create_div(n.name, row_major, number(width))
    column = f.create_sub(n.name, row_major, f.create_mul(n.name, row, number(width)))
    plane = f.create_div(n.name, row, number(height))
    inside = f.create_sub(n.name, row, f.create_mul(n.name, plane, number(height)))
    base = f.create_add(n.name, f.create_mul(n.name, plane, number(height * width)), inside)
    return f.create_add(n.name, base, f.create_mul(n.name, column, number(height))).result


@from_onnx("AveragePool")
def _average_pool(n: OnnxNode) -> Value:
    value, win = _pooled(n)
    means = means_of_windows(
        n, value, win, ceil=n.flag("ceil_mode"), count_pads=n.flag("count_include_pad")
    )
    return channels_first(n, means)


def means_of_windows(
    n: OnnxNode, image: NodeValue, win: Window, *, ceil: bool, count_pads: bool
) -> NodeValue:
    """The means of windows over N, spatial..., C."""
    args = (win.kernels, win.strides, win.pads, win.dilation, ceil, count_pads)
    return n.f.create_avg_pool(n.name, image, *args).result


def whole_windows(n: OnnxNode, spatial: Shape) -> Window:
    """The window of a pool, with as many more pads at the ends as `ceil_mode` has it reach beyond them."""
    win, rank = window(n, spatial, n.integers("kernel_shape") or ()), len(spatial)
    counts = window_shape(
        spatial, win.kernels, win.strides, win.pads, win.dilation,
        ceil=n.flag("ceil_mode"), partial=True,
    )  # fmt: skip
    reaches = [
        (count - 1) * stride + (kernel - 1) * step + 1
        for count, stride, kernel, step in zip(
            counts, win.strides, win.kernels, win.dilation, strict=True
        )
    ]
    ends = [
        greatest(win.pads[rank + axis], reaches[axis] - size - win.pads[axis])
        for axis, size in enumerate(spatial)
    ]
    return replace(win, pads=(*win.pads[:rank], *ends))


def _whole(spatial: tuple[int, ...]) -> Window:
    """The window that covers everything."""
    ones = (1,) * len(spatial)
    return Window(spatial, ones, ones, (0,) * (2 * len(spatial)))


@from_onnx("GlobalAveragePool")
def _global_average_pool(n: OnnxNode) -> Value:
    """A pool over everything; more than 3 dimensions, or none of any size, are left to a reduction."""
    spatial = _spatial(n)
    if not spatial:
        return n.value(0)
    value = n.operand(channels_last(n, n.value(0)), n.proto.input[0])
    if len(spatial) > 3 or not n.type(0).is_static or not product(spatial):
        axes = tuple(range(1, 1 + len(spatial)))
        return channels_first(n, n.f.create_reduce_mean(n.name, value, axes).result)
    win = _whole(static(spatial))
    means = means_of_windows(n, value, win, ceil=False, count_pads=False)
    return channels_first(n, means)


@from_onnx("GlobalMaxPool")
def _global_max_pool(n: OnnxNode) -> Value:
    spatial = _spatial(n)
    if not spatial:
        return n.value(0)
    value = n.operand(channels_last(n, n.value(0)), n.proto.input[0])
    axes = tuple(range(1, 1 + len(spatial)))
    return channels_first(n, n.f.create_reduce_max(n.name, value, axes).result)


@from_onnx("LpPool")
def _lp_pool(n: OnnxNode) -> Value:
    """Powers, their mean over windows times the taps, and a root. Pads are zeros, and `ceil_mode` adds some."""
    value, _ = _pooled(n)
    win = whole_windows(n, _spatial(n))
    powers = _power(n, n.operand(convert(n, value, _wide(value))), _exponent(n))
    means = means_of_windows(n, powers, win, ceil=False, count_pads=True)
    taps = _number(n, means, product(win.kernels))
    return _root(n, n.f.create_mul(n.name, means, taps).result)


@from_onnx("GlobalLpPool")
def _global_lp_pool(n: OnnxNode) -> Value:
    spatial = _spatial(n)
    value = n.operand(channels_last(n, n.value(0)), n.proto.input[0])
    powers = _power(n, n.operand(convert(n, value, _wide(value))), _exponent(n))
    axes = tuple(range(1, 1 + len(spatial)))
    sums = n.f.create_reduce_add(n.name, powers, axes).result if axes else powers
    return _root(n, sums)


def _exponent(n: OnnxNode) -> float:
    """The attribute `p`, which was a floating-point number once."""
    exponent = n.real("p", 2.0) if n.opset < 2 else float(n.integer("p", 2))
    if exponent <= 0:
        raise UserError(f"attribute 'p': expected more than 0, got {exponent:g}")
    return exponent


def _wide(value: Value) -> ElemKind:
    """The kind in which powers are computed: their sums have more digits than halves, and a larger range."""
    return ElemKind.F32 if value.type.kind.is_half else value.type.kind


def _number(n: OnnxNode, like: NodeValue, number: float) -> NodeValue:
    return n.f.create_splat(n.name, like.type.with_shape(()), number).result


def _power(n: OnnxNode, value: NodeValue, exponent: float) -> NodeValue:
    """Sizes to a power."""
    if exponent == 2:
        return n.f.create_mul(n.name, value, value).result
    size = n.f.create_abs(n.name, value).result
    return (
        size if exponent == 1 else n.f.create_pow(n.name, size, _number(n, value, exponent)).result
    )


def _root(n: OnnxNode, sums: NodeValue) -> Value:
    """The root of sums of powers, in the kind of the input and with channels first."""
    exponent = _exponent(n)
    if exponent == 2:
        sums = n.f.create_sqrt(n.name, sums).result
    elif exponent != 1:
        sums = n.f.create_pow(n.name, sums, _number(n, sums, 1 / exponent)).result
    return channels_first(n, convert(n, sums, n.type(0).kind))


@from_onnx("MaxUnpool", since=9)
def _max_unpool(n: OnnxNode) -> Value:
    """Elements go where a pool found them, among zeros; `output_shape` has more of these at the ends."""
    x, places, spatial = n.type(0), n.type(1), _spatial(n)
    win, rank = window(n, spatial, n.integers("kernel_shape") or ()), len(spatial)
    if not is_same_shape(places.shape, x.shape):
        raise UserError(f"expected an index for each element of {x}, got {places}")
    sizes = [
        (size - 1) * win.strides[i] + win.kernels[i] - win.pads[i] - win.pads[rank + i]
        for i, size in enumerate(spatial)
    ]
    shape = (*x.shape[:2], *sizes)
    output_shape = n.known_dims(2) if n.has(2) else shape
    if len(output_shape) != len(shape) or any(
        room < size for size, room in zip(shape, output_shape, strict=True)
    ):
        raise UserError(
            f"expected an output_shape of at least {list(shape)}, got {list(output_shape)}"
        )
    check_places(n, n.value(1), 0, product(shape) - 1)
    zeros = n.operand(filled(n, x.with_shape((product(shape), 1)), 0))
    indices = n.operand(reshape(n, n.value(1), (x.count,)))
    elements = n.operand(reshape(n, n.value(0), (x.count, 1)))
    result = reshape(n, n.f.create_scatter(n.name, zeros, indices, elements).result, shape)
    if output_shape == shape:
        return result
    ends = [room - size for size, room in zip(shape, output_shape, strict=True)]
    return n.f.create_pad(n.name, n.operand(result), (*[0] * len(shape), *ends), 0.0).result
