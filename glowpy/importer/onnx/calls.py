"""Import of control flow: If, Loop and Scan, whose subgraphs become functions that a node calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.calls import in_place_of_loop
from glowpy.graph.node import NodeValue, Placeholder, Storage, Variable
from glowpy.graph.nodes_gen import LoopNode
from glowpy.importer.bodies import (
    check_loop,
    check_rounds,
    check_truth,
    one_length,
    scan_directions,
    scan_numbers,
    scan_states,
)
from glowpy.importer.kit.bounds import bounds_of
from glowpy.importer.kit.moves import concat, filled, reshape, slice_axis, transpose
from glowpy.importer.kit.needs import value_needed
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.needs import RoundsError
from glowpy.importer.onnx.branches import are_questions, scalar, unless_known
from glowpy.importer.onnx.indices import carried_checks, take_checks
from glowpy.importer.onnx.node import Item, OnnxNode, SubgraphError, TensorSequence, from_onnx
from glowpy.importer.onnx.signature import value_info
from glowpy.importer.onnx.subgraph import Subgraph, inlined, take_alike, undone_on_error
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, UndecidedError, highest, lowest

__all__: list[str] = []

_TRUTH = Type(ElemKind.BOOL, ())
_NUMBER = Type(ElemKind.I64, ())
_ALWAYS = (1 << 63) - 1
"""The limit of a loop that has none."""
_KNOWN_BYTES = 1 << 16
"""The largest result in bytes that is computed at once, of constants alone, in a loop that is written out."""
_MOST = 1 << 31
"""A limit of so many rounds says nothing about how much room there has to be."""


# Loop.


@dataclass(frozen=True)
class _Rounds:
    """How often a loop runs: the operand, the extent if that is how often, and else how often at most."""

    limit: NodeValue
    exact: Dim | None
    most: Dim | None


def _rounds(n: OnnxNode, value: Value | SymbolicTensor | None) -> _Rounds:
    """Determines the number of rounds, as far as it is known; it may not be given."""
    if value is None:
        return _Rounds(n.operand(Tensor.of(np.array(_ALWAYS)), "limit"), None, None)
    if isinstance(value, NodeValue):
        return _Rounds(scalar(n, value, "the number of rounds"), None, _most_rounds(value))
    number = value if isinstance(value, Tensor) else n.operand(value, "limit")
    operand = scalar(n, number, "the number of rounds")
    return _Rounds(operand, _exact_rounds(value), _most_rounds(value))


def _exact_rounds(value: Tensor | SymbolicTensor) -> Dim:
    (rounds,) = value.array.reshape(-1).tolist()
    return max(rounds, 0) if isinstance(rounds, int) else rounds


def _most_rounds(value: Value | SymbolicTensor | None) -> Dim | None:
    """How often a loop runs at most, where that says how much room there has to be."""
    if value is None:
        return None
    if isinstance(value, NodeValue):
        _, high = bounds_of(value)
        return None if high is None else max(high, 0)
    exact = _exact_rounds(value)
    return None if highest(exact) > _MOST else exact


class _ChangingError(RoundsError):
    """A loop carries what is not the same kind of thing in every round."""


@from_onnx("Loop", since=1)
def _loop(n: OnnxNode) -> tuple[Item, ...]:
    """A loop that carries what no function can take is written out if its rounds are known.

    One whose body is impossible for these shapes runs no round.
    """
    check_loop(n)
    graph, limit = n.graph("body"), n.any_value(0) if n.has(0) else None
    if isinstance(limit, TensorSequence):
        raise UserError("expected a tensor as the number of rounds, got a sequence")
    if limit is not None:
        check_rounds(limit.type)
    keep = n.value(1) if n.has(1) else Tensor.of(np.array(True))
    check_truth(keep.type, "the condition")
    try:
        with undone_on_error(n.f.module, n.proto):
            body, first, checks, endless = _body(n, graph, _most_rounds(limit))
    except SubgraphError as error:
        return _without_rounds(n, graph, limit, keep, error)
    except _ChangingError as error:
        for what, value in (("the number of rounds", limit), ("the condition", keep)):
            if isinstance(value, NodeValue):
                message = f"{error.diagnostics[0].message}, unless it is known: {what}"
                raise value_needed(message, value, n.loc, n.scope.origins) from None
        if not isinstance(limit, Tensor):
            raise
        return _written_out(n, graph, int(n.known_scalar(0)), keep)
    return _looped(n, body, first, keep, limit, checks, endless=endless)


def _without_rounds(
    n: OnnxNode,
    graph: onnx.GraphProto,
    limit: Value | SymbolicTensor | None,
    keep: Value,
    error: SubgraphError,
) -> tuple[Item, ...]:
    """Returns the results of a loop whose body cannot be computed. Raises the error unless it runs no round."""
    if not isinstance(keep, Tensor) or _is_true(keep):
        for what, value in (("the number of rounds", limit), ("the condition", keep)):
            if isinstance(value, NodeValue) and not are_questions(error.errors):
                raise unless_known(n, "body", what, value, error.errors) from None
        known = limit if isinstance(limit, Tensor | SymbolicTensor) else None
        _expect_no_rounds(error, _ALWAYS if known is None else _exact_rounds(known))
    carried = [n.any_value(index) for index in range(2, n.num_inputs)]
    return (*carried, *_nothing_stacked(n, graph, carried))


def _expect_no_rounds(error: SubgraphError, rounds: Dim) -> None:
    """Raises the error of a body that is impossible for these shapes, unless it is known to run no round."""
    if are_questions(error.errors) or lowest(rounds) > 0:
        raise error
    if highest(rounds) > 0:
        message = f"the body cannot be computed: the number of rounds, {rounds}, must be known"
        undecided = UndecidedError(message, [rounds])
        undecided.diagnostics += error.diagnostics
        raise undecided from None


def _body(
    n: OnnxNode, graph: onnx.GraphProto, most: Dim | None
) -> tuple[Subgraph, list[NodeValue], list[str], bool]:
    """The body as a function, what is carried into its first round, its checks, and whether it never ends the loop.

    The condition that a body takes is true whenever it runs, for `most` rounds at most.
    """
    first = [_first(n, index) for index in range(2, n.num_inputs)]
    names = [info.name for info in graph.input]
    body = Subgraph(n, f"{n.name}_body")
    round = _round(body, most)
    body.bind(names[0], _declared(body.node, round.value, graph.input[0]))
    body.bind(names[1], _declared(body.node, Tensor.of(np.array(True)), graph.input[1]))
    carried = [body.variable(name, v.type) for name, v in zip(names[2:], first, strict=True)]
    for variable in carried:
        body.bind(variable.original, variable.value)
    goes_on, *results = body.run(graph)
    outputs = [info.name for info in graph.output[1:]]
    gives = _given(body, carried, results, outputs)
    checks = carried_checks(body)
    body.f.takes = [round, *carried, *checks]
    keep = body.give(_truth(body, goes_on), "keep")
    body.f.gives = [keep, *carried, *checks, *gives[len(carried) :]]
    return body, first, [*checks.values()], _is_true(goes_on)


def _round(body: Subgraph, most: Dim | None) -> Placeholder:
    """Adds a body's placeholder for the number of its round."""
    round = body.placeholder("round", _NUMBER)
    if most is not None:
        body.scope.rounds[round.value] = most
    return round


