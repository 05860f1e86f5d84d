"""Softmax and its logarithm, and layer norms in parts; the other normalizations are operators already."""

from __future__ import annotations

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import LayerNormalizationNode, LogSoftmaxNode, SoftmaxNode

__all__: list[str] = []


@to_onnx(SoftmaxNode)
def _softmax(g: OnnxGraph, n: SoftmaxNode) -> None:
    g.result("Softmax", g.operand(n.input), axis=n.axis)


@to_onnx(LogSoftmaxNode)
def _log_softmax(g: OnnxGraph, n: LogSoftmaxNode) -> None:
    g.result("LogSoftmax", g.operand(n.input), axis=n.axis)


@to_onnx(LayerNormalizationNode)
def _layer_norm(g: OnnxGraph, n: LayerNormalizationNode) -> None:
    """ONNX's own has a factor and a shift of all elements that are normalized together, and these broadcast."""
    numbers, axes, kind = g.operand(n.input), g.ints("axes", n.axes), n.type.kind
    if n.centred:
        numbers = g.add("Sub", numbers, g.add("ReduceMean", numbers, axes, keepdims=1))
    square = g.add("ReduceMean", g.add("Mul", numbers, numbers), axes, keepdims=1)
    raised = g.add("Add", square, g.scalar("epsilon", kind, n.epsilon))
    inverse = g.add("Reciprocal", g.add("Sqrt", raised))
    scaled = g.add("Mul", g.add("Mul", numbers, inverse), g.operand(n.scale))
    g.result("Add", scaled, g.operand(n.bias))
