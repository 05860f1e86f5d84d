"""Reshapes that are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import ReshapeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["FoldReshapePass"]


@dataclass(frozen=True)
class FoldReshapePass(RewritePass):
    """Merges reshapes, drops those that change nothing, and reshapes constants at once.

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

    @rule
    def fold(self, f: Function, n: ReshapeNode, why: Why) -> Replacement:
        """Reshapes what the input is made of in place of the input."""
        source = n.input
        if source.type == n.type:
            return source
        if isinstance(source.node, ReshapeNode):
            if source.node.input.type == n.type:
                return source.node.input
            return f.create_reshape(n.name, n.type, source.node.input)
        constant = source.constant
        if constant is None or not constant.has_elements:
            return None
        if source.num_users > 1 and source.type.size > self.shared:
            return why.no("other nodes use the constant as it is")
        splat = constant.tensor.splat_value
        tensor = (
            Tensor.derived(
                n.type, "reshape", [constant.tensor], lambda array: array.reshape(n.type.shape)
            )
            if splat is None or source.type.is_empty
            else Tensor.splat(n.type, constant.array.reshape(-1)[0])
        )
        return f.module.create_constant(n.name, tensor, loc=n.loc).value