def _given(
    body: Subgraph, carried: Sequence[Variable], results: Sequence[Item], names: Sequence[str]
) -> list[Storage]:
    """Adds outputs to a body for the values it carries and those to stack; returns their storage."""
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
    checks: Sequence[str],
    *,
    endless: bool,
) -> tuple[Item, ...]:
    """The node, and of what is stacked as much as there is. An `endless` body never ends the loop itself.

    After what the model carries, the body carries its checks.
    """
    rounds = _rounds(n, limit)
    num_carried = len(first)
    first = [*first, *(n.operand(Tensor.of(np.zeros(4, np.int64)), "check") for _ in checks)]
    carried = len(first)
    full = endless and _is_true(keep) and rounds.exact is not None
    room: Dim = 0
    if len(body.f.gives) > 1 + carried:
        if rounds.most is None and isinstance(limit, NodeValue):
            raise value_needed("the number of rounds", limit, n.loc, n.scope.origins)
        if rounds.most is None:
            raise RoundsError(
                "a loop whose number of rounds has no bound cannot stack what its rounds give",
                note="give the loop a limit (its first input)",
            )
        room = rounds.most if full else highest(rounds.most)
    operands = [rounds.limit, scalar(n, keep, "the condition"), *first, *take_alike([body])]
    node = n.f.create_loop(n.name, operands, body.f.name, carried, room)
    if (written := _few(n, node)) is not None:
        take_checks(n, checks, written[num_carried:carried])
        return (*written[:num_carried], *written[carried:])
    *results, count = node.results
    stacked: list[Item] = list(results[carried:])
    if stacked and not full:
        extent = n.found(count, f"{n.name}_rounds", highest(room))
        stacked = [slice_axis(n, value, 0, 0, extent, 1) for value in results[carried:]]
    take_checks(n, checks, results[num_carried:carried])
    return (*results[:num_carried], *stacked)


