"""Element-wise operators: those that ONNX has, by the importer's table, and what it has under several names."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.exporter.onnx.graph import OnnxGraph, elem_type_of, to_onnx
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import (
    AndNode,
    ConvertNode,
    DecodeNode,
    EncodeNode,
    MaxNode,
    MinNode,
    OrNode,
    PowNode,
    UncontractedAddNode,
    UncontractedMulNode,
    XorNode,
)
from glowpy.ops.elementwise import ONNX_ELEMENTWISE

__all__: list[str] = []

_BITWISE = (AndNode, OrNode, XorNode)


def _register(op_type: str, *classes: type[Node]) -> None:
    @to_onnx(*classes)
    def _(g: OnnxGraph, n: Node) -> None:
        g.result(op_type, *[g.operand(value) for value in n.inputs])


for (_op_type, _since), _cls in ONNX_ELEMENTWISE.items():
    if _cls not in _BITWISE:
        _register(_op_type, _cls)
for _op_type, _cls in (
    ("Pow", PowNode),
    ("Max", MaxNode),
    ("Min", MinNode),
    ("Mul", UncontractedMulNode),
    ("Add", UncontractedAddNode),
):
    _register(_op_type, _cls)


@to_onnx(*_BITWISE)
def _logic(g: OnnxGraph, n: Node) -> None:
    name = n.SCHEMA.mnemonic.capitalize()
    prefix = "" if n.type.kind is ElemKind.BOOL else "Bitwise"
    g.result(f"{prefix}{name}", *[g.operand(value) for value in n.inputs])


@to_onnx(ConvertNode, DecodeNode)
def _convert(g: OnnxGraph, n: ConvertNode | DecodeNode) -> None:
    g.result("Cast", g.operand(n.input), to=elem_type_of(n.type.kind))


@to_onnx(EncodeNode)
def _encode(g: OnnxGraph, n: EncodeNode) -> None:
    g.result("Cast", g.operand(n.input), to=elem_type_of(n.type.kind), saturate=0)
