"""Import of If: a condition that is known chooses a branch, and of one that is not both branches are functions.

Both have to give the same types. Where nobody can know the condition before the node runs, since it is in a loop,
results whose extents differ get room for either, and the extent of the branch that is taken is found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.bodies import check_branches, check_truth
from glowpy.importer.kit.moves import concat, filled, reshape, slice_axis
from glowpy.importer.kit.needs import value_needed
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.onnx.indices import give_checks, take_checks
from glowpy.importer.onnx.node import Item, OnnxNode, SubgraphError, from_onnx
from glowpy.importer.onnx.subgraph import Subgraph, inlined, take_alike
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, UndecidedError, highest, lowest, symbols_of

__all__ = ["are_questions", "scalar", "unless_known"]

_MOST_BYTES = 1 << 16
"""The most room for results whose extents nobody knows a bound of but a number: it is filled whatever is needed."""


def scalar(n: OnnxNode, value: Value, name: str) -> NodeValue:
    """The only element of a tensor, whatever its rank."""
    return n.operand(reshape(n, value, ()), name)


@from_onnx("If", since=1)
def _if(n: OnnxNode) -> tuple[Item, ...]:
    """A condition that is known chooses a branch while importing, whatever shapes the other one has."""
    check_branches(n)
    condition = n.value(0)
    check_truth(condition.type, "the condition")
    if isinstance(condition, Tensor):
        return inlined(n, n.graph("then_branch" if n.known_scalar(0) else "else_branch"))
    before = {*n.scope.found.counts}
    branches = _branches(n, condition)
    openings = _openings(n, condition, branches, before)
    subgraphs = [branch.subgraph for branch in branches]
    for branch in branches:
        _give(branch, openings)
    then, otherwise = (subgraph.f for subgraph in subgraphs)
    count, places = len(then.gives), give_checks(subgraphs)
    end, names = len(then.gives), _give_counts(subgraphs)
    operands = [scalar(n, condition, "the condition"), *take_alike(subgraphs)]
    results = n.f.create_if(n.name, operands, then.name, otherwise.name).results
    take_checks(n, places, results[count:end])
    n.scope.found.to_check.update(zip(names, results[end:], strict=True))
    return _opened(n, results[:count], openings)


@dataclass(frozen=True)
class _Branch:
    """A branch as a function, its results, and what they are called."""

    subgraph: Subgraph
    results: Sequence[Value]
    names: Sequence[str]


@dataclass(frozen=True)
class _Opening:
    """An axis of a result that the branch taken decides the extent of: `base`, and at most so many elements `more`."""

    result: int
    axis: int
    base: Dim
    more: int


def _openings(
    n: OnnxNode, condition: NodeValue, branches: Sequence[_Branch], outside: Collection[str]
) -> list[_Opening]:
    """Where results of branches differ in their extents; `outside` are those that were found around the node.

    Raises an error that says that the condition has to be known, unless it changes from round to round.
    """
    inside = n.scope.found.counts.keys() - outside
    openings = []
    then, otherwise = branches
    sides = zip(then.results, otherwise.results, then.names, strict=True)
    for index, (left, right, name) in enumerate(sides):
        a, b = left.type, right.type
        if a == b:
            continue
        what = f"one branch gives {a} as '{name}', the other {b}: the condition"
        needed = value_needed(what, condition, n.loc, n.scope.origins)
        changes = n.scope.is_round or isinstance(needed, RoundsError)
        if not changes or a.rank != b.rank or a.with_shape(()) != b.with_shape(()):
            raise needed
        pairs = zip(a.shape, b.shape, strict=True)
        axes = [
            (axis, *_room(*pair, inside)) for axis, pair in enumerate(pairs) if pair[0] != pair[1]
        ]
        is_wide = any(isinstance(base, int) for _, base, _ in axes)
        if is_wide and a.kind.dtype.itemsize * _most(a, b) > _MOST_BYTES:
            raise needed
        openings += [_Opening(index, *axis) for axis in axes]
    return openings


def _room(a: Dim, b: Dim, inside: Collection[str]) -> tuple[Dim, int]:
    """The least of two dimensions, and how much larger the other one may be.

    Both are numbers where the difference is none, or where branches find them themselves: those are the names `inside`.
    """
    difference = a - b
    if isinstance(difference, int) and symbols_of([a]).keys().isdisjoint(inside):
        return (b, difference) if difference > 0 else (a, -difference)
    low = min(lowest(a), lowest(b))
    return low, max(highest(a), highest(b)) - low


def _most(a: Type, b: Type) -> int:
    """The number of elements that results of either type have room in."""
    return prod(max(highest(x), highest(y)) for x, y in zip(a.shape, b.shape, strict=True))


def _give(branch: _Branch, openings: Sequence[_Opening]) -> None:
    """Has a branch give its results, in the room there is, and how much larger than they have to be they are."""
    subgraph, node = branch.subgraph, branch.subgraph.node
    results: list[Value] = [*branch.results]
    counts = []
    with subgraph.f.at(node.loc):
        for opening in openings:
            value, axis = results[opening.result], opening.axis
            more = value.type.shape[axis] - opening.base
            rest = [*value.type.shape]
            rest[axis] = opening.more - more
            if rest[axis] != 0:
                zeros = filled(node, value.type.with_shape(rest), 0)
                results[opening.result] = concat(node, [value, zeros], axis)
            counts.append(Numbers.of(node, more, ElemKind.I64).reshaped(1).value)
    subgraph.f.gives = [
        subgraph.give(value, name) for value, name in zip(results, branch.names, strict=True)
    ]
    subgraph.f.gives += [subgraph.give(count, "more") for count in counts]


def _opened(
    n: OnnxNode, results: Sequence[NodeValue], openings: Sequence[_Opening]
) -> tuple[Item, ...]:
    """Returns the results as far as they reach; the last of them say how far."""
    count = len(results) - len(openings)
    values: list[Value] = [*results[:count]]
    for opening, found in zip(openings, results[count:], strict=True):
        more = n.found(found, f"{n.name}_more", opening.more)
        value, extent = values[opening.result], opening.base + more
        values[opening.result] = slice_axis(n, value, opening.axis, 0, extent, 1)
    return tuple(values)


def _give_counts(branches: Sequence[Subgraph]) -> list[str]:
    """Has both branches give the counts that either has to have checked, if only one that fits; their names."""
    names = dict.fromkeys(name for branch in branches for name in branch.scope.found.to_check)
    for branch in branches:
        extents = branch.scope.found
        for name in names:
            count: Value | None = extents.to_check.get(name)
            if count is None:
                with branch.f.at(branch.node.loc):
                    fitting = Numbers.of(branch.node, extents.fitting(name), ElemKind.I64)
                    count = fitting.reshaped(1).value
            branch.f.gives.append(branch.give(count, "count"))
    return [*names]


def _branches(n: OnnxNode, condition: NodeValue) -> list[_Branch]:
    """Both branches as functions. If one cannot be computed, it has to be known whether it is taken."""
    branches = []
    failures: dict[str, list[UserError]] = {}
    for name in ("then_branch", "else_branch"):
        graph = n.graph(name)
        subgraph = Subgraph(n, f"{n.name}_{name.removesuffix('_branch')}", supposes=True)
        try:
            names = [info.name for info in graph.output]
            items = zip(subgraph.run(graph), names, strict=True)
            results = [subgraph.value(item, name) for item, name in items]
        except SubgraphError as error:
            failures[name] = error.errors
        else:
            branches.append(_Branch(subgraph, results, names))
    impossible = [n for n, errors in failures.items() if not errors or not are_questions(errors)]
    if len(impossible) == 1:
        (name,) = impossible
        raise unless_known(n, name, "the condition", condition, failures[name])
    if failures:
        raise SubgraphError([error for errors in failures.values() for error in errors])
    return branches


def unless_known(
    n: OnnxNode, graph: str, what: str, value: NodeValue, errors: Sequence[UserError]
) -> UserError:
    """The error that says that a value has to be known, as a graph is impossible that may not be computed at all."""
    message = f"{graph} cannot be computed: {what}"
    needed = value_needed(message, value, n.loc, n.scope.origins)
    reasons = [error for error in errors if not are_questions([error])]
    needed.diagnostics += [d for error in reasons for d in error.diagnostics]
    return needed


def are_questions(errors: Sequence[UserError]) -> bool:
    """Whether all ask for what is not known, so that nothing may be wrong once it is."""
    return all(isinstance(e, ValueNeededError | UndecidedError | RoundsError) for e in errors)
