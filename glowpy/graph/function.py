"""`Function`: the nodes of one network, and `Module`: functions that share storage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from itertools import chain, islice, repeat
from typing import TypeVar

from glowpy.core.extents import symbols_of_attrs, symbols_of_types
from glowpy.core.schema import NodeSchema, Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.builder_gen import Builder
from glowpy.graph.drawing import draw_function
from glowpy.graph.infer import infer_types
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
from glowpy.support.errors import Diagnostic, InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc, caller
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import Symbol, symbols_of
from glowpy.support.text import Attr

__all__ = ["Function", "Module"]

SAVED = SaveNode.SCHEMA.inputs.index("output")
"""The operand of a save that it does not read."""

N = TypeVar("N", bound=Node)


class Module:
    """Storage (constants, placeholders, variables) and the functions that use it. Names are unique in a module."""

    def __init__(self) -> None:
        self.names = UniqueNames()
        self._constants: dict[str, Constant] = {}
        self._placeholders: dict[str, Placeholder] = {}
        self._variables: dict[str, Variable] = {}
        self._functions: dict[str, Function] = {}

    @property
    def constants(self) -> list[Constant]:
        """All constants in order of creation."""
        return list(self._constants.values())

    @property
    def num_constants(self) -> int:
        """How many constants there are."""
        return len(self._constants)

    @property
    def placeholders(self) -> list[Placeholder]:
        """All placeholders in order of creation."""
        return list(self._placeholders.values())

    @property
    def variables(self) -> list[Variable]:
        """All variables in order of creation."""
        return list(self._variables.values())

    @property
    def storages(self) -> list[Storage]:
        """Placeholders, then variables, then constants."""
        return [*self.placeholders, *self.variables, *self.constants]

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
        """The only function. Raises UserError if there are none or several."""
        if len(self._functions) != 1:
            raise UserError(
                f"expected a module with one function, got {len(self._functions)}",
                note="name the function you mean",
            )
        return self.functions[0]

    def function(self, name: str) -> Function:
        """The function called `name`. Raises UserError if there is none."""
        function = self._functions.get(name)
        if function is None:
            raise UserError(
                f"expected one of the functions {sorted(self._functions)}, got '{name}'"
            )
        return function

    def storage(self, name: str) -> Storage | None:
        """The constant, placeholder or variable called `name`, or None."""
        tables = (self._constants, self._placeholders, self._variables)
        return next((table[name] for table in tables if name in table), None)

    def create_function(self, name: str) -> Function:
        """Adds an empty function. Raises UserError if the name is taken."""
        if name in self._functions:
            raise UserError(f"function @{name} exists already")
        self._functions[name] = Function(name, self)
        return self._functions[name]

    def create_placeholder(
        self, name: str, type: Type, *, loc: Loc = UNKNOWN, original: str = ""
    ) -> Placeholder:
        """Adds a tensor that is bound at run time under `original`, or `name`; dumps make the name legal and unique.

        Raises UserError for a name that is no string and a type that is no `Type`.
        """
        if not isinstance(name, str):
            raise _no_name(name, loc)
        if not isinstance(type, Type):
            raise _no_type(type, loc)
        created = Placeholder(self.names.take(name), type, loc, original=original or name)
        self._placeholders[created.name] = created
        return created

    def create_variable(
        self,
        name: str,
        type: Type,
        memory: Type | None = None,
        *,
        loc: Loc = UNKNOWN,
        original: str = "",
    ) -> Variable:
        """Adds a tensor that outlives a run, in memory of the type `memory`, or else of its own type.

        The user's model calls it `original`, if that is another name.

        Raises UserError for a name that is no string and a type that is no `Type`.
        """
        if not isinstance(name, str):
            raise _no_name(name, loc)
        if not isinstance(type, Type):
            raise _no_type(type, loc)
        taken = self.names.take(name)
        variable = Variable(taken, type, memory or type, loc, original=original or name)
        self._variables[variable.name] = variable
        return variable

    def make_variable(self, placeholder: Placeholder, memory: Type) -> Variable:
        """Puts a variable of the same name and type in the place of a placeholder."""
        del self._placeholders[placeholder.name]
        name, original = placeholder.name, placeholder.original
        variable = Variable(name, placeholder.type, memory, placeholder.loc, original=original)
        self._variables[name] = variable
        placeholder.value.replace_all_uses_with(variable.value)
        return variable

    def make_placeholder(self, variable: Variable) -> Placeholder:
        """Puts a placeholder of the same name and type in the place of a variable."""
        del self._variables[variable.name]
        name, original = variable.name, variable.original
        placeholder = Placeholder(name, variable.type, variable.loc, original=original)
        self._placeholders[name] = placeholder
        variable.value.replace_all_uses_with(placeholder.value)
        return placeholder

    def create_constant(self, name: str, tensor: Tensor | Array, *, loc: Loc = UNKNOWN) -> Constant:
        """Adds a tensor that is known now; an array is copied, so that its owner may change it afterwards.

        Raises UserError for a name that is no string, and for what is neither a tensor nor an array of numbers or
        booleans.
        """
        if not isinstance(name, str):
            raise _no_name(name, loc)
        if not isinstance(tensor, Tensor):
            try:
                tensor = Tensor.of(tensor).copy()
            except UserError as error:
                first = error.diagnostics[0]
                raise UserError(first.message, loc=loc or caller(), note=first.note) from None
        return self.add_constant(Constant(self.names.take(name), tensor, loc))

    def add_constant(self, constant: Constant) -> Constant:
        """Adds a constant whose name was taken from `names`."""
        self._constants[constant.name] = constant
        return constant

    def clone(self) -> Module:
        """A copy with its own storages, functions and nodes; the elements of constants are shared."""
        copy = Module()
        values: dict[NodeValue, NodeValue] = {}
        for p in self.placeholders:
            twin = Placeholder(copy.names.take(p.name), p.type, p.loc, original=p.original)
            copy._placeholders[twin.name] = twin
            values[p.value] = twin.value
        for v in self.variables:
            name = copy.names.take(v.name)
            variable = Variable(name, v.type, v.memory, v.loc, original=v.original)
            copy._variables[name] = variable
            values[v.value] = variable.value
        for c in self.constants:
            tensor = c.tensor if c.has_elements else None
            name = copy.names.take(c.name)
            digest = "" if c.has_elements else c.digest
            values[c.value] = copy.add_constant(
                Constant(name, tensor, c.loc, type=c.type, digest=digest)
            ).value
        for f in self.functions:
            f.copy_into(copy.create_function(f.name), values)
        return copy

    def forget(self) -> None:
        """Lets go of the elements of all constants, of a module that is not used any more."""
        for constant in self.constants:
            constant.forget()

    def erase(self, storage: Storage) -> None:
        """Removes a storage nobody uses."""
        if storage.value.num_users:
            raise InternalError(
                f"%{storage.name} is erased but still used by {storage.value.users}"
            )
        if (constant := self._constants.pop(storage.name, None)) is not None:
            constant.forget()
        self._placeholders.pop(storage.name, None)
        self._variables.pop(storage.name, None)
        self.names.release(storage.name)

    def __str__(self) -> str:
        return print_module(self)

    def __repr__(self) -> str:
        functions = ", ".join(f"{f.name} ({f.num_nodes} nodes)" for f in self.functions) or "empty"
        size = sum(constant.type.size for constant in self._constants.values())
        return f"<Module: {functions}; {self.num_constants} constants of {size:,} bytes>"

    def _repr_html_(self) -> str:
        """What a notebook shows: every function as a drawing."""
        drawings = (f"<p><b>{escape(f.name)}</b></p>{draw_function(f)}" for f in self.functions)
        return f"<p>{escape(repr(self))}</p>{''.join(drawings)}"


class Function(Builder):
    """The nodes of one network over its module's storage.

    `create_x` methods (generated) add nodes. The order of `nodes` is the order of creation;
    `topological()` gives one in which every node comes after its inputs.
    """

    def __init__(self, name: str, module: Module) -> None:
        self.name = name
        self.module = module
        self._nodes: dict[Node, None] = {}
        self._definitions: dict[DefineNode, None] = {}
        self._loc = UNKNOWN
        self._predicate: NodeValue | None = None

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
        """What tells the nodes that come before one: those of its operands, and those that define its symbols."""
        definitions = self.definitions

        def operands(node: Node) -> list[Node]:
            return [value.node for value in node.operand_values if value.node is not None]

        def all_needed(node: Node) -> list[Node]:
            symbols = {} if node in self._definitions else _symbols(node)
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
        return [placeholder for placeholder in self.module.placeholders if placeholder in read]

    @property
    def parameters(self) -> list[Placeholder]:
        """The inputs of the user's model, in order of the module: what the function reads, and what no function uses.

        A model may have inputs that nothing reads, and is called with them all the same.
        """
        read = set(self.inputs)
        used = {p for f in self.module.functions for p in (*f.inputs, *f.outputs)}
        return [p for p in self.module.placeholders if p in read or p not in used]

    @property
    def variables(self) -> list[Variable]:
        """The variables the function reads or saves, in order of the module."""
        used = {value.producer for node in self._nodes for _, value in node.operands()}
        return [variable for variable in self.module.variables if variable in used]

    @property
    def constants(self) -> list[Constant]:
        """The constants the function reads, in order of the module."""
        read = {value.producer for node in self._nodes for _, value in node.operands()}
        return [constant for constant in self.module.constants if constant in read]

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
        values = _values(cls.SCHEMA, inputs, place)
        if not isinstance(name, str):
            raise _no_name(name, place)
        if not isinstance(result_type, Type | None):
            raise _no_type(result_type, place)
        try:
            types = infer_types(cls, [value.type for value in values], attrs, result_type)
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
        if isinstance(node, DefineNode):
            self._definitions[node] = None
        node.attach()
        return node

    def erase(self, node: Node) -> None:
        """Removes a node nobody uses."""
        if any(result.num_users for result in node.results):
            raise InternalError(f"%{node.name} is erased but still used")
        del self._nodes[node]
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
        successor = _successor(node, value_of(replacements[0]), created) if replacements else None
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
        """Like `replacing` for one node after the other: each begins when what the `with` gives is called with it."""
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
        """A copy of this function under another name, in the same module and on the same storage."""
        copy = self.module.create_function(name)
        self.copy_into(copy, {})
        return copy

    def copy_into(self, target: Function, values: Mapping[NodeValue, NodeValue]) -> None:
        """Adds a copy of every node to `target`, with operands replaced where `values` says so."""
        twins = dict(values)
        for node in self.topological():
            inputs = [twins.get(value, value) for value in node.inputs]
            predicate = (
                twins.get(node.predicate, node.predicate) if node.predicate is not None else None
            )
            twin = target.add(node.clone(target.module.names.take(node.name), inputs, predicate))
            twins.update(zip(node.results, twin.results, strict=True))

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

    def _unread_definitions(self) -> list[DefineNode]:
        """Those of symbols that no other node depends on."""
        if not self._definitions:
            return []
        read = {
            name for node in self._nodes if node not in self._definitions for name in _symbols(node)
        }
        return [node for node in self._definitions if read.isdisjoint(symbols_of(node.symbols))]

    def __str__(self) -> str:
        return print_function(self)

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{p.original} {p.type}" for p in ports) or "nothing"
            for ports in (self.inputs, self.outputs)
        )
        return f"<Function {self.name}: {self.num_nodes} nodes, {inputs} -> {outputs}>"

    def _repr_svg_(self) -> str:
        """What a notebook shows: the graph as a drawing."""
        return draw_function(self)


def _no_name(value: object, loc: Loc) -> UserError:
    """What to raise for a name that is no string, as in code that no type checker has seen."""
    got = type(value).__name__
    return UserError(f"expected a string as the name, got {got}", loc=loc or caller())


def _no_type(value: object, loc: Loc) -> UserError:
    """What to raise for a type that is no `Type`."""
    got = repr(value) if isinstance(value, str) else type(value).__name__
    note = "parse_type reads one"
    return UserError(f"expected a Type, got {got}", loc=loc or caller(), note=note)


def _values(schema: NodeSchema, inputs: Sequence[Operand], loc: Loc) -> list[NodeValue]:
    """What the operands of a new node stand for. Raises UserError that names the first that stands for nothing."""
    if not isinstance(inputs, Iterable):
        raise UserError(
            f"{schema.mnemonic}: expected a list as {schema.inputs[0]}, got {type(inputs).__name__}",
            loc=loc,
        )
    roles = (
        repeat(schema.inputs[0]) if schema.variadic else chain(schema.inputs, repeat("an operand"))
    )
    values: list[NodeValue] = []
    for operand, role in zip(inputs, roles, strict=False):
        try:
            values.append(value_of(operand, role))
        except UserError as error:
            first = error.diagnostics[0]
            message = f"{schema.mnemonic}: {first.message}"
            note = _order(schema) if _is_misplaced(operand) else first.note
            raise UserError(message, loc=loc, note=note) from None
    return values


def _is_misplaced(operand: object) -> bool:
    """Whether it looks like a name or a result type, which stand before the operands."""
    return isinstance(operand, str | Type)


def _order(schema: NodeSchema) -> str:
    """What the arguments of a node's `create_x` begin with."""
    typed = ["result_type"] if Trait.TYPED in schema.traits else []
    return f"the arguments are {', '.join(['name', *typed, *schema.inputs])}, in this order"


def _symbols(node: Node) -> dict[str, Symbol]:
    """The symbols on which a node itself depends."""
    if node.is_static:
        return {}
    return symbols_of_types(result.type for result in node.results) | symbols_of_attrs(node.attrs)


def _successor(node: Node, replacement: NodeValue, created: Collection[Node]) -> Node | None:
    """Of the nodes `created` in place of `node`, the one that does the same; else what computes, not what moves."""
    successor = replacement.node
    if successor is None or successor not in created:
        return None
    while successor.has(Trait.SHAPE_ONLY) and successor.SCHEMA is not node.SCHEMA:
        source = successor.inputs[0].node
        if source is None or source not in created:
            break
        successor = source
    return successor
