"""Transforms of signals."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import FourierTransformNode

__all__: list[str] = []


@to_onnx(FourierTransformNode)
def _fourier_transform(g: OnnxGraph, n: FourierTransformNode) -> None:
    """ONNX knows the roots by their number."""
    length, rank = n.roots.type.extents[0], n.input.type.rank
    axis = g.scalar("axis", ElemKind.I64, rank - 2)
    number = g.scalar("length", ElemKind.I64, length)
    onesided = int(n.half)
    g.result("DFT", g.operand(n.input), number, axis, inverse=int(n.inverse), onesided=onesided)
