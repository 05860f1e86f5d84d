"""Calls of which something is known: conditions, numbers of rounds, operands; and what nobody needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.calls import (
    MOST_COPIED,
    MOST_WRITTEN_OUT,
    in_place_of_call,
    in_place_of_loop,
    inline,
    is_called_once,
    known_number,
    operands_of,
    with_other_operands,
)
from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import IfNode, LoopNode
from glowpy.passes import GraphPass, PassContext

__all__ = ["FoldCallsPass"]


@dataclass(frozen=True)
class FoldCallsPass(GraphPass):
    """Puts a function in the place of its call where it is known that it is called, and how often.

    That is known of a plain `call`, of an `if` whose condition is known, and of some loops.
    Other calls keep the operands that their functions read, and results that somebody reads. A constant operand becomes
    a constant of the function.

    Before:
        module {
          placeholder %x : f32[4]
          placeholder %y : f32[4]
          placeholder %a : f32[4]
          placeholder %grown : f32[4]
          placeholder %b : f32[4]
          placeholder %same : f32[4]
          constant %true : bool[] = splat 1
          function @main {
            %if = if(%true, %x) {otherwise="keep", then="grow"} : f32[4]
            save(%if, %y)
          }
          function @grow(%a) -> (%grown) {
            %e = exp(%a) : f32[4]
            save(%e, %grown)
          }
          function @keep(%b) -> (%same) {
            save(%b, %same)
          }
        }
    After:
        module {
          placeholder %x : f32[4]
          placeholder %y : f32[4]
          constant %true : bool[] = splat 1
          function @main {
            %e_1 = exp(%x) : f32[4]
            save(%e_1, %y)
          }
        }
    """

    most_nodes: int = MOST_WRITTEN_OUT
    """A loop is written out if its rounds together have at most so many."""
    name: ClassVar[str] = "fold-calls"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Looks at every call; True iff anything was changed."""
        del ctx
        changed = inline(f, most_nodes=MOST_COPIED)
        for node in f.topological():
            if isinstance(node, IfNode):
                changed |= _chosen(f, node) or _trimmed(f, node)
            elif isinstance(node, LoopNode):
                changed |= _trimmed(f, node) or self._written_out(f, node)
        if changed:
            f.module.erase_uncalled()
        return changed

    def _written_out(self, f: Function, loop: LoopNode) -> bool:
        """Whether every round of a loop is now in its place, one after the other."""
        results = in_place_of_loop(f, loop, self.most_nodes)
        if results is not None:
            f.replace(loop, results)
        return results is not None


def _chosen(f: Function, node: IfNode) -> bool:
    """Whether a condition is known, and one branch is now in the place of the call."""
    condition, *operands = node.inputs
    holds = known_number(condition)
    if holds is None:
        return False
    branch = f.module.function(node.then if holds else node.otherwise)
    others = f.module.calls[branch.name] - node.callees.count(branch.name)
    if branch.definitions or (others and (others + 1) * branch.num_nodes > MOST_COPIED):
        return False
    with f.replacing(node):
        f.replace(node, in_place_of_call(f, branch, operands))
    return True


def _trimmed(f: Function, node: IfNode | LoopNode) -> bool:
    """Whether a call has fewer operands or results now."""
    if not is_called_once(f, node):
        return False
    dropped: set[int] = set()
    for index, placeholders in operands_of(f, node).items():
        value = node.inputs[index]
        for placeholder in placeholders:
            if value.constant is not None:
                placeholder.value.replace_all_uses_with(value)
        if not any(placeholder.value.num_users for placeholder in placeholders):
            dropped.add(index)
            for callee, placeholder in zip(f.callees(node).values(), placeholders, strict=True):
                callee.takes.remove(placeholder)
                f.module.erase(placeholder)
    results = _read(f, node)
    if not dropped and len(results) == len(node.results):
        return False
    inputs = [value for index, value in enumerate(node.inputs) if index not in dropped]
    _drop_unread(f, node, results)
    with_other_operands(f, node, inputs, {old: new for new, old in enumerate(results)})
    return True


def _read(f: Function, node: IfNode | LoopNode) -> list[int]:
    """The results that stay: those that are read, and all of a loop but what is stacked in vain."""
    indices = range(len(node.results))
    if isinstance(node, LoopNode):
        fixed = {*range(node.carried), len(node.results) - 1}
        return [i for i in indices if i in fixed or node.results[i].num_users]
    read = [i for i in indices if node.results[i].num_users]
    return read or [0]


def _drop_unread(f: Function, node: IfNode | LoopNode, results: Sequence[int]) -> None:
    """Takes what is not among the results from what the functions give, and what only that needed from them."""
    first = 1 if isinstance(node, LoopNode) else 0
    last = len(node.results) - first
    for callee in f.callees(node).values():
        gone = [callee.gives[first + i] for i in range(last) if i not in results]
        callee.gives = [storage for storage in callee.gives if storage not in gone]
        for save in callee.saves:
            if save.output.producer in gone:
                source = save.input.node
                callee.erase(save)
                callee.erase_dead([source] if source is not None else [])
        for storage in gone:
            f.module.erase(storage)
