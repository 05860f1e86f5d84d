"""Concats of concats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConcatNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["FoldConcatPass"]


@dataclass(frozen=True)
class FoldConcatPass(RewritePass):
    """Merges concats along one axis, drops empty inputs, and concats of one input.

    Before:
        %x, %y : f32[2x4]
        %none : f32[0x4]
        %out : f32[8x4]
        %a = concat(%x, %y, %none) {axis=0} : f32[4x4]
        %b = concat(%a) {axis=1} : f32[4x4]
        %c = concat(%b, %x, %y) {axis=0} : f32[8x4]
        save(%c, %out)
    After:
        %x, %y : f32[2x4]
        %none : f32[0x4]
        %out : f32[8x4]
        %c = concat(%x, %y, %x, %y) {axis=0} : f32[8x4]
        save(%c, %out)
    """

    name: ClassVar[str] = "fold-concat"

    @rule
    def merge(self, f: Function, n: ConcatNode, why: Why) -> Replacement:
        """Takes the inputs of inner concats in place of these, of all at once."""
        if _is_inner(n):
            return None
        inputs = _parts(n, why)
        inputs = [value for value in inputs if not value.type.is_empty] or inputs
        if len(inputs) == 1 and inputs[0].type == n.type:
            return inputs[0]
        if tuple(inputs) == n.inputs:
            return None
        return f.create_concat(n.name, inputs, n.axis, result_type=n.type)


def _is_inner(n: ConcatNode) -> bool:
    """Whether only a concat along the same axis uses `n`: that takes the inputs, else a chain costs quadratic time."""
    users = n.result.users if n.result.num_users == 1 else []
    return any(isinstance(user, ConcatNode) and _axis(user) == _axis(n) for user in users)


def _axis(n: ConcatNode) -> int:
    return n.axis % n.type.rank


def _parts(n: ConcatNode, why: Why) -> list[NodeValue]:
    parts: list[NodeValue] = []
    stack = [*reversed(n.inputs)]
    while stack:
        value = stack.pop()
        inner = value.node
        if not isinstance(inner, ConcatNode) or _axis(inner) != _axis(n):
            parts.append(value)
        elif value.num_users > 1:
            why.no(f"%{inner.name} has other users, and its elements would be copied twice")
            parts.append(value)
        else:
            stack.extend(reversed(inner.inputs))
    return parts
