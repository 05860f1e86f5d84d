"""Steps: the changes of one compilation; which of them may happen, and what became of every node.

A step is a pass that changed something, a rewrite that was applied, or the translation of a function into
instructions (`irgen`). Those without which there is no code always happen. The others, which make code better, have
numbers: `PassContext.allows` asks whether the next one may happen, so a compilation can stop after any number of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from glowpy.core.schema import Trait
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, NodeValue, Use
from glowpy.graph.rewrite import Place, Stepping
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value, WeightVar

__all__ = ["Change", "Snapshot", "Step", "Steps"]


@dataclass(frozen=True)
class Change:
    """Change of one node, or of the instructions of that name, in a step.

    Attributes:
        name: Its name before.
        operator: The operator that it computed.
        successors: The names of what stands in its place: itself if it was changed; nothing if nobody read it.
    """

    name: str
    operator: str
    successors: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One change of a function.

    Attributes:
        number: Counted from 1 over a whole compilation; None for one that always happens.
        name: The pass.
        rule: The rule of a rewrite pass that was applied; empty for a whole pass.
        function: The function that was changed.
        node: The node that the rule was applied to, by the name that it had.
        origin: Where in the model that came from: the name of a node.
        changes: Changes of nodes or instructions.
        is_ir: Whether the function is one over buffers.
    """

    number: int | None
    name: str
    rule: str
    function: str
    node: str
    origin: str
    changes: tuple[Change, ...]
    is_ir: bool = False

    @property
    def title(self) -> str:
        """The pass, and the rule if it is a rewrite: `fold-transpose.cancel`."""
        return f"{self.name}.{self.rule}" if self.rule else self.name


@dataclass
class Steps:
    """Permission for steps, the number of those that have happened, and on demand a record of them.

    Attributes:
        last: The number of the last step that may happen; None if all may.
        disabled: Passes that may not run, by name.
        recorded: Whether `log` is kept.
        count: How many steps with a number have happened.
        log: They themselves.
    """

    last: int | None = None
    disabled: Collection[str] = ()
    recorded: bool = False
    count: int = 0
    log: list[Step] = field(default_factory=list)

    @property
    def is_asked(self) -> bool:
        """Whether rewrites have to ask, and to tell: not if all may happen and nobody wants to know."""
        return self.last is not None or self.recorded or bool(self.disabled)

    def afresh(self) -> Steps:
        """Returns equal bounds for another compilation, of which nothing has happened."""
        return Steps(self.last, self.disabled, self.recorded)

    def may_happen(self, name: str) -> bool:
        """Whether the next step may be one of an optional pass called `name`."""
        return (self.last is None or self.count < self.last) and name not in self.disabled

    def snapshot(self, f: Function | IRFunction) -> Snapshot | None:
        """How things are before a pass, if that is to be recorded."""
        return Snapshot(f) if self.recorded else None

    def passed(self, step: Stepping, f: Function | IRFunction, before: Snapshot | None) -> None:
        """Takes note of a pass that has changed a function."""
        number = self._number(step)
        if before is not None:
            changes = tuple(before.changes())
            is_ir = isinstance(f, IRFunction)
            self.log.append(Step(number, step.name, "", f.name, "", "", changes, is_ir))

    def rewritten(
        self, step: Stepping, rule: str, f: Function, nodes: Sequence[Node], place: Place
    ) -> None:
        """Takes note of a rewrite: gone or changed are `nodes`, the one it was applied to and what only that read."""
        number = self._number(step)
        if not self.recorded:
            return
        root = nodes[0]
        successors = tuple(computing(place.value, place.created))
        changes = tuple(Change(n.name, n.SCHEMA.mnemonic, successors) for n in nodes)
        origin = root.loc.node
        self.log.append(Step(number, step.name, rule, f.name, root.name, origin, changes))

    def translated(self, f: Function, ir: IRFunction) -> None:
        """Takes note of the step from a graph to instructions, which have the names of nodes."""
        if self.recorded:
            names = {inst.name for inst in _named(ir)}
            changes = tuple(
                Change(n.name, n.SCHEMA.mnemonic, (n.name,) if n.name in names else ())
                for n in f.topological()
            )
            self.log.append(Step(None, "irgen", "", f.name, "", "", changes))

    def _number(self, step: Stepping) -> int | None:
        """The number of a step that has happened."""
        if step.is_required:
            return None
        self.count += 1
        return self.count


