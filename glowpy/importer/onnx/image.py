"""Import of resampling: Resize and Upsample, one dimension after the other.

Where each output element lies in the input is known while importing, so a resampled dimension is a sum of gathers
with constant indices, each times constant weights: one gather for the nearest element, two for lines, four for cubics,
more where several are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.data_movement import full
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


@dataclass(frozen=True)
class _Sampling:
    """How one dimension is resampled: its sizes, and the factor between them, which need not be their quotient."""

    size: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@from_onnx("Upsample")
def _upsample_1(n: OnnxNode) -> Value:
    scales = [1.0, 1.0, n.real("height_scale", 1.0), n.real("width_scale", 1.0)]
    return _upsampled(n, scales)


@from_onnx("Upsample", since=7)
def _upsample_7(n: OnnxNode) -> Value:
    return _upsampled(n, n.reals("scales") or ())


@from_onnx("Upsample", since=9)
@from_onnx("Resize", since=10)
def _upsample_9(n: OnnxNode) -> Value:
    """Resize began at opset 10 with what Upsample was; since then it may shrink as well."""
    return _upsampled(n, [float(scale) for scale in n.known(1).array.reshape(-1)])


def _upsampled(n: OnnxNode, scales: Sequence[float]) -> Value:
    mode = "linear" if n.text("mode", "nearest") == "bilinear" else n.text("mode", "nearest")
    sampling = _scaled(n, scales, range(n.type(0).rank))
    return _resampled(n, sampling, mode, "asymmetric", "")


@from_onnx("Resize", since=11)
def _resize_11(n: OnnxNode) -> Value:
    rank = n.type(0).rank
    axes = [normalize_axis(axis, rank) for axis in n.integers("axes") or range(rank)]
    scales = n.known(2).array.reshape(-1) if n.has(2) else np.zeros(0, np.float32)
    sizes = n.known_ints(3) if n.has(3) else ()
    if bool(len(scales)) == bool(sizes):
        raise UserError("expected either scales or sizes")
    factors = [float(scale) for scale in scales]
    sampling = _sized(n, sizes, axes) if sizes else _scaled(n, factors, axes)
    coordinates = n.text("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize":
        sampling = _cropped(n, sampling, axes)
    nearest = n.text("nearest_mode", "round_prefer_floor")
    return _resampled(n, sampling, n.text("mode", "nearest"), coordinates, nearest)


def _scaled(n: OnnxNode, scales: Sequence[float], axes: Sequence[int]) -> list[_Sampling]:
    shape = n.type(0).extents
    if len(scales) != len(axes) or not all(0 < scale < 1 << 20 for scale in scales):
        raise UserError(f"expected {len(axes)} positive scales, got {list(scales)}")
    samplings = [_Sampling(size, size, 1.0) for size in shape]
    for axis, scale in zip(axes, scales, strict=True):
        count = math.floor(np.float32(shape[axis]) * np.float32(scale))  # as ONNX's shape inference
        samplings[axis] = _Sampling(shape[axis], count, scale)
    return samplings


def _sized(n: OnnxNode, sizes: Sequence[int], axes: Sequence[int]) -> list[_Sampling]:
    """Sizes, reduced or enlarged to one scale if the aspect ratio is to be kept."""
    shape, policy = n.type(0).extents, n.text("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(axes) or min(sizes, default=1) < 1 or 0 in shape:
        raise UserError(f"expected {len(axes)} positive sizes for {n.type(0)}, got {list(sizes)}")
    samplings = [_Sampling(size, size, 1.0) for size in shape]
    scales = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy in ("not_larger", "not_smaller"):
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(axes)
        sizes = [math.floor(scale * shape[axis] + 0.5) for axis in axes]
    elif policy != "stretch":
        raise n.unsupported(f"keep_aspect_ratio_policy '{policy}'")
    for axis, size, scale in zip(axes, sizes, scales, strict=True):
        samplings[axis] = _Sampling(shape[axis], size, scale)
    return samplings


def _cropped(n: OnnxNode, sampling: list[_Sampling], axes: Sequence[int]) -> list[_Sampling]:
    roi = [float(bound) for bound in n.known(1).array.reshape(-1)]
    if len(roi) != 2 * len(axes):
        raise UserError(f"expected {2 * len(axes)} bounds of the region, got {len(roi)}")
    samplings = list(sampling)
    for index, axis in enumerate(axes):
        old = sampling[axis]
        start, end = roi[index], roi[len(axes) + index]
        samplings[axis] = _Sampling(old.size, old.count, old.scale, start, end)
    return samplings


def _resampled(
    n: OnnxNode, sampling: list[_Sampling], mode: str, coordinates: str, nearest: str
) -> Value:
    """Without a rule for the `nearest` element, it is the one before where it grows, else the one after."""
    Type(n.type(0).kind, tuple(dim.count for dim in sampling))  # refuses what overflows
    value = n.value(0)
    if mode not in ("nearest", "linear", "cubic"):
        raise n.unsupported(f"mode '{mode}'")
    if mode != "nearest" and not value.type.kind.is_float:
        raise n.unsupported(f"mode '{mode}' for {value.type}")
    if any(dim.count and not dim.size for dim in sampling):
        raise UserError(f"expected something to resize, got {value.type}")
    cropped = coordinates == "tf_crop_and_resize"
    outside: list[tuple[int, Array]] = []
    for axis, dim in enumerate(sampling):
        if dim.size == dim.count and dim.scale == 1.0 and not cropped:
            continue
        # Whether a place is a whole number depends on the rounding: that of f32, as in onnxruntime.
        dtype = np.dtype(np.float32 if mode == "nearest" else np.float64)
        places = _places(n, dim, coordinates, dtype)
        if mode == "nearest":
            rule = nearest or ("floor" if dim.scale >= 1 else "ceil")
            indices = _nearest(n, places, rule)[:, None]
            weights = np.ones_like(places)[:, None]
        else:
            indices, weights = _taps(n, dim, places, cubic=mode == "cubic")
        inside = np.clip(indices, 0, dim.size - 1).astype(np.int64)
        value = _gathered(n, n.operand(value), axis, inside, weights)
        outside.append((axis, (places < 0) | (places > dim.size - 1)))
    return _extrapolated(n, value, outside) if cropped else value


def _places(n: OnnxNode, dim: _Sampling, coordinates: str, dtype: np.dtype[Any]) -> Array:
    """Where the elements of the output lie in the input, computed in `dtype`."""
    count, size, scale = dim.count, dim.size, dim.scale
    steps: Array = np.arange(count, dtype=dtype)
    middle: Array = (steps + 0.5) / scale - 0.5
    match coordinates:
        case "half_pixel":
            return middle
        case "half_pixel_symmetric":
            adjusted: Array = size / 2 * (1 - count / (size * scale)) + middle
            return adjusted
        case "pytorch_half_pixel":
            return middle if count > 1 else np.zeros(count)
        case "align_corners":
            # ONNX counts the width the scale gives, before it is rounded down.
            return steps * (size - 1) / (size * scale - 1) if count > 1 else np.zeros(count)
        case "asymmetric":
            return steps / scale
        case "tf_crop_and_resize":
            if count == 1:
                return np.full(1, 0.5 * (dim.start + dim.end) * (size - 1))
            reach = (dim.end - dim.start) * (size - 1) / max(count - 1, 1)
            return dim.start * (size - 1) + steps * reach
        case _:
            raise n.unsupported(f"coordinate_transformation_mode '{coordinates}'")


def _nearest(n: OnnxNode, places: Array, mode: str) -> Array:
    match mode:
        case "floor":
            nearest = np.floor(places)
        case "ceil":
            nearest = np.ceil(places)
        case "round_prefer_floor":
            nearest = np.ceil(places - 0.5)
        case "round_prefer_ceil":
            nearest = np.floor(places + 0.5)
        case _:
            raise n.unsupported(f"nearest_mode '{mode}'")
    return np.asarray(nearest)


def _taps(n: OnnxNode, dim: _Sampling, places: Array, *, cubic: bool) -> tuple[Array, Array]:
    """Indices and weights of the elements each output is made of: [outputs, taps]."""
    squeeze = min(dim.scale, 1.0) if n.flag("antialias") else 1.0
    reach = math.ceil((2 if cubic else 1) / squeeze)
    if reach > dim.size + (1 << 10):
        raise n.unsupported(f"scale {dim.scale} with antialias")
    base = np.floor(places)
    indices: Array = base[:, None] + np.arange(1 - reach, 1 + reach)
    distance = np.abs(indices - places[:, None]) * squeeze
    weights = (
        _cubic(distance, n.real("cubic_coeff_a", -0.75)) if cubic else np.maximum(1 - distance, 0)
    )
    if n.flag("exclude_outside"):
        weights = np.where((indices >= 0) & (indices < dim.size), weights, 0)
    return indices, weights / weights.sum(axis=1, keepdims=True)


def _cubic(x: Array, a: float) -> Array:
    """The kernel of Keys (1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _gathered(
    n: OnnxNode, value: NodeValue, axis: int, indices: Array, weights: Array
) -> NodeValue:
    """The weighted sum of gathers along an axis, one for each column of `indices` that has any weight."""
    trailing = (1,) * (value.type.rank - 1 - axis)
    total: NodeValue | None = None
    for index, weight in zip(indices.T, weights.T, strict=True):
        if not weight.any():
            continue
        picked = n.operand(Tensor.of(np.ascontiguousarray(index)), f"{n.name}_indices")
        term = n.f.create_gather(n.name, value, picked, axis).result
        if not (weight == 1).all():
            factors = weight.astype(value.type.kind.dtype).reshape(-1, *trailing)
            term = n.f.create_mul(
                n.name, term, n.operand(Tensor.of(factors), f"{n.name}_weights")
            ).result
        total = term if total is None else n.f.create_add(n.name, total, term).result
    if total is None:  # no outputs
        shape = list(value.type.extents)
        shape[axis] = len(indices)
        return n.operand(full(value.type.with_shape(shape), 0))
    return total


def _extrapolated(n: OnnxNode, value: Value, outside: list[tuple[int, Array]]) -> Value:
    """A fixed number where an output lies outside of the input."""
    result = n.operand(value)
    scalar = Type(result.type.kind, ())
    fill = n.operand(full(scalar, n.real("extrapolation_value", 0.0)), f"{n.name}_fill")
    for axis, where in outside:
        mask = where.reshape(-1, *(1,) * (result.type.rank - 1 - axis))
        chosen = n.operand(Tensor.of(mask), f"{n.name}_outside")
        result = n.f.create_select(n.name, chosen, fill, result).result
    return result
