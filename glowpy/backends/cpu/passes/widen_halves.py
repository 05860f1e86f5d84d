"""Computes in f32 what there are no kernels for in f16 and bf16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from glowpy.backend import Operation
from glowpy.graph.function import Function
from glowpy.graph.node import Node, Operand
from glowpy.graph.rounding import wide, wide_type, widened
from glowpy.passes import GraphPass, PassContext

__all__ = ["WidenHalvesPass", "in_f32"]


def in_f32(operation: Operation) -> Operation:
    """Returns the operation on operands in f32 in place of halves."""
    types = {name: wide_type(type) for name, type in operation.types.items()}
    return Operation(operation.mnemonic, types, operation.attrs)


@dataclass(frozen=True)
class WidenHalvesPass(GraphPass):
    """Converts the operands of a node to f32, and its results back: each is rounded, as if computed in f16 or bf16.

    Conversions are element-wise: in a loop, and after a product, they take place in registers. Constants are converted
    here and now. What only moves elements has kernels for halves, and stays.

    Before:
        %x, %out : f16[2]
        %y = exp(%x) : f16[2]
        save(%y, %out)
    After:
        %x, %out : f16[2]
        %x_1 = convert(%x) : f32[2]
        %y_1 = exp(%x_1) : f32[2]
        %y = convert(%y_1) : f16[2]
        save(%y, %out)
    """

    computes: Callable[[Operation], bool]
    name: ClassVar[str] = "widen-halves"
    is_required: ClassVar[bool] = True

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Widens every node that the backend computes in f32 only; True iff there was any."""
        del ctx
        changed = False
        for node in f.topological():
            values = (*node.inputs, *node.results)
            if not node.results or not any(value.type.kind.is_half for value in values):
                continue
            operation = Operation.of_node(node)
            if self.computes(operation) or not self.computes(in_f32(operation)):
                continue
            before = f.num_nodes
            with f.replacing(node):
                results = _widened(f, node)
            f.replace(node, results, f.newest(f.num_nodes - before))
            changed = True
        return changed


def _widened(f: Function, node: Node) -> list[Operand]:
    """The node in f32, and its results as they were."""
    twin = widened(f, node, [wide(f, value) for value in node.inputs])
    return [
        new if new.type == old.type else f.create_convert(node.name, old.type, new)
        for old, new in zip(node.results, twin.results, strict=True)
    ]
