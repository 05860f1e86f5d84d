"""Sums of floats of 16 bits, which leave their range, are in f32 until what is computed of them is back in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ConvertNode, CumSumNode, ReduceAddNode, ReduceMeanNode
from glowpy.graph.rounding import wide, widened
from glowpy.passes import GraphPass, PassContext

__all__ = ["WidenSumsPass"]

_SUMS = (CumSumNode, ReduceAddNode, ReduceMeanNode)


@dataclass(frozen=True)
class WidenSumsPass(GraphPass):
    """Computes sums and means of halves in f32, and element by element what they alone read, and what follows them.

    The sum of 100,000 squares is no f16, nor is the square of 300; but the norm is that some exporters write as such a
    sum and what divides it. What a sum is combined with may be larger: that result is rounded to a half.

    Before:
        %x : f16[4]
        %out : f16[1]
        %q = mul(%x, %x) : f16[4]
        %t = reduce_add(%q) {axes=[0]} : f16[1]
        %y = sqrt(%t) : f16[1]
        save(%y, %out)
    After:
        %x : f16[4]
        %out : f16[1]
        %x_1 = convert(%x) : f32[4]
        %q_1 = mul(%x_1, %x_1) : f32[4]
        %t_1 = reduce_add(%q_1) {axes=[0]} : f32[1]
        %y_1 = sqrt(%t_1) : f32[1]
        %y = convert(%y_1) : f16[1]
        save(%y, %out)
    """

    name: ClassVar[str] = "widen-sums"
    is_required: ClassVar[bool] = True

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Follows every sum from where it is computed; True iff there was any in halves."""
        del ctx
        inside = _terms([node for node in f.nodes if _is_sum(node)])
        if not inside:
            return False
        exact: dict[NodeValue, NodeValue] = {}
        for node in f.topological():
            reads = any(value in exact for value in node.inputs)
            if node in inside or (_follows(node) and reads):
                _widen(f, node, exact, whole=node in inside)
        f.erase_dead()
        return True


def _terms(sums: list[Node]) -> set[Node]:
    """The sums, and the element-wise nodes whose results only these read."""
    inside = set(sums)
    work = list(sums)
    while work:
        for value in work.pop().inputs:
            node = value.node
            if node is None or node in inside or isinstance(node, ConvertNode):
                continue
            if node.has(Trait.ELEMENTWISE) and value.type.kind.is_half and value.num_users == 1:
                inside.add(node)
                work.append(node)
    return inside


def _is_sum(node: Node) -> bool:
    return isinstance(node, _SUMS) and node.type.kind.is_half


def _follows(node: Node) -> bool:
    """Whether a node computes, or moves, one element of each."""
    return node.has(Trait.ELEMENTWISE) or node.has(Trait.SHAPE_ONLY)


def _widen(f: Function, node: Node, exact: dict[NodeValue, NodeValue], *, whole: bool) -> None:
    """Puts the node in f32 in its place, and notes what its result is unrounded, if that is small or `whole`."""
    before = f.num_nodes
    with f.replacing(node):
        others = {old: wide(f, old) for old in dict.fromkeys(node.inputs) if old not in exact}
        operands = [exact[old] if old in exact else others[old] for old in node.inputs]
        if isinstance(node, ConvertNode):
            result = f.create_convert(node.name, node.type, operands[0]).result
        else:
            result = widened(f, node, operands).results[0]
        rounded = result
        if result.type != node.type:
            rounded = f.create_convert(node.name, node.type, result).result
            sums = [exact[old] for old in node.inputs if old in exact]
            small = all(term.type.count == result.type.count for term in sums)
            if whole or small:
                exact[rounded] = result
    f.replace(node, [rounded], f.newest(f.num_nodes - before))
