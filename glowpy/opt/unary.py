"""Element-wise nodes that together are a function of one value: a GELU of its parts, a swish, a power of a limit."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.graph.node import Node, NodeValue
from glowpy.opt.known import is_known

__all__ = ["Unary", "unary_of"]

_LIMIT = 32
"""Nodes of one function."""


@dataclass(frozen=True)
class Unary:
    """A function of one value.

    Attributes:
        operand: The value, of the shape of the result.
        nodes: The nodes that compute the function, each after those that read it; no other reads what is between them.
    """

    operand: NodeValue
    nodes: tuple[Node, ...]


def unary_of(root: Node) -> Unary | None:
    """The largest function of one value that `root` gives the result of; None if it is of several, or of none."""
    if not _takes_part(root) or root.type.kind is not ElemKind.F32:
        return None
    nodes = {root: None}
    operands = dict.fromkeys(value for value in root.inputs if not _is_number(value))
    largest = _unary(root, operands, nodes)
    while len(nodes) < _LIMIT:
        inside = next((v.node for v in operands if v.node and _is_inner(v, nodes)), None)
        if inside is None:
            break
        nodes[inside] = None
        operands.pop(inside.result)
        operands.update(dict.fromkeys(v for v in inside.inputs if not _is_number(v)))
        largest = _unary(root, operands, nodes) or largest
    return largest


def _unary(root: Node, operands: dict[NodeValue, None], nodes: dict[Node, None]) -> Unary | None:
    if len(operands) != 1:
        return None
    (operand,) = operands
    return Unary(operand, tuple(nodes)) if operand.type == root.type else None


def _is_inner(value: NodeValue, nodes: dict[Node, None]) -> bool:
    node = value.node
    return node is not None and _takes_part(node) and all(user in nodes for user in value.users)


def _takes_part(node: Node) -> bool:
    """Whether a node computes element by element, with floats, or truths about them."""
    values = (*node.inputs, *node.results)
    plain = all(
        v.type.kind in (ElemKind.F32, ElemKind.BOOL) and v.type.quant is None for v in values
    )
    is_elementwise = node.has(Trait.ELEMENTWISE) and not node.has(Trait.TYPED)
    return plain and is_elementwise and node.predicate is None


def _is_number(value: NodeValue) -> bool:
    """Whether a value is one known number."""
    return is_known(value) and (value.node is not None or value.type.count == 1)
