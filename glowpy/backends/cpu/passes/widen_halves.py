"""Computes in f32 what there are no kernels for in f16 and bf16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.backend import Operation
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.passes import GraphPass, PassContext

__all__ = ["WidenHalvesPass", "in_f32", "widened"]


def widened(type: Type) -> Type:
    """The type in f32 if its elements are halves, else the type."""
    return type.with_kind(ElemKind.F32) if type.kind.is_half else type


def in_f32(operation: Operation) -> Operation:
    """The same operator on operands in f32 in place of halves."""
    types = {name: widened(type) for name, type in operation.types.items()}
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
    inputs = [_wide(f, value) for value in node.inputs]
    result = widened(node.type) if node.has(Trait.TYPED) else None
    wide = f.create(type(node), node.name, inputs, node.attrs, result, node.loc)
    return [
        new if new.type == old.type else f.create_convert(node.name, old.type, new)
        for old, new in zip(node.results, wide.results, strict=True)
    ]


def _wide(f: Function, value: NodeValue) -> Operand:
    if not value.type.kind.is_half:
        return value
    constant = value.constant
    if constant is None:
        return f.create_convert(value.name, widened(value.type), value)
    tensor = Tensor.derived(
        widened(value.type), "f32", [constant.tensor], lambda array: array.astype(np.float32)
    )
    return f.module.create_constant(value.name, tensor)
