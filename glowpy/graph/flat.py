"""Modules as tables, for `pickle`: values are numbered, so that no depth of a graph leads to recursion.

Values refer to nodes, nodes to values, and these to their users: by itself, `pickle` goes as deep as the graph is.
Here a node names the numbers of its operands. Storages come first, in the order of the module, then the results of
nodes, function by function, each node after what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from glowpy.core.initial import Initializer
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import Constant, Node, NodeValue, Storage, Variable
from glowpy.support.loc import Loc
from glowpy.support.text import Attr

if TYPE_CHECKING:
    from glowpy.graph.function import Function, Module

__all__ = ["FlatModule", "fill", "flat"]


class _FlatConstant(NamedTuple):
    """A constant: its elements, or only the digest of them."""

    name: str
    type: Type
    tensor: Tensor | None
    digest: str
    loc: Loc


class _FlatNode(NamedTuple):
    """A node: its operands are numbers of values, and no predicate is -1."""

    cls: type[Node]
    name: str
    inputs: tuple[int, ...]
    predicate: int
    attrs: dict[str, Attr]
    types: tuple[Type, ...]
    loc: Loc


class _FlatFunction(NamedTuple):
    """A function: what it takes and gives as numbers of storages, and where nodes stand among those created."""

    name: str
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    nodes: list[_FlatNode]
    order: list[int]


class FlatModule(NamedTuple):
    """A module as tables."""

    placeholders: list[tuple[str, Type, Loc, str]]
    variables: list[tuple[str, Type, Type, Loc, str, _FlatConstant | Initializer | None]]
    constants: list[_FlatConstant]
    functions: list[_FlatFunction]


def flat(module: Module) -> FlatModule:
    """The tables of a module."""
    numbers = {storage.value: number for number, storage in enumerate(module.storages)}
    return FlatModule(
        [(p.name, p.type, p.loc, p.original) for p in module.placeholders],
        [(v.name, v.type, v.memory, v.loc, v.original, _flat_initial(v)) for v in module.variables],
        [_flat_constant(constant) for constant in module.constants],
        [_flat_function(f, numbers) for f in module.functions],
    )


def _flat_initial(variable: Variable) -> _FlatConstant | Initializer | None:
    initial = variable.initial
    return _flat_constant(initial) if isinstance(initial, Constant) else initial


def _flat_constant(constant: Constant) -> _FlatConstant:
    has_elements = constant.has_elements
    return _FlatConstant(
        constant.name,
        constant.type,
        constant.tensor if has_elements else None,
        "" if has_elements else constant.digest,
        constant.loc,
    )


def _flat_function(f: Function, numbers: dict[NodeValue, int]) -> _FlatFunction:
    nodes: list[_FlatNode] = []
    order = f.topological()
    for node in order:
        predicate = -1 if node.predicate is None else numbers[node.predicate]
        inputs = tuple(numbers[value] for value in node.inputs)
        types = tuple(result.type for result in node.results)
        nodes.append(
            _FlatNode(type(node), node.name, inputs, predicate, node.attrs, types, node.loc)
        )
        for result in node.results:
            numbers[result] = len(numbers)
    takes, gives = (tuple(numbers[s.value] for s in ports) for ports in (f.takes, f.gives))
    places = {node: place for place, node in enumerate(order)}
    return _FlatFunction(f.name, takes, gives, nodes, [places[node] for node in f.nodes])


def fill(module: Module, tables: FlatModule) -> None:
    """Adds what tables say to an empty module."""
    for name, type, loc, original in tables.placeholders:
        module.create_placeholder(name, type, loc=loc, original=original)
    for name, type, memory, loc, original, stored in tables.variables:
        first = _constant(stored) if isinstance(stored, _FlatConstant) else stored
        module.create_variable(name, type, memory, loc=loc, original=original, initial=first)
    for row in tables.constants:
        module.names.take(row.name)
        module.add_constant(_constant(row))
    storages = module.storages
    values = [storage.value for storage in storages]
    functions = [
        module.create_function(f.name, _those(storages, f.takes), _those(storages, f.gives))
        for f in tables.functions
    ]
    for function, rows in zip(functions, tables.functions, strict=True):
        nodes = [_add(function, row, values) for row in rows.nodes]
        function.arrange([nodes[place] for place in rows.order])


def _constant(row: _FlatConstant) -> Constant:
    return Constant(row.name, row.tensor, row.loc, type=row.type, digest=row.digest)


def _those(storages: Sequence[Storage], numbers: Sequence[int]) -> list[Storage]:
    return [storages[number] for number in numbers]


def _add(f: Function, row: _FlatNode, values: list[NodeValue]) -> Node:
    """Adds a node, and its results to the values that have numbers."""
    inputs = [values[number] for number in row.inputs]
    predicate = None if row.predicate < 0 else values[row.predicate]
    name = f.module.names.take(row.name)
    node = f.add(row.cls(name, inputs, row.attrs, row.types, loc=row.loc, predicate=predicate))
    values.extend(node.results)
    return node
