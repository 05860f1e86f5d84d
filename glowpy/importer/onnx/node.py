"""`OnnxNode`: one node of an ONNX graph as an import function sees it, and `from_onnx`, the table of those functions.

An import function takes the node and returns what its outputs are: a value or node of the function being built, a
`Tensor` if the result is known, a `TensorSequence`, or a tuple of these. `@from_onnx("Conv")` registers it for every
opset from `since` on, up to the next function registered for the same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, Placeholder, Variable, value_of
from glowpy.graph.nodes_gen import ExtentsNode
from glowpy.importer.onnx.attributes import NodeAttributes
from glowpy.importer.onnx.found import Found, UnlimitedError
from glowpy.importer.onnx.narrow import Narrow
from glowpy.importer.onnx.stored import Stores
from glowpy.support.errors import InternalError, UnsupportedError, UserError
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked, Need
from glowpy.support.symbolic import Dim, UndecidedError

__all__ = [
    "Check",
    "Handler",
    "Item",
    "OnnxNode",
    "Ratio",
    "Result",
    "RoundsError",
    "Scope",
    "SubgraphError",
    "SymbolicTensor",
    "TensorSequence",
    "Value",
    "ValueNeededError",
    "from_onnx",
    "handler_of",
    "holds_nodes",
    "item_of",
    "registered",
    "value_needed",
]

Value: TypeAlias = NodeValue | Tensor
"""A tensor of the graph: computed at run time, or known while importing."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient that is not rounded, such as half an extent. The divisor is positive."""

    dividend: Dim
    divisor: int

    def __str__(self) -> str:
        return f"({self.dividend})/{self.divisor}"


@dataclass(frozen=True)
class SymbolicTensor:
    """A few numbers that depend on symbolic extents: the shape of something, or a part of it.

    The array holds Python numbers, expressions, and in floats also ratios.
    """

    type: Type
    array: Array


@dataclass(frozen=True)
class TensorSequence:
    """An ONNX sequence: a list that exists only while importing."""

    items: tuple[Value, ...]


Item: TypeAlias = Value | SymbolicTensor | TensorSequence
"""What a name of the graph stands for."""
Result: TypeAlias = Operand | Tensor | SymbolicTensor | TensorSequence
Handler: TypeAlias = Callable[["OnnxNode"], Result | tuple[Result, ...]]


class ValueNeededError(UserError):
    """An operator needs elements that are not known before the model runs: they depend on inputs of the graph.

    Attributes:
        inputs: The names of those inputs. Importing with their `values` gets further.
        counts: The names of extents that have no bound. Importing with something `supposed` of them gets further, too.
        asked: What has to be known of extents that the network finds. The same holds for these.
    """

    def __init__(
        self,
        message: str,
        inputs: Sequence[str],
        *,
        counts: Sequence[str] = (),
        asked: Sequence[Asked] = (),
        loc: Loc | None = None,
        note: str = "",
    ) -> None:
        super().__init__(message, loc=loc or Loc(), note=note)
        self.inputs = tuple(inputs)
        self.counts = tuple(counts)
        self.asked = tuple(asked)

    @property
    def need(self) -> Need:
        """What would get the import further that has raised this."""
        why = self.diagnostics[0].message
        return Need(why, inputs=self.inputs, counts=self.counts, asked=self.asked)

    @classmethod
    def of_all(cls, errors: Sequence[ValueNeededError]) -> ValueNeededError:
        """One error for several."""
        merged = cls(
            str(errors[0]),
            list(dict.fromkeys(name for error in errors for name in error.inputs)),
            counts=[name for error in errors for name in error.counts],
            asked=[one for error in errors for one in error.asked],
        )
        merged.diagnostics = [d for error in errors for d in error.diagnostics]
        return merged


def holds_nodes(value: Item) -> bool:
    """Whether an item is a sequence of tensors that are not all known."""
    return isinstance(value, TensorSequence) and not all(
        isinstance(item, Tensor) for item in value.items
    )


def item_of(result: Result) -> Item:
    """What an import function gives, as an item of the graph."""
    if isinstance(result, Tensor | SymbolicTensor | TensorSequence):
        return result
    return value_of(result)


class SubgraphError(UserError):
    """A graph of a node cannot be imported: whoever has the node notes the errors, or does without the graph.

    Attributes:
        errors: What is wrong with its nodes; none if these depend on what is reported already.
    """

    def __init__(self, errors: Sequence[UserError]) -> None:
        super().__init__("a graph of a node cannot be imported")
        self.errors = list(errors)
        self.diagnostics = [d for error in errors for d in error.diagnostics] or self.diagnostics


