"""Reshapes that are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ReshapeNode, SplatNode
from glowpy.passes import RewritePass, Why

__all__ = ["FoldReshapePass"]


@dataclass(frozen=True)
class FoldReshapePass(RewritePass):
    """Merges reshapes, drops those that change nothing, and reshapes constants and splats at once.

    Before:
        %x, %out : f32[8]
        %w : f32[2x2x2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %a = reshape(%x) : f32[2x4]
        %b = reshape(%a) : f32[8]
        %c = reshape(%w) : f32[8]
        %y = add(%b, %c) : f32[8]
        save(%y, %out)
    After:
        %x, %out : f32[8]
        %w : f32[2x2x2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %c_1 : f32[8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %y = add(%x, %c_1) : f32[8]
        save(%y, %out)
    """

    shared: int = 4096
    """A larger constant is reshaped only if nothing else uses it: the copy would take memory."""
    name: ClassVar[str] = "fold-reshape"

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """Looks only at a reshape and what feeds it."""
        if not isinstance(node, ReshapeNode):
            return None
        source = node.input
        if source.type == node.type:
            return source
        if isinstance(source.node, ReshapeNode):
            if source.node.input.type == node.type:
                return source.node.input
            return f.create_reshape(node.name, node.type, source.node.input)
        if isinstance(source.node, SplatNode) and node.type.quant == source.type.quant:
            return f.create_splat(node.name, node.type, source.node.value)
        constant = source.constant
        if constant is None or not constant.has_elements:
            return None
        if source.num_users > 1 and source.type.size > self.shared:
            return why.no("other nodes use the constant as it is")
        splat = constant.tensor.splat_value
        tensor = (
            Tensor(node.type, constant.array.reshape(node.type.shape))
            if splat is None or not source.type.count
            else Tensor.splat(node.type, constant.array.reshape(-1)[0])
        )
        return f.module.create_constant(node.name, tensor, loc=node.loc).value
