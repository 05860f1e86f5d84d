"""Activation functions with attributes."""

from __future__ import annotations

import math

from glowpy.core.elemkind import ElemKind
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import (
    CeluNode,
    ClipNode,
    EluNode,
    GeluNode,
    HardSigmoidNode,
    LeakyReluNode,
    PReluNode,
    SeluNode,
    ShrinkNode,
    SwishNode,
    ThresholdedReluNode,
)

__all__: list[str] = []

_SAME_ATTRIBUTES: dict[type[Node], str] = {
    EluNode: "Elu",
    HardSigmoidNode: "HardSigmoid",
    LeakyReluNode: "LeakyRelu",
    PReluNode: "PRelu",
    SeluNode: "Selu",
    ShrinkNode: "Shrink",
    ThresholdedReluNode: "ThresholdedRelu",
}


@to_onnx(*_SAME_ATTRIBUTES)
def _same_attributes(g: OnnxGraph, n: Node) -> None:
    g.result(_SAME_ATTRIBUTES[type(n)], *[g.operand(value) for value in n.inputs], **n.attrs)


@to_onnx(ClipNode)
def _clip(g: OnnxGraph, n: ClipNode) -> None:
    """A bound that limits nothing is left out."""
    low = g.scalar("min", n.type.kind, n.min) if n.min > -math.inf else ""
    high = g.scalar("max", n.type.kind, n.max) if n.max < math.inf else ""
    bounds = [low, high] if high else [low] if low else []
    g.result("Clip", g.operand(n.input), *bounds)


@to_onnx(CeluNode)
def _celu(g: OnnxGraph, n: CeluNode) -> None:
    """ONNX has it for f32 alone; others are alpha times the ELU of the quotient."""
    if n.type.kind is ElemKind.F32:
        g.result("Celu", g.operand(n.input), alpha=n.alpha)
        return
    alpha = g.scalar("alpha", n.type.kind, n.alpha)
    g.result("Mul", g.add("Elu", g.add("Div", g.operand(n.input), alpha)), alpha)


@to_onnx(SwishNode)
def _swish(g: OnnxGraph, n: SwishNode) -> None:
    """ONNX has it since opset 24."""
    x = g.operand(n.input)
    scaled = x if n.alpha == 1 else g.add("Mul", x, g.scalar("alpha", n.type.kind, n.alpha))
    g.result("Mul", x, g.add("Sigmoid", scaled))


@to_onnx(GeluNode)
def _gelu(g: OnnxGraph, n: GeluNode) -> None:
    g.result("Gelu", g.operand(n.input), approximate="tanh" if n.approximate else "none")
