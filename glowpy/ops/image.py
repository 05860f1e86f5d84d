"""Rules of images that are read at computed places, and put together of columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same, is_same_shape, window_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import ColumnsToImageNode, RoiAlignNode, RoiMaxPoolNode, SampleNode
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import ColumnsToImageInst, RoiAlignInst, RoiMaxPoolInst, SampleInst
from glowpy.ops.operands import accumulable, expect_floats, expect_numbers, expect_same_kind
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

__all__ = ["BORDER", "CUBIC", "LINEAR", "NEAREST", "REFLECTION", "ZEROS"]

NEAREST, LINEAR, CUBIC = 0, 1, 3
ZEROS, BORDER, REFLECTION = 0, 1, 2
_MOST_POINTS = 1 << 20
_FURTHEST = 1 << 24


# Sample.


@infer(SampleNode)
def _infer_sample(input: Type, places: Type, *, order: int, padding: int, aligned: bool) -> Type:
    del aligned
    expect_floats("input", input)
    expect_same_kind(input, places=places)
    rank = input.rank - 2
    if not 1 <= rank <= 3:
        raise UserError(f"expected input of a rank from 3 to 5, got {input}")
    if places.rank != 4 or not is_same_shape(
        (places.shape[0], places.shape[3]), (input.shape[0], rank)
    ):
        raise UserError(f"expected places [{input.shape[0]}, points, groups, {rank}], got {places}")
    if places.shape[2] == 0 or input.shape[-1] % places.shape[2] != 0:
        raise UserError(f"expected groups of equal size in {input}, got {places}")
    if order not in (NEAREST, LINEAR, CUBIC) or padding not in (ZEROS, BORDER, REFLECTION):
        raise UserError(
            f"expected order 0, 1 or 3 and padding 0, 1 or 2, got {order} and {padding}"
        )
    return input.with_shape((input.shape[0], places.shape[1], input.shape[-1]))


@interpret(SampleInst)
def _sample(
    result: Tensor, input: Tensor, places: Tensor, *, order: int, padding: int, aligned: bool
) -> None:
    """The sum of all combinations of taps along the dimensions."""
    images, points, channels = result.type.extents
    groups, rank = places.type.extents[2:]
    if result.array.size == 0:
        return
    sizes = input.type.extents[1:-1]
    wide = accumulable(input.array).reshape(*input.array.shape[:-1], groups, channels // groups)
    taps = [
        _taps(accumulable(places.array[..., rank - 1 - i]), size, order, padding, aligned)
        for i, size in enumerate(sizes)
    ]
    total = np.zeros((images, points, groups, channels // groups), wide.dtype)
    image = np.arange(images)[:, None, None]
    for choice in itertools.product(range(order + 1), repeat=rank):
        at = [taps[i][0][t] for i, t in enumerate(choice)]
        weight = math.prod(taps[i][1][t] for i, t in enumerate(choice))
        inside = np.logical_and.reduce([coordinates >= 0 for coordinates in at])
        safe = [np.where(inside, coordinates, 0) for coordinates in at]
        if 0 in sizes:
            break
        picked = wide[(image, *safe, np.arange(groups))]
        total += np.where(inside[..., None], picked * np.asarray(weight)[..., None], 0)
    result.array[...] = total.reshape(result.array.shape).astype(result.array.dtype)


def _taps(
    places: Array, size: int, order: int, padding: int, aligned: bool
) -> tuple[list[Array], list[Array]]:
    """The pixels along one dimension that places are between, -1 where there is none, and their weights."""
    low, last = (0.0 if aligned else -0.5), size - 1
    if order == NEAREST:
        places = np.rint(places)
    if padding == REFLECTION:
        inside = (places >= low) & (places <= last - low)
        places = np.where(inside, places, _reflected(places, low, last - low))
    places = np.where(places > -4, np.minimum(places, last + 4), -4)
    floors = np.floor(places)
    rest = places - floors
    weights = [np.ones_like(rest)]
    if order == LINEAR:
        weights = [1 - rest, rest]
    elif order == CUBIC:
        weights = [_keys(np.abs(rest - offset)) for offset in (-1, 0, 1, 2)]
    first = floors.astype(np.int64) - (order == CUBIC)
    return [_pixel(first + t, size, padding, aligned) for t in range(order + 1)], weights


def _reflected(places: Array, low: float, high: float) -> Array:
    """Places outside of a range, in a range that turns back at its ends."""
    if high <= low:
        return np.full_like(places, low)
    distance = np.where(places < low, low - places, places - high)
    turns = np.trunc(distance / (high - low))
    rest = distance - turns * (high - low)
    upward = (places < low) == (turns == 2 * np.floor(turns / 2))
    return np.where(upward, low + rest, high - rest)


def _keys(x: Array) -> Array:
    """The cubic kernel of Keys (1981) with a = -0.75."""
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((-0.75 * x + 3.75) * x - 6) * x + 3
    return np.where(x <= 1, near, far)


def _pixel(at: Array, size: int, padding: int, aligned: bool) -> Array:
    if padding == ZEROS:
        return np.where((at >= 0) & (at < size), at, -1)
    if padding == BORDER or size < 2:
        return np.minimum(np.maximum(at, 0), size - 1)
    period = 2 * size - 2 if aligned else 2 * size
    rest = at % period
    return np.where(rest < size, rest, period - rest - (not aligned))


# Regions.


def _expect_regions(input: Type, regions: Type, numbers: int) -> None:
    expect_floats("input", input)
    expect_same_kind(input, regions=regions)
    if input.rank != 4 or 0 in input.shape[:3]:
        raise UserError(f"expected images N, H, W, C with pixels, got {input}")
    if regions.rank != 2 or not is_same(regions.shape[1], numbers):
        raise UserError(f"expected regions of {numbers} numbers each, got {regions}")


@infer(RoiAlignNode)
def _infer_roi_align(
    input: Type,
    regions: Type,
    images: Type,
    *,
    height: int,
    width: int,
    ratio: int,
    scale: float,
    largest: bool,
    half_pixel: bool,
) -> Type:
    del scale, largest, half_pixel
    _expect_regions(input, regions, 4)
    if images.kind is not ElemKind.I64 or not is_same_shape(images.shape, regions.shape[:1]):
        raise UserError(f"expected images i64[{regions.shape[0]}], got {images}")
    if height < 1 or width < 1 or not 0 <= ratio <= _MOST_POINTS >> 10:
        raise UserError(
            f"expected bins and a ratio from 0 to {_MOST_POINTS >> 10}, "
            f"got {height} x {width} and {ratio}"
        )
    return input.with_shape((regions.shape[0], height, width, input.shape[3]))


@interpret(RoiAlignInst)
def _roi_align(
    result: Tensor,
    input: Tensor,
    regions: Tensor,
    images: Tensor,
    *,
    height: int,
    width: int,
    ratio: int,
    scale: float,
    largest: bool,
    half_pixel: bool,
) -> None:
    """Pools regions; which points there are is decided in the kind of the regions, as kernels do it."""
    number, bins = input.type.extents[0], np.array([height, width])
    for r, region in enumerate(_working(regions.array)):
        image = accumulable(input.array[min(max(int(images.array[r]), 0), number - 1)])
        ends = region.reshape(2, 2)[:, ::-1] * region.dtype.type(scale)
        start, end = ends - region.dtype.type(0.5 if half_pixel else 0)
        size = end - start if half_pixel else np.fmax(end - start, region.dtype.type(1))
        bin_size = size / bins.astype(region.dtype)
        points = np.clip(np.nan_to_num(np.ceil(bin_size)), 0, _MOST_POINTS).astype(np.int64)
        counts = np.full(2, ratio) if ratio > 0 else points
        for bin in np.ndindex(height, width):
            corner = start + np.array(bin).astype(region.dtype) * bin_size
            taken = _points(image, corner, bin_size, counts, largest)
            result.array[(r, *bin)] = taken.astype(result.array.dtype)


def _working(array: Array) -> Array:
    """Converts to the kind that kernels compute in."""
    return array.astype(np.float32) if ElemKind.of(array.dtype).is_half else array


def _points(image: Array, corner: Array, size: Array, counts: Array, largest: bool) -> Array:
    """Computes a bin: a mean over points, or the largest of their weighted pixels. Points far outside are 0."""
    axes = []
    for i, count in enumerate(counts):
        steps = np.arange(count, dtype=corner.dtype) + corner.dtype.type(0.5)
        places = corner[i] + steps * size[i] / corner.dtype.type(max(count, 1))
        axes.append(_near(places[(places >= -1) & (places <= image.shape[i])], image.shape[i]))
    (rows, row_weights), (cols, col_weights) = axes
    parts = [
        image[rows[a]][:, cols[b]] * (row_weights[a][:, None] * col_weights[b])[..., None]
        for a, b in np.ndindex(2, 2)
    ]
    if largest:
        points = np.concatenate(parts).reshape(-1, image.shape[2])
        missing = len(rows[0]) * len(cols[0]) < math.prod(counts.tolist()) or not len(points)
        zeros = np.zeros((int(missing), image.shape[2]), points.dtype)
        return np.asarray(np.concatenate([points, zeros]).max(axis=0))
    total = np.sum(parts, axis=(0, 1, 2))
    return np.asarray(total / max(math.prod(counts.tolist()), 1))


def _near(places: Array, size: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The pixels before and after places along one dimension, and weights."""
    places = np.maximum(places, 0)
    low = np.minimum(places.astype(np.int64), size - 1)
    rest = np.where(low == size - 1, 0, places - low)
    return (low, np.minimum(low + 1, size - 1)), (1 - rest, rest)