def _few(n: OnnxNode, loop: LoopNode) -> tuple[Value, ...] | None:
    """The results of a loop that is written out because it is small; None if it stays.

    What follows from constants alone is known, as it may be a shape.
    """
    before = n.f.num_nodes
    values = in_place_of_loop(n.f, loop)
    if values is None:
        return None
    *results, count = values
    constants: set[NodeValue] = set()
    for node in n.f.newest(n.f.num_nodes - before):
        small = node.is_static and all(result.type.room <= _KNOWN_BYTES for result in node.results)
        if small and all(value in constants or value.constant is not None for value in node.inputs):
            constants.update(node.results)
    (body,) = n.f.callees(loop).values()
    n.f.erase(loop)
    n.f.module.erase_function(body)
    n.f.module.erase(count.storage)
    constants = {value for value in results if value in constants or value.constant is not None}
    tensors = dict(zip(constants, evaluate([*constants]), strict=True))
    return tuple(tensors.get(value, value) for value in results)


def _written_out(n: OnnxNode, graph: onnx.GraphProto, limit: int, keep: Item) -> tuple[Item, ...]:
    """Every round of a loop as part of the graph. Whether there is another one must be known."""
    names = [info.name for info in graph.input]
    carried: list[Item] = [n.any_value(index) for index in range(2, n.num_inputs)]
    rounds: list[list[Value]] = []
    nodes = 0
    while len(rounds) < limit and _is_true(keep):
        nodes += 1 + len(graph.node)
        if nodes > n.scope.most_written:
            raise RoundsError(
                f"a loop that carries values of changing shapes is not supported if its rounds have more than "
                f"{n.scope.most_written} nodes"
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
    if not rounds:
        return (*carried, *_nothing_stacked(n, graph, carried))
    columns = [
        concat(n, [_raised(n, v) for v in column], 0) for column in zip(*rounds, strict=True)
    ]
    return (*carried, *columns)


def _nothing_stacked(n: OnnxNode, graph: onnx.GraphProto, carried: Sequence[Item]) -> list[Value]:
    """Creates the empty stacks of no rounds, in the shapes of a round, which is imported to see them.

    If none is possible, in those that the graph declares: what it leaves open is 0.
    """
    stacked = graph.output[1 + len(carried) :]
    try:
        with undone_on_error(n.f.module, n.proto):
            types = _stacked_types(n, graph, carried) if stacked else []
    except SubgraphError as error:
        if are_questions(error.errors):
            raise
        types = _declared_types(stacked)
    return [filled(n, type.with_shape((0, *type.shape)), 0) for type in types]


def _stacked_types(n: OnnxNode, graph: onnx.GraphProto, carried: Sequence[Item]) -> list[Type]:
    """The types of what a round stacks."""
    round = Subgraph(n, f"{n.name}_none")
    scalars = zip((Tensor.of(np.array(0)), Tensor.of(np.array(True))), graph.input, strict=False)
    inputs: list[Item] = [_declared(n, value, info) for value, info in scalars]
    inputs += [round.taken(item, "carried") for item in carried]
    for info, item in zip(graph.input, inputs, strict=True):
        round.bind(info.name, item)
    types = []
    for item in round.run(graph)[1 + len(carried) :]:
        if isinstance(item, TensorSequence):
            raise UserError("a loop cannot stack sequences")
        types.append(item.type)
    round.forget()
    return types


def _declared_types(infos: Iterable[onnx.ValueInfoProto]) -> list[Type]:
    """The types that a graph declares for its outputs, with 0 for extents that it leaves open."""
    return [
        Type(info.kind, tuple(dim if isinstance(dim, int) else 0 for dim in info.shape or ()))
        for info in map(value_info, infos)
    ]


def _raised(n: OnnxNode, value: Value) -> Value:
    return reshape(n, value, (1, *value.type.shape))


def _first(n: OnnxNode, index: int) -> NodeValue:
    """Returns the operand that is carried into the first round."""
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
    if isinstance(item, TensorSequence):
        raise UserError("expected one bool as the next condition, got a sequence")
    check_truth(item.type, "the next condition")
    return reshape(
        body.node, body.node.operand(item) if isinstance(item, SymbolicTensor) else item, ()
    )


def _is_true(item: Item) -> bool:
    return isinstance(item, Tensor) and bool(item.array.all())


# Scan.


@from_onnx("Scan", since=9)
def _scan(n: OnnxNode) -> tuple[Item, ...]:
    """A loop with as many rounds as what is scanned has elements, of which each round takes one."""
    graph, num_states = n.graph("body"), scan_states(n, n.num_inputs)
    inputs = scan_directions(n, "scan_input", n.num_inputs - num_states)
    outputs = scan_directions(n, "scan_output", len(graph.output) - num_states)
    scanned = []
    for index, (axis, _) in enumerate(inputs, num_states):
        value = n.value(index)
        scanned.append(_to_front(n, value, normalize_axis(axis, value.type.rank)))
    states: list[Value] = [_first(n, index) for index in range(num_states)]
    backwards = [backwards for _, backwards in inputs]
    try:
        with undone_on_error(n.f.module, n.proto):
            results = _scanned(n, graph, states, scanned, backwards, partial(_computed, graph))
    except SubgraphError as error:
        _expect_no_rounds(error, one_length([value.type.shape[0] for value in scanned]))
        types = _declared_types(graph.output[num_states:])
        results = [*states, *(filled(n, type.with_shape((0, *type.shape)), 0) for type in types)]
    stacked = [
        _placed(n, value, normalize_axis(axis, value.type.rank), backwards=backwards)
        for value, (axis, backwards) in zip(results[num_states:], outputs, strict=True)
    ]
    return (*results[:num_states], *stacked)


def _to_front(n: OnnxNode, value: Value, axis: int) -> Value:
    rest = [index for index in range(value.type.rank) if index != axis]
    return transpose(n, value, [axis, *rest]) if axis else value


def _placed(n: OnnxNode, value: Value, axis: int, *, backwards: bool) -> Value:
    """Moves the axis along which rounds were stacked to its place, and reverses it if it goes backwards."""
    count = value.type.shape[0]
    if backwards:
        value = slice_axis(n, value, 0, count - 1, count, -1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, value.type.rank)]
    return transpose(n, value, order) if axis else value


