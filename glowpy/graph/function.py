"""`Function`: the nodes of one network, and `Module`: functions that share storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from itertools import islice
from typing import TypeVar

from glowpy.core.extents import symbols_of_attrs, symbols_of_types
from glowpy.core.schema import Trait
from glowpy.core.type import Type
from glowpy.graph.builder_gen import Builder
from glowpy.graph.clone import Values, clone_function, clone_storage
from glowpy.graph.creation import no_name, no_type, operand_values, successor_of
from glowpy.graph.drawing import draw_function
from glowpy.graph.flat import FlatModule, fill, flat
from glowpy.graph.infer import Ports, infer_types
from glowpy.graph.node import (
    PREDICATE,
    Constant,
    Node,
    NodeValue,
    Operand,
    Placeholder,
    Storage,
    Variable,
    value_of,
)
from glowpy.graph.nodes_gen import DefineNode, SaveNode
from glowpy.graph.order import in_order
from glowpy.graph.printer import print_function, print_module
from glowpy.graph.storages import Storages
from glowpy.support.errors import Diagnostic, InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc, caller
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import Symbol, symbols_of
from glowpy.support.text import Attr

__all__ = ["Function", "Module"]

SAVED = SaveNode.SCHEMA.inputs.index("output")
"""The operand of a save that it does not read."""

N = TypeVar("N", bound=Node)
S = TypeVar("S", bound=Storage)


class Module(Storages):
    """Storage (constants, placeholders, variables) and the functions that use it. Names are unique in a module."""

    def __init__(self) -> None:
        super().__init__()
        self._functions: dict[str, Function] = {}
        self._function_names = UniqueNames()
        self.calls: Counter[str] = Counter()
        """How often nodes name each function."""

    @property
    def functions(self) -> list[Function]:
        """All functions in order of creation."""
        return list(self._functions.values())

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols on which shapes and attributes depend, by name: those of placeholders first."""
        ports = (*self.placeholders, *self.variables)
        symbols = symbols_of_types(port.type for port in ports)
        for f in self.functions:
            for node in f.topological():
                symbols |= _symbols(node)
        return symbols

    @property
    def main(self) -> Function:
        """The only function that no other calls. Raises UserError if there are none or several."""
        networks = self.networks
        if len(networks) != 1:
            raise UserError(
                f"expected a module with one function, got {len(networks)}",
                note="name the function you mean",
            )
        return networks[0]

    @property
    def networks(self) -> list[Function]:
        """The functions that users call; others are called by functions."""
        return [f for f in self.functions if not f.is_called]

    def function(self, name: str) -> Function:
        """The function called `name`. Raises UserError if there is none."""
        function = self._functions.get(name)
        if function is None:
            raise UserError(
                f"expected one of the functions {sorted(self._functions)}, got '{name}'"
            )
        return function

    def __contains__(self, f: Function) -> bool:
        """Whether a function is one of the module's, and not erased."""
        return self._functions.get(f.name) is f

    def create_function(
        self, name: str, takes: Sequence[Storage] = (), gives: Sequence[Storage] = ()
    ) -> Function:
        """Adds an empty function; if it gives something, others may call it. Raises UserError if the name is taken."""
        if name in self._functions:
            raise UserError(f"function @{name} exists already")
        self._function_names.take(name)
        self._functions[name] = Function(name, self, takes, gives)
        return self._functions[name]

    def unused_function_name(self, name: str) -> str:
        """A name that no function has, made of this one."""
        unused = self._function_names.take(name)
        self._function_names.release(unused)
        return unused

    def erase_uncalled(self) -> bool:
        """Erases functions that could only be called, and are not, with their storage. True iff there were any."""
        erased = False
        while dead := [f for f in self.functions if f.is_called and not self.calls[f.name]]:
            for f in dead:
                self.erase_function(f)
            erased = True
        return erased

    def erase_function(self, f: Function) -> None:
        """Erases a function that no other calls, with its storage."""
        for node in reversed(f.topological()):
            f.erase(node)
        for storage in dict.fromkeys((*f.takes, *f.gives)):
            self.erase(storage)
        del self._functions[f.name]
        self._function_names.release(f.name)

    def clone(self) -> Module:
        """A copy with its own storages, functions and nodes; the elements of constants are shared."""
        copy = Module()
        values: Values = {}
        for storage in self.storages:
            clone_storage(storage, copy, values)
        for f in self.functions:
            clone_function(f, copy, f.name, values)
        return copy

    def __copy__(self) -> Module:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Module:
        return self.clone()

    def __getstate__(self) -> FlatModule:
        """Tables, which `pickle` writes without following the graph. Deferred elements are read or computed."""
        return flat(self)

    def __setstate__(self, tables: FlatModule) -> None:
        self.__init__()  # type: ignore[misc]
        fill(self, tables)

    def __str__(self) -> str:
        return print_module(self)

    def __repr__(self) -> str:
        functions = ", ".join(f"{f.name} ({f.num_nodes} nodes)" for f in self.functions) or "empty"
        size = sum(constant.type.size for constant in self._constants.values())
        return f"<Module: {functions}; {self.num_constants} constants of {size:,} bytes>"

    def _repr_html_(self) -> str:
        """Renders the module for notebooks: every function as a drawing."""
        drawings = (f"<p><b>{escape(f.name)}</b></p>{draw_function(f)}" for f in self.functions)
        return f"<p>{escape(repr(self))}</p>{''.join(drawings)}"


