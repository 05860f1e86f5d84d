"""`Node`, `NodeValue` and the storage nodes refer to: `Constant`, `Placeholder` and `Variable`.

- A value (`NodeValue`) is one result of a node, or a storage. It has a type and a use list; it is
  compared by identity.
- A node has inputs, attributes, results and an optional predicate: a bool value that says for which
  elements (or whether) the result matters. A backend may ignore it.
- Nodes are changed only through `NodeValue.replace_all_uses_with`, `Node.set_input` and
  `Function.erase`, which keep the use lists right.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, Never, Self, SupportsIndex, TypeAlias, final, overload

from glowpy.core.initial import Initializer
from glowpy.core.schema import NodeSchema, Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc
from glowpy.support.symbolic import depends_on_symbols
from glowpy.support.text import Attr, print_attrs

__all__ = [
    "PREDICATE",
    "Constant",
    "InputField",
    "Node",
    "NodeValue",
    "Operand",
    "Placeholder",
    "ResultField",
    "Storage",
    "Use",
    "Variable",
    "value_of",
]

PREDICATE = -1
"""The operand index of a node's predicate in a use."""

Use: TypeAlias = "tuple[Node, int]"
"""A node and the index of the operand that is used; PREDICATE for its predicate."""


class _PartOfModule:
    """Base of objects that refer to the rest of their module, and are copied and pickled only with it."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        """Raises UserError."""
        del protocol
        raise UserError(
            f"cannot copy or pickle {self!r} by itself: it is part of a module",
            note="copy or pickle the module, or its function",
        )


@final
class NodeValue(_PartOfModule):
    """One typed value: result `index` of a node, or a storage. Compared by identity."""

    __slots__ = ("_uses", "index", "node", "producer", "type")

    def __init__(self, producer: Node | Storage, index: int, type: Type) -> None:
        self.producer = producer
        self.node = producer if isinstance(producer, Node) else None
        """The node that computes this value; None for a storage."""
        self.index = index
        self.type = type
        self._uses: dict[Use, None] = {}

    @property
    def name(self) -> str:
        """The name in dumps: the producer's, followed by the result's name for results after the first."""
        if self.index == 0:
            return self.producer.name
        assert isinstance(self.producer, Node)
        return f"{self.producer.name}.{self.producer.SCHEMA.result_name(self.index)}"

    @property
    def constant(self) -> Constant | None:
        """The constant this value is; None for everything else."""
        return self.producer if isinstance(self.producer, Constant) else None

    @property
    def storage(self) -> Storage:
        """The storage that this value is."""
        assert isinstance(self.producer, Storage)
        return self.producer

    @property
    def uses(self) -> list[Use]:
        """Users of this value, each with the index of the operand."""
        return list(self._uses)

    @property
    def users(self) -> list[Node]:
        """The distinct nodes that use this value, in the order in which they began to."""
        return list(dict.fromkeys(node for node, _ in self._uses))

    @property
    def num_users(self) -> int:
        """How many operands use this value."""
        return len(self._uses)

    def is_used_as(self, node: Node, index: int) -> bool:
        """Whether operand `index` of `node` uses this value, as far as the value knows."""
        return (node, index) in self._uses

    def replace_all_uses_with(self, other: NodeValue) -> None:
        """Makes every user of this value use `other` instead. Raises InternalError if the types differ."""
        if other.type != self.type:
            raise InternalError(
                f"cannot replace %{self.name} : {self.type} with %{other.name} : {other.type}"
            )
        for node, index in self.uses:
            node.set_input(index, other)

    def __repr__(self) -> str:
        return f"%{self.name} : {self.type}"


_PLACES = count()


class Storage(_PartOfModule):
    """Memory that belongs to the module and is shared by its functions. Base of the three kinds."""

    __slots__ = ("loc", "name", "original", "place", "value")

    def __init__(self, name: str, type: Type, loc: Loc = UNKNOWN, *, original: str = "") -> None:
        self.place = next(_PLACES)
        """How many storages there were before this one: where it stands in a module."""
        self.name = name
        self.original = original or name
        """The name in the user's model, which may have characters that dumps cannot spell."""
        self.loc = loc
        self.value = NodeValue(self, 0, type)

    @property
    def type(self) -> Type:
        """The type of the stored tensor."""
        return self.value.type

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


