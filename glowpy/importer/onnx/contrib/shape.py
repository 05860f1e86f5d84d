"""Import of operators that move elements: those that ONNX has as well, by now."""

from __future__ import annotations

import numpy as np

from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Tensor
from glowpy.importer.kit.moves import reshape, vector
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard

__all__: list[str] = []


@from_onnx("Trilu", domain=CONTRIB)
def _trilu(n: OnnxNode) -> Value:
    return standard(n, "Trilu", [n.value(0), n.value(1) if n.has(1) else None])


@from_onnx("GatherND", domain=CONTRIB)
def _gather_nd(n: OnnxNode) -> Value:
    return standard(n, "GatherND", [n.value(0), n.value(1)])


@from_onnx("ExpandDims", domain=CONTRIB)
def _expand_dims(n: OnnxNode) -> Value:
    """One more dimension of 1."""
    shape = list(n.type(0).shape)
    shape.insert(normalize_axis(int(n.known_scalar(1)), len(shape) + 1), 1)
    return reshape(n, n.value(0), shape)


@from_onnx("Pad", domain=CONTRIB)
def _pad(n: OnnxNode) -> Value:
    """The pads may be a row of a matrix."""
    pads = n.known(1)
    if pads.type.rank == 2 and pads.type.extents[0] == 1:
        pads = vector([int(item) for item in pads.array.reshape(-1)])
    return standard(n, "Pad", [n.value(0), pads, n.value(2) if n.has(2) else None])


@from_onnx("Range", domain=CONTRIB)
def _range(n: OnnxNode) -> Value:
    """In steps of 1 unless a delta is given."""
    one = Tensor.of(np.ones((), n.type(0).kind.dtype))
    return standard(n, "Range", [n.value(0), n.value(1), n.value(2) if n.has(2) else one])
