"""Images that are read at computed places, and put together of columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.graph.nodes_gen import (
    ColumnsToImageNode,
    RoiAlignNode,
    RoiMaxPoolNode,
    SampleNode,
)
from tests.ops.harness import (
    HALVES,
    NUMBERS,
    Case,
    Row,
    channels_first,
    channels_last,
    check_row,
    on_every_backend,
    onnx_reference,
    random_array,
    sum_tolerance,
)

# Sample.


def _keys(x: float) -> float:
    """The cubic kernel as Keys (1981) writes it."""
    a, x = -0.75, abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def _turned(place: float, low: float, high: float) -> float:
    """A ball between two walls."""
    while high > low and not low <= place <= high:
        place = 2 * low - place if place < low else 2 * high - place
    return place if high > low else 0.0


def _taps(
    place: float, size: int, order: int, padding: int, aligned: bool
) -> list[tuple[int, float]]:
    if math.isnan(place):
        place = -100.0
    low = 0.0 if aligned else -0.5
    high = size - 1 - low
    if order == 0:
        place = float(round(place)) if math.isfinite(place) else place
    if padding == 1:
        place = min(max(place, -9.0), size + 9.0)
    if padding == 2:
        place = _turned(place, low, high)
    if math.isinf(place):
        return []
    first = math.floor(place)
    reach = {0: [0], 1: [0, 1], 3: [-1, 0, 1, 2]}[order]
    taps = []
    for step in reach:
        distance = place - (first + step)
        weight = [1.0, 1 - abs(distance), 0.0, _keys(distance)][order]
        at = first + step
        if padding == 1:
            at = min(max(at, 0), size - 1)
        if padding == 2:
            at = int(_turned(float(at), low, high))
        if 0 <= at < size:
            taps.append((at, weight))
    return taps


def sampled(image: Array, places: Array, order: int, padding: int, aligned: bool) -> Array:
    """Pixel by pixel."""
    images, points, groups, rank = places.shape
    channels = image.shape[-1]
    wide = image.astype(np.float64)
    result = np.zeros((images, points, channels))
    for n, p, g in np.ndindex(images, points, groups):
        axes = [
            _taps(float(places[n, p, g, rank - 1 - i]), image.shape[1 + i], order, padding, aligned)
            for i in range(rank)
        ]
        own = slice(g * channels // groups, (g + 1) * channels // groups)
        for taps in itertools.product(*axes):
            pixel = tuple(at for at, _ in taps)
            result[n, p, own] += wide[(n, *pixel, own)] * math.prod(w for _, w in taps)
    return result


SAMPLES: list[tuple[tuple[int, ...], int, int]] = [
    ((1, 4, 5, 3), 40, 1),
    ((2, 3, 4, 17), 9, 1),
    ((1, 5, 6), 30, 2),
    ((1, 2, 3, 4, 4), 12, 2),
    ((1, 1, 1, 1), 8, 1),
    ((2, 4, 4, 0), 5, 1),
    ((1, 4, 4, 3), 0, 1),
]


def _sample_cases(kind: ElemKind) -> Iterator[Case]:
    modes = list(itertools.product((0, 1, 3), (0, 1, 2), (False, True)))
    first, *others = SAMPLES
    pairs = [*((first, mode) for mode in modes), *zip(itertools.cycle(others), modes, strict=False)]
    for seed, ((shape, points, groups), mode) in enumerate(pairs):
        order, padding, aligned = mode
        rng = np.random.default_rng(seed)
        places = rng.integers(-24, 56, (shape[0], points, groups, len(shape) - 2)) / 8
        if padding < 2 and points > 5:
            places.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, 6e4]
        image = random_array(kind, shape, seed)
        yield Case(
            [image, places.astype(kind.dtype)],
            [sampled(image, places, order, padding, aligned)],
            {"order": order, "padding": padding, "aligned": aligned},
            tolerance=sum_tolerance(kind, 16),
        )


# Regions.


def _regions(seed: int, count: int) -> Array:
    """Most of them inside of an image of 8 x 9, some outside, of no extent, or turned around."""
    rng = np.random.default_rng(seed)
    regions = np.sort(rng.integers(-8, 48, (count, 2, 2)) / 4, axis=1).reshape(count, 4)
    odd = np.array([[3, 3, 3, 3], [5, 6, 2, 1]])
    return np.concatenate([odd, regions])[:count]


def _roi_align_cases(kind: ElemKind) -> Iterator[Case]:
    # Powers of two: no point is at the edge of what counts as inside by its rounding alone.
    settings = [(5, 0, 1.0), (1, 2, 0.5), (4, 4, 1.25), (0, 0, 1.0)]
    for seed, ((count, ratio, scale), largest, half_pixel) in enumerate(
        itertools.product(settings, (False, True), (False, True))
    ):
        image = random_array(kind, (2, 8, 9, 3 if seed % 2 else 17), seed)
        regions, images = _regions(seed, count), np.arange(count) % 2
        attrs = {"height": 4, "width": 2, "ratio": ratio, "scale": scale}
        expected = np.zeros((0, 4, 2, image.shape[-1]))
        if count:
            (planes,) = onnx_reference(
                "RoiAlign",
                [channels_first(image.astype(np.float64)), regions, images],
                mode="max" if largest else "avg",
                coordinate_transformation_mode="half_pixel" if half_pixel else "output_half_pixel",
                output_height=4,
                output_width=2,
                sampling_ratio=ratio,
                spatial_scale=scale,
            )
            expected = channels_last(planes)
        yield Case(
            [image, regions.astype(kind.dtype), images],
            [expected],
            {**attrs, "largest": largest, "half_pixel": half_pixel},
            tolerance=sum_tolerance(kind, 16),
        )


def _wild_regions(kind: ElemKind) -> Iterator[Case]:
    """Regions that are no numbers, or so large that they have hardly a point in the image, and far image numbers."""
    image = random_array(kind, (2, 3, 3, 2)) + kind.dtype.type(4)
    regions = np.array(
        [[np.nan] * 4, [-6e4, -6e4, 6e4, 6e4], [np.inf, 0, np.inf, 3], [-9, -9, -5, -5]]
    )
    images = np.array([0, 1, 7, -(1 << 62)])
    for largest in (False, True):
        attrs = {"height": 1, "width": 1, "ratio": 0, "scale": 1e3, "largest": largest}
        yield Case(
            [image, regions.astype(kind.dtype), images],
            [np.zeros((4, 1, 1, 2))],
            {**attrs, "half_pixel": True},
        )


def _pooled_region(
    image: Array, region: Sequence[float], scale: float, bins: Sequence[int]
) -> Array:
    x1, y1, x2, y2 = (math.floor(abs(v * scale) + 0.5) * (1 if v >= 0 else -1) for v in region)
    result = np.zeros((*bins, image.shape[-1]))
    for row, col in np.ndindex(*bins):
        spans = []
        for at, number, start, end in ((row, bins[0], y1, y2), (col, bins[1], x1, x2)):
            size = max(end - start + 1, 1) / number
            spans.append(range(math.floor(at * size) + start, math.ceil((at + 1) * size) + start))
        pixels = [
            image[y, x]
            for y, x in itertools.product(*spans)
            if 0 <= y < image.shape[0] and 0 <= x < image.shape[1]
        ]
        if pixels:
            result[row, col] = np.max(pixels, axis=0)
    return result


def _roi_max_pool_cases(kind: ElemKind) -> Iterator[Case]:
    for seed, (count, scale, bins) in enumerate(
        [(6, 1.0, (2, 2)), (4, 0.5, (4, 1)), (0, 1.0, (1, 1))]
    ):
        image = random_array(kind, (2, 8, 9, 5), seed)
        regions = _regions(seed, count)
        numbers = np.arange(count) % 2
        expected = [
            _pooled_region(image[n], region, scale, bins)
            for n, region in zip(numbers, regions, strict=True)
        ]
        yield Case(
            [image, np.concatenate([numbers[:, None], regions], 1).astype(kind.dtype)],
            [np.array(expected).reshape(count, *bins, 5)],
            {"height": bins[0], "width": bins[1], "scale": scale},
        )


# Columns.

COLUMNS: list[
    tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
] = [
    ((5, 5), (1, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((6, 7), (3, 2), (2, 1), (1, 0, 2, 1), (1, 2)),
    ((9,), (3,), (2,), (1, 1), (2,)),
    ((3, 4, 5), (2, 2, 3), (1, 2, 1), (0, 1, 1, 1, 0, 1), (1, 1, 1)),
    ((2, 2), (1, 1), (3, 3), (2, 2, 0, 0), (1, 1)),
]


def _columns_cases(kind: ElemKind) -> Iterator[Case]:
    for seed, (spatial, kernels, strides, pads, dilation) in enumerate(COLUMNS):
        rank = len(spatial)
        windows = math.prod(
            (spatial[i] + pads[i] + pads[rank + i] - (kernels[i] - 1) * dilation[i] - 1)
            // strides[i]
            + 1
            for i in range(rank)
        )
        columns = random_array(kind, (2, 3 * math.prod(kernels), windows), seed)
        wide = columns.astype(np.float64 if kind.is_float else kind.dtype)
        (expected,) = onnx_reference(
            "Col2Im",
            [wide, np.array(spatial), np.array(kernels)],
            dilations=dilation,
            strides=strides,
            pads=pads,
        )
        yield Case(
            [columns],
            [expected],
            {"kernels": kernels, "strides": strides, "pads": pads, "dilation": dilation},
            result_type=parse_type(f"{kind.value}[{'x'.join(map(str, (2, 3, *spatial)))}]"),
            tolerance=sum_tolerance(kind, 8),
        )


KINDS = (ElemKind.F32, ElemKind.F64, *HALVES)
ROWS = [
    Row(SampleNode, KINDS, _sample_cases),
    Row(RoiAlignNode, KINDS, _roi_align_cases),
    Row(RoiAlignNode, KINDS[:2], _wild_regions, "roi_align of wild regions"),
    Row(RoiMaxPoolNode, KINDS, _roi_max_pool_cases),
    Row(ColumnsToImageNode, NUMBERS, _columns_cases),
]


@on_every_backend(ROWS)
def test_image(row: Row, backend: str) -> None:
    check_row(row, backend)