@infer(RoiMaxPoolNode)
def _infer_roi_max_pool(
    input: Type, regions: Type, *, height: int, width: int, scale: float
) -> Type:
    del scale
    _expect_regions(input, regions, 5)
    if height < 1 or width < 1:
        raise UserError(f"expected bins, got {height} x {width}")
    return input.with_shape((regions.shape[0], height, width, input.shape[3]))


@interpret(RoiMaxPoolInst)
def _roi_max_pool(
    result: Tensor, input: Tensor, regions: Tensor, *, height: int, width: int, scale: float
) -> None:
    numbers = _working(regions.array)
    dtype, bins = numbers.dtype.type, np.array([height, width]).astype(numbers.dtype)
    images = np.clip(np.trunc(np.nan_to_num(numbers[:, 0])), 0, input.type.extents[0] - 1)
    for r, region in enumerate(numbers):
        image = input.array[int(images[r])]
        start, end = _rounded(region[1:].reshape(2, 2)[:, ::-1] * dtype(scale))
        part = np.maximum(end - start + 1, 1).astype(numbers.dtype) / bins
        for bin in np.ndindex(height, width):
            at = np.array(bin)
            first = np.floor(at.astype(dtype) * part).astype(np.int64) + start
            last = np.ceil((at + 1).astype(dtype) * part).astype(np.int64) + start
            rows, cols = (
                slice(max(low, 0), max(high, 0)) for low, high in zip(first, last, strict=True)
            )
            pixels = image[rows, cols]
            empty = pixels.shape[0] == 0 or pixels.shape[1] == 0
            result.array[(r, *bin)] = 0 if empty else pixels.max(axis=(0, 1))


