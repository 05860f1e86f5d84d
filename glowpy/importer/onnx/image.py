"""Import of resampling: Resize and Upsample, one dimension after the other.

Where each output element lies in the input follows from the sizes, so a resampled dimension is a sum of gathers, each
times weights: one gather for the nearest element, two for lines, four for cubics, more where several are averaged. None
is needed where elements are only repeated, all equally often.
Indices and weights are constant where sizes are, and computed when the network runs where these are symbolic, or where
it computes which region is cropped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.type import MAX_RANK, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.computed import known_element
from glowpy.importer.kit.moves import broadcast, convert, filled, full, reshape, slice_axis
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, Expr, UndecidedError, highest, least, likely_extent, static

__all__: list[str] = []

_MOST_TRIED = 1 << 16
"""Extents for which a scale is tried at most."""


@dataclass(frozen=True)
class _Sampling:
    """How one dimension is resampled: its sizes, and the factor between them, which need not be their quotient.

    A scale of None is the quotient. From where to where the dimension is cropped may be computed.
    """

    size: Dim
    count: Dim
    scale: float | None
    start: float | Numbers = 0.0
    end: float | Numbers = 1.0

    @property
    def stays(self) -> bool:
        """Whether the dimension is left as it is."""
        return self.size == self.count and self.scale in (None, 1.0)

    def factor(self, n: OnnxNode) -> float | Numbers:
        """The scale, or the quotient."""
        if self.scale is not None:
            return self.scale
        if isinstance(self.size, Expr) or isinstance(self.count, Expr):
            return Numbers.of(n, self.count, ElemKind.F64) / self.size
        return self.count / self.size


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
    sizes = n.known_dims(3) if n.has(3) else ()
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
    shape = n.type(0).shape
    if len(scales) != len(axes) or not all(0 < scale < 1 << 20 for scale in scales):
        raise UserError(f"expected {len(axes)} positive scales, got {list(scales)}")
    samplings = [_Sampling(size, size, 1.0) for size in shape]
    for axis, scale in zip(axes, scales, strict=True):
        samplings[axis] = _Sampling(shape[axis], _times(shape[axis], scale), scale)
    return samplings


def _times(size: Dim, scale: float) -> Dim:
    """An extent times a scale, rounded down as ONNX's shape inference does, in f32.

    That of a symbolic extent is a fraction of it, if it is so for all extents within the bounds.
    """
    if not isinstance(size, Expr):
        return math.floor(np.float32(size) * np.float32(scale))
    fraction = Fraction(scale).limit_denominator(1 << 10)
    extents = np.arange(size.low, min(size.high, size.low + _MOST_TRIED) + 1)
    counts = np.floor(extents.astype(np.float32) * np.float32(scale))
    exact = Fraction(scale) == fraction and fraction.denominator & (fraction.denominator - 1) == 0
    covered = exact or size.high - size.low <= _MOST_TRIED
    if not covered or (counts != extents * fraction.numerator // fraction.denominator).any():
        raise UndecidedError(f"expected an extent to multiply by {scale}, got {size}", [size])
    return size * fraction.numerator // fraction.denominator


def _sized(n: OnnxNode, sizes: Sequence[Dim], axes: Sequence[int]) -> list[_Sampling]:
    """Sizes, reduced or enlarged to one scale if the aspect ratio is to be kept."""
    shape, policy = n.type(0).shape, n.text("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(axes) or 0 in shape or any(highest(size) < 1 for size in sizes):
        raise UserError(f"expected {len(axes)} positive sizes for {n.type(0)}, got {list(sizes)}")
    samplings = [_Sampling(size, size, 1.0) for size in shape]
    scale: float | None = None
    if policy in ("not_larger", "not_smaller"):
        old, new = static(shape[axis] for axis in axes), static(sizes)
        scales = [size / extent for size, extent in zip(new, old, strict=True)]
        scale = min(scales) if policy == "not_larger" else max(scales)
        sizes = [math.floor(scale * extent + 0.5) for extent in old]
    elif policy != "stretch":
        raise n.unsupported(f"keep_aspect_ratio_policy '{policy}'")
    for axis, size in zip(axes, sizes, strict=True):
        samplings[axis] = _Sampling(shape[axis], size, scale)
    return samplings


def _cropped(n: OnnxNode, sampling: list[_Sampling], axes: Sequence[int]) -> list[_Sampling]:
    roi = _region(n)
    if len(roi) != 2 * len(axes):
        raise UserError(f"expected {2 * len(axes)} bounds of the region, got {len(roi)}")
    samplings = list(sampling)
    for index, axis in enumerate(axes):
        samplings[axis] = replace(sampling[axis], start=roi[index], end=roi[len(axes) + index])
    return samplings


def _region(n: OnnxNode) -> list[float | Numbers]:
    """The bounds of what is cropped, as parts of each dimension: numbers, where these are known."""
    value = n.value(1)
    bounds: list[float | Numbers] = []
    for place in range(static([value.type.count])[0]):
        element = known_element(value, place)
        if element is not None:
            bounds.append(float(element))
            continue
        row = reshape(n, value, (value.type.count,))
        bound = Numbers(n, slice_axis(n, row, 0, place, 1, 1)).reshaped()
        bounds.append(bound.to(ElemKind.F64))
    return bounds


def _resampled(
    n: OnnxNode, sampling: list[_Sampling], mode: str, coordinates: str, nearest: str
) -> Value:
    """Without a rule for the `nearest` element, it is the one before where it grows, else the one after."""
    Type(n.type(0).kind, tuple(dim.count for dim in sampling))  # refuses what overflows
    value, source_kind = n.value(0), n.type(0).kind
    if mode not in ("nearest", "linear", "cubic"):
        raise n.unsupported(f"mode '{mode}'")
    if mode != "nearest":
        if not (source_kind.is_float or source_kind.is_integer) or value.type.quant is not None:
            raise n.unsupported(f"mode '{mode}' for {value.type}")
        value = convert(n, value, _working_kind(source_kind))
    if any(dim.size == 0 != dim.count for dim in sampling):
        raise UserError(f"expected something to resize, got {value.type}")
    cropped = coordinates == "tf_crop_and_resize"
    outside: list[tuple[int, Numbers]] = []
    repeats: dict[int, int] = {}
    # What shrinks goes first, then what grows, last dimensions before others: so little is moved, in long pieces.
    order = sorted(
        range(len(sampling)), key=lambda axis: _grows(sampling[axis]) * (len(sampling) - axis)
    )
    for axis in order:
        dim = sampling[axis]
        if dim.stays and not cropped:
            continue
        # Whether a place is a whole number depends on the rounding: that of f32, as in onnxruntime, but for the places
        # whose formula onnxruntime has otherwise than the standard.
        in_f32 = mode == "nearest" and coordinates != "half_pixel_symmetric"
        kind = ElemKind.F32 if in_f32 else ElemKind.F64
        places = _places(n, dim, coordinates, counted(n, dim.count).to(kind))
        taps: _Taps
        outside.append((axis, (places < 0) | (places > dim.size - 1)))
        if mode == "nearest":
            grows = dim.scale is None or dim.scale >= 1
            index = _inside(_nearest(n, places, nearest or ("floor" if grows else "ceil")), dim)
            if _is_repetition(dim, index) and value.type.rank + len(repeats) < MAX_RANK:
                repeats[axis] = static([dim.count])[0] // static([dim.size])[0]
                continue
            taps = [(index, None)]
        else:
            taps = _taps(n, dim, places, value.type.kind, cubic=mode == "cubic")
        value = _gathered(n, n.operand(value), axis, taps)
    value = _repeated(n, value, repeats)
    result = _extrapolated(n, value, outside) if cropped else value
    if source_kind.is_integer and mode != "nearest":
        result = n.f.create_round(n.name, n.operand(result)).result
    return convert(n, result, source_kind)


def _grows(dim: _Sampling) -> bool:
    return likely_extent(dim.count) > likely_extent(dim.size)


def _is_repetition(dim: _Sampling, index: Numbers) -> bool:
    """Whether every element is taken equally often, one after the other."""
    taken = index.known
    if taken is None or isinstance(dim.size, Expr) or not dim.size or len(taken) % dim.size:
        return False
    return bool((taken == np.arange(len(taken)) // (len(taken) // dim.size)).all())


def _repeated(n: OnnxNode, value: Value, repeats: Mapping[int, int]) -> Value:
    """Every element so many times in a row as `repeats` says for an axis: of all axes at once."""
    if not repeats:
        return value
    shape = value.type.shape
    parts = [
        (size, repeats[axis]) if axis in repeats else (size,) for axis, size in enumerate(shape)
    ]
    single = [extent for part in parts for extent in (part[0], *(1 for _ in part[1:]))]
    wide = broadcast(n, reshape(n, value, single), tuple(itertools.chain(*parts)))
    return reshape(n, wide, [math.prod(part) for part in parts])


def _working_kind(kind: ElemKind) -> ElemKind:
    """The kind in which elements are mixed: all elements of their own kind can be told apart there."""
    return ElemKind.F32 if kind.size < 4 or kind is ElemKind.F32 else ElemKind.F64


def _places(n: OnnxNode, dim: _Sampling, coordinates: str, steps: Numbers) -> Numbers:
    """Where the elements of the output, which `steps` counts, lie in the input."""
    count, last, scale = dim.count, dim.size - 1, dim.factor(n)
    middle = (steps + 0.5) / scale - 0.5
    match coordinates:
        case "half_pixel":
            return middle
        case "half_pixel_symmetric":
            size, all = (Numbers.of(n, dim_size, ElemKind.F64) for dim_size in (dim.size, count))
            # In this order the middle one of an odd number lies in the middle, exactly.
            return (1 - all / (scale * size)) * (size / 2) + (steps + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return middle * least(count - 1, 1)
        case "align_corners":
            # ONNX counts the width the scale gives, before it is rounded down.
            width = scale * Numbers.of(n, dim.size, ElemKind.F64)
            return steps * last / (width - 1).at_least(1.0)
        case "asymmetric":
            return steps / scale
        case "tf_crop_and_resize":
            # A single element lies in the middle.
            single = 1 - Numbers.of(n, least(count - 1, 1), ElemKind.F64)
            start = dim.start + single * (0.5 * (dim.start + dim.end) - dim.start)
            end = Numbers.of(n, last, ElemKind.F64)
            reach = end * (dim.end - dim.start) / Numbers.of(n, count - 1, ElemKind.F64).at_least(1)
            return steps * reach + start * end
        case _:
            raise n.unsupported(f"coordinate_transformation_mode '{coordinates}'")


def _nearest(n: OnnxNode, places: Numbers, mode: str) -> Numbers:
    match mode:
        case "floor":
            return places.floor()
        case "ceil":
            return places.ceil()
        case "round_prefer_floor":
            return (places - 0.5).ceil()
        case "round_prefer_ceil":
            return (places + 0.5).floor()
        case _:
            raise n.unsupported(f"nearest_mode '{mode}'")


_Taps: TypeAlias = "Sequence[tuple[Numbers, Numbers | None]]"
"""Indices and weights of the elements each output is made of; None for weights of 1."""


def _taps(n: OnnxNode, dim: _Sampling, places: Numbers, kind: ElemKind, *, cubic: bool) -> _Taps:
    squeeze = 1.0
    if n.flag("antialias"):
        factor = dim.factor(n)
        if isinstance(factor, Numbers):  # as many taps as that says
            raise UndecidedError(
                f"expected a constant scale with antialias, got {dim.count} / {dim.size}",
                [dim.count, dim.size],
            )
        squeeze = min(factor, 1.0)
    reach = math.ceil((2 if cubic else 1) / squeeze)
    if reach > highest(dim.size) + (1 << 10):
        raise n.unsupported(f"scale {dim.scale} with antialias")
    # All taps at once: a row for each.
    count, near = places.value.type.shape[0], counted(n, 2 * reach).to(places.kind)
    places = places.reshaped(1, count)
    indices = places.floor() + (near.reshaped(2 * reach, 1) + (1 - reach))
    distance = abs(indices - places) * squeeze
    weights = (
        _cubic(distance, n.real("cubic_coeff_a", -0.75)) if cubic else (1 - distance).at_least(0)
    )
    if n.flag("exclude_outside"):
        weights = weights.where(indices >= 0, 0).where(indices <= dim.size - 1, 0)
    weights = (weights / weights.total()).to(kind)
    return list(zip(_inside(indices, dim).rows(), weights.rows(), strict=True))


def _inside(indices: Numbers, dim: _Sampling) -> Numbers:
    """The nearest that there are."""
    return indices.at_least(0).at_most(dim.size - 1).to(ElemKind.I64)


def _cubic(x: Numbers, a: float) -> Numbers:
    """The kernel of Keys (1981)."""
    near = (x * (a + 2) - (a + 3)) * x * x + 1
    far = ((x * a - 5 * a) * x + 8 * a) * x - 4 * a
    return near.where(x <= 1, far.where(x < 2, 0))


def _gathered(n: OnnxNode, value: NodeValue, axis: int, taps: _Taps) -> NodeValue:
    """The weighted sum of gathers along an axis, one for each tap that has any weight."""
    trailing = (1,) * (value.type.rank - 1 - axis)
    total: NodeValue | None = None
    for index, weights in taps:
        known_weights = None if weights is None else weights.known
        if known_weights is not None and not known_weights.any():
            continue
        picked = n.operand(index.value, f"{n.name}_indices")
        term = n.f.create_gather(n.name, value, picked, axis).result
        if weights is not None and (known_weights is None or not (known_weights == 1).all()):
            factors = weights.reshaped(index.value.type.shape[0], *trailing)
            factor = n.operand(factors.value, f"{n.name}_weights")
            term = n.f.create_mul(n.name, term, factor).result
        total = term if total is None else n.f.create_add(n.name, total, term).result
    if total is None:  # no outputs
        shape = list(value.type.shape)
        shape[axis] = taps[0][0].value.type.shape[0]
        return n.operand(filled(n, value.type.with_shape(shape), 0))
    return total


def _extrapolated(n: OnnxNode, value: Value, outside: list[tuple[int, Numbers]]) -> Value:
    """A fixed number where an output lies outside of the input."""
    result = n.operand(value)
    scalar = Type(result.type.kind, ())
    fill = n.operand(full(scalar, n.real("extrapolation_value", 0.0)), f"{n.name}_fill")
    for axis, where in outside:
        trailing = (1,) * (result.type.rank - 1 - axis)
        mask = where.reshaped(result.type.shape[axis], *trailing)
        is_outside = n.operand(mask.value, f"{n.name}_outside")
        result = n.f.create_select(n.name, is_outside, fill, result).result
    return result