def computing(value: NodeValue, created: Collection[Node]) -> list[str]:
    """Names the producer of a new value and, where it only moves elements, the created nodes that compute them."""
    names = {value.producer.name: None}
    work = [value.node]
    while work:
        node = work.pop()
        if node is None or node not in created or not node.has(Trait.SHAPE_ONLY):
            continue
        for source in node.inputs:
            if source.node in created and source.producer.name not in names:
                names[source.producer.name] = None
                work.append(source.node)
    return list(names)


class Snapshot:
    """Snapshot before a pass, from which the changes are found afterwards.

    A pass says nothing of its changes. What stands in the place of a node is what is read now where its results were
    read; for what only nodes read that are gone as well, what stands in their place; and for a node of a function that
    was put in the place of its call, the copy, which has the place of the node in the model.
    """

    def __init__(self, f: Function | IRFunction) -> None:
        self._graph = _GraphSnapshot(f.module) if isinstance(f, Function) else None
        self._ir = None if isinstance(f, Function) else _IRSnapshot(f)

    def changes(self) -> Iterator[Change]:
        """Yields the changes of all nodes or instructions that no longer exist."""
        if self._graph is not None:
            yield from self._graph.changes()
        elif self._ir is not None:
            yield from self._ir.changes()


class _GraphSnapshot:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._names: dict[Node, str] = {}
        self._uses: dict[Node, list[list[Use]]] = {}
        for f in module.functions:
            for node in f.topological():
                self._names[node] = node.name
                self._uses[node] = [result.uses for result in node.results]

    def changes(self) -> Iterator[Change]:
        """Users come before what they use: what stands in their place is known by then."""
        now = {node: None for f in self._module.functions for node in f.nodes}
        created = {node: None for node in now if node not in self._names}
        copies: dict[object, list[str]] = {}
        for node in created:
            copies.setdefault((node.loc, type(node)), []).append(node.name)
        places: dict[Node, tuple[str, ...]] = {}
        for node in reversed(self._names):
            if node not in now:
                names = dict.fromkeys(self._successors(node, now, created, places))
                copied = copies.get((node.loc, type(node)), ()) if node.loc else ()
                places[node] = tuple(names) or tuple(copied)
        for node, name in self._names.items():
            if node in places:
                yield Change(name, node.SCHEMA.mnemonic, places[node])
            elif node.name != name:
                yield Change(name, node.SCHEMA.mnemonic, (node.name,))

    def _successors(
        self,
        node: Node,
        now: Collection[Node],
        created: Collection[Node],
        places: Mapping[Node, tuple[str, ...]],
    ) -> Iterator[str]:
        for user, index in (use for uses in self._uses[node] for use in uses):
            if user in now:
                values = dict(user.operands())
                if index in values and values[index].node is not node:
                    yield from computing(values[index], created)
            else:
                yield from places.get(user, ())


class _IRSnapshot:
    def __init__(self, f: IRFunction) -> None:
        self._f = f
        self._operators: dict[str, str] = {}
        self._read: dict[str, list[Value]] = {}
        self._written: dict[str, list[Value]] = {}
        for inst in _named(f):
            self._operators.setdefault(inst.name, inst.SCHEMA.mnemonic)
            read, written = (
                ([inst.value], ()) if isinstance(inst, ViewInst) else (inst.reads(), inst.writes())
            )
            self._read.setdefault(inst.name, []).extend(value.base for value in read)
            self._written.setdefault(inst.name, []).extend(value.base for value in written)

    def changes(self) -> Iterator[Change]:
        """A node may become several instructions of one name: it is gone when all of them are."""
        now = dict.fromkeys(inst.name for inst in _named(self._f))
        gone = [name for name in self._operators if name not in now]
        if not gone:
            return
        writers, readers = _inverted(self._written), _inverted(self._read)
        for name in gone:
            results = self._written[name]
            is_read = not results or any(isinstance(b, WeightVar) or b in readers for b in results)
            sources = [w for one in self._read[name] for w in writers.get(one, ()) if w in now]
            later = [r for one in results for r in readers.get(one, ()) if r in now]
            names = tuple(dict.fromkeys(sources or later)) if is_read else ()
            yield Change(name, self._operators[name], names)


def _named(f: IRFunction) -> list[Instruction]:
    """The instructions that nodes became: those that touch elements, and views."""
    return [i for i in f.instructions if isinstance(i, ViewInst) or not i.has(Trait.MEMORY)]


def _inverted(values: Mapping[str, Sequence[Value]]) -> dict[Value, list[str]]:
    """The names of the instructions by the buffers that they are about."""
    names: dict[Value, list[str]] = {}
    for name, buffers in values.items():
        for buffer in buffers:
            names.setdefault(buffer, []).append(name)
    return names
