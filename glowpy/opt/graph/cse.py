"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.passes import GraphPass, PassContext

__all__ = ["CsePass"]


@dataclass(frozen=True)
class CsePass(GraphPass):
    """Merges nodes that compute the same from the same values, and equal constants.

    Before:
        %x, %out : f32[2]
        %a : f32[2] = splat 1.0
        %b : f32[2] = splat 1.0
        %l = add(%x, %a) : f32[2]
        %r = add(%b, %x) : f32[2]
        %y = mul(%l, %r) : f32[2]
        save(%y, %out)
    After:
        %x, %out : f32[2]
        %a : f32[2] = splat 1.0
        %l = add(%x, %a) : f32[2]
        %y = mul(%l, %l) : f32[2]
        save(%y, %out)
    """

    name: ClassVar[str] = "cse"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """One walk in topological order, with tables of what was met before. Linear time."""
        del ctx
        changed = _merge_constants(f)
        firsts: dict[Hashable, Node] = {}
        exact: dict[Hashable, Node] = {}
        for node in f.topological():
            if node.has(Trait.SIDE_EFFECT):
                continue
            candidate = firsts.setdefault(_operands(node), node)
            if candidate is node:
                continue
            exact.setdefault(candidate.structural_key(), candidate)
            first = exact.setdefault(node.structural_key(), node)
            if first is node:
                continue
            for mine, other in zip(node.results, first.results, strict=True):
                mine.replace_all_uses_with(other)
            f.erase(node)
            changed = True
        return changed


def _operands(node: Node) -> tuple[object, ...]:
    """Equal for nodes that may compute the same; most nodes are alone with theirs."""
    operands: list[object] = list(node.operand_values)
    if node.has(Trait.COMMUTATIVE):
        operands[:2] = sorted(operands[:2], key=id)
    return (type(node), *operands)


def _merge_constants(f: Function) -> bool:
    """Compares keys only of constants of one type with the same ends, as far as these are at hand."""
    alike: dict[Hashable, list[Constant]] = {}
    for constant in f.constants:
        if constant.has_elements:
            alike.setdefault((constant.type, *_ends(constant.tensor)), []).append(constant)
    changed = False
    for group in alike.values():
        if len(group) == 1:
            continue
        met: dict[str, NodeValue] = {}
        for constant in group:
            first = met.setdefault(constant.tensor.key, constant.value)
            if first is not constant.value:
                constant.value.replace_all_uses_with(first)
                f.module.erase(constant)
                changed = True
    return changed


def _ends(tensor: Tensor) -> tuple[str, ...]:
    if tensor.is_deferred or tensor.type.is_empty:
        return ()
    return str(tensor.array.item(0)), str(tensor.array.item(-1))
