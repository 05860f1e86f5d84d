"""Gradients of a value with respect to others, as new nodes: reverse mode (Linnainmaa 1970)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glowpy.autodiff.derivative import derivative
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.support.errors import UnsupportedError, UserError

__all__ = ["flows_through", "gradients", "pull_back"]


def gradients(f: Function, of: NodeValue, by: Sequence[NodeValue]) -> list[NodeValue]:
    """The derivatives of sum(of) by each value of `by`, as values of `f` of the same types.

    Nothing flows through values that are not of a floating-point kind. Where `of` does not depend on a value, its
    gradient is 0.

    Raises UserError if `of` is not of a floating-point kind, UnsupportedError that names the first node on
    the way without a derivative, and why it has none.
    """
    if not of.type.kind.is_float:
        raise UserError(
            f"expected a value of a floating-point kind to differentiate, got {of.type}"
        )
    flows = pull_back(f, [(of, f.create_splat("seed", of.type, 1.0).result)], by)
    return [
        flow or f.create_splat(f"{value.name}_grad", value.type, 0.0).result
        for value, flow in zip(by, flows, strict=True)
    ]


def pull_back(
    f: Function, flows: Sequence[tuple[NodeValue, NodeValue]], by: Sequence[NodeValue]
) -> list[NodeValue | None]:
    """The gradients of values `by`, given those of others; None where none flows.

    Those of a value that comes twice add up.

    Raises UnsupportedError that names the first node on the way without a derivative, and why it has none.
    """
    dependents = _dependents(f, by)
    gradients_of: dict[NodeValue, NodeValue] = {}

    def add(value: NodeValue, gradient: NodeValue) -> None:
        if value in gradients_of:
            sum = f.create_add(f"{value.name}_grad", gradients_of[value], gradient)
            gradient = sum.result
        gradients_of[value] = gradient

    for value, flow in flows:
        add(value, flow)
    for node in reversed(f.topological()):
        reaching = [gradients_of.get(result) for result in node.results]
        if node not in dependents or not any(reaching):
            continue
        with f.replacing(node):
            for operand, part in zip(node.inputs, _rule(node)(f, node, *reaching), strict=True):
                reaches = operand in by or operand.node in dependents
                if part is not None and reaches and operand.type.kind.is_float:
                    add(operand, _unbroadcast(f, value_of(part), operand))
    return [gradients_of.get(value) for value in by]


def flows_through(
    f: Function,
    inputs: Sequence[NodeValue],
    computed: Callable[[Sequence[NodeValue]], Sequence[NodeValue]],
    flows: Sequence[NodeValue | None],
) -> list[NodeValue | None]:
    """The gradients of inputs, given those of what `computed` makes of them with new nodes; None where none flows.

    For rules of operators that say what they are in simpler ones. Copies of the inputs are differentiated by, so that
    nothing flows from one input to another that it depends on: that follows from the nodes between them.
    """
    entries = [
        f.create_reshape(value.name, value.type, value).result
        if value.type.kind.is_float
        else value
        for value in inputs
    ]
    results = zip(computed(entries), flows, strict=True)
    reaching = [(result, flow) for result, flow in results if flow is not None]
    return pull_back(f, reaching, entries)


def _rule(node: Node) -> Callable[..., list[Operand | None]]:
    """The derivative of a node. Raises UnsupportedError if it has none."""
    reason = node.SCHEMA.no_derivative
    if node.BACKEND:
        reason = f"it belongs to the backend {node.BACKEND}; take gradients before lowering"
    if reason:
        message = f"{node.SCHEMA.mnemonic} %{node.name} has no derivative: {reason}"
        raise UnsupportedError(message, loc=node.loc)
    return derivative[type(node)]


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
