"""Nodes that together are a layer norm.

Ba et al. 2016; without a mean it is that of Zhang and Sennrich 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from glowpy.core.elemkind import ElemKind
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    AddNode,
    DivNode,
    MulNode,
    ReciprocalNode,
    ReduceMeanNode,
    SqrtNode,
    SubNode,
)
from glowpy.opt.known import is_known, known

__all__ = ["LayerNorm", "layer_norm_of"]


@dataclass(frozen=True)
class LayerNorm:
    """Elements less their mean, over their deviation, times a factor, plus a shift.

    Attributes:
        operand: What is normalized, of the shape of the result.
        axes: The dimensions that a mean is over.
        epsilon: What is added to the variance.
        centred: Whether the mean is subtracted; else the variance is the mean square.
        scale: The factor, which is known and broadcasts; None for 1.
        bias: The shift; None for 0.
        nodes: What computes it, each node after those that read it; nothing else reads what is between them.
    """

    operand: NodeValue
    axes: tuple[int, ...]
    epsilon: float
    centred: bool
    scale: NodeValue | None
    bias: NodeValue | None
    nodes: tuple[Node, ...]


def layer_norm_of(root: Node) -> LayerNorm | None:
    """The layer norm that `root` gives the result of; None if it is another operation, or part of one."""
    if not isinstance(root, AddNode | MulNode | DivNode) or root.type.kind is not ElemKind.F32:
        return None
    nodes: list[Node] = []
    node: Node | None = root
    bias = scale = None
    if isinstance(node, AddNode) and (pair := _with_known(node)):
        nodes.append(node)
        bias, node = pair[0], pair[1].node
    if isinstance(node, MulNode) and (pair := _with_known(node)):
        nodes.append(node)
        scale, node = pair[0], pair[1].node
    if node is None:
        return None
    nodes.append(node)
    for numbers, inverse in _quotients(node):
        inner = _standard(numbers, inverse)
        if inner is not None and inner.operand.type == root.type:
            every = (*nodes, *inner.nodes)
            if all(set(part.result.users) <= set(every) for part in every[1:]):
                return replace(inner, scale=scale, bias=bias, nodes=every)
    return None


def _with_known(node: AddNode | MulNode) -> tuple[NodeValue, NodeValue] | None:
    """The known operand of a sum or product, and the other one, which is computed."""
    for one, other in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
        if is_known(one) and other.type == node.type:
            return one, other
    return None


def _quotients(node: Node) -> list[tuple[NodeValue, list[Node]]]:
    """What may be divided by what: numbers, and the nodes that give the inverse of their divisor, from a root."""
    if isinstance(node, DivNode) and isinstance(node.rhs.node, SqrtNode):
        return [(node.lhs, [node.rhs.node])]
    if not isinstance(node, MulNode):
        return []
    pairs = ((node.lhs, node.rhs.node), (node.rhs, node.lhs.node))
    return [
        (numbers, [inverse, inverse.input.node])
        for numbers, inverse in pairs
        if isinstance(inverse, ReciprocalNode) and isinstance(inverse.input.node, SqrtNode)
    ]


def _standard(numbers: NodeValue, inverse: list[Node]) -> LayerNorm | None:
    """`numbers` over their deviation, the root of which is the last of the nodes of the `inverse`."""
    square, nodes, epsilon = inverse[-1].inputs[0], tuple(inverse), 0.0
    if isinstance(raised := square.node, AddNode):
        pair = _with_known(raised)
        added = None if pair is None else known(pair[0])
        if pair is None or added is None or not added.size or (added != added.flat[0]).any():
            return None
        square, nodes, epsilon = pair[1], (*nodes, raised), float(added.flat[0])
    mean = square.node
    product = mean.input.node if isinstance(mean, ReduceMeanNode) else None
    if not isinstance(product, MulNode) or {*product.inputs} != {numbers}:
        return None
    assert isinstance(mean, ReduceMeanNode)
    nodes = (*nodes, mean, product)
    apart = numbers.node
    centred = False
    if isinstance(apart, SubNode) and isinstance(own := apart.rhs.node, ReduceMeanNode):
        centred = own.input is apart.lhs and own.axes == mean.axes
        if centred:
            nodes, numbers = (*nodes, apart, own), own.input
    return LayerNorm(numbers, mean.axes, epsilon, centred, None, None, nodes)