def _scanned(
    n: OnnxNode,
    graph: onnx.GraphProto,
    states: Sequence[Value],
    scanned: Sequence[Value],
    backwards: Sequence[bool],
    compute: Callable[[Subgraph, list[Value]], Sequence[Item]],
) -> list[Value]:
    """The states after the last element, and what is stacked along the first axis.

    What a round does with states and elements is `compute`: the graph, or the scan of a row.
    """
    length = one_length([value.type.shape[0] for value in scanned])
    first = [n.operand(value) for value in states]
    body = Subgraph(n, f"{n.name}_body")
    round = _round(body, length)
    inner, names = body.node, [info.name for info in graph.input]
    carried = [body.variable(name, v.type) for name, v in zip(names, first, strict=False)]
    values: list[Value] = [variable.value for variable in carried]
    place = inner.operand(reshape(inner, round.value, (1,)), "place")
    with body.f.at(n.loc):
        for name, value, is_backwards in zip(names[len(first) :], scanned, backwards, strict=True):
            operand = n.operand(value, name) if length != 0 else _one(n, value.type, name)
            operand = operand if operand.constant is not None else body.take(operand, name).value
            index = place
            if is_backwards:
                last = inner.operand(SymbolicTensor(place.type, np.array([length - 1], object)))
                index = body.f.create_sub("place", last, place).result
            element = body.f.create_gather(name, operand, index, 0)
            values.append(reshape(inner, element.result, element.type.shape[1:]))
    results = compute(body, values)
    gives = _given(body, carried, results, [info.name for info in graph.output])
    true = Tensor.of(np.array(True))
    checks = carried_checks(body)
    body.f.takes = [round, *carried, *checks]
    body.f.gives = [body.give(true, "keep"), *carried, *checks, *gives[len(carried) :]]
    is_static = isinstance(length, int)
    limit = (
        Tensor.of(np.array(length))
        if is_static
        else SymbolicTensor(_NUMBER, np.array(length, object))
    )
    rounds = _looped(n, body, first, true, limit, [*checks.values()], endless=True)
    return [value for value in rounds if isinstance(value, NodeValue | Tensor)]


