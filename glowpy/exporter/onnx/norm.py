"""Softmax and its logarithm; the other normalizations are operators already."""

from __future__ import annotations

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import LogSoftmaxNode, SoftmaxNode

__all__: list[str] = []


@to_onnx(SoftmaxNode)
def _softmax(g: OnnxGraph, n: SoftmaxNode) -> None:
    g.result("Softmax", g.operand(n.input), axis=n.axis)


@to_onnx(LogSoftmaxNode)
def _log_softmax(g: OnnxGraph, n: LogSoftmaxNode) -> None:
    g.result("LogSoftmax", g.operand(n.input), axis=n.axis)
