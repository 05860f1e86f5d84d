"""Import of pooling: MaxPool, AveragePool and their global forms."""

from __future__ import annotations

from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.conv import Window, window
from glowpy.importer.onnx.data_movement import channels_first, channels_last
from glowpy.importer.onnx.node import OnnxNode, Result, Value, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product, static

__all__: list[str] = []


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
    pooled = n.f.create_avg_pool(
        n.name,
        value,
        win.kernels,
        win.strides,
        win.pads,
        win.dilation,
        n.flag("ceil_mode"),
        n.flag("count_include_pad"),
    )
    return channels_first(n, pooled.result)


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
    args = (win.kernels, win.strides, win.pads, win.dilation)
    pooled = n.f.create_avg_pool(n.name, value, *args, ceil=False, count_include_pads=False)
    return channels_first(n, pooled.result)


@from_onnx("GlobalMaxPool")
def _global_max_pool(n: OnnxNode) -> Value:
    spatial = _spatial(n)
    if not spatial:
        return n.value(0)
    value = n.operand(channels_last(n, n.value(0)), n.proto.input[0])
    axes = tuple(range(1, 1 + len(spatial)))
    return channels_first(n, n.f.create_reduce_max(n.name, value, axes).result)
