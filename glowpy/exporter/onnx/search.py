"""Finding elements: in ONNX, results have as many rows as were found.

Ours have room for the most, of which a slice of `count` rows is read. Such a slice leaves a shorter tensor as it is.
"""

from __future__ import annotations

import math

from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import (
    DefineNode,
    NonMaxSuppressionNode,
    NonZeroNode,
    TopKNode,
    UniqueNode,
)
from glowpy.support.symbolic import symbols_of

__all__: list[str] = []

_SEARCHES = (NonMaxSuppressionNode, NonZeroNode, UniqueNode)


@to_onnx(DefineNode)
def _define(g: OnnxGraph, n: DefineNode) -> None:
    """Defines symbols by a result: counts of a search lie within their bounds, other numbers are limited to them."""
    numbers = g.operand(n.input)
    symbols = list(symbols_of(n.symbols).values())
    for index, symbol in enumerate(symbols):
        number = numbers
        if len(symbols) > 1:
            place, axis = g.ints("place", [index]), g.ints("axis", [0])
            number = g.add("Slice", numbers, place, g.ints("place", [index + 1]), axis)
        if not isinstance(n.input.node, _SEARCHES):
            number = g.add("Max", number, g.ints("low", [symbol.low]))
            number = g.add("Min", number, g.ints("high", [symbol.high]))
        g.define(symbol.name, number)


@to_onnx(NonZeroNode)
def _non_zero(g: OnnxGraph, n: NonZeroNode) -> None:
    places = g.add("NonZero", g.operand(n.input))
    g.result("Transpose", places, perm=(1, 0))
    g.result("Shape", places, index=1, start=1, end=2)
    g.leave_open(n.result)


@to_onnx(UniqueNode)
def _unique(g: OnnxGraph, n: UniqueNode) -> None:
    _, *vectors = g.add_all(
        "Unique", g.operand(n.input), outputs=g.names("unique", 4), axis=0, sorted=int(n.sorted)
    )
    for index, name in enumerate(vectors):
        g.result("Identity", name, index=index)
    g.result("Shape", vectors[0], index=3)
    g.leave_open(n.results[0], n.results[2])


@to_onnx(TopKNode)
def _top_k(g: OnnxGraph, n: TopKNode) -> None:
    k = g.ints("k", [n.k])
    g.results("TopK", g.operand(n.input), k, axis=n.axis, largest=int(n.largest))


@to_onnx(NonMaxSuppressionNode)
def _non_max_suppression(g: OnnxGraph, n: NonMaxSuppressionNode) -> None:
    """A threshold of NaN is none."""
    values = [n.boxes, n.scores, n.limit, n.overlap]
    if not _is_nan(n.threshold):
        values.append(n.threshold)
    g.result("NonMaxSuppression", *map(g.operand, values), center_point_box=int(n.centers))
    g.result("Shape", g.operand(n.result), index=1, start=0, end=1)
    g.leave_open(n.result)


def _is_nan(value: NodeValue) -> bool:
    constant = value.constant
    splat = None if constant is None else constant.tensor.splat_value
    return splat is not None and math.isnan(splat)