def _computed(graph: onnx.GraphProto, body: Subgraph, values: Sequence[Value]) -> list[Item]:
    """Imports a graph as the body of a function."""
    for info, value in zip(graph.input, values, strict=True):
        body.bind(info.name, value)
    return body.run(graph)


def _one(n: OnnxNode, type: Type, name: str) -> NodeValue:
    """An element in place of none to scan: it has a type, and no round reads it."""
    return n.f.create_splat(name, type.with_shape((1, *type.shape[1:])), 0).result


@from_onnx("Scan", since=8)
def _scan_batches(n: OnnxNode) -> tuple[Item, ...]:
    """In opset 8 everything is a batch, of which each element is scanned by itself, along its first axis."""
    graph, num_states = n.graph("body"), scan_states(n, n.num_inputs - 1)
    if n.has(0):
        raise n.unsupported("input 'sequence_lens'")
    num_scanned = n.num_inputs - 1 - num_states
    directions = [direction == 1 for direction in scan_numbers(n, "directions", num_scanned)]
    if any(
        n.type(index).rank < (1 if index <= num_states else 2) for index in range(1, n.num_inputs)
    ):
        raise UserError("expected states of a rank of at least 1, and inputs to scan of at least 2")

    def row(body: Subgraph, values: Sequence[Value]) -> list[Value]:
        states, scanned = values[:num_states], values[num_states:]
        compute = partial(_computed, graph)
        return _scanned(body.node, graph, states, scanned, directions, compute)

    operands = [n.value(index) for index in range(1, n.num_inputs)]
    return tuple(_scanned(n, graph, [], operands, [False] * len(operands), row))
