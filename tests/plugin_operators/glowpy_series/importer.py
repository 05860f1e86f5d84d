"""What the operators are in ONNX models: an import function for each."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Tensor
from glowpy.graph.node import Operand
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy_series.nodes_gen import create_series_record

DOMAIN = "com.example.series"


@from_onnx("Record", domain=DOMAIN)
def _record(n: OnnxNode) -> Operand:
    """The largest element so far: a node of this package's own, with a kernel."""
    return create_series_record(n.f, n.name, n.input(0), reverse=n.flag("reverse"))


@from_onnx("Drawdown", domain=DOMAIN)
def _drawdown(n: OnnxNode) -> Operand:
    """How far below the largest element so far, times `scale`: made of nodes that there are."""
    record = create_series_record(n.f, n.name, n.input(0), reverse=False)
    depth = n.f.create_sub(n.name, record, n.input(0))
    scale = np.asarray(n.real("scale", 1.0), n.type(0).kind.dtype)
    return n.f.create_mul(n.name, depth, n.operand(Tensor.of(scale)))
