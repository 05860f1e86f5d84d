"""Matrix products, and determinants."""

from __future__ import annotations

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import DeterminantNode, FullyConnectedNode, MatMulNode

__all__: list[str] = []


@to_onnx(MatMulNode)
def _mat_mul(g: OnnxGraph, n: MatMulNode) -> None:
    g.result("MatMul", g.operand(n.lhs), g.operand(n.rhs))


@to_onnx(FullyConnectedNode)
def _fully_connected(g: OnnxGraph, n: FullyConnectedNode) -> None:
    g.result("Gemm", g.operand(n.input), g.operand(n.weights), g.operand(n.bias))


@to_onnx(DeterminantNode)
def _determinant(g: OnnxGraph, n: DeterminantNode) -> None:
    g.result("Det", g.operand(n.input))
