"""Ports of the graphs of If, Loop, Scan and SequenceMap, and of these nodes: the same for whoever runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.importer.onnx.attributes import NodeAttributes
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = [
    "check_branches",
    "check_rounds",
    "check_truth",
    "loop_body",
    "mapped_body",
    "one_length",
    "scan_body",
    "scan_directions",
    "scan_numbers",
]

D = TypeVar("D", bound=Dim)


def check_branches(n: NodeAttributes) -> None:
    """Raises UserError unless both branches of an If give as much."""
    then, otherwise = (n.graph(name) for name in ("then_branch", "else_branch"))
    for branch in (then, otherwise):
        _check(n, branch, 0, 0)
    if len(then.output) != len(otherwise.output):
        raise UserError(
            "expected branches that give the same, got "
            f"{len(then.output)} and {len(otherwise.output)} outputs"
        )


def loop_body(n: NodeAttributes) -> onnx.GraphProto:
    """The body of a Loop: a round and a condition, and what is carried, lead to a condition, that, and rows.

    Raises UserError for one that takes or gives another number of values.
    """
    graph, carried = n.graph("body"), len(n.proto.input) - 2
    return _check(n, graph, 2 + carried, 1 + carried, hidden=1)


def scan_body(n: NodeAttributes, num_inputs: int) -> tuple[onnx.GraphProto, int]:
    """The body of a Scan with so many states and inputs to scan, and how many of them are states.

    Raises UserError for one that takes or gives another number of values.
    """
    graph, num_scanned = n.graph("body"), n.integer("num_scan_inputs", 0)
    if not 1 <= num_scanned <= num_inputs:
        raise UserError(f"expected num_scan_inputs from 1 to {num_inputs}, got {num_scanned}")
    num_states = num_inputs - num_scanned
    return _check(n, graph, num_inputs, num_states), num_states


def mapped_body(n: NodeAttributes) -> onnx.GraphProto:
    """The body of a SequenceMap. Raises UserError for one that takes another number of values, or gives too few."""
    return _check(n, n.graph("body"), len(n.proto.input), 0)


def _check(
    n: NodeAttributes, graph: onnx.GraphProto, takes: int, least: int, hidden: int = 0
) -> onnx.GraphProto:
    """The graph, if it takes so many values, and gives enough: `hidden` ones, and those that the node has."""
    gives = max(least, hidden + len(n.proto.output))
    if len(graph.input) != takes or len(graph.output) < gives:
        raise UserError(
            f"expected a body that takes {takes} and gives at least {gives} values, "
            f"got one that takes {len(graph.input)} and gives {len(graph.output)}"
        )
    return graph


def scan_numbers(n: NodeAttributes, name: str, count: int) -> Sequence[int]:
    """One number for each of what is scanned or stacked; zeros where none are given."""
    numbers = n.integers(name) or (0,) * count
    if len(numbers) != count:
        raise UserError(f"expected {count} numbers in {name}, got {len(numbers)}")
    return numbers


def scan_directions(n: NodeAttributes, what: str, count: int) -> list[tuple[int, bool]]:
    """Lists the axis of every scanned or stacked tensor, and whether it goes backwards."""
    axes = scan_numbers(n, f"{what}_axes", count)
    directions = scan_numbers(n, f"{what}_directions", count)
    return [(axis, direction == 1) for axis, direction in zip(axes, directions, strict=True)]


def one_length(lengths: Sequence[D]) -> D:
    """The length of everything that is scanned. Raises UserError if there are several."""
    different = list(dict.fromkeys(lengths))
    if len(different) != 1:
        raise UserError(
            f"expected inputs of one length to scan, got {', '.join(map(str, different))}"
        )
    return different[0]


def check_rounds(type: Type | None) -> None:
    """Raises UserError unless values of a type, None for no tensor of numbers, say how often a loop runs at most."""
    if type is None or not type.kind.is_integer or type.count != 1:
        raise UserError(f"expected one integer as the number of rounds, got {_spelled(type)}")


def check_truth(type: Type | None, what: str) -> None:
    """Raises UserError unless values of a type, None for no tensor of numbers, say whether to do something."""
    if type is None or type.kind is not ElemKind.BOOL or type.count != 1:
        raise UserError(f"expected one bool as {what}, got {_spelled(type)}")


def _spelled(type: Type | None) -> str:
    return "no tensor of numbers" if type is None else str(type)
