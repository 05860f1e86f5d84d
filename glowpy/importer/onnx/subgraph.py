"""Subgraphs as functions: what they read of what is around them becomes operands of whoever calls them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import onnx

from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder, Storage, Variable
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.node import Item, OnnxNode, OnnxScope, TensorSequence
from glowpy.importer.onnx.order import subgraphs
from glowpy.support.errors import UserError

__all__ = ["Subgraph", "inlined", "take_alike", "undone_on_error"]


class _Environment(MutableMapping[str, Item]):
    """The names of a subgraph, and those around it, which it takes when they are first read."""

    def __init__(self, subgraph: Subgraph, outer: MutableMapping[str, Item]) -> None:
        self._subgraph = subgraph
        self._outer = outer
        self._own: dict[str, Item] = {}

    def __getitem__(self, name: str) -> Item:
        if name not in self._own:
            self._own[name] = self._subgraph.taken(self._outer[name], name)
        return self._own[name]

    def __setitem__(self, name: str, item: Item) -> None:
        self._own[name] = item

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._outer

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._outer), **self._own})

    def __len__(self) -> int:
        return len({*self._outer, *self._own})


class Subgraph:
    """A function that a subgraph of a node becomes.

    Attributes:
        f: The function.
        node: The node as the function sees it: what is created by it is created there.
        captured: The values around it that it reads, and the placeholders that stand for that.
    """

    def __init__(self, n: OnnxNode, name: str, *, supposes: bool = False) -> None:
        module = n.f.module
        self._outer = n
        self.f: Function = module.create_function(module.unused_function_name(name))
        self.scope: OnnxScope = replace(
            n.scope,
            f=self.f,
            environment=_Environment(self, n.scope.environment),
            found=n.scope.found.inner(supposes=supposes),
            checks=None if n.scope.checks is None else [],
            _computed={},
        )
        self.node = OnnxNode(n.proto, n.loc, n.opset, (), self.scope)
        self.captured: dict[NodeValue, Placeholder] = {}
        self._storages: list[Storage] = []

    @property
    def module(self) -> Module:
        """The module of the function."""
        return self.f.module

    def taken(self, item: Item, name: str) -> Item:
        """Takes an item of the graph around into the function."""
        if isinstance(item, TensorSequence):
            return TensorSequence(tuple(self._value(value, name) for value in item.items))
        return item if isinstance(item, SymbolicTensor) else self._value(item, name)

    def _value(self, value: Value, name: str) -> Value:
        if isinstance(value, NodeValue) and value in self.scope.settled and value.type.rank < 2:
            return evaluate([value])[0]  # whatever a graph reads of it may have to be known
        if isinstance(value, NodeValue) and value.constant is None:
            return self.take(value, name).value
        return value

    def take(self, value: NodeValue, name: str) -> Placeholder:
        """The placeholder that stands for a value of the caller."""
        if value not in self.captured:
            self.captured[value] = self.placeholder(name, value.type, value)
        return self.captured[value]

    def placeholder(self, name: str, type: Type, origin: NodeValue | None = None) -> Placeholder:
        """A new one, for what changes from call to call unless it has an origin."""
        placeholder = self.module.create_placeholder(name, type, loc=self._outer.loc)
        self.scope.origins[placeholder] = origin
        self._storages.append(placeholder)
        return placeholder

    def variable(self, name: str, type: Type) -> Variable:
        """Creates a variable, in which a call leaves a value for the next one."""
        variable = self.module.create_variable(name, type, loc=self._outer.loc)
        self._storages.append(variable)
        return variable

    def bind(self, name: str, item: Item) -> None:
        """Says what a name of the subgraph is."""
        self.scope.environment[name] = item

    def run(self, graph: onnx.GraphProto) -> list[Item]:
        """Imports the subgraph; returns its results."""
        assert self.scope.import_graph is not None
        self.scope.within = self._outer.path_of(graph)
        return self.scope.import_graph(graph, self.scope, self._outer.loc)

    def forget(self) -> None:
        """Takes the function out of the module."""
        self.f.takes, self.f.gives = self._storages, []
        self.module.erase_function(self.f)

    def value(self, item: Item, name: str) -> NodeValue:
        """Returns an item that is called so, which must be a tensor, as a value of the function."""
        if isinstance(item, TensorSequence):
            raise UserError(f"output '{name}' of a subgraph is a sequence, which is not supported")
        with self.f.at(self._outer.loc):
            return self.scope.materialize(item, name)

    def give(self, item: Item, name: str, to: Storage | None = None) -> Storage:
        """Saves an item, which must be a tensor, to a storage or a new placeholder."""
        value = self.value(item, name)
        with self.f.at(self._outer.loc):
            target = to or self.placeholder(name, value.type)
            if value is not target.value:
                self.f.create_save(f"save_{name}", value, target)
        return target


@contextmanager
def undone_on_error(module: Module, node: onnx.NodeProto) -> Iterator[None]:
    """Takes out of a module again what was begun for the graphs of a node that cannot be imported."""
    if next(subgraphs(node), None) is None:
        yield
        return
    before = {*module.functions, *module.placeholders, *module.variables}
    try:
        yield
    except UserError:
        for f in module.functions:
            if f not in before:
                f.takes, f.gives = [], []
                module.erase_function(f)
        for storage in (*module.placeholders, *module.variables):
            if storage not in before:
                module.erase(storage)
        raise


def inlined(
    n: OnnxNode, graph: onnx.GraphProto, inputs: Mapping[str, Item] | None = None
) -> tuple[Item, ...]:
    """Imports a subgraph with these `inputs` as part of the graph around it."""
    assert n.scope.import_graph is not None
    environment: ChainMap[str, Item] = ChainMap(dict(inputs or {}), n.scope.environment)
    scope = replace(n.scope, environment=environment, within=n.path_of(graph))
    return tuple(n.scope.import_graph(graph, scope, n.loc))


def take_alike(subgraphs: Sequence[Subgraph]) -> list[NodeValue]:
    """Makes all functions take what one of them reads; the values, in order."""
    values = {value: p.original for subgraph in subgraphs for value, p in subgraph.captured.items()}
    for subgraph in subgraphs:
        subgraph.f.takes += [subgraph.take(value, name) for value, name in values.items()]
    return list(values)
