"""Import of operators that read images at computed places, and of what puts windows back.

GridSample and DeformConv are one operator, `sample`: places are computed element by element, and a deformed convolution
is a product with what was read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same, is_same_shape, window_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    channels_first,
    channels_last,
    convert,
    full,
    reshape,
    slice_axis,
    transpose,
)
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.kit.windows import Window
from glowpy.importer.onnx.conv import window
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, product, static

__all__: list[str] = []

_ORDERS = {"nearest": 0, "linear": 1, "bilinear": 1, "cubic": 3, "bicubic": 3}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _working_kind(kind: ElemKind) -> ElemKind:
    """Floats in which places and sums are computed, and which have all numbers of a kind, or nearly."""
    wide = kind is ElemKind.F64 or (kind.is_integer and kind.size > 2)
    return ElemKind.F64 if wide else ElemKind.F32


def _row(n: OnnxNode, dims: Sequence[Dim], kind: ElemKind) -> Numbers:
    """Some dimensions as a vector of numbers."""
    extents = SymbolicTensor(Type(ElemKind.I64, (len(dims),)), np.array(dims, object))
    if all(isinstance(dim, int) for dim in dims):
        return Numbers(n, Tensor.of(np.array(dims, kind.dtype)))
    return Numbers(n, convert(n, n.operand(extents), kind))


@from_onnx("GridSample", since=16)
def _grid_sample(n: OnnxNode) -> Value:
    """Coordinates go from -1 to 1, between the middles of the outermost pixels if `align_corners`, else their edges."""
    x, grid = n.type(0), n.type(1)
    rank = x.rank - 2
    if not 1 <= rank <= 3:
        raise UserError(f"expected an input of a rank from 3 to 5, got {x}")
    if grid.rank != rank + 2 or not is_same_shape(
        (grid.shape[0], grid.shape[-1]), (x.shape[0], rank)
    ):
        raise UserError(f"expected a grid of [{x.shape[0]}, ..., {rank}] for {x}, got {grid}")
    mode, padding = n.text("mode", "linear"), n.text("padding_mode", "zeros")
    if mode not in _ORDERS or padding not in _PADDINGS:
        raise n.unsupported(f"mode '{mode}' with padding_mode '{padding}'")
    aligned, kind = n.flag("align_corners"), _working_kind(x.kind)
    sizes = _row(n, x.shape[:1:-1], kind)
    raised = Numbers(n, convert(n, n.value(1), kind)) + 1
    places = raised / 2 * (sizes - 1) if aligned else (raised * sizes - 1) / 2
    points = product(grid.shape[1:-1])
    image = n.operand(channels_last(n, convert(n, n.value(0), kind)), n.proto.input[0])
    sampled = n.f.create_sample(
        n.name,
        image,
        places.reshaped(grid.shape[0], points, 1, rank).operand,
        _ORDERS[mode],
        _PADDINGS[padding],
        aligned,
    )
    pixels = reshape(n, sampled.result, (*grid.shape[:-1], x.shape[1]))
    return channels_first(n, convert(n, pixels, x.kind))


@from_onnx("AffineGrid", since=20)
def _affine_grid(n: OnnxNode) -> Value:
    """For every pixel of an image its coordinates, and 1, times the matrix."""
    theta, sizes = n.type(0), n.known_dims(1)
    rank = len(sizes) - 2
    if rank not in (2, 3) or not is_same_shape(theta.shape, (sizes[0], rank, rank + 1)):
        raise UserError(
            f"expected theta [N, 2, 3] or [N, 3, 4] and the size of an image, got {theta} and {list(sizes)}"
        )
    kind = _working_kind(theta.kind)
    matrix = convert(n, n.value(0), kind)
    ones, total = (1,) * rank, None
    for column in range(rank + 1):
        factors = slice_axis(n, matrix, 2, column, 1, 1)
        term = Numbers(n, reshape(n, factors, (sizes[0], *ones, rank)))
        if column < rank:
            axis = rank - 1 - column
            shape: list[Dim] = [*ones, 1]
            shape[axis] = sizes[2 + axis]
            term = term * _coordinates(n, sizes[2 + axis]).to(kind).reshaped(*shape)
        total = term if total is None else total + term
    assert total is not None
    return convert(n, total.value, theta.kind)


def _coordinates(n: OnnxNode, size: Dim) -> Numbers:
    """Where so many pixels lie between -1 and 1."""
    steps, count = counted(n, size).to(ElemKind.F64), Numbers.of(n, size, ElemKind.F64)
    if n.flag("align_corners"):
        return steps * 2 / (count - 1).at_least(1) - 1
    return (steps * 2 + 1) / count - 1


@from_onnx("DeformConv", since=19)
def _deform_conv(n: OnnxNode) -> Value:
    """All taps of all windows are read where the offsets say, and multiplied by the filter."""
    x, w = n.type(0), n.type(1)
    group, offset_group = n.integer("group", 1), n.integer("offset_group", 1)
    if x.rank != w.rank or not 3 <= x.rank <= 5:
        raise UserError(f"expected an input and a filter of one rank from 3 to 5, got {x} and {w}")
    kernels = n.integers("kernel_shape") or w.extents[2:]
    if not is_same_shape(kernels, w.shape[2:]):
        raise UserError(f"attribute 'kernel_shape': expected that of {w}, got {list(kernels)}")
    if group < 1 or not is_same(w.shape[1] * group, x.shape[1]) or w.shape[0] % group:
        raise UserError(
            f"expected a filter of [O, {x.shape[1]} / group, ...] with O a multiple of group {group}, got {w}"
        )
    if offset_group < 1 or x.shape[1] % offset_group != 0:
        raise UserError(
            f"attribute 'offset_group': expected a divisor of {x.shape[1]}, got {offset_group}"
        )
    win = window(n, x.shape[2:], kernels)
    spatial = window_shape(x.shape[2:], win.kernels, win.strides, win.pads, win.dilation)
    columns = _columns(n, win, spatial, offset_group)
    columns = _by_group(n, columns, spatial, group)
    taps, ones = product(kernels), (1,) * len(kernels)
    filter = reshape(n, channels_last(n, n.value(1)), (w.shape[0], *ones, w.shape[1] * taps))
    bias = n.value(3) if n.has(3) else full(x.with_shape(w.shape[:1]), 0)
    kind = columns.type.kind
    result = n.f.create_convolution(
        n.name,
        n.operand(columns),
        n.operand(convert(n, filter, kind), n.proto.input[1]),
        n.operand(convert(n, bias, kind), f"{n.name}_bias"),
        ones,
        ones,
        (0,) * (2 * len(ones)),
        ones,
        group,
    )
    return channels_first(n, convert(n, result.result, x.kind))


def _columns(n: OnnxNode, win: Window, spatial: Shape, groups: int) -> Value:
    """Samples the elements that every tap of every window reads: N, spatial..., taps, C."""
    x, rank, taps = n.type(0), len(spatial), product(win.kernels)
    kind = _working_kind(x.kind)
    images, channels = x.shape[:2]
    for index, numbers in ((2, rank * taps * groups), (4, taps * groups)):
        if n.has(index) and not is_same_shape(n.type(index).shape, (images, numbers, *spatial)):
            raise UserError(
                f"expected [{images}, {numbers}, {', '.join(map(str, spatial))}] as input {index}, got {n.type(index)}"
            )
    moves = reshape(n, n.value(2), (images, groups, taps, rank, *spatial))
    moves = transpose(n, moves, (0, *range(4, 4 + rank), 2, 1, 3))
    # Of a place, what is along the last dimension comes first.
    moves = slice_axis(n, moves, 3 + rank, rank - 1, rank, -1)
    places = Numbers(n, convert(n, moves, kind)) + _taps(n, win, spatial, kind)
    points = product(spatial) * taps
    image = n.operand(channels_last(n, convert(n, n.value(0), kind)), n.proto.input[0])
    flat = places.reshaped(images, points, groups, rank).operand
    read: Value = n.f.create_sample(n.name, image, flat, 1, 0, aligned=False).result
    if n.has(4):
        mask = transpose(
            n,
            reshape(n, n.value(4), (images, groups, taps, *spatial)),
            (0, *range(3, 3 + rank), 2, 1),
        )
        mask = reshape(n, convert(n, mask, kind), (images, points, groups, 1))
        grouped = reshape(n, read, (images, points, groups, channels // groups))
        read = n.f.create_mul(n.name, n.operand(grouped), n.operand(mask)).result
    return convert(n, reshape(n, read, (images, *spatial, taps, channels)), x.kind)


def _taps(n: OnnxNode, win: Window, spatial: Shape, kind: ElemKind) -> Numbers:
    """Where the taps of windows lie without offsets: spatial..., taps, 1, coordinates."""
    rank, taps = len(spatial), int(np.prod(win.kernels))
    total: Numbers | None = None
    for axis, index in enumerate(np.unravel_index(np.arange(taps), win.kernels)):
        shape: list[Dim] = [1] * (rank + 3)
        shape[axis] = spatial[axis]
        begins = counted(n, spatial[axis]) * win.strides[axis] - win.pads[axis]
        reach = (index * win.dilation[axis]).astype(kind.dtype).reshape(taps, 1, 1)
        unit = np.eye(rank, dtype=kind.dtype)[rank - 1 - axis]
        places = begins.to(kind).reshaped(*shape) + Numbers(n, Tensor.of(reach))
        term = places * Numbers(n, Tensor.of(unit))
        total = term if total is None else total + term
    assert total is not None
    return total


def _by_group(n: OnnxNode, columns: Value, spatial: Shape, group: int) -> Value:
    """The taps of each group of channels together: N, spatial..., group * taps * C / group."""
    images, *_, taps, channels = columns.type.shape
    shape = (images, *spatial, taps, group, channels // group)
    rank = len(spatial)
    if group > 1:
        order = (*range(1 + rank), 2 + rank, 1 + rank, 3 + rank)
        columns = transpose(n, reshape(n, columns, shape), order)
    return reshape(n, columns, (images, *spatial, taps * channels))


def _images(n: OnnxNode) -> NodeValue:
    """The input as N, H, W, C."""
    if n.type(0).rank != 4:
        raise UserError(f"expected an input of rank 4, got {n.type(0)}")
    return n.operand(channels_last(n, n.value(0)), n.proto.input[0])


@from_onnx("RoiAlign", since=10)
def _roi_align(n: OnnxNode) -> Value:
    """Before opset 16, a region's coordinates were those of the middles of pixels."""
    mode = n.text("mode", "avg")
    default = "output_half_pixel" if n.opset < 16 else "half_pixel"
    coordinates = n.text("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        raise n.unsupported(f"mode '{mode}' with '{coordinates}'")
    check_places(n, n.value(2), 0, n.type(0).shape[0] - 1)
    aligned = n.f.create_roi_align(
        n.name,
        _images(n),
        n.input(1),
        n.operand(convert(n, n.value(2), ElemKind.I64), n.proto.input[2]),
        n.integer("output_height", 1),
        n.integer("output_width", 1),
        n.integer("sampling_ratio", 0),
        n.real("spatial_scale", 1.0),
        mode == "max",
        coordinates == "half_pixel",
    )
    return channels_first(n, aligned.result)


@from_onnx("MaxRoiPool")
def _max_roi_pool(n: OnnxNode) -> Value:
    shape = n.integers("pooled_shape") or ()
    if len(shape) != 2:
        raise UserError(f"attribute 'pooled_shape': expected 2 sizes, got {list(shape)}")
    scale = n.real("spatial_scale", 1.0)
    return channels_first(
        n, n.f.create_roi_max_pool(n.name, _images(n), n.input(1), *shape, scale).result
    )


@from_onnx("Col2Im", since=18)
def _col2im(n: OnnxNode) -> Value:
    """Sums columns into images; of truth values, any that is true makes a pixel true."""
    x, spatial, kernels = n.type(0), n.known_dims(1), n.known_ints(2)
    taps = int(np.prod(kernels))
    rows = static(x.shape[1:2]) if x.rank == 3 else ()
    if not rows or len(spatial) != len(kernels) or taps < 1 or rows[0] % taps:
        raise UserError(
            f"expected columns N, C * {taps}, windows for an image {list(spatial)}, got {x}"
        )
    win = window(n, spatial, kernels)
    windows = product(window_shape(spatial, kernels, win.strides, win.pads, win.dilation))
    if not is_same(x.shape[2], windows):
        raise UserError(f"expected {windows} windows, got {x}")
    kind = ElemKind.I32 if x.kind is ElemKind.BOOL else x.kind
    type = Type(kind, (x.shape[0], rows[0] // taps, *spatial))
    image = n.f.create_columns_to_image(
        n.name,
        type,
        n.operand(convert(n, n.value(0), kind), n.proto.input[0]),
        win.kernels,
        win.strides,
        win.pads,
        win.dilation,
    )
    return convert(n, image.result, x.kind)