@final
class Placeholder(Storage):
    """A tensor that is bound when the network runs: an input, an output, or both."""

    __slots__ = ()


@final
class Constant(Storage):
    """A tensor that is known when the network is compiled.

    A constant parsed from text may have only the digest of its elements; reading `tensor` is then a
    UserError.
    """

    __slots__ = ("_digest", "_tensor")

    def __init__(
        self,
        name: str,
        tensor: Tensor | None,
        loc: Loc = UNKNOWN,
        *,
        type: Type | None = None,
        digest: str = "",
    ) -> None:
        elements_type = tensor.type if tensor is not None else type
        if elements_type is None:
            raise InternalError("a constant needs a tensor or a type")
        super().__init__(name, elements_type, loc)
        self._tensor = tensor
        self._digest = digest

    @property
    def tensor(self) -> Tensor:
        """The elements. Raises UserError if only their digest is known."""
        if self._tensor is None:
            raise UserError(
                f"constant %{self.name} was read from text that holds only the digest of its elements",
                loc=self.loc,
                note="dump the module with its constants beside it, or give the elements in the text",
            )
        return self._tensor

    def forget(self) -> None:
        """Lets go of the elements, of a constant that nobody asks any more.

        Nodes and their users refer to each other: what they hold is free only when the collector has found them.
        """
        self._digest = self._digest or "forgotten"
        self._tensor = None

    @property
    def has_elements(self) -> bool:
        """Whether the elements are known."""
        return self._tensor is not None

    @property
    def array(self) -> Array:
        """The elements as a numpy array."""
        return self.tensor.array

    @property
    def digest(self) -> str:
        """SHA-256 of the elements in row-major order."""
        if not self._digest:
            self._digest = self.tensor.digest()
        return self._digest


@final
class Variable(Storage):
    """A tensor that outlives a run: a run reads what the one before it saved.

    Its shape may change from run to run. Elements lie at the beginning, along each axis, of its memory.

    Attributes:
        memory: The type of that: of the same kind, and with room for all shapes.
        initial: The elements that the first run reads, as a constant that is not in the module, or random numbers; None
            for zeros.
    """

    __slots__ = ("initial", "memory")

    def __init__(
        self,
        name: str,
        type: Type,
        memory: Type,
        loc: Loc = UNKNOWN,
        *,
        original: str = "",
        initial: Constant | Initializer | None = None,
    ) -> None:
        super().__init__(name, type, loc, original=original)
        self.memory = memory
        self.initial = initial


