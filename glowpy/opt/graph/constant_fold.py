"""Constant folding."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import DequantizeBlocksNode, DequantizeNode, SplatNode
from glowpy.opt.known import is_known
from glowpy.passes import GraphPass, PassContext

__all__ = ["ConstantFoldPass"]


@dataclass(frozen=True)
class ConstantFoldPass(GraphPass):
    """Computes nodes whose inputs are all known, and makes constants of their results.

    The constants keep the nodes' names. All of them run at once on the interpreter. A result that
    needs much more memory than its inputs, such as a broadcast, stays a node where others read it.

    Before:
        %x, %out : f32[2]
        %a : f32[2] = [1.0, 2.0]
        %b = add(%a, %a) : f32[2]
        %c = exp(%b) : f32[2]
        %d = sub(%c, %c) : f32[2]
        %y = mul(%x, %d) : f32[2]
        save(%y, %out)
    After:
        %x, %out : f32[2]
        %a : f32[2] = [1.0, 2.0]
        %d : f32[2] = splat 0.0
        %y = mul(%x, %d) : f32[2]
        save(%y, %out)
    """

    growth: int = 2
    """A result may need at most so many times the memory of the known inputs ..."""
    small: int = 1024
    """... or so many bytes."""
    name: ClassVar[str] = "constant-fold"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Finds what can be folded in two walks, and evaluates it in one call."""
        foldable = self._foldable(f)
        results = [
            result
            for node in foldable
            for result in node.results
            if any(user not in foldable for user in result.users)
        ]
        if not results:
            return False
        for result, tensor in zip(results, ctx.evaluate(results), strict=True):
            _replace(f, result, tensor)
        f.erase_dead(list(foldable))
        return True

    def _foldable(self, f: Function) -> dict[Node, None]:
        """Returns the nodes to fold: the known ones, except those with large results that unknown nodes read."""
        memory: dict[Node, int] = {}
        large: set[Node] = set()
        for node in f.topological():
            if not self._is_known(node, memory):
                continue
            size = sum(result.type.room for result in node.results)
            bytes = sum(_memory(value, memory) for value in node.inputs)
            if not isinstance(node, SplatNode) and size > max(self.small, self.growth * bytes):
                large.add(node)
                size = bytes
            memory[node] = size
        foldable = dict.fromkeys(memory)
        for node in reversed(memory):
            users = (user for result in node.results for user in result.users)
            if node in large and not all(user in foldable for user in users):
                del foldable[node]
        return foldable

    def _is_known(self, node: Node, known: Collection[Node]) -> bool:
        """Whether a node could be computed now."""
        if node.has(Trait.SIDE_EFFECT) or node.BACKEND or not node.results or node.callees:
            return False
        if isinstance(node, DequantizeNode | DequantizeBlocksNode):
            return False  # products take the stored integers; what is left is lowered, and computed then
        if isinstance(node, SplatNode):
            return node.type.count == 1
        return node.is_static and all(
            value.node in known or is_known(value) for value in node.inputs
        )


def _memory(value: NodeValue, known: Mapping[Node, int]) -> int:
    """The memory of a known input; of a result that is too large, that of what it is computed from."""
    if isinstance(value.node, SplatNode):
        return value.type.kind.size
    return value.type.room if value.node is None else known[value.node]


def _replace(f: Function, result: NodeValue, tensor: Tensor) -> None:
    """The constant gets the node's name once that is free."""
    node = result.node
    assert node is not None
    constant = Constant(node.name, tensor.compact(), node.loc)
    result.replace_all_uses_with(constant.value)
    f.erase_dead([node])
    constant.name = f.module.names.take(constant.name)
    f.module.add_constant(constant)
