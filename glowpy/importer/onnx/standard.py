"""`standard`: an operator as another one that it extends, most often one of ONNX's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue, value_of
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.node import OnnxNode, Result, TensorSequence, handler_of
from glowpy.support.errors import InternalError

__all__ = ["OPSET", "results_as", "standard"]

OPSET = 23
"""The opset of the operators that contrib operators are taken for."""


def standard(n: OnnxNode, op_type: str, values: Sequence[Value | None], **attributes: Any) -> Value:
    """The first result of ONNX's `op_type` on other values, with the attributes of the node and those given here."""
    first, *_ = results_as(n, "", op_type, OPSET, values, attributes)
    if isinstance(first, TensorSequence | SymbolicTensor):
        raise InternalError(f"{op_type} gives no tensor")
    return first if isinstance(first, Tensor | NodeValue) else value_of(first)


def results_as(
    n: OnnxNode,
    domain: str,
    op_type: str,
    opset: int,
    values: Sequence[Value | None],
    attributes: Mapping[str, Any],
) -> tuple[Result, ...]:
    """All results of another operator on other values, with the attributes of the node and those given here."""
    handler = handler_of(domain, op_type, opset)
    if handler is None:
        raise InternalError(f"no import function for {op_type} (opset {opset})")
    proto = onnx.NodeProto()
    proto.CopyFrom(n.proto)
    proto.op_type, proto.domain = op_type, domain
    names = [*n.proto.input, *[""] * len(values)]
    proto.input[:] = names[: len(values)]
    other_attributes = [
        attribute for attribute in n.proto.attribute if attribute.name not in attributes
    ]
    del proto.attribute[:]
    proto.attribute.extend(other_attributes)
    proto.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    result = handler(OnnxNode(proto, n.loc, opset, values, n.scope))
    return result if isinstance(result, tuple) else (result,)
