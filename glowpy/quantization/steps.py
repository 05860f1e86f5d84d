"""Steps: nodes that together are one operator of the user's model, or a layer norm, however many nodes exporters write.

What is between them is part of no model: it is rounded in none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import SplatNode
from glowpy.graph.rounding import computes
from glowpy.opt.known import is_known
from glowpy.opt.layer_norm import layer_norm_of
from glowpy.opt.products import Product

__all__ = ["operators_of", "reads_weights"]

_WEIGHTS = 4096
"""Constants of more elements are what halves are there for."""


def operators_of(nodes: Sequence[Node]) -> dict[Node, Hashable]:
    """Maps each node to the operator it is a step of, for those with several; in the order of the nodes."""
    joined: dict[Hashable, Hashable] = {}
    for node in reversed(nodes):
        norm = layer_norm_of(node)
        if norm is not None:
            operator_of_norm = _last(joined, _own(node))
            joined |= {
                part: operator_of_norm
                for n in norm.nodes
                if (part := _last(joined, _own(n))) != operator_of_norm
            }
    operators = {node: _last(joined, _own(node)) for node in nodes}
    counts = Counter(operators[n] for n in nodes if computes(n) and not isinstance(n, SplatNode))
    return {node: operator for node, operator in operators.items() if counts[operator] > 1}


def reads_weights(node: Node) -> bool:
    """Whether a node reads constants that are to take half the memory: those of products, and large ones."""
    if isinstance(node, Product) and any(map(is_known, node.inputs)):
        return True
    return any(v.constant is not None and v.type.room > 4 * _WEIGHTS for v in node.inputs)


def _own(node: Node) -> Hashable:
    """The operator in the user's model that a node is from, or the node."""
    return node.loc if node.loc.operator else node


def _last(joined: dict[Hashable, Hashable], operator: Hashable) -> Hashable:
    while operator in joined:
        operator = joined[operator]
    return operator
