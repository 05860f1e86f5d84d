"""A network of one node: to ask, or to measure, what becomes of that."""

from __future__ import annotations

from dataclasses import replace

from glowpy.core.extents import attr_at, symbols_of_attrs
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.node import Node, NodeValue

__all__ = ["alone"]


def alone(node: Node, *, likely: bool = False) -> Module:
    """A network of one node: its constants are the same, everything else that it reads is an input.

    If `likely`, symbols are their likely extents: what a node reads need not say what each of them is.
    """
    module = Module()
    f = module.create_function("alone")
    twins: dict[NodeValue, NodeValue] = {}
    for index, value in enumerate(node.inputs):
        name, constant = f"input{index}", value.constant
        if constant is not None:
            twins[value] = module.create_constant(name, constant.tensor).value
        elif value not in twins:
            own = _at_likely(value.type) if likely else value.type
            twins[value] = module.create_placeholder(name, own).value
    types = [_at_likely(result.type) if likely else result.type for result in node.results]
    extents = {name: one.likely for name, one in symbols_of_attrs(node.attrs).items()}
    attrs = {
        name: attr_at(value, extents) if likely else value for name, value in node.attrs.items()
    }
    inputs = [twins[value] for value in node.inputs]
    twin = f.add(type(node)(node.name, inputs, attrs, types, loc=node.loc))
    for index, result in enumerate(twin.results):
        output = module.create_placeholder(f"output{index}", result.type)
        f.create_save("save", result, output)
    return module


def _at_likely(type: Type) -> Type:
    return replace(type, shape=type.likely)
