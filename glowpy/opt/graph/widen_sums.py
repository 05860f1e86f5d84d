"""Sums of floats of 16 bits, which leave their range, stay in f32 until what is computed of them is back in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import ConvertNode, CumSumNode, ReduceAddNode
from glowpy.graph.rounding import wide, widened
from glowpy.passes import GraphPass, PassContext

__all__ = ["WidenSumsPass"]


@dataclass(frozen=True)
class WidenSumsPass(GraphPass):
    """Computes sums of halves in f32, and element by element what follows them and is as small.

    The sum of 100,000 squares is no f16, but the mean or the norm is that some exporters write as the sum and what
    divides it. What a sum is combined with may be larger: that result is rounded to a half.

    Before:
        %x : f16[4]
        %out : f16[1]
        %t = reduce_add(%x) {axes=[0]} : f16[1]
        %y = sqrt(%t) : f16[1]
        save(%y, %out)
    After:
        %x : f16[4]
        %out : f16[1]
        %x_1 = convert(%x) : f32[4]
        %t_1 = reduce_add(%x_1) {axes=[0]} : f32[1]
        %y_1 = sqrt(%t_1) : f32[1]
        %y = convert(%y_1) : f16[1]
        save(%y, %out)
    """

    name: ClassVar[str] = "widen-sums"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Follows every sum from where it is computed; True iff there was any in halves."""
        del ctx
        if not any(_is_sum(node) for node in f.nodes):
            return False
        exact: dict[NodeValue, NodeValue] = {}
        for node in f.topological():
            inputs = [exact.get(value) for value in node.inputs]
            if _is_sum(node) or (_follows(node) and any(inputs)):
                _widen(f, node, inputs, exact)
        f.erase_dead()
        return True


def _is_sum(node: Node) -> bool:
    return isinstance(node, ReduceAddNode | CumSumNode) and node.type.kind.is_half


def _follows(node: Node) -> bool:
    """Whether a node computes, or moves, one element of each."""
    return node.has(Trait.ELEMENTWISE) or node.has(Trait.SHAPE_ONLY)


def _widen(
    f: Function, node: Node, inputs: list[NodeValue | None], exact: dict[NodeValue, NodeValue]
) -> None:
    """Puts the node in f32 in its place, and notes what its result is before it is rounded."""
    before = f.num_nodes
    with f.replacing(node):
        operands = [new or wide(f, old) for new, old in zip(inputs, node.inputs, strict=True)]
        result: NodeValue
        if isinstance(node, ConvertNode):
            result = f.create_convert(node.name, node.type, operands[0]).result
        else:
            result = widened(f, node, operands).results[0]
        rounded: Operand = result
        if result.type != node.type:
            rounded = f.create_convert(node.name, node.type, result)
            small = all(new is None or new.type.count == result.type.count for new in inputs)
            if _is_sum(node) or small:
                exact[value_of(rounded)] = result
    f.replace(node, [rounded], f.newest(f.num_nodes - before))