class Function(Builder):
    """The nodes of one network over its module's storage.

    `create_x` methods (generated) add nodes. The order of `nodes` is the order of creation;
    `topological()` gives one in which every node comes after its inputs.
    """

    def __init__(
        self,
        name: str,
        module: Module,
        takes: Sequence[Storage] = (),
        gives: Sequence[Storage] = (),
    ) -> None:
        self.name = name
        self.module = module
        self.takes = list(takes)
        """Ports that callers pass, in order: placeholders, and variables that the function changes."""
        self.gives = list(gives)
        """Ports that callers get, in order: placeholders that the function saves, and those variables."""
        self._nodes: dict[Node, None] = {}
        self._definitions: dict[DefineNode, None] = {}
        self._loc = UNKNOWN
        self._predicate: NodeValue | None = None

    @property
    def is_called(self) -> bool:
        """Whether it is there to be called by other functions."""
        return bool(self.gives)

    def callees(self, node: Node) -> dict[str, Function]:
        """The functions that a node calls, by the attributes that name them. Raises UserError for an unknown one."""
        return {name: self.module.function(node.attrs[name]) for name in node.SCHEMA.functions}

    @property
    def called(self) -> list[Function]:
        """The functions that this one needs, each after those that it calls itself.

        Raises UserError for one that calls itself.
        """
        return _called(self)

    @property
    def nodes(self) -> list[Node]:
        """A snapshot of all nodes in order of creation."""
        return list(self._nodes)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def newest(self, count: int) -> list[Node]:
        """The `count` nodes that were added last, in order of creation."""
        return list(islice(reversed(self._nodes), count))[::-1]

    @property
    def saves(self) -> list[SaveNode]:
        """The nodes that write placeholders, the function's results, and variables."""
        return [node for node in self._nodes if isinstance(node, SaveNode)]

    @property
    def definitions(self) -> dict[str, DefineNode]:
        """The symbols that the function finds while it runs, each with the node that says what it is."""
        return {name: node for node in self._definitions for name in symbols_of(node.symbols)}

    @property
    def needs(self) -> Callable[[Node], list[Node]]:
        """Returns a function of the nodes that must precede one: those of its operands and of its symbols."""
        definitions = self.definitions

        def operands(node: Node) -> list[Node]:
            return [value.node for value in node.operand_values if value.node is not None]

        def all_needed(node: Node) -> list[Node]:
            symbols = {} if node in self._definitions else self._symbols(node)
            return [*operands(node), *(definitions[n] for n in symbols if n in definitions)]

        return all_needed if definitions else operands

    @property
    def outputs(self) -> list[Placeholder]:
        """The placeholders the function writes, in order of the saves."""
        return [
            save.output.producer
            for save in self.saves
            if isinstance(save.output.producer, Placeholder)
        ]

    @property
    def inputs(self) -> list[Placeholder]:
        """The placeholders the function reads, in order of the module."""
        read: set[Node | Storage] = set()
        for node in self._nodes:
            for index, value in node.operands():
                if not (isinstance(node, SaveNode) and index == SAVED):
                    read.add(value.producer)
        return _in_order(Placeholder, read)

    @property
    def parameters(self) -> list[Placeholder]:
        """The inputs of the user's model, in order of the module: what the function reads, and what no function uses.

        A model may have inputs that nothing reads, and is called with them all the same.
        """
        read = set(self.inputs)
        functions = self.module.functions
        used = {p for f in functions for p in (*f.inputs, *f.outputs, *f.takes, *f.gives)}
        return [p for p in self.module.placeholders if p in read or p not in used]

    @property
    def variables(self) -> list[Variable]:
        """The variables the function reads or saves, in order of the module."""
        used = {value.producer for node in self._nodes for _, value in node.operands()}
        return _in_order(Variable, used)

    @property
    def constants(self) -> list[Constant]:
        """The constants the function reads, in order of the module."""
        read = {value.producer for node in self._nodes for _, value in node.operands()}
        return _in_order(Constant, read)

    @property
    def all_constants(self) -> list[Constant]:
        """Constants that it, and what it calls, read, in order of the module."""
        return _in_order(Constant, {c for f in (*self.called, self) for c in f.constants})

    @property
    def all_nodes(self) -> list[tuple[Function, Node]]:
        """The nodes of what the function calls, and its own, each after its inputs, with the function that it is in."""
        return [(f, node) for f in (*self.called, self) for node in f.topological()]

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    def create(
        self,
        cls: type[N],
        name: str,
        inputs: Sequence[Operand],
        attrs: Mapping[str, Attr],
        result_type: Type | None = None,
        loc: Loc | None = None,
    ) -> N:
        """Adds a node of any class; the result type is inferred unless given. What every `create_x` calls."""
        place = loc or self._loc or caller()
        values = operand_values(cls.SCHEMA, inputs, place)
        if not isinstance(name, str):
            raise no_name(name, place)
        if not isinstance(result_type, Type | None):
            raise no_type(result_type, place)
        try:
            types = infer_types(
                cls, [value.type for value in values], attrs, result_type, self.ports
            )
        except UserError as error:
            first = error.diagnostics[0]
            message = f"{cls.SCHEMA.mnemonic}: {first.message}"
            operands = ", ".join(f"%{value.name}" for value in values)
            context = first.context or f"%{name} = {cls.SCHEMA.mnemonic}({operands})"
            error.diagnostics = [Diagnostic(message, place, context, first.note)]
            raise
        except InternalError as error:
            raise InternalError(
                f"{place}: %{name}: {error.args[0]}", remedy=error.remedy
            ) from error
        node = cls(
            self.module.names.take(name), values, attrs, types, loc=place, predicate=self._predicate
        )
        return self.add(node)

    def add(self, node: N) -> N:
        """Adds a node whose name was taken from the module's names."""
        self._nodes[node] = None
        self.module.calls.update(node.callees)
        if isinstance(node, DefineNode):
            self._definitions[node] = None
        node.attach()
        return node

    def erase(self, node: Node) -> None:
        """Removes a node nobody uses."""
        if any(result.num_users for result in node.results):
            raise InternalError(f"%{node.name} is erased but still used")
        del self._nodes[node]
        self.module.calls.subtract(node.callees)
        if isinstance(node, DefineNode):
            del self._definitions[node]
        node.detach()
        self.module.names.release(node.name)

    def replace(
        self, node: Node, replacements: Sequence[Operand], created: Collection[Node] = ()
    ) -> list[Node]:
        """Makes users of `node` use its replacements, and erases it.

        The name goes to the successor: the one of the nodes `created` for this that does the same as `node`, or
        computes the first replacement.

        Returns what was erased: the node, and what only it used.
        """
        for result, replacement in zip(node.results, replacements, strict=True):
            result.replace_all_uses_with(value_of(replacement))
        successor = successor_of(node, value_of(replacements[0]), created) if replacements else None
        name = node.name
        erased = self.erase_dead([node])
        if node not in self._nodes and successor is not None:
            self.module.names.release(successor.name)
            successor.name = self.module.names.take(name)
        return erased

    @contextmanager
    def at(self, loc: Loc) -> Iterator[None]:
        """Gives nodes created inside the `with` this location."""
        before, self._loc = self._loc, loc
        try:
            yield
        finally:
            self._loc = before

    @contextmanager
    def replacing(self, node: Node) -> Iterator[None]:
        """Gives nodes created inside the `with` the location and the predicate of `node`, which they replace."""
        with self.replacing_each() as replacing:
            replacing(node)
            yield

    @contextmanager
    def replacing_each(self) -> Iterator[Callable[[Node], None]]:
        """Works like `replacing`, for one node after the other: each begins with a call of what the `with` yields."""
        before = self._loc, self._predicate
        try:
            yield self._replace_next
        finally:
            self._loc, self._predicate = before

    def _replace_next(self, node: Node) -> None:
        self._loc, self._predicate = node.loc, node.predicate

    def predicated(self, node: N, predicate: Operand) -> N:
        """Gives `node` a predicate; returns the node."""
        node.set_input(PREDICATE, value_of(predicate))
        return node

    def topological(self) -> list[Node]:
        """All nodes, each after what it needs; a list that is in such an order already stays as it is. Linear time."""
        return in_order(self._nodes, self.needs)

    def arrange(self, order: Sequence[Node]) -> None:
        """Puts the nodes, all of them, into an order in which each comes after what it needs."""
        assert len(order) == len(self._nodes)
        self._nodes = dict.fromkeys(order)

    def clone(self, name: str) -> Function:
        """A copy of this function under another name, in the same module; what callers pass and get is its own."""
        return clone_function(self, self.module, name, {})

    def hand_over(self, nodes: Iterable[Node], target: Function) -> None:
        """Makes nodes of this function nodes of another one of the module, at its end. Operands stay what they are."""
        for node in nodes:
            del self._nodes[node]
            target._nodes[node] = None
            if isinstance(node, DefineNode):
                del self._definitions[node]
                target._definitions[node] = None

    def erase_dead(self, candidates: Iterable[Node] | None = None) -> list[Node]:
        """Erases those of `candidates` (default: all) without users and side effects, then their inputs.

        Returns what was erased, users first.
        """
        work = list(candidates if candidates is not None else self._nodes)
        erased: list[Node] = []
        while work:
            node = work.pop()
            if (
                node not in self._nodes
                or node.has(Trait.SIDE_EFFECT)
                or any(r.num_users for r in node.results)
            ):
                continue
            work.extend(value.node for value in node.operand_values if value.node is not None)
            self.erase(node)
            erased.append(node)
        if candidates is None and (unread := self._unread_definitions()):
            for definition in unread:
                self.erase(definition)
            erased += [*unread, *self.erase_dead()]
        return erased

    def ports(self, name: str) -> Ports:
        """Returns the ports of a function of the module. Raises UserError if there is none of this name."""
        f = self.module.function(name)
        return Ports(name, [s.type for s in f.takes], [s.type for s in f.gives])

    def _symbols(self, node: Node) -> dict[str, Symbol]:
        """The symbols on which a node depends, or a function that it calls."""
        symbols = _symbols(node)
        for callee in self.callees(node).values():
            symbols = symbols | callee.symbols
        return symbols

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols on which nodes depend, and what the function takes and gives; those of what it calls, too.

        Raises UserError for a function that calls itself.
        """
        functions = (*self.called, self)
        symbols = symbols_of_types(s.type for f in functions for s in (*f.takes, *f.gives))
        for node in (node for f in functions for node in f._nodes):
            symbols |= _symbols(node)
        return symbols

    def _unread_definitions(self) -> list[DefineNode]:
        """Returns the definitions of symbols that no other node depends on."""
        if not self._definitions:
            return []
        read = {
            name
            for node in self._nodes
            if node not in self._definitions
            for name in self._symbols(node)
        }
        return [node for node in self._definitions if read.isdisjoint(symbols_of(node.symbols))]

    def __reduce__(self) -> tuple[Callable[[Module, str], Function], tuple[Module, str]]:
        """Pickles with the module, of which a copy has a function of the same name."""
        return Module.function, (self.module, self.name)

    def __str__(self) -> str:
        return print_function(self)

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{p.original} {p.type}" for p in ports) or "nothing"
            for ports in (self.inputs, self.outputs)
        )
        return f"<Function {self.name}: {self.num_nodes} nodes, {inputs} -> {outputs}>"

    def _repr_svg_(self) -> str:
        """Renders the graph as a drawing for notebooks."""
        return draw_function(self)


def _in_order(cls: type[S], producers: Iterable[Node | Storage]) -> list[S]:
    """Storages of one kind, in the order of the module."""
    return sorted((p for p in producers if isinstance(p, cls)), key=lambda storage: storage.place)


def _symbols(node: Node) -> dict[str, Symbol]:
    """The symbols on which a node itself depends."""
    if node.is_static:
        return {}
    return symbols_of_types(result.type for result in node.results) | symbols_of_attrs(node.attrs)


def _called(root: Function) -> list[Function]:
    done: dict[Function, None] = {}
    path = {root: _callees(root)}
    while path:
        f, callees = next(reversed(path.items()))
        callee = next((g for g in callees if g not in done), None)
        if callee is None:
            del path[f]
            done[f] = None
        elif callee in path:
            raise UserError(f"function @{callee.name} calls itself")
        else:
            path[callee] = _callees(callee)
    return list(done)[:-1]


def _callees(f: Function) -> Iterator[Function]:
    return (g for node in f.nodes for g in f.callees(node).values())
