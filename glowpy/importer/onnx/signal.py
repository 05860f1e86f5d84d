"""Import of signal processing: MelWeightMatrix."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array, Tensor
from glowpy.importer.onnx.data_movement import convert
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.importer.onnx.tensor import kind_of
from glowpy.support.errors import UserError

__all__: list[str] = []

_MOST_WEIGHTS = 1 << 28


@from_onnx("MelWeightMatrix", since=17)
def _mel_weight_matrix(n: OnnxNode) -> Value:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale."""
    bands, length, rate = (int(n.known_scalar(index)) for index in range(3))
    low, high = (float(n.known_scalar(index)) for index in (3, 4))
    if bands < 0 or length < 1 or rate < 1 or not 0 <= low <= high:
        raise UserError(
            "expected bands, a length, a rate and edges that ascend, "
            f"got {bands}, {length}, {rate}, {low:g} and {high:g}"
        )
    bins = length // 2 + 1
    if bands * bins > _MOST_WEIGHTS:
        raise UserError(f"expected at most {_MOST_WEIGHTS} weights, got {bands} times {bins}")
    edges = _band_edges(bands, length, rate, low, high)
    if edges[-1] > bins:
        raise UserError(f"expected edges below half of the rate {rate}, got {high:g}")
    weights = np.zeros((bins, bands), np.float32)
    for band, (first, middle, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(first, middle + 1)
        falling = np.arange(middle, last)
        if first == middle:
            weights[middle : middle + 1, band] = 1
        else:
            weights[rising[rising < bins], band] = ((rising - first) / (middle - first))[
                rising < bins
            ]
        weights[falling, band] = (last - falling) / max(last - middle, 1)
    kind = kind_of(n.integer("output_datatype", 1))
    return convert(n, Tensor.of(weights), kind)


def _band_edges(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    """The bins of the spectrum at which triangles begin, peak and end."""
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = ends[0] + np.arange(bands + 2) * ((ends[1] - ends[0]) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    return np.asarray(((length + 1) * hertz // rate).astype(np.int64))
