"""Indexed access."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import (
    DynamicSliceNode,
    GatherNode,
    ScatterAddNode,
    ScatterMaxNode,
    ScatterMinNode,
    ScatterMulNode,
    ScatterNode,
)

__all__: list[str] = []


@to_onnx(GatherNode)
def _gather(g: OnnxGraph, n: GatherNode) -> None:
    """Indices out of range, which we limit, are undefined in ONNX."""
    g.result("Gather", g.operand(n.input), g.operand(n.indices), axis=n.axis)


@to_onnx(DynamicSliceNode)
def _dynamic_slice(g: OnnxGraph, n: DynamicSliceNode) -> None:
    """Places, one by one: a slice of ONNX ends where another number of places may."""
    count = g.add("Squeeze", g.ints("count", n.type.shape[n.axis : n.axis + 1]))
    zero, one = (g.scalar("bound", ElemKind.I64, number) for number in (0, 1))
    steps = g.add("Mul", g.add("Range", zero, count, one), g.ints("step", [n.step]))
    last = g.ints("last", [n.input.type.shape[n.axis] - 1])

    def inside(places: str) -> str:
        return g.add("Max", g.add("Min", places, last), g.ints("first", [0]))

    places = inside(g.add("Add", steps, inside(g.operand(n.start))))
    g.result("Gather", g.operand(n.input), places, axis=n.axis)


_REDUCTIONS: dict[type[Node], str] = {
    ScatterNode: "none",
    ScatterAddNode: "add",
    ScatterMaxNode: "max",
    ScatterMinNode: "min",
    ScatterMulNode: "mul",
}


@to_onnx(*_REDUCTIONS)
def _scatter(g: OnnxGraph, n: Node) -> None:
    """An index of one number is that of a row."""
    input, indices, updates = (g.operand(value) for value in n.inputs)
    rows = g.add("Unsqueeze", indices, g.ints("axes", [1]))
    g.result("ScatterND", input, rows, updates, reduction=_REDUCTIONS[type(n)])
