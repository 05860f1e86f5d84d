"""A network of one node: to ask, or to measure, what becomes of that; and what answers are remembered by."""

from __future__ import annotations

from collections.abc import Hashable

from glowpy.core.extents import attr_at, symbols_of_attrs
from glowpy.core.type import Type
from glowpy.graph.clone import Values, clone_nodes, clone_storage
from glowpy.graph.function import Module
from glowpy.graph.node import PREDICATE, Constant, Node, NodeValue
from glowpy.support.errors import InternalError
from glowpy.support.text import print_attrs

__all__ = ["alone", "alone_key"]

_FEW = 16
"""Constants of at most so many elements are told apart by these."""


def alone(node: Node, *, likely: bool = False) -> Module:
    """A network of one node: its constants are the same, everything else that it reads, its predicate too, is an input.

    If `likely`, symbols are their likely extents: what a node reads need not say what each of them is.
    """
    if node.callees:
        raise InternalError(f"%{node.name} calls functions: an excerpt of its function has these")
    module = Module()
    values: Values = {}
    for index, value in node.operands():
        name = "predicate" if index == PREDICATE else f"input{index}"
        if value in values:
            continue
        if isinstance(value.producer, Constant):
            clone_storage(value.producer, module, values, name)
        else:
            values[value] = module.create_placeholder(name, value.type).value
    (twin,) = clone_nodes([node], module.create_function("alone"), values)
    if likely:
        _at_likely(twin, module)
    for index, result in enumerate(twin.results):
        output = module.create_placeholder(f"output{index}", result.type)
        module.main.create_save("save", result, output)
    return module


def alone_key(node: Node) -> Hashable:
    """Equal for nodes that differ alone in names, places, scales, and the elements of large constants."""
    numbers: dict[NodeValue, int] = {}
    operands = tuple(
        (index, numbers.setdefault(value, len(numbers)), _kind(value.type), _known(value))
        for index, value in node.operands()
    )
    results = tuple(_kind(result.type) for result in node.results)
    return type(node), print_attrs(node.attrs), operands, results


def _kind(type: Type) -> Hashable:
    """A type without the numbers that its elements stand for, but for whether offsets are zero."""
    quant = type.quant
    if quant is None:
        return type
    return type.kind, type.shape, quant.axis, any(quant.offsets)


def _known(value: NodeValue) -> str:
    """Describes what is known of the elements of a constant, as text; empty for all other values."""
    constant = value.constant
    if constant is None:
        return ""
    splat = constant.tensor.splat_value if constant.has_elements else None
    if splat is not None:
        return f"splat {splat!r}"
    few = constant.type.is_static and constant.type.count <= _FEW
    return constant.digest if few else "constant"


def _at_likely(node: Node, module: Module) -> None:
    """Puts likely extents in the place of symbols."""
    extents = {name: extent.likely for name, extent in symbols_of_attrs(node.attrs).items()}
    node.attrs = {name: attr_at(value, extents) for name, value in node.attrs.items()}
    for value in (*node.results, *(placeholder.value for placeholder in module.placeholders)):
        value.type = value.type.with_shape(value.type.likely)
