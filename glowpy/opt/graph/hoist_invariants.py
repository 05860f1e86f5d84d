"""Moves computations that every iteration of a loop repeats unchanged out of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.calls import is_called_once, operands_of, with_other_operands
from glowpy.graph.clone import Values, clone_nodes
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import DefineNode, LoopNode, TransposeNode
from glowpy.graph.order import computing
from glowpy.passes import GraphPass, PassContext

__all__ = ["HoistInvariantsPass"]


@dataclass(frozen=True)
class HoistInvariantsPass(GraphPass):
    """Computes before a loop, once, what its body computes of operands that are the same in every round.

    Before:
        module {
          placeholder %n : i64[]
          placeholder %x : f32[4]
          placeholder %y : f32[4]
          placeholder %round : i64[]
          placeholder %step : f32[4]
          placeholder %keep : bool[]
          variable %sum : f32[4]
          constant %true : bool[] = splat 1
          function @main {
            %loop, %loop.1 = loop(%n, %true, %x, %x) {body="add", carried=1, room=0} : f32[4], i64[1]
            save(%loop, %y)
          }
          function @add(%round, %sum, %step) -> (%keep, %sum) {
            %wave = sin(%step) : f32[4]
            %next = add(%sum, %wave) : f32[4]
            save(%next, %sum)
            save(%true, %keep)
          }
        }
    After:
        module {
          placeholder %n : i64[]
          placeholder %x : f32[4]
          placeholder %y : f32[4]
          placeholder %round : i64[]
          placeholder %step : f32[4]
          placeholder %keep : bool[]
          placeholder %wave_2 : f32[4]
          variable %sum : f32[4]
          constant %true : bool[] = splat 1
          function @main {
            %wave_1 = sin(%x) : f32[4]
            %loop, %loop.1 = loop(%n, %true, %x, %x, %wave_1) {body="add", carried=1, room=0} : f32[4], i64[1]
            save(%loop, %y)
          }
          function @add(%round, %sum, %step, %wave_2) -> (%keep, %sum) {
            %next = add(%sum, %wave_2) : f32[4]
            save(%next, %sum)
            save(%true, %keep)
          }
        }
    """

    name: ClassVar[str] = "hoist-invariants"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Looks at every loop whose body nothing else calls; True iff something was hoisted."""
        del ctx
        loops = [node for node in f.nodes if isinstance(node, LoopNode)]
        return sum(_hoist(f, node) for node in loops if is_called_once(f, node)) > 0


def _hoist(f: Function, loop: LoopNode) -> bool:
    (body,) = f.callees(loop).values()
    outer: Values = {
        placeholder.value: loop.inputs[index]
        for index, (placeholder,) in operands_of(f, loop).items()
    }
    hoisted: dict[Node, None] = {}
    stored: set[Node] = set()
    for node in body.topological():
        if _is_invariant(node, outer, hoisted):
            hoisted[node] = None
            if all(v.constant is not None or v.node in stored for v in node.inputs):
                # Known, such as weights in blocks: products read these as they are stored.
                stored.add(node)
    ends = [
        result
        for node in hoisted
        for result in node.results
        if any(user not in hoisted for user in result.users)
        and _is_work(node)
        and node not in stored
    ]
    if not ends:
        return False
    needed = computing(ends)
    clone_nodes(needed, f, outer)
    for end in ends:
        placeholder = f.module.create_placeholder(end.name.replace(".", "_"), end.type)
        body.takes.append(placeholder)
        end.replace_all_uses_with(placeholder.value)
    body.erase_dead(needed)
    with_other_operands(f, loop, [*loop.inputs, *(outer[end] for end in ends)])
    return True


def _is_invariant(node: Node, outer: Values, hoisted: dict[Node, None]) -> bool:
    """Whether a node of a body computes the same in every round. What has no operands is not worth hoisting."""
    if not node.inputs or node.predicate is not None or node.callees:
        return False
    if node.has(Trait.SIDE_EFFECT) or isinstance(node, DefineNode) or not node.is_static:
        return False
    return all(v in outer or v.constant is not None or v.node in hoisted for v in node.inputs)


def _is_work(node: Node) -> bool:
    """Whether a node does more than repeat elements, or see them in another shape, which costs nothing."""
    return isinstance(node, TransposeNode) or not node.has(Trait.SHAPE_ONLY)