def _rounded(numbers: Array) -> Array:
    """The nearest integers, halves away from 0; what is no number is the least."""
    half = numbers.dtype.type(0.5)
    away = np.where(numbers < 0, np.ceil(numbers - half), np.floor(numbers + half))
    limited = np.clip(np.where(np.isnan(away), -_FURTHEST, away), -_FURTHEST, _FURTHEST)
    return np.asarray(limited.astype(np.int64))


# Columns.


@verify(ColumnsToImageNode)
def _verify_columns_to_image(n: ColumnsToImageNode) -> Iterator[str]:
    expect_numbers("input", n.input.type)
    rank, input, result = len(n.kernels), n.input.type, n.type
    if input.rank != 3 or result.rank != rank + 2 or result.kind is not input.kind:
        yield f"expected N, C * taps, windows and N, C, spatial..., got {input} and {result}"
        return
    windows = window_shape(result.shape[2:], n.kernels, n.strides, n.pads, n.dilation)
    shape = (result.shape[0], result.shape[1] * math.prod(n.kernels), product(windows))
    if input.shape != shape:
        yield f"expected input of the shape {list(shape)} for {result}, got {input}"


@interpret(ColumnsToImageInst)
def _columns_to_image(
    result: Tensor,
    input: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """Adds columns up in a padded image; the result is the part inside the pads."""
    images, channels, *sizes = result.type.extents
    rank = len(kernels)
    spans = [(k - 1) * d + 1 for k, d in zip(kernels, dilation, strict=True)]
    wide = [size + pads[i] + pads[rank + i] for i, size in enumerate(sizes)]
    counts = [
        (size - span) // stride + 1 for size, span, stride in zip(wide, spans, strides, strict=True)
    ]
    columns = input.array.reshape(images, channels, *kernels, *counts)
    total = np.zeros((images, channels, *wide), input.array.dtype)
    with np.errstate(over="ignore"):
        for tap in np.ndindex(*kernels):
            begins = [t * d for t, d in zip(tap, dilation, strict=True)]
            window = tuple(
                slice(begin, begin + (count - 1) * stride + 1, stride)
                for begin, count, stride in zip(begins, counts, strides, strict=True)
            )
            total[(slice(None), slice(None), *window)] += columns[(slice(None), slice(None), *tap)]
    inside = tuple(slice(pads[i], pads[i] + size) for i, size in enumerate(sizes))
    result.array[...] = total[(slice(None), slice(None), *inside)]
