"""Operators on floats of 16 bits that several nodes stand for: they round where they end, as those of one node do."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.rounding import round_at_end
from glowpy.importer.onnx.node import Item
from glowpy.importer.onnx.order import subgraphs
from glowpy.opt.known import is_known
from glowpy.opt.products import Product

__all__ = ["rounded_results"]


def rounded_results(
    node: onnx.NodeProto, f: Function, before: int, results: Mapping[str, Item]
) -> dict[str, Item]:
    """The results of a node, rounded once: for it nodes were created since there were `before`."""
    steps = f.newest(f.num_nodes - before)
    if not any(v.type.kind.is_half for step in steps for v in step.results):
        return {}
    if next(subgraphs(node), None) is not None:
        return {}  # its nodes round where they end
    values = {name: item for name, item in results.items() if isinstance(item, NodeValue)}
    rounded = round_at_end(f, steps, [*values.values()], _reads_weights)
    return dict(zip(values, rounded, strict=True))


def _reads_weights(node: Node) -> bool:
    """Whether a node is a product with known weights: in f32 they would take twice the memory."""
    return isinstance(node, Product) and any(map(is_known, node.inputs))
