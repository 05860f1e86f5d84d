"""Rounding of 16-bit floats: at the end of an operator, and not between the steps that it consists of.

The square of 300 is no f16, nor is the sum of many elements; but the norm that they are steps of is. Whoever writes an
operator as several nodes, therefore, has those between compute in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of

__all__ = ["computes", "round_at_end", "wide", "wide_type", "widened"]


def wide_type(type: Type) -> Type:
    """The type in f32 if its elements are halves, else the type."""
    return type.with_kind(ElemKind.F32) if type.kind.is_half else type


def wide(f: Function, value: NodeValue) -> NodeValue:
    """A value in f32 if it is one of halves, else the value. Constants are converted when somebody asks for them."""
    if not value.type.kind.is_half:
        return value
    constant = value.constant
    if constant is None:
        return f.create_convert(value.name, wide_type(value.type), value).result
    tensor = Tensor.derived(
        wide_type(value.type), "f32", [constant.tensor], lambda array: array.astype(np.float32)
    )
    return f.module.create_constant(value.name, tensor).value


def widened(f: Function, node: Node, inputs: Sequence[Operand]) -> Node:
    """Creates the operator on operands in f32."""
    result = wide_type(node.type) if node.has(Trait.TYPED) else None
    return f.create(type(node), node.name, inputs, node.attrs, result, node.loc)


def computes(node: Node) -> bool:
    """Whether a node makes elements that no operand has, so that results in halves are rounded."""
    return not node.has(Trait.SHAPE_ONLY) and node.SCHEMA.quant is not Quantized.SAME


def round_at_end(
    f: Function,
    steps: Sequence[Node],
    results: Sequence[NodeValue],
    is_stored: Callable[[Node], bool],
) -> list[NodeValue]:
    """Returns the results of an operator, its steps in f32 wherever a half would be rounded between two of them.

    Args:
        f: The function.
        steps: The nodes that the operator consists of, each after those that it reads. Nothing else reads what is
            between them.
        results: The values of the operator, of steps and others.
        is_stored: Whether a step keeps to halves all the same, because of the size of what it reads.
    """
    if not _rounds_between(steps, is_stored):
        return list(results)
    twins: dict[NodeValue, NodeValue] = {}
    for node in steps:
        reads_wide = any(value in twins for value in node.inputs)
        halves = any(value.type.kind.is_half for value in (*node.inputs, *node.results))
        if reads_wide or (halves and computes(node) and not is_stored(node)):
            with f.replacing(node):
                inputs = [twins.get(value) or wide(f, value) for value in node.inputs]
                twin = widened(f, node, inputs)
            twins.update(zip(node.results, twin.results, strict=True))
    replaced = [_like(f, twins.get(value, value), value) for value in results]
    _erase(f, steps, twins)
    return replaced


def _rounds_between(steps: Sequence[Node], is_stored: Callable[[Node], bool]) -> bool:
    """Whether a step computes halves of which another computes something."""
    if any(node.callees or node.BACKEND for node in steps):
        return False
    rounded: set[NodeValue] = set()
    for node in steps:
        reads = any(value in rounded for value in node.inputs)
        if computes(node) and reads and not is_stored(node):
            return True
        if reads or (computes(node) and not is_stored(node)):
            rounded.update(value for value in node.results if value.type.kind.is_half)
    return False


def _like(f: Function, value: NodeValue, before: NodeValue) -> NodeValue:
    if value.type == before.type:
        return value
    return f.create_convert(before.name, before.type, value).result


def _erase(f: Function, steps: Sequence[Node], twins: dict[NodeValue, NodeValue]) -> None:
    """Erases the steps that have twins, to which their names go."""
    for node in reversed(steps):
        for result in node.results:
            if result in twins and twins[result].type == result.type:
                result.replace_all_uses_with(twins[result])
        if not any(result in twins for result in node.results):
            continue
        name, twin = node.name, value_of(twins[node.results[0]]).node
        f.erase_dead([node])
        if twin is not None and node not in f:
            f.module.names.release(twin.name)
            twin.name = f.module.names.take(name)
