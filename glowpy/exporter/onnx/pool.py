"""Pools that say where their results are from; the others are operators already."""

from __future__ import annotations

from glowpy.exporter.onnx.channels_first import padded_window
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.nodes_gen import MaxPoolWithArgmaxNode
from glowpy.support.symbolic import depends_on_symbols

__all__: list[str] = []


@to_onnx(MaxPoolWithArgmaxNode)
def _max_pool_with_argmax(g: OnnxGraph, n: MaxPoolWithArgmaxNode) -> None:
    rank = n.type.rank
    if depends_on_symbols(n.pads):
        g.refuse("its pads depend on symbolic dimensions")
        return
    first = g.add("Transpose", g.operand(n.input), perm=(0, rank - 1, *range(1, rank - 1)))
    results = g.add_all("MaxPool", first, outputs=g.names("maxpool", 2), **padded_window(n))
    for index, name in enumerate(results):
        g.result("Transpose", name, index=index, perm=(0, *range(2, rank), 1))
