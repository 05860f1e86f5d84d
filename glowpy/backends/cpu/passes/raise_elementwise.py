"""Element-wise nodes after the shuffle of a product's result, computed before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode, MatMulNode, ReshapeNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.passes import RewritePass

__all__ = ["RaiseElementwisePass"]

_MOST_RAISED = 16
"""Element-wise nodes after a shuffle that are looked at."""


@dataclass(frozen=True)
class RaiseElementwisePass(RewritePass):
    """Computes element-wise nodes of a shuffled product before the shuffle, where its epilogue takes them.

    A shuffle is a transposition whose result is reshaped, such as a DepthToSpace. All nodes from it to one of them
    change places with it at once, if only they read it.

    Before:
        %x : f32[1x2x2x1]
        %out : f32[1x4x4x2]
        %w : f32[8x1x1x1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %b : f32[8] = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x2x8]
        %r = reshape(%c) : f32[1x2x2x2x2x2]
        %t = transpose(%r) {shuffle=[0,1,4,2,5,3]} : f32[1x2x2x2x2x2]
        %s = reshape(%t) : f32[1x4x4x2]
        %y = tanh(%s) : f32[1x4x4x2]
        save(%y, %out)
    After:
        %x : f32[1x2x2x1]
        %out : f32[1x4x4x2]
        %w : f32[8x1x1x1] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %b : f32[8] = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x2x8]
        %y = tanh(%c) : f32[1x2x2x8]
        %r_1 = reshape(%y) : f32[1x2x2x2x2x2]
        %t_1 = transpose(%r_1) {shuffle=[0,1,4,2,5,3]} : f32[1x2x2x2x2x2]
        %s_1 = reshape(%t_1) : f32[1x4x4x2]
        save(%s_1, %out)
    """

    name: ClassVar[str] = "raise-elementwise"
    concerns: ClassVar[tuple[type[Node], ...]] = (TransposeNode,)

    @rule_where(lambda schema: Trait.ELEMENTWISE in schema.traits)
    def swap(self, f: Function, n: Node, why: Why) -> Replacement:
        """The shuffle of what is computed before it."""
        chain = _since_reshape(n)
        shuffle = _shuffle_of(chain[1]) if chain is not None else None
        if chain is None or shuffle is None:
            return None
        nodes, shuffled = chain
        if any(user not in nodes for value in _between(n, *chain) for user in value.users):
            return why.no("other nodes read the shuffled product")
        transpose, source = shuffle
        values = {shuffled: source}
        for node in nodes:
            inputs: list[Operand] = [values.get(value, value) for value in node.inputs]
            type = node.type.with_shape(source.type.shape)
            raised = f.create(node.__class__, node.name, inputs, node.attrs, type)
            values[node.result] = raised.result
        parts = transpose.input
        split = f.create_reshape(
            parts.name, n.type.with_shape(parts.type.shape), values[n.results[0]]
        )
        moved = f.create_transpose(transpose.name, split, transpose.shuffle)
        return f.create_reshape(shuffled.name, n.type, moved)


def _since_reshape(n: Node) -> tuple[list[Node], NodeValue] | None:
    """The element-wise nodes that compute `n` from one reshaped value and scalars, in their order, and that value."""
    nodes = [n]
    reshaped: NodeValue | None = None
    for node in nodes:
        if not _is_plain(node) or node.type.shape != n.type.shape:
            return None
        for operand in node.inputs:
            above = operand.node
            if operand.type.count == 1 and operand.type.rank <= 1:
                continue
            if isinstance(above, ReshapeNode) and reshaped in (None, operand):
                reshaped = operand
            elif above is None or Trait.ELEMENTWISE not in above.SCHEMA.traits:
                return None
            elif above not in nodes and len(nodes) < _MOST_RAISED:
                nodes.append(above)
            elif above not in nodes:
                return None
    if reshaped is None or reshaped.type.shape != n.type.shape:
        return None
    return _in_order(nodes), reshaped


def _in_order(nodes: list[Node]) -> list[Node]:
    """A few nodes, each one after those that it reads."""
    rest, ordered = nodes, list[Node]()
    while rest:
        ordered += [
            node for node in rest if not any(operand.node in rest for operand in node.inputs)
        ]
        rest = [node for node in rest if node not in ordered]
    return ordered


def _between(n: Node, nodes: list[Node], reshaped: NodeValue) -> list[NodeValue]:
    """Returns the values that no other node may read."""
    return [reshaped, *(node.result for node in nodes if node is not n)]


def _shuffle_of(value: NodeValue) -> tuple[TransposeNode, NodeValue] | None:
    """The transposition in a shuffle of a product whose result `value` is, and the product."""
    result = value.node
    transpose = result.input.node if isinstance(result, ReshapeNode) else None
    if not isinstance(transpose, TransposeNode) or not _is_private(transpose):
        return None
    source = transpose.input
    if isinstance(source.node, ReshapeNode) and _is_private(source.node):
        source = source.node.input
    ours = source.num_users == 1 and _is_product(source)
    return (transpose, source) if ours else None


def _is_product(value: NodeValue) -> bool:
    """Whether a product computes a value, with or without element-wise nodes after it."""
    for _ in range(_MOST_RAISED):
        node = value.node
        if isinstance(node, ConvolutionNode | MatMulNode):
            return True
        if node is None or Trait.ELEMENTWISE not in node.SCHEMA.traits:
            return False
        value = max(node.inputs, key=lambda operand: operand.type.rank, default=value)
    return False


def _is_plain(node: Node) -> bool:
    """Whether a node computes one tensor of numbers, whatever else is the case."""
    return len(node.results) == 1 and node.predicate is None and node.type.quant is None


def _is_private(node: Node) -> bool:
    """Whether a node of numbers has one user and may be replaced."""
    return _is_plain(node) and node.result.num_users == 1
