"""Import of control flow: If, Loop and Scan, whose subgraphs become functions that a node calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue, Storage, Variable
from glowpy.importer.onnx.computed import highest_of
from glowpy.importer.onnx.data_movement import concat, reshape, slice_axis, transpose
from glowpy.importer.onnx.node import (
    Item,
    OnnxNode,
    RoundsError,
    SymbolicTensor,
    TensorSequence,
    Value,
    from_onnx,
    value_needed,
)
from glowpy.importer.onnx.subgraph import Subgraph, inlined, take_alike
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.symbolic import Dim, highest

__all__: list[str] = []

_TRUTH = Type(ElemKind.BOOL, ())
_NUMBER = Type(ElemKind.I64, ())
_ALWAYS = (1 << 63) - 1
"""The limit of a loop that has none."""
_WRITTEN_OUT = 64
"""A loop whose rounds together have at most so many nodes is written out."""
_MOST_WRITTEN_OUT = 10_000
"""No loop of more is."""
_MOST = 1 << 31
"""A limit of so many rounds says nothing about how much room there has to be."""


def _scalar(n: OnnxNode, value: Value, name: str) -> NodeValue:
    """The only element of a tensor, whatever its rank."""
    if value.type.count != 1:
        raise UserError(f"expected one element as {name}, got {value.type}")
    return n.operand(reshape(n, value, ()), name)


# If.


@from_onnx("If", since=1)
def _if(n: OnnxNode) -> tuple[Item, ...]:
    """A condition that is known chooses a branch while importing, whatever shapes the other one has."""
    condition = n.value(0)
    branches = {name: n.graph(name) for name in ("then_branch", "else_branch")}
    if isinstance(condition, Tensor):
        return inlined(n, branches["then_branch" if n.known_scalar(0) else "else_branch"])
    subgraphs = []
    for name, graph in branches.items():
        subgraph = Subgraph(n, f"{n.name}_{name.removesuffix('_branch')}")
        results = subgraph.run(graph)
        infos = zip(results, graph.output, strict=True)
        subgraph.f.gives = [subgraph.give(item, info.name) for item, info in infos]
        subgraphs.append(subgraph)
    then, otherwise = (subgraph.f for subgraph in subgraphs)
    if len(then.gives) != len(otherwise.gives):
        raise UserError(
            f"expected branches that give the same, got {len(then.gives)} and {len(otherwise.gives)} outputs"
        )
    for a, b in zip(then.gives, otherwise.gives, strict=True):
        if a.type != b.type:
            what = f"one branch gives {a.type} as '{a.original}', the other {b.type}: the condition"
            raise value_needed(what, condition, n.loc, n.scope.origins)
    operands = [_scalar(n, condition, "the condition"), *take_alike(subgraphs)]
    return n.f.create_if(n.name, operands, then.name, otherwise.name).results


# Loop.


@dataclass(frozen=True)
class _Rounds:
    """How often a loop runs: the operand, the extent if that is how often, and else how often at most."""

    limit: NodeValue
    exact: Dim | None
    most: Dim | None


def _rounds(n: OnnxNode, value: Value | SymbolicTensor | None) -> _Rounds:
    """What is known of the number of rounds, which may not be given."""
    if value is None:
        return _Rounds(n.operand(Tensor.of(np.array(_ALWAYS)), "limit"), None, None)
    if isinstance(value, NodeValue):
        high = highest_of(value)
        most = None if high is None else max(high, 0)
        return _Rounds(_scalar(n, value, "the number of rounds"), None, most)
    (rounds,) = value.array.reshape(-1).tolist()
    operand = _scalar(n, n.operand(value, "limit"), "the number of rounds")
    exact: Dim = max(rounds, 0) if isinstance(rounds, int) else rounds
    return _Rounds(operand, exact, None if highest(exact) > _MOST else exact)


class _ChangingError(RoundsError):
    """A loop carries what is not the same kind of thing in every round."""


@from_onnx("Loop", since=1)
def _loop(n: OnnxNode) -> tuple[Item, ...]:
    """A loop of few rounds, and one that carries what no function can take, is written out if its rounds are known."""
    graph = n.graph("body")
    if len(graph.input) != n.num_inputs or len(graph.output) < n.num_inputs - 1:
        raise UserError(
            f"expected a body that takes {n.num_inputs} values and gives at least {n.num_inputs - 1}"
        )
    limit = n.any_value(0) if n.has(0) else None
    if isinstance(limit, TensorSequence):
        raise UserError("expected a tensor as the number of rounds, got a sequence")
    if limit is not None and limit.type.count != 1:
        raise UserError(f"expected one element as the number of rounds, got {limit.type}")
    keep = n.value(1) if n.has(1) else Tensor.of(np.array(True))
    rounds = int(limit.array.max()) if isinstance(limit, Tensor) else 0
    small = rounds > 0 and rounds * (1 + len(graph.node)) <= _WRITTEN_OUT
    body = None
    try:
        body, first, endless = _body(n, graph)
    except _ChangingError as error:
        for what, value in (("the number of rounds", limit), ("the condition", keep)):
            if isinstance(value, NodeValue):
                message = f"{error.diagnostics[0].message}, unless it is known: {what}"
                raise value_needed(message, value, n.loc, n.scope.origins) from None
        if not isinstance(limit, Tensor):
            raise
    if body is not None and not (small and endless and _is_true(keep)):
        return _looped(n, body, first, keep, limit, endless=endless)
    if body is not None:
        body.forget()
    return _written_out(n, graph, int(n.known_scalar(0)), keep)


def _body(n: OnnxNode, graph: onnx.GraphProto) -> tuple[Subgraph, list[NodeValue], bool]:
    """The body as a function, what is carried into its first round, and whether it never ends the loop itself.

    The condition that a body takes is true whenever it runs.
    """
    first = [_first(n, index) for index in range(2, n.num_inputs)]
    names = [info.name for info in graph.input]
    body = Subgraph(n, f"{n.name}_body")
    round = body.placeholder("round", _NUMBER)
    body.bind(names[0], _declared(body.node, round.value, graph.input[0]))
    body.bind(names[1], _declared(body.node, Tensor.of(np.array(True)), graph.input[1]))
    carried = [body.variable(name, v.type) for name, v in zip(names[2:], first, strict=True)]
    for variable in carried:
        body.bind(variable.original, variable.value)
    try:
        goes_on, *results = body.run(graph)
        outputs = [info.name for info in graph.output[1:]]
        gives = _given(body, carried, results, outputs)
    except _ChangingError:
        body.forget()
        raise
    body.f.takes = [round, *carried]
    body.f.gives = [body.give(_truth(body, goes_on), "keep"), *gives]
    return body, first, _is_true(goes_on)


def _given(
    body: Subgraph, carried: Sequence[Variable], results: Sequence[Item], names: Sequence[str]
) -> list[Storage]:
    """Has a body save what it carries, and what is stacked."""
    for variable, item, name in zip(carried, results, names, strict=False):
        _check_carried(variable.type, item, name)
        body.give(item, name, variable)
    stacked = zip(results[len(carried) :], names[len(carried) :], strict=True)
    return [*carried, *(body.give(item, name) for item, name in stacked)]


def _looped(
    n: OnnxNode,
    body: Subgraph,
    first: Sequence[NodeValue],
    keep: Value,
    limit: Value | SymbolicTensor | None,
    *,
    endless: bool,
) -> tuple[Item, ...]:
    """The node, and of what is stacked as much as there is. An `endless` body never ends the loop itself."""
    rounds = _rounds(n, limit)
    carried = len(first)
    room: Dim = 0
    if len(body.f.gives) > 1 + carried:
        if rounds.most is None and isinstance(limit, NodeValue):
            raise value_needed("the number of rounds", limit, n.loc, n.scope.origins)
        if rounds.most is None:
            raise RoundsError(
                "a loop whose number of rounds has no bound cannot stack what its rounds give",
                note="give the loop a limit (its first input), or clip that",
            )
        room = rounds.most
    operands = [rounds.limit, _scalar(n, keep, "the condition"), *first, *take_alike([body])]
    node = n.f.create_loop(n.name, operands, body.f.name, carried, room)
    *results, count = node.results
    stacked: list[Item] = list(results[carried:])
    if stacked and not (endless and _is_true(keep) and rounds.exact is not None):
        extent = n.found(count, f"{n.name}_rounds", highest(room))
        stacked = [slice_axis(n, value, 0, 0, extent, 1) for value in results[carried:]]
    return (*results[:carried], *stacked)


def _written_out(n: OnnxNode, graph: onnx.GraphProto, limit: int, keep: Item) -> tuple[Item, ...]:
    """Every round of a loop as part of the graph. Whether there is another one must be known."""
    names = [info.name for info in graph.input]
    carried: list[Item] = [n.any_value(index) for index in range(2, n.num_inputs)]
    rounds: list[list[Value]] = []
    nodes = 0
    while len(rounds) < limit and _is_true(keep):
        nodes += 1 + len(graph.node)
        if nodes > _MOST_WRITTEN_OUT:
            raise RoundsError(
                f"a loop that carries values of changing shapes is not supported if its rounds have more than "
                f"{_MOST_WRITTEN_OUT} nodes"
            )
        number = Tensor.of(np.array(len(rounds)))
        inputs: list[Item] = [
            _declared(n, value, info)
            for value, info in zip((number, Tensor.of(np.array(True))), graph.input, strict=False)
        ]
        keep, *results = inlined(n, graph, dict(zip(names, [*inputs, *carried], strict=True)))
        if not isinstance(keep, Tensor):
            raise RoundsError(
                "a loop that carries values of changing shapes, and decides itself when it ends, is not supported"
            )
        carried = results[: len(carried)]
        stacked = results[len(carried) :]
        if any(isinstance(item, TensorSequence) for item in stacked):
            raise UserError("a loop cannot stack sequences")
        rounds.append([n.operand(item) for item in stacked if not isinstance(item, TensorSequence)])
    count = len(graph.output) - 1 - len(carried)
    if count and not rounds:
        raise UnsupportedError(
            "a loop without rounds has nothing to stack, of which the shape is not known"
        )
    columns = [
        concat(n, [_raised(n, v) for v in column], 0) for column in zip(*rounds, strict=True)
    ]
    return (*carried, *columns)


def _raised(n: OnnxNode, value: Value) -> Value:
    return reshape(n, value, (1, *value.type.shape))


def _first(n: OnnxNode, index: int) -> NodeValue:
    """What is carried into the first round."""
    if isinstance(n.any_value(index), TensorSequence):
        raise _ChangingError("a loop that carries a sequence is not supported")
    return n.input(index)


def _check_carried(type: Type, item: Item, name: str) -> None:
    """Raises UserError for a value that changes its kind, UnsupportedError for one that changes its shape."""
    if isinstance(item, TensorSequence):
        raise _ChangingError(f"a loop that carries a sequence ('{name}') is not supported")
    if item.type.kind is not type.kind:
        raise UserError(
            f"expected '{name}' of kind {type.kind.value} after a round, got {item.type}"
        )
    if item.type != type:
        raise _ChangingError(
            f"'{name}' is {type} before a round and {item.type} after it: a loop that carries values of "
            "changing shapes is not supported",
            note="carry a tensor with room for all rounds, and write each round's part with ScatterND or Where",
        )


def _declared(n: OnnxNode, value: Value, info: onnx.ValueInfoProto) -> Value:
    """A scalar in the rank that a body declares: exporters write vectors of one element as well."""
    rank = len(info.type.tensor_type.shape.dim)
    return reshape(n, value, (1,) * rank) if rank else value


def _truth(body: Subgraph, item: Item) -> Value:
    """Whether a loop goes on, as a scalar."""
    if isinstance(item, TensorSequence | SymbolicTensor) or item.type.kind is not ElemKind.BOOL:
        raise UserError("expected a body to give first whether to go on, as a bool")
    return reshape(body.node, item, ())


def _is_true(item: Item) -> bool:
    return isinstance(item, Tensor) and bool(item.array.all())


# Scan.


@from_onnx("Scan", since=9)
def _scan(n: OnnxNode) -> tuple[Item, ...]:
    """A loop with as many rounds as what is scanned has elements, of which each round takes one."""
    graph = n.graph("body")
    num_states, num_scanned = _counts(n, graph, n.num_inputs)
    num_stacked = len(graph.output) - num_states
    inputs = _directions(n, "scan_input", num_scanned)
    outputs = _directions(n, "scan_output", num_stacked)
    scanned = []
    for index, (axis, _) in enumerate(inputs, num_states):
        value = n.value(index)
        scanned.append(_to_front(n, value, _axis(axis, value.type.rank)))
    states = [_first(n, index) for index in range(num_states)]
    results = _scanned(n, graph, states, scanned, [backwards for _, backwards in inputs])
    stacked = [
        _placed(n, value, _axis(axis, value.type.rank), backwards=backwards)
        for value, (axis, backwards) in zip(results[num_states:], outputs, strict=True)
    ]
    return (*results[:num_states], *stacked)


def _counts(n: OnnxNode, graph: onnx.GraphProto, num_inputs: int) -> tuple[int, int]:
    """How many states there are, and how many inputs are scanned."""
    num_scanned = n.integer("num_scan_inputs", 0)
    num_states = num_inputs - num_scanned
    fits = num_scanned >= 1 and 0 <= num_states <= len(graph.output)
    if not fits or len(graph.input) != num_inputs:
        raise UserError(
            f"expected a body for {num_inputs} inputs, of which {num_scanned} are scanned,"
            f" got one that takes {len(graph.input)} and gives {len(graph.output)}"
        )
    return num_states, num_scanned


def _directions(n: OnnxNode, what: str, count: int) -> list[tuple[int, bool]]:
    """Of everything that is scanned or stacked, the axis, and whether it goes backwards."""
    axes = n.integers(f"{what}_axes") or (0,) * count
    directions = n.integers(f"{what}_directions") or (0,) * count
    if len(axes) != count or len(directions) != count:
        raise UserError(f"expected {count} numbers in {what}_axes and in {what}_directions")
    return [(axis, direction == 1) for axis, direction in zip(axes, directions, strict=True)]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UserError(f"expected an axis from {-rank} to {rank - 1}, got {axis}")
    return axis % rank


def _to_front(n: OnnxNode, value: Value, axis: int) -> Value:
    rest = [index for index in range(value.type.rank) if index != axis]
    return transpose(n, value, [axis, *rest]) if axis else value


def _placed(n: OnnxNode, value: Value, axis: int, *, backwards: bool) -> Value:
    """What was stacked along the first axis, along another one."""
    count = value.type.shape[0]
    if backwards:
        value = slice_axis(n, value, 0, count - 1, count, -1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, value.type.rank)]
    return transpose(n, value, order) if axis else value


def _scanned(
    n: OnnxNode,
    graph: onnx.GraphProto,
    states: Sequence[NodeValue],
    scanned: Sequence[Value],
    backwards: Sequence[bool],
) -> list[Value]:
    """The states after the last element, and what is stacked along the first axis."""
    lengths = dict.fromkeys(value.type.shape[0] for value in scanned)
    if len(lengths) > 1:
        raise UserError(
            f"expected inputs of one length to scan, got {', '.join(map(str, lengths))}"
        )
    (length,) = lengths
    body = Subgraph(n, f"{n.name}_body")
    round = body.placeholder("round", _NUMBER)
    inner, names = body.node, [info.name for info in graph.input]
    carried = [body.variable(name, v.type) for name, v in zip(names, states, strict=False)]
    for variable in carried:
        body.bind(variable.original, variable.value)
    place = inner.operand(reshape(inner, round.value, (1,)), "place")
    with body.f.at(n.loc):
        for name, value, is_backwards in zip(names[len(states) :], scanned, backwards, strict=True):
            whole = n.operand(value, name)
            whole = whole if whole.constant is not None else body.take(whole, name).value
            index = place
            if is_backwards:
                last = inner.operand(SymbolicTensor(place.type, np.array([length - 1], object)))
                index = body.f.create_sub("place", last, place).result
            element = body.f.create_gather(name, whole, index, 0)
            body.bind(name, reshape(inner, element.result, element.type.shape[1:]))
    true = Tensor.of(np.array(True))
    gives = _given(body, carried, body.run(graph), [info.name for info in graph.output])
    body.f.takes = [round, *carried]
    body.f.gives = [body.give(true, "keep"), *gives]
    limit = SymbolicTensor(_NUMBER, np.array(length, object))
    results = _looped(n, body, states, true, limit, endless=True)
    return [value for value in results if isinstance(value, NodeValue)]


@from_onnx("Scan", since=8)
def _scan_batches(n: OnnxNode) -> tuple[Item, ...]:
    """In opset 8 everything is a batch, of which each element is scanned by itself, along its first axis."""
    graph = n.graph("body")
    num_states, num_scanned = _counts(n, graph, n.num_inputs - 1)
    if n.has(0):
        raise n.unsupported("input 'sequence_lens'")
    directions = [direction == 1 for direction in n.integers("directions") or (0,) * num_scanned]
    if len(directions) != num_scanned:
        raise UserError(f"expected {num_scanned} numbers in directions, got {len(directions)}")
    if any(n.type(index).rank < 2 for index in range(num_states + 1, n.num_inputs)):
        raise UserError("expected inputs to scan of a rank of at least 2")
    batch = n.type(1).extents[0]
    rows: list[list[Value]] = []
    for row in range(batch):
        own = [_row(n, n.value(index), row) for index in range(1, n.num_inputs)]
        states = [n.operand(value) for value in own[:num_states]]
        rows.append(_scanned(n, graph, states, own[num_states:], directions))
    columns = zip(*rows, strict=True)
    return tuple(
        concat(n, [reshape(n, v, (1, *v.type.shape)) for v in values], 0) for values in columns
    )


def _row(n: OnnxNode, value: Value, row: int) -> Value:
    return reshape(n, slice_axis(n, value, 0, row, 1, 1), value.type.shape[1:])
