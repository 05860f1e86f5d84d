"""Reductions and running sums."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.exporter.onnx.graph import OnnxGraph, elem_type_of, to_onnx
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import (
    ArgMaxNode,
    ArgMinNode,
    CumSumNode,
    ReduceAddNode,
    ReduceMaxNode,
    ReduceMeanNode,
    ReduceMinNode,
    ReduceMulNode,
)

__all__: list[str] = []

_OPERATORS: dict[type[Node], str] = {
    ReduceAddNode: "ReduceSum",
    ReduceMaxNode: "ReduceMax",
    ReduceMeanNode: "ReduceMean",
    ReduceMinNode: "ReduceMin",
    ReduceMulNode: "ReduceProd",
}
_NARROW = (ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.U16)
_ANY = (ReduceMaxNode, ReduceMinNode)


@to_onnx(*_OPERATORS)
def _reduce(g: OnnxGraph, n: Node) -> None:
    """Small integers are summed in 32 bits, of which the lower ones are kept: they wrap as in their own kind."""
    operator, x, axes = _OPERATORS[type(n)], g.operand(n.inputs[0]), n.attrs["axes"]
    if not axes:  # which would mean all of them
        g.result("Identity", x)
        return
    vector, kind = g.ints("axes", axes), n.type.kind
    if kind not in _NARROW or isinstance(n, _ANY):
        g.result(operator, x, vector, keepdims=1)
        return
    wide = g.add("Cast", x, to=elem_type_of(ElemKind.I32))
    g.result("Cast", g.add(operator, wide, vector, keepdims=1), to=elem_type_of(kind))


@to_onnx(ArgMaxNode)
def _arg_max(g: OnnxGraph, n: ArgMaxNode) -> None:
    g.result("ArgMax", g.operand(n.input), axis=n.axis, select_last_index=int(n.last))


@to_onnx(ArgMinNode)
def _arg_min(g: OnnxGraph, n: ArgMinNode) -> None:
    g.result("ArgMin", g.operand(n.input), axis=n.axis, select_last_index=int(n.last))


@to_onnx(CumSumNode)
def _cum_sum(g: OnnxGraph, n: CumSumNode) -> None:
    axis = g.scalar("axis", ElemKind.I64, n.axis)
    flags = {"exclusive": int(n.exclusive), "reverse": int(n.reverse)}
    g.result("CumSum", g.operand(n.input), axis, **flags)