class RoundsError(UnsupportedError):
    """A loop whose rounds cannot be compiled as one: a session can run them one by one."""

    def __init__(self, message: str, *, loc: Loc | None = None, note: str = "") -> None:
        remedy = (
            "run the model with glowpy run, or in a session without state, which go round by round"
        )
        super().__init__(message, loc=loc or Loc(), note=f"{note}, or {remedy}" if note else remedy)


_HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}


def from_onnx(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Registers an import function for operators from opset `since` on.

    Raises InternalError on a second one for the same operator and opset.
    """

    def add(handler: Handler) -> Handler:
        for op_type in op_types:
            versions = _HANDLERS.setdefault((domain, op_type), {})
            if since in versions:
                raise InternalError(
                    f"second import function for {op_type} (opset {since}), in {handler.__module__}; "
                    f"the first is in {versions[since].__module__}",
                    remedy="Keep one of them, or let one begin at another opset with `since` "
                    "(`onnx_since` where a spec says `onnx`).",
                )
            versions[since] = handler
        return handler

    return add


def handler_of(domain: str, op_type: str, opset: int) -> Handler | None:
    """The import function for an operator at an opset, or None."""
    versions = _HANDLERS.get((domain, op_type), {})
    covering = [since for since in versions if since <= opset]
    return versions[max(covering)] if covering else None


def registered() -> dict[tuple[str, str], list[int]]:
    """Every operator that can be imported, (domain, operator) to the opsets at which an import function begins."""
    return {key: sorted(versions) for key, versions in sorted(_HANDLERS.items())}


@dataclass(frozen=True, eq=False)
class Check:
    """Whether indices are in range, as `glowpy.importer.onnx.indices` says: which node reads them, and four numbers."""

    place: str
    value: NodeValue


@dataclass
class Scope:
    """Where nodes are created: a function, and the constants made from known tensors in its module.

    `block` is the number of channels in a block of the NCHWc operators, if the model has any; `narrow` says by name
    what is of integers of fewer bits than a byte.
    """

    f: Function
    stores: Stores
    environment: MutableMapping[str, Item] = field(default_factory=dict)
    block: int = 0
    narrow: Mapping[str, Narrow] = field(default_factory=dict)
    folding: bool = False
    """Whether everything is known, and computed now."""
    found: Found = field(default_factory=Found)
    origins: dict[Placeholder, NodeValue | None] = field(default_factory=dict)
    """What the placeholders of functions that are called stand for; None for what changes from round to round."""
    rounds: dict[NodeValue, Dim] = field(default_factory=dict)
    """The most rounds that there are of a loop, for values that are the number of one."""
    settled: set[NodeValue] = field(default_factory=set)
    """Values that follow from constants alone, and are no tensors: see `known_operands`."""
    checks: list[Check] | None = None
    """Those of indices, if any are to be checked when the network runs."""
    shares_caches: bool = False
    """Whether what an attention keeps is in the memory of what it kept before, so that the rest stays as it is."""
    within: str = ""
    """The graph of a node that the scope is for, such as `loop/body`; empty for that of the model."""
    import_graph: Callable[[onnx.GraphProto, Scope, Loc], list[Item]] | None = None
    """Imports the nodes of a subgraph in a scope, whose environment has its inputs; gives its outputs."""
    _constants: dict[int, tuple[Tensor, NodeValue]] = field(default_factory=dict)
    _computed: dict[int, tuple[SymbolicTensor, NodeValue]] = field(default_factory=dict)

    def _elements(self, value: SymbolicTensor, name: str) -> NodeValue:
        items = value.array.reshape(-1)
        if any(isinstance(item, Ratio | float) for item in items):
            return self._quotients(value, name)
        flat = self.f.create_extents(name, tuple(items)).result
        if flat.type.kind is not value.type.kind:
            flat = self.f.create_convert(name, flat.type.with_kind(value.type.kind), flat).result
        if flat.type.shape != value.type.shape:
            flat = self.f.create_reshape(name, value.type, flat).result
        return flat

    def _quotients(self, value: SymbolicTensor, name: str) -> NodeValue:
        """Floats, some of them fractions of extents."""
        pairs = [
            (item.dividend, item.divisor)
            if isinstance(item, Ratio)
            else item.as_integer_ratio()
            if isinstance(item, float)
            else (item, 1)
            for item in value.array.reshape(-1)
        ]
        dividends = np.array([dividend for dividend, _ in pairs], object)
        divisors = np.array([divisor for _, divisor in pairs]).astype(value.type.kind.dtype)
        whole = self._elements(
            SymbolicTensor(value.type, dividends.reshape(value.array.shape)), name
        )
        divisor = self.materialize(Tensor.of(divisors.reshape(value.array.shape)), name)
        return self.f.create_div(name, whole, divisor).result

    def materialize(self, value: Value | SymbolicTensor, name: str) -> NodeValue:
        """The value as an operand; a known tensor becomes a constant, once, and a symbolic one is computed, once."""
        if isinstance(value, NodeValue):
            return value
        if isinstance(value, SymbolicTensor):
            if id(value) not in self._computed:
                self._computed[id(value)] = value, self._elements(value, name)
            return self._computed[id(value)][1]
        if id(value) not in self._constants:
            self._constants[id(value)] = (value, self.f.module.create_constant(name, value).value)
        return self._constants[id(value)][1]


@final
class OnnxNode(NodeAttributes):
    """A node of an ONNX graph: typed attributes, inputs known or not, and the function in which to create nodes."""

    def __init__(
        self,
        proto: onnx.NodeProto,
        loc: Loc,
        opset: int,
        inputs: Sequence[Value | SymbolicTensor | TensorSequence | None],
        scope: Scope,
    ) -> None:
        super().__init__(proto, scope.stores)
        self.loc = loc
        self.opset = opset
        self.scope = scope
        self._inputs = list(inputs)

    @property
    def f(self) -> Function:
        """The function in which to create nodes."""
        return self.scope.f

    @property
    def name(self) -> str:
        """The name for nodes made from this one."""
        return self.proto.name or next(iter(self.proto.output), "") or self.proto.op_type

    def path_of(self, graph: onnx.GraphProto) -> str:
        """What the places of nodes in one of its graphs begin with, such as `loop/body`."""
        names = (name for name, attribute in self._attributes.items() if attribute.g is graph)
        return "/".join([self.loc.node, *names])

    # Inputs and outputs.

    @property
    def num_inputs(self) -> int:
        """How many inputs are listed, empty ones among them."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """How many outputs are listed."""
        return len(self.proto.output)

    def has(self, index: int) -> bool:
        """Whether input `index` is given."""
        return index < len(self._inputs) and self._inputs[index] is not None

    def wants(self, index: int) -> bool:
        """Whether output `index` has a name."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def value(self, index: int) -> Value:
        """Input `index`. Raises UserError if it is missing or a sequence."""
        value = self._inputs[index] if self.has(index) else None
        if value is None or isinstance(value, TensorSequence):
            got = "none" if value is None else "a sequence"
            raise UserError(f"expected a tensor as input {index}, got {got}")
        if isinstance(value, SymbolicTensor):
            return self.scope.materialize(value, self.proto.input[index])
        return value

    def kind(self, index: int) -> ElemKind:
        """The element kind of input `index`, which is a tensor."""
        value = self._inputs[index]
        return value.type.kind if isinstance(value, SymbolicTensor) else self.type(index).kind

    def known_array(self, index: int) -> Array | None:
        """The elements of input `index` as Python numbers and expressions; None if they are not known."""
        value = self._inputs[index]
        if isinstance(value, SymbolicTensor):
            return value.array
        return value.array.astype(object) if isinstance(value, Tensor) else None

    def sequence(self, index: int) -> TensorSequence:
        """Input `index`, which must be a sequence. Raises UserError otherwise."""
        value = self._inputs[index] if self.has(index) else None
        if not isinstance(value, TensorSequence):
            raise UserError(f"expected a sequence as input {index}")
        return value

    def any_value(self, index: int) -> Value | SymbolicTensor | TensorSequence:
        """Input `index`, tensor or sequence."""
        value = self._inputs[index]
        return value if isinstance(value, TensorSequence | SymbolicTensor) else self.value(index)

    def type(self, index: int) -> Type:
        """The type of input `index`."""
        return self.value(index).type

    def narrow(self, index: int) -> Narrow | None:
        """What integers of fewer bits than a byte input `index` is of; None for all else."""
        return self.scope.narrow.get(self.proto.input[index]) if self.has(index) else None

    def input(self, index: int) -> NodeValue:
        """Input `index` as an operand."""
        return self.operand(self.value(index), self.proto.input[index])

    def inputs(self) -> list[NodeValue]:
        """All inputs as operands."""
        return [self.input(index) for index in range(self.num_inputs)]

    def operand(self, value: Value | SymbolicTensor, name: str = "") -> NodeValue:
        """A value as an operand; a known tensor becomes a constant called `name`."""
        return self.scope.materialize(value, name or self.name)

    def known(self, index: int) -> Tensor:
        """Input `index`, whose elements must be known now.

        Raises ValueNeededError, with the graph inputs they depend on, if they are not.
        """
        symbolic = self._inputs[index]
        if isinstance(symbolic, SymbolicTensor):
            dims = ", ".join(map(str, symbolic.array.reshape(-1)))
            raise UndecidedError(
                f"'{self.proto.input[index]}' must be constant, but is {dims}",
                symbolic.array.reshape(-1),
            )
        self.settle(index)
        value = self.value(index)
        if isinstance(value, Tensor):
            return value
        raise value_needed(f"'{self.proto.input[index]}'", value, self.loc, self.scope.origins)

    def settle(self, index: int) -> None:
        """Makes input `index` a tensor, if it is given and follows from constants alone."""
        value = self._inputs[index] if self.has(index) else None
        if isinstance(value, NodeValue) and value in self.scope.settled:
            self._inputs[index] = evaluate([value])[0]

    def known_ints(self, index: int) -> tuple[int, ...]:
        """Input `index`, a known scalar or vector of integers."""
        tensor = self.known(index)
        if tensor.type.rank > 1 or not tensor.type.kind.is_integer:
            raise UserError(f"expected a vector of integers as input {index}, got {tensor.type}")
        return tuple(int(item) for item in tensor.array.reshape(-1))

    def known_dims(self, index: int) -> tuple[Dim, ...]:
        """Input `index`, a known scalar or vector of integers, which may depend on symbolic extents."""
        value = self._inputs[index]
        if isinstance(value, SymbolicTensor) and value.type.rank < 2:
            return tuple(value.array.reshape(-1))
        return self.known_ints(index)

    def known_scalar(self, index: int) -> float | int:
        """Input `index`, a known tensor of one element. Integers and booleans come as int."""
        tensor = self.known(index)
        if tensor.type.count != 1:
            raise UserError(f"expected one element as input {index}, got {tensor.type}")
        item = tensor.array.reshape(-1)[0]
        return float(item) if tensor.type.kind.has_fractions else int(item)

    def axis(self, rank: int, default: int, name: str = "axis") -> int:
        """The attribute `axis`, counted from the front."""
        return normalize_axis(self.integer(name, default), rank)

    def found(
        self, count: Value, name: str, high: int | None, low: int = 0, *, source: int = 0
    ) -> Dim:
        """An extent that the network finds: the element of `count`, an i64[1], which is within the bounds.

        It is one symbol wherever the same is computed. Raises ValueNeededError, which names the input that is its
        `source`, where nothing bounds it.
        """
        if isinstance(count, NodeValue) and self.scope.folding:
            count = evaluate([count])[0]
        if isinstance(count, Tensor):
            return int(count.array[0])
        try:
            return self.scope.found.extent(self.f, count, name, low, high)
        except UnlimitedError as error:
            what = f"'{self.proto.input[source]}'"
            needed = value_needed(what, count, self.loc, self.scope.origins)
            if isinstance(needed, ValueNeededError):
                needed.counts = tuple(error.args)
            raise needed from None

    def unsupported(self, what: str, note: str = "") -> UnsupportedError:
        """The error that says this node does something that cannot be imported."""
        return UnsupportedError(f"{what} is not supported", note=note)


def value_needed(
    what: str,
    value: NodeValue,
    loc: Loc,
    origins: Mapping[Placeholder, NodeValue | None],
    asked: Sequence[Asked] = (),
) -> UserError:
    """The error that says that a value has to be known, with the inputs or the extents on which it depends.

    `origins` are those of the scope. What is `asked` about the value is enough to know of it.
    """
    sources, extents, changes = _sources(value, origins)
    if changes:
        return RoundsError(
            f"{what} must be known while compiling, but changes from round to round of a loop",
            loc=loc,
        )
    if not sources and extents:
        dims = ", ".join(map(str, extents))
        return UndecidedError(
            f"{what} must be constant, but depends on {dims}", extents, asked=asked
        )
    names = ", ".join(f"'{name}'" for name in sources)
    first = sources[0] if sources else "INPUT"
    return ValueNeededError(
        f"{what} must be known while compiling, but depends on the input {names}",
        sources,
        asked=asked,
        loc=loc,
        note="run the model with glowpy run or glowpy.InferenceSession, "
        f"or give elements: --value {first}=..., glowpy.load(values={{'{first}': array}})",
    )


def _sources(
    value: NodeValue, origins: Mapping[Placeholder, NodeValue | None]
) -> tuple[list[str], list[Dim], bool]:
    """The names of the placeholders a value depends on, in the order of the module, extents, and whether on a round."""
    seen: dict[Node, None] = {}
    placeholders: set[Placeholder] = set()
    work = [value]
    changes = False
    while work:
        producer = work.pop().producer
        if isinstance(producer, Variable):
            changes = True
        elif isinstance(producer, Placeholder) and producer in origins:
            outer = origins[producer]
            changes |= outer is None
            work += [outer] if outer is not None else []
        elif isinstance(producer, Placeholder):
            placeholders.add(producer)
        elif isinstance(producer, Node) and producer not in seen:
            seen[producer] = None
            work.extend(producer.inputs)
    names = [p.original for p in sorted(placeholders, key=lambda p: p.name)]
    known = [node for node in seen if isinstance(node, ExtentsNode)]
    return names, list(dict.fromkeys(dim for node in known for dim in node.values)), changes
