"""History of a node of the model: the steps that replaced it, up to the runs that compute it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.backend import Program
from glowpy.ir.insts_gen import ViewInst
from glowpy.recipe import Compilation
from glowpy.step_log import Change, Step
from glowpy.support.errors import UserError

__all__ = ["Event", "History", "RunOf", "histories"]


@dataclass(frozen=True)
class Event:
    """A step that was about the node, or what stood in its place by then, and what it did with that."""

    step: Step
    changes: tuple[Change, ...]

    @property
    def successors(self) -> tuple[str, ...]:
        """Names of what is there in its place afterwards."""
        return tuple(dict.fromkeys(name for change in self.changes for name in change.successors))


@dataclass(frozen=True)
class RunOf:
    """A run of the program, and the instructions in it that compute what became of a node.

    Attributes:
        function: The function that it is in.
        number: Counted from 1.
        name: The name of the run, which is that of its function in machine code.
        instructions: Name and mnemonic of each.
    """

    function: str
    number: int
    name: str
    instructions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class History:
    """History of one node of a graph.

    Attributes:
        name: The node's name in the graph.
        operator: The operator that it computes.
        function: The function that it is in.
        origin: The node of the model that it is part of.
        events: The steps that were about it, in order.
        names: The names of what stands in its place in the end.
        runs: The runs that compute it.
        views: Those of its values that are only views of memory, by name.
        constants: Those of its values that are constants of the program, by name.
    """

    name: str
    operator: str
    function: str
    origin: str
    events: tuple[Event, ...]
    names: tuple[str, ...]
    runs: tuple[RunOf, ...]
    views: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def removed_by(self) -> Event | None:
        """The step after which nothing stands in its place any more; None if something does."""
        return self.events[-1] if self.events and not self.names else None


def histories(stages: Compilation, name: str) -> list[History]:
    """The histories of the nodes called `name` in the graph, or that are part of the model's node of that name.

    What only a step of the compilation calls so has the histories of the nodes that it was made of. A `%` may be before
    the name. The compilation must keep a record: `CompileOptions(recorded=True)`. Raises UserError if there is no such
    node.
    """
    functions = (*stages.function.called, stages.function)
    nodes = [(f, node) for f in functions for node in f.topological()]
    known = {known for _, node in nodes for known in (node.name, node.loc.node)}
    if name not in known:
        name = name.removeprefix("%")
    matches = [(f, node) for f, node in nodes if name in (node.name, node.loc.node)]
    program, log = stages.program, stages.ctx.steps.log
    if not matches:
        sources = _sources(name, log)
        matches = [(f, node) for f, node in nodes if node.name in sources]
    parts = [_Start(n.name, n.SCHEMA.mnemonic, f.name, n.loc.node) for f, n in matches]
    parts = parts or _made(name, log)
    if not parts:
        names = dict.fromkeys(known for _, node in nodes for known in (node.name, node.loc.node))
        closest = difflib.get_close_matches(name, filter(None, names), 1)
        listing = "glowpy dump MODEL shows all nodes"
        raise UserError(
            f"expected a node of the model, got '{name}'",
            note=f"did you mean {closest[0]}? {listing}" if closest else listing,
        )
    return [_history(start, program, log) for start in parts]


@dataclass(frozen=True)
class _Start:
    """Start of a history: a name, its operator and function, and the node of the model that it is part of."""

    name: str
    operator: str
    function: str
    origin: str


def _sources(name: str, log: Sequence[Step]) -> set[str]:
    """The names of all that became what is called `name`."""
    names = {name}
    for step in reversed(log):
        names |= {c.name for c in step.changes if not names.isdisjoint(c.successors)}
    return names


def _made(name: str, log: Sequence[Step]) -> list[_Start]:
    """Finds what steps made beside the successors of nodes, where a later step changes it."""
    changes = [(step, change) for step in log for change in step.changes if change.name == name]
    return [_Start(name, c.operator, step.function, step.origin) for step, c in changes[:1]]


def _history(start: _Start, program: Program, log: Sequence[Step]) -> History:
    events, names = _followed(start.name, log)
    ir = program.ir
    functions = (*ir.callees.values(), ir)
    runs = tuple(
        RunOf(g.name, number, run.name, members)
        for g in functions
        for number, run in enumerate(g.runs, 1)
        if (members := tuple((i.name, i.SCHEMA.mnemonic) for i in run.members if i.name in names))
    )
    views = [i for g in functions for i in g.instructions if isinstance(i, ViewInst)]
    return History(
        start.name,
        start.operator,
        start.function,
        start.origin,
        tuple(events),
        tuple(names),
        runs,
        tuple(dict.fromkeys(view.value.name for view in views if view.name in names)),
        tuple(name for name in names if name in program.constants),
    )


def _followed(name: str, log: Sequence[Step]) -> tuple[list[Event], dict[str, None]]:
    """The steps about what is called `name` at first, and what it is called in the end."""
    names = {name: None}
    events: list[Event] = []
    for step in log:
        changes = tuple(change for change in step.changes if change.name in names)
        if changes:
            gone = {change.name for change in changes}
            names = {name: None for name in names if name not in gone}
            names |= {successor: None for change in changes for successor in change.successors}
            events.append(Event(step, changes))
    return events, names
