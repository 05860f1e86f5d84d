"""Copies of nodes, storage and functions: the one way in which a graph is copied, whole or in part.

What stands for a value in the copy is in a table that grows as copies are made: `values`. An operand that is not in it
stays as it is, which is right within a module; into another one its storage is copied first. Elements of constants
are shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from glowpy.graph.node import Constant, Node, NodeValue, Placeholder, Storage, Variable

if TYPE_CHECKING:
    from glowpy.graph.function import Function, Module

__all__ = ["Values", "clone_function", "clone_nodes", "clone_storage"]

Values = dict[NodeValue, NodeValue]
"""Values of a copy, by the originals that they stand for."""


def clone_nodes(
    nodes: Iterable[Node], target: Function, values: Values, *, predicates: bool = True
) -> list[Node]:
    """Adds copies of nodes, each after what it needs, to `target`, and notes their results in `values`.

    Without `predicates` the copies compute every element, whether it matters or not.
    """
    twins: list[Node] = []
    for node in nodes:
        inputs = [values.get(value, value) for value in node.inputs]
        predicate = node.predicate if predicates else None
        if predicate is not None:
            predicate = values.get(predicate, predicate)
        twin = target.add(node.clone(target.module.names.take(node.name), inputs, predicate))
        values.update(zip(node.results, twin.results, strict=True))
        twins.append(twin)
    return twins


def clone_storage(storage: Storage, module: Module, values: Values, name: str = "") -> Storage:
    """Adds a copy of a storage to a module, under its own name or another one, and notes it in `values`."""
    name = name or storage.name
    twin: Storage
    match storage:
        case Constant():
            digest = "" if storage.has_elements else storage.digest
            tensor = storage.tensor if storage.has_elements else None
            taken = module.names.take(name)
            twin = module.add_constant(
                Constant(taken, tensor, storage.loc, type=storage.type, digest=digest)
            )
        case Variable():
            twin = module.create_variable(
                name,
                storage.type,
                storage.memory,
                loc=storage.loc,
                original=storage.original,
                initial=storage.initial,
            )
        case _:
            assert isinstance(storage, Placeholder)
            twin = module.create_placeholder(
                name, storage.type, loc=storage.loc, original=storage.original
            )
    values[storage.value] = twin.value
    return twin


def clone_function(f: Function, module: Module, name: str, values: Values) -> Function:
    """Adds a copy of a function to a module.

    What it takes and gives is copied unless `values` has it; so is all else that it uses, if the module is another one.
    """
    storages: list[Storage] = [*f.takes, *f.gives]
    if module is not f.module:
        storages += [*f.inputs, *f.outputs, *f.variables, *f.constants]
    for storage in storages:
        if storage.value not in values:
            clone_storage(storage, module, values)
    takes, gives = ([values[s.value].storage for s in ports] for ports in (f.takes, f.gives))
    copy = module.create_function(name, takes, gives)
    clone_nodes(f.topological(), copy, values)
    return copy