class Node(_PartOfModule):
    """An operation on values. The generated subclasses add a schema and typed fields, nothing else."""

    SCHEMA: ClassVar[NodeSchema]
    BACKEND: ClassVar[str] = ""
    """The backend the class belongs to; empty for all."""

    __slots__ = ("_inputs", "_predicate", "attrs", "loc", "name", "results")

    def __init__(
        self,
        name: str,
        inputs: Sequence[NodeValue],
        attrs: Mapping[str, Attr],
        types: Sequence[Type],
        *,
        loc: Loc = UNKNOWN,
        predicate: NodeValue | None = None,
    ) -> None:
        self.name = name
        self.loc = loc
        self.attrs: dict[str, Any] = dict(attrs)
        self.results = tuple(NodeValue(self, index, type) for index, type in enumerate(types))
        self._inputs = list(inputs)
        self._predicate = predicate

    @property
    def inputs(self) -> tuple[NodeValue, ...]:
        """All inputs in schema order, without the predicate."""
        return tuple(self._inputs)

    @property
    def predicate(self) -> NodeValue | None:
        """The bool value that says where the result matters, or None."""
        return self._predicate

    @property
    def result(self) -> NodeValue:
        """The first result."""
        return self.results[0]

    @property
    def type(self) -> Type:
        """The type of the first result."""
        return self.results[0].type

    @property
    def is_static(self) -> bool:
        """Whether neither types of results nor attributes depend on symbolic extents."""
        return all(result.type.is_static for result in self.results) and not any(
            depends_on_symbols(value) for value in self.attrs.values()
        )

    @property
    def callees(self) -> tuple[str, ...]:
        """The names of the functions that the node calls."""
        return tuple(self.attrs[name] for name in self.SCHEMA.functions)

    def has(self, trait: Trait) -> bool:
        """Whether the class has the trait."""
        return trait in self.SCHEMA.traits

    def operands(self) -> list[tuple[int, NodeValue]]:
        """(operand index, value) of every input and of the predicate."""
        operands = list(enumerate(self._inputs))
        if self._predicate is not None:
            operands.append((PREDICATE, self._predicate))
        return operands

    @property
    def operand_values(self) -> list[NodeValue]:
        """Every input and the predicate."""
        return self._inputs if self._predicate is None else [*self._inputs, self._predicate]

    def set_input(self, index: int, value: NodeValue) -> None:
        """Makes operand `index` (PREDICATE for the predicate) refer to `value`."""
        old = self._predicate if index == PREDICATE else self._inputs[index]
        if old is not None:
            old._uses.pop((self, index), None)
        if index == PREDICATE:
            self._predicate = value
        else:
            self._inputs[index] = value
        value._uses[self, index] = None

    def attach(self) -> None:
        """Enters the node in the use lists of its operands. Called by Function.add."""
        for index, value in self.operands():
            value._uses[self, index] = None

    def detach(self) -> None:
        """Takes the node out of the use lists of its operands. Called by Function.erase."""
        for index, value in self.operands():
            value._uses.pop((self, index), None)

    def structural_key(self) -> Hashable:
        """Equal for two nodes iff they compute the same; names do not matter."""
        operands = [id(value) for value in self._inputs]
        if self.has(Trait.COMMUTATIVE):
            operands[:2] = sorted(operands[:2])
        return (
            type(self),
            print_attrs(self.attrs),
            tuple(operands),
            id(self._predicate),
            tuple(r.type for r in self.results),
        )

    def is_equal(self, other: Node) -> bool:
        """Whether both nodes compute the same from the same values."""
        return self.structural_key() == other.structural_key()

    def clone(self, name: str, inputs: Sequence[NodeValue], predicate: NodeValue | None) -> Node:
        """A node of the same class, attributes and types on other operands; not yet in a function."""
        types = [result.type for result in self.results]
        return type(self)(name, inputs, self.attrs, types, loc=self.loc, predicate=predicate)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} %{self.name}>"


@final
class InputField:
    """Input `index` of a node: `input = InputField(0)` in the class, read as `node.input`."""

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    @overload
    def __get__(self, node: None, cls: type) -> Self: ...
    @overload
    def __get__(self, node: Node, cls: type) -> NodeValue: ...
    def __get__(self, node: Node | None, cls: type) -> Self | NodeValue:
        return self if node is None else node._inputs[self._index]


@final
class ResultField:
    """Result `index` of a node, for the results after the first, which every node calls `result`."""

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    @overload
    def __get__(self, node: None, cls: type) -> Self: ...
    @overload
    def __get__(self, node: Node, cls: type) -> NodeValue: ...
    def __get__(self, node: Node | None, cls: type) -> Self | NodeValue:
        return self if node is None else node.results[self._index]


Operand = NodeValue | Node | Storage
"""Types that `create_x` takes as an input: a value, a node (its first result) or a storage."""


def value_of(operand: Operand, role: str = "an operand") -> NodeValue:
    """The value an operand stands for. Raises UserError, which says what it is passed as, for anything else."""
    match operand:
        case NodeValue():
            return operand
        case Storage():
            return operand.value
        case Node():
            return operand.result
        case _:  # from code that no type checker has seen
            raise UserError(
                f"expected a node, value, constant or placeholder as {role}, got {type(operand).__name__}",
                note="create_constant makes one of an array",
            )
