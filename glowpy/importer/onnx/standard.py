"""`standard`: a contrib operator as ONNX's own operator that it extends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue, value_of
from glowpy.importer.onnx.node import OnnxNode, TensorSequence, Value, handler_of
from glowpy.support.errors import InternalError

__all__ = ["standard"]

OPSET = 23
"""The opset of the operators that contrib operators are taken for."""


def standard(n: OnnxNode, op_type: str, values: Sequence[Value | None], **attributes: Any) -> Value:
    """The first result of ONNX's `op_type` on other values, with the attributes of the node and those given here."""
    handler = handler_of("", op_type, OPSET)
    if handler is None:
        raise InternalError(f"no import function for {op_type} (opset {OPSET})")
    proto = onnx.NodeProto()
    proto.CopyFrom(n.proto)
    proto.op_type, proto.domain = op_type, ""
    names = [*n.proto.input, *[""] * len(values)]
    proto.input[:] = names[: len(values)]
    kept = [attribute for attribute in n.proto.attribute if attribute.name not in attributes]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    proto.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    result = handler(OnnxNode(proto, n.loc, OPSET, values, n.scope))
    first = result[0] if isinstance(result, tuple) else result
    if isinstance(first, TensorSequence):
        raise InternalError(f"{op_type} gives a sequence")
    return first if isinstance(first, Tensor | NodeValue) else value_of(first)
