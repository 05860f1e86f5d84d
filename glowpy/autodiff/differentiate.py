"""Gradients of a value with respect to others, as new nodes: reverse mode (Linnainmaa 1970)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.support.errors import UnsupportedError
from glowpy.support.rules import Rules

__all__ = ["differentiate", "gradients"]

differentiate: Rules[Callable[..., list[Operand | None]]] = Rules(
    "differentiate", "declare a derivative for the operator"
)
"""`@differentiate(XNode)` functions take the function, the node and the gradient of its result.

They return the gradient of each input, in the
shape of the result where the inputs broadcast; None where none flows."""


def gradients(f: Function, of: NodeValue, by: Sequence[NodeValue]) -> list[NodeValue]:
    """D sum(of) / d value for each value in `by`, as values of `f`; zeros where `of` does not depend on it.

    Raises UnsupportedError that names the first node on the way without a derivative.
    """
    wanted = _dependents(f, by)
    found: dict[NodeValue, NodeValue] = {of: f.create_splat("seed", of.type, 1.0).result}
    for node in reversed(f.topological()):
        if node not in wanted or not node.results or node.result not in found:
            continue
        rule = differentiate.get(type(node))
        if rule is None:
            raise UnsupportedError(f"{node.SCHEMA.mnemonic} has no derivative", loc=node.loc)
        with f.replacing(node):
            for operand, flowing in zip(
                node.inputs, rule(f, node, found[node.result]), strict=True
            ):
                if flowing is not None and (operand in by or operand.node in wanted):
                    fitted = _unbroadcast(f, value_of(flowing), operand)
                    known = found.get(operand)
                    found[operand] = (
                        fitted
                        if known is None
                        else f.create_add(f"{operand.name}_grad", known, fitted).result
                    )
    return [
        found.get(value) or f.create_splat(f"{value.name}_grad", value.type, 0.0).result
        for value in by
    ]


def _dependents(f: Function, by: Sequence[NodeValue]) -> set[Node]:
    """The nodes that depend on a value of `by`."""
    reached: set[Node] = set()
    for node in f.topological():
        if any(value in by or value.node in reached for value in node.inputs):
            reached.add(node)
    return reached


def _unbroadcast(f: Function, gradient: NodeValue, operand: NodeValue) -> NodeValue:
    """Sums a gradient over the dimensions in which its operand was repeated."""
    wide, narrow = gradient.type.shape, operand.type.shape
    if wide == narrow:
        return gradient
    padded = (1,) * (len(wide) - len(narrow)) + narrow
    axes = tuple(i for i, (w, n) in enumerate(zip(wide, padded, strict=True)) if w != n)
    total = f.create_reduce_add(f"{operand.name}_grad", gradient, axes) if axes else gradient
    return f.create_reshape(f"{operand.name}_grad", operand.type, total).result
