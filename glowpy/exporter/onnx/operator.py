"""`OnnxOperatorNode`: an operator as ONNX has it, between nodes of the graph.

What computes on channels that are last becomes such an operator on channels that come second, with transposes around
it. These are transposes as all others, which the optimizer's passes bring together.
"""

from __future__ import annotations

from typing import ClassVar, final

from glowpy.core.schema import NodeSchema, Quantized, Trait
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import Node

__all__ = ["OnnxOperatorNode"]


@final
class OnnxOperatorNode(Node):
    """The operator that the attribute `op_type` names, with its other attributes, which ONNX defines."""

    __slots__ = ()
    SCHEMA: ClassVar[NodeSchema] = NodeSchema(
        "onnx_operator", ("inputs",), (), ("result",), frozenset({Trait.TYPED}),
        variadic=True, quant=Quantized.RULE,
    )  # fmt: skip


@to_onnx(OnnxOperatorNode)
def _operator(g: OnnxGraph, n: OnnxOperatorNode) -> None:
    attributes = {name: value for name, value in n.attrs.items() if name != "op_type"}
    g.result(n.attrs["op_type"], *[g.operand(value) for value in n.inputs], **attributes)
