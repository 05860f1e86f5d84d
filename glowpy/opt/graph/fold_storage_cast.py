"""Stored integers that are called by other names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from glowpy.core.schema import Quantized
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import StorageCastNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.passes import RewritePass

__all__ = ["FoldStorageCastPass"]


@dataclass(frozen=True)
class FoldStorageCastPass(RewritePass):
    """Drops storage casts that nothing looks at, and moves them below what moves elements, to those who do.

    Transposes are left to `sink-transpose`, which takes them below everything.

    Before:
        %x : u8[2x3]
        %out : u8[6]
        %a = storage_cast(%x) : u8[2x3](s=0.5,o=7)
        %b = reshape(%a) : u8[6](s=0.5,o=7)
        %c = storage_cast(%b) : u8[6]
        save(%c, %out)
    After:
        %x : u8[2x3]
        %out : u8[6]
        %b_1 = reshape(%x) : u8[6]
        save(%b_1, %out)
    """

    name: ClassVar[str] = "fold-storage-cast"
    concerns: ClassVar[tuple[type[Node], ...]] = (StorageCastNode,)

    @rule
    def drop(self, f: Function, n: StorageCastNode, why: Why) -> Replacement:
        """Takes what was cast before; a constant gets the type itself."""
        if n.input.type == n.type:
            return n.input
        if isinstance(n.input.node, StorageCastNode):
            first = n.input.node.input
            return first if first.type == n.type else f.create_storage_cast(n.name, n.type, first)
        if n.input.constant is not None and n.input.constant.has_elements:
            tensor = n.input.constant.tensor
            cast = Tensor.derived(n.type, "storage_cast", [tensor], lambda array: array)
            return f.module.create_constant(n.name, cast, loc=n.loc).value
        return why.no("nothing was cast before")

    @rule_where(
        lambda schema: (
            schema.quant is Quantized.SAME
            and len(schema.inputs) == 1
            and schema is not TransposeNode.SCHEMA
        )
    )
    def move(self, f: Function, n: Node, why: Why) -> Replacement:
        """Moves and chooses elements first."""
        above = n.inputs[0].node
        if not isinstance(above, StorageCastNode) or len(n.results) != 1 or n.SCHEMA.plain:
            return None
        source, result = above.input.type.quant, n.type.quant
        if (source is not None and source.axis is not None) or (
            result is not None and result.axis is not None
        ):
            return why.no("scales are one for each channel")
        type = replace(n.type, quant=source)
        moved = f.create(n.__class__, n.name, [above.input], n.attrs, type)
        return f.create_storage_cast(n.name, n.type, moved)
