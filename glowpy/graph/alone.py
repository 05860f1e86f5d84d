"""A network of one node: to ask, or to measure, what becomes of that."""

from __future__ import annotations

from glowpy.core.extents import attr_at, symbols_of_attrs
from glowpy.graph.clone import Values, clone_nodes, clone_storage
from glowpy.graph.function import Module
from glowpy.graph.node import PREDICATE, Constant, Node
from glowpy.support.errors import InternalError

__all__ = ["alone"]


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


def _at_likely(node: Node, module: Module) -> None:
    """Puts likely extents in the place of symbols."""
    extents = {name: one.likely for name, one in symbols_of_attrs(node.attrs).items()}
    node.attrs = {name: attr_at(value, extents) for name, value in node.attrs.items()}
    for value in (*node.results, *(placeholder.value for placeholder in module.placeholders)):
        value.type = value.type.with_shape(value.type.likely)
