"""Ports of the graphs of branches, loops and scans, and of their nodes: the same for whoever runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = [
    "NodeWithBodies",
    "check_branches",
    "check_loop",
    "check_mapped",
    "check_rounds",
    "check_truth",
    "one_length",
    "scan_directions",
    "scan_numbers",
    "scan_states",
]

D = TypeVar("D", bound=Dim)


class NodeWithBodies(Protocol):
    """A node that has graphs."""

    @property
    def num_inputs(self) -> int:
        """How many inputs are listed."""

    @property
    def num_outputs(self) -> int:
        """How many outputs are listed."""

    def ports(self, name: str) -> tuple[int, int]:
        """How many values a graph takes and gives."""

    def integer(self, name: str, default: int) -> int:
        """An integer parameter."""

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A parameter of several integers; None if it is not given."""


def check_branches(n: NodeWithBodies) -> None:
    """Raises UserError unless both branches of an If give as much."""
    then, otherwise = (_check(n, name, 0, 0) for name in ("then_branch", "else_branch"))
    if then != otherwise:
        raise UserError(f"expected branches that give the same, got {then} and {otherwise} outputs")


def check_loop(n: NodeWithBodies) -> None:
    """Checks the body of a Loop: a round and a condition, and what is carried, lead to a condition, that, and rows.

    Raises UserError for one that takes or gives another number of values.
    """
    carried = n.num_inputs - 2
    _check(n, "body", 2 + carried, 1 + carried, hidden=1)


def scan_states(n: NodeWithBodies, num_inputs: int) -> int:
    """How many of the inputs of a Scan, states and what is scanned, are states.

    Raises UserError for a body that takes or gives another number of values.
    """
    num_scanned = n.integer("num_scan_inputs", 0)
    if not 1 <= num_scanned <= num_inputs:
        raise UserError(f"expected num_scan_inputs from 1 to {num_inputs}, got {num_scanned}")
    num_states = num_inputs - num_scanned
    _check(n, "body", num_inputs, num_states)
    return num_states


def check_mapped(n: NodeWithBodies) -> None:
    """Checks the body of a SequenceMap. Raises UserError for one that takes another number of values, or gives few."""
    _check(n, "body", n.num_inputs, 0)


def _check(n: NodeWithBodies, name: str, takes: int, least: int, hidden: int = 0) -> int:
    """How many values a graph gives, if it takes so many and gives enough: `hidden` ones, and those of the node."""
    given, gives = n.ports(name)
    expected = max(least, hidden + n.num_outputs)
    if given != takes or gives < expected:
        raise UserError(
            f"expected a body that takes {takes} and gives at least {expected} values, "
            f"got one that takes {given} and gives {gives}"
        )
    return gives


def scan_numbers(n: NodeWithBodies, name: str, count: int) -> Sequence[int]:
    """One number for each of what is scanned or stacked; zeros where none are given."""
    numbers = n.integers(name) or (0,) * count
    if len(numbers) != count:
        raise UserError(f"expected {count} numbers in {name}, got {len(numbers)}")
    return numbers


def scan_directions(n: NodeWithBodies, what: str, count: int) -> list[tuple[int, bool]]:
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
