"""Constant folding."""

from __future__ import annotations

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
    needs much more memory than its inputs, such as a broadcast, stays a node.

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
        """Finds what can be folded in one walk, and evaluates it in one call."""
        foldable: dict[Node, None] = {}
        for node in f.topological():
            if self._folds(node, foldable):
                foldable[node] = None
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

    def _folds(self, node: Node, foldable: dict[Node, None]) -> bool:
        if node.has(Trait.SIDE_EFFECT) or node.BACKEND or not node.results:
            return False
        if isinstance(node, DequantizeNode | DequantizeBlocksNode):
            return False  # products take the stored integers; what is left is lowered, and computed then
        if isinstance(node, SplatNode):
            return node.type.count == 1
        for value in node.inputs:
            if value.node not in foldable and not is_known(value):
                return False
        size = sum(result.type.size for result in node.results)
        return size <= max(self.small, self.growth * sum(map(_memory, node.inputs)))


def _memory(value: NodeValue) -> int:
    splat = isinstance(value.node, SplatNode)
    return value.type.kind.size if splat else value.type.size


def _replace(f: Function, result: NodeValue, tensor: Tensor) -> None:
    """The constant gets the node's name once that is free."""
    node = result.node
    assert node is not None
    constant = Constant(node.name, tensor.compact(), node.loc)
    result.replace_all_uses_with(constant.value)
    f.erase_dead([node])
    constant.name = f.module.names.take(constant.name)
    f.module.add_constant(constant)
