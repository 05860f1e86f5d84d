"""Attributes that calls of a model's own functions leave out: their defaults, which onnx's inliner does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import onnx

from glowpy.importer.onnx.order import subgraphs
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["complete_calls"]

_Key: TypeAlias = tuple[str, str, str]


def complete_calls(model: onnx.ModelProto, most: int, loc: Loc) -> None:
    """Gives every call that the graph leads to the attributes that it leaves out and that have a default.

    An attribute without a default that a call leaves out is left out of what the function hands it on to, which may be
    a call as well: such a call is one of a copy of the function, which hands on nothing.

    Raises UserError where the copies have more than so many nodes: they are as many as sets of attributes are left out.
    """
    functions = {_key(f.domain, f.name, f.overload): f for f in model.functions}
    variants: dict[tuple[_Key, frozenset[str]], str] = {}
    reached: set[_Key] = set()
    copied = 0
    work = [list(model.graph.node)]
    while work:
        for node in _all(work.pop()):
            key = _key(node.domain, node.op_type, node.overload)
            function = functions.get(key)
            if function is None:
                continue
            given = {attribute.name for attribute in node.attribute}
            defaults = [a for a in function.attribute_proto if a.name not in given]
            node.attribute.extend(defaults)
            missing = frozenset(function.attribute) - given - {a.name for a in defaults}
            if any(_hands_on(inner, missing) for inner in _all(list(function.node))):
                if (key, missing) not in variants:
                    copied += sum(1 for _ in _all(list(function.node)))
                    if copied > most:
                        raise UserError(f"functions expand to more than {most} nodes", loc=loc)
                    copy = _without(
                        function, missing, f"{function.name}_{len(variants)}", functions
                    )
                    variants[key, missing] = copy.name
                    model.functions.append(copy)
                    functions[_key(copy.domain, copy.name, copy.overload)] = model.functions[-1]
                node.op_type = variants[key, missing]
                key = _key(node.domain, node.op_type, node.overload)
            if key not in reached:
                reached.add(key)
                work.append(list(functions[key].node))


def _key(domain: str, name: str, overload: str) -> _Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _all(nodes: list[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of their graphs."""
    while nodes:
        node = nodes.pop()
        yield node
        nodes += [inner for graph in subgraphs(node) for inner in graph.node]


def _hands_on(node: onnx.NodeProto, names: frozenset[str]) -> bool:
    return any(attribute.ref_attr_name in names for attribute in node.attribute)


def _without(
    function: onnx.FunctionProto,
    names: frozenset[str],
    name: str,
    functions: dict[_Key, onnx.FunctionProto],
) -> onnx.FunctionProto:
    """A copy under a name that is not taken, which hands on none of these attributes."""
    copy = onnx.FunctionProto()
    copy.CopyFrom(function)
    while _key(copy.domain, name, copy.overload) in functions:
        name += "_"
    copy.name = name
    for node in _all(list(copy.node)):
        other_attributes = [a for a in node.attribute if a.ref_attr_name not in names]
        if len(other_attributes) < len(node.attribute):
            attributes = [
                onnx.AttributeProto.FromString(a.SerializeToString()) for a in other_attributes
            ]
            del node.attribute[:]
            node.attribute.extend(attributes)
    return copy
