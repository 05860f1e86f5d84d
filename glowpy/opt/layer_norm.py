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
    ReduceAddNode,
    ReduceMeanNode,
    ReshapeNode,
    SqrtNode,
    SubNode,
)
from glowpy.opt.known import is_all, is_known, known
from glowpy.support.symbolic import Expr, product

__all__ = ["LayerNorm", "layer_norm_of", "standard_of"]


@dataclass(frozen=True)
class LayerNorm:
    """Elements less their mean, over their deviation, times a factor, plus a shift.

    Attributes:
        operand: The normalized value, of the shape of the result.
        axes: The dimensions that a mean is over.
        epsilon: The number that is added to the variance.
        centred: Whether the mean is subtracted; else the variance is the mean square.
        scale: The factor, which is known and broadcasts; None for 1.
        bias: The shift; None for 0.
        nodes: The nodes that compute it, each after those that read it; nothing else reads what is between them.
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
    inner = _standard_of(node)
    if inner is None or inner.operand.type != root.type:
        return None
    return _alone(replace(inner, scale=scale, bias=bias, nodes=(*nodes, *inner.nodes)))


def standard_of(root: Node) -> LayerNorm | None:
    """The layer norm without scale and bias that `root` gives the result of, perhaps after means were lowered."""
    inner = _standard_of(root)
    if inner is None or inner.operand.type != root.type:
        return None
    return _alone(replace(inner, nodes=(root, *inner.nodes)))


def _alone(norm: LayerNorm) -> LayerNorm | None:
    """A layer norm if nothing else reads what is between its nodes."""
    within = set(norm.nodes)
    return norm if all(set(part.result.users) <= within for part in norm.nodes[1:]) else None


def _standard_of(node: Node) -> LayerNorm | None:
    """Finds the standardization that `node` ends with a division by the deviation; the node itself is left out."""
    standards = (_standard(node, numbers, divisor) for numbers, divisor in _quotients(node))
    return next((standard for standard in standards if standard is not None), None)


def _with_known(node: AddNode | MulNode) -> tuple[NodeValue, NodeValue] | None:
    """The known operand of a sum or product, and the other one, which is computed."""
    for one, other in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
        if is_known(one) and other.type == node.type:
            return one, other
    return None


def _quotients(node: Node) -> list[tuple[NodeValue, NodeValue]]:
    """Returns the possible pairs of numbers and divisor, where the divisor may be a root or the reciprocal of one."""
    if isinstance(node, DivNode):
        return [(node.lhs, node.rhs)]
    return [(node.lhs, node.rhs), (node.rhs, node.lhs)] if isinstance(node, MulNode) else []


def _standard(node: Node, numbers: NodeValue, divisor: NodeValue) -> LayerNorm | None:
    """`numbers` over their deviation, which `node` divides by or multiplies with the reciprocal of."""
    nodes: list[Node] = []
    value, epsilon = _reshaped(divisor, nodes), 0.0
    if isinstance(node, MulNode):
        inverted = _inverted(value.node)
        if inverted is None or value.node is None:
            return None
        nodes.append(value.node)
        value = _reshaped(inverted, nodes)
    if not isinstance(value.node, SqrtNode):
        return None
    nodes.append(value.node)
    value = _reshaped(value.node.input, nodes)
    if isinstance(value.node, AddNode):
        pair = _with_known(value.node)
        added = None if pair is None else known(pair[0])
        if pair is None or added is None or not added.size or (added != added.flat[0]).any():
            return None
        nodes.append(value.node)
        value, epsilon = _reshaped(pair[1], nodes), float(added.flat[0])
    mean = _mean_of(value)
    square = None if mean is None else mean.operand.node
    if mean is None or not isinstance(square, MulNode) or {*square.inputs} != {numbers}:
        return None
    if value.type.shape != divisor.type.shape:
        return None
    nodes += [*mean.nodes, square]
    apart, centred = numbers.node, False
    if isinstance(apart, SubNode):
        own = _mean_of(apart.rhs)
        if own is not None and own.operand is apart.lhs and own.axes == mean.axes:
            nodes += [apart, *own.nodes]
            numbers, centred = own.operand, True
    return LayerNorm(numbers, mean.axes, epsilon, centred, None, None, tuple(nodes))


def _inverted(node: Node | None) -> NodeValue | None:
    """Returns the operand of a reciprocal; None for any other node."""
    if isinstance(node, ReciprocalNode):
        return node.input
    return node.rhs if isinstance(node, DivNode) and is_all(node.lhs, 1.0) else None


@dataclass(frozen=True)
class _Mean:
    """A mean: its operand and axes, and the nodes that compute it."""

    operand: NodeValue
    axes: tuple[int, ...]
    nodes: tuple[Node, ...]


def _mean_of(value: NodeValue) -> _Mean | None:
    """The mean that `value` is: a node of its own, or a sum that is multiplied or divided by a known count."""
    mean = value.node
    if isinstance(mean, ReduceMeanNode):
        return _Mean(mean.input, mean.axes, (mean,))
    if not isinstance(mean, MulNode | DivNode) or not isinstance(mean.lhs.node, ReduceAddNode):
        return None
    total = mean.lhs.node
    count = product(total.input.type.shape[axis] for axis in total.axes)
    if isinstance(count, Expr) or not count:
        return None
    factor = count if isinstance(mean, DivNode) else 1 / count
    return _Mean(total.input, total.axes, (mean, total)) if is_all(mean.rhs, factor) else None


def _reshaped(value: NodeValue, nodes: list[Node]) -> NodeValue:
    """Returns the value before the reshapes that lead to `value`, perhaps several; appends these to `nodes`."""
    while isinstance(value.node, ReshapeNode):
        nodes.append(value.node)
        value = value.node.input
    return value
