"""Indexed access."""

from __future__ import annotations

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import GatherNode

__all__: list[str] = []


@to_onnx(GatherNode)
def _gather(g: OnnxGraph, n: GatherNode) -> None:
    """Indices out of range, which we limit, are undefined in ONNX."""
    g.result("Gather", g.operand(n.input), g.operand(n.indices), axis=n.axis)
