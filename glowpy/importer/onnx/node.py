"""`OnnxNode`: one node of an ONNX graph as an import function sees it, and `from_onnx`, the table of those functions.

An import function takes the node and returns what its outputs are: a value or node of the function being built, a
`Tensor` if the result is known, a `TensorSequence`, or a tuple of these. `@from_onnx("Conv")` registers it for every
opset from `since` on, up to the next function registered for the same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.importer.declared import Narrow
from glowpy.importer.kit.computed import found_dims
from glowpy.importer.kit.importing import Importing, Scope
from glowpy.importer.kit.needs import value_needed
from glowpy.importer.kit.targets import Targets
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.attributes import NodeAttributes
from glowpy.importer.onnx.stored import Stores
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, UndecidedError

__all__ = [
    "Check",
    "Handler",
    "Item",
    "OnnxNode",
    "OnnxScope",
    "Result",
    "SubgraphError",
    "TensorSequence",
    "from_onnx",
    "handler_of",
    "holds_nodes",
    "item_of",
    "registered",
]


@dataclass(frozen=True)
class TensorSequence:
    """An ONNX sequence: a list that exists only while importing."""

    items: tuple[Value, ...]


Item: TypeAlias = Value | SymbolicTensor | TensorSequence
"""The meaning of a name in the graph: a value, numbers of symbolic extents, or a sequence."""
Result: TypeAlias = Operand | Tensor | SymbolicTensor | TensorSequence
Handler: TypeAlias = Callable[["OnnxNode"], Result | tuple[Result, ...]]


def holds_nodes(value: Item) -> bool:
    """Whether an item is a sequence of tensors that are not all known."""
    return isinstance(value, TensorSequence) and not all(
        isinstance(item, Tensor) for item in value.items
    )


def item_of(result: Result) -> Item:
    """Makes an item of the graph from the result of an import function."""
    if isinstance(result, Tensor | SymbolicTensor | TensorSequence):
        return result
    return value_of(result)


class SubgraphError(UserError):
    """A graph of a node cannot be imported: whoever has the node notes the errors, or does without the graph.

    Attributes:
        errors: The errors of its nodes; none if these depend on what is reported already.
    """

    def __init__(self, errors: Sequence[UserError]) -> None:
        super().__init__("a graph of a node cannot be imported")
        self.errors = list(errors)
        self.diagnostics = [d for error in errors for d in error.diagnostics] or self.diagnostics


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
class OnnxScope(Scope):
    """A scope of an ONNX graph: what its names stand for, and where the elements of its tensors are.

    `block` is the number of channels in a block of the NCHWc operators, if the model has any; `narrow` says by name
    what is of integers of fewer bits than a byte.
    """

    stores: Stores
    environment: MutableMapping[str, Item] = field(default_factory=dict)
    block: int = 0
    narrow: Mapping[str, Narrow] = field(default_factory=dict)
    settled: set[NodeValue] = field(default_factory=set)
    """Values that follow from constants alone, and are no tensors: see `known_operands`."""
    checks: list[Check] | None = None
    """Those of indices, if any are to be checked when the network runs."""
    shares_caches: bool = False
    """Whether what an attention keeps is in the memory of what it kept before, so that the rest stays as it is."""
    targets: Targets | None = None
    """Targets of reshapes for the sizes that the model was written for, where inputs have others."""
    within: str = ""
    """The graph of a node that the scope is for, such as `loop/body`; empty for that of the model."""
    most_written: int = 10_000
    """The most nodes of all rounds of a loop that carries what no function can take, and is written out therefore."""
    is_round: bool = False
    """Whether the model is a part of the graph of a node that a session computes: what it gets changes all the time."""
    import_graph: Callable[[onnx.GraphProto, OnnxScope, Loc], list[Item]] | None = None
    """Imports the nodes of a subgraph in a scope, whose environment has its inputs; gives its outputs."""


@final
class OnnxNode(NodeAttributes, Importing):
    """A node of an ONNX graph: typed attributes, inputs known or not, and the function in which to create nodes."""

    scope: OnnxScope

    def __init__(
        self,
        proto: onnx.NodeProto,
        loc: Loc,
        opset: int,
        inputs: Sequence[Value | SymbolicTensor | TensorSequence | None],
        scope: OnnxScope,
    ) -> None:
        NodeAttributes.__init__(self, proto, scope.stores)
        name = proto.name or next(iter(proto.output), "") or proto.op_type
        Importing.__init__(self, name, loc, scope)
        self.opset = opset
        self._inputs = list(inputs)

    def path_of(self, graph: onnx.GraphProto) -> str:
        """The prefix of the places of nodes in one of its graphs, such as `loop/body`."""
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

    def input_name(self, index: int) -> str:
        """The graph's name for input `index`."""
        return str(self.proto.input[index])

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
        """The narrow type of input `index`, if its integers have fewer bits than a byte; else None."""
        return self.scope.narrow.get(self.proto.input[index]) if self.has(index) else None

    def input(self, index: int) -> NodeValue:
        """Input `index` as an operand."""
        return self.operand(self.value(index), self.proto.input[index])

    def inputs(self) -> list[NodeValue]:
        """All inputs as operands."""
        return [self.input(index) for index in range(self.num_inputs)]

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

    def dims(self, index: int, *, signed: bool = False) -> tuple[Dim, ...]:
        """Input `index`, a scalar or vector of integers, as extents: known ones, or such as the network finds.

        Where less than 0 means something, `signed` says so. Raises ValueNeededError where it is not known how large one
        may be, or whether it means that.
        """
        value = self.any_value(index)
        found = None
        if isinstance(value, NodeValue) and value.type.rank < 2:
            found = found_dims(self, value, index, signed=signed)
        return self.known_dims(index) if found is None else found

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
