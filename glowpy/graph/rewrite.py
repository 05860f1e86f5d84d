"""The rewrite engine: rules for classes of nodes, and the worklist that applies them until none fits.

A rule is a method of a rewrite pass. It takes one node and returns what replaces the node's first
result, or the node itself after changing it in place (it must use the same values as before), or None:

    @rule
    def merge(self, f: Function, n: TransposeNode, why: Why) -> Replacement: ...

`@rule` takes the classes of nodes from the annotation, `@rule_where(test)` all whose schema passes
the test. A node without rules costs nothing but a look into a table.

- A rule looks at its node, at what computes the node's inputs, at whether that has other users, and
  at the users of the node's results. After a rewrite only those nodes are visited again for which
  one of these is new. What depends on nodes farther away is found in a pipeline's next round.
- A rule that returns None has changed nothing; InternalError otherwise. One that asks of a symbolic extent what its
  bounds do not say does not apply: it raises UndecidedError before it changes a node or makes a constant.
- What a rule creates gets the location and the predicate of the node it replaces.
- Nodes are visited in topological order, and what a rule creates at once: the result depends on
  nothing but the graph and the order of the rules.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias, get_args, get_type_hints

from glowpy.core.schema import NodeSchema, Quantized
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, value_of
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import UndecidedError

__all__ = [
    "Keeper",
    "Place",
    "Replacement",
    "Rewriter",
    "Rule",
    "RuleOwner",
    "Stepping",
    "Why",
    "rule",
    "rule_where",
]

Replacement: TypeAlias = NodeValue | Node | None
"""Result of a rule: the new value, the node itself if it was changed in place, or None."""


class Why:
    """Collects a rule's reasons for not applying to a pattern it knows."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def no(self, reason: str) -> NodeValue | None:
        """Refuses, with a reason for `--explain`; returns None, for the rule to return."""
        self.reasons.append(reason)
        return None


@dataclass(frozen=True)
class Rule:
    """One rewrite: a method `(self, f, n, why)`, and the classes of nodes it is for."""

    function: Callable[..., Replacement]
    test: Callable[[NodeSchema], bool] | None = None
    """Chooses classes by their schema; None for those in the annotation of `n`."""

    def __post_init__(self) -> None:
        parameters = list(inspect.signature(self.function).parameters.values())
        is_annotated = (
            self.test is not None
            or len(parameters) < 3
            or parameters[2].annotation is not inspect.Parameter.empty
        )
        if len(parameters) != 4 or not is_annotated:
            expected = "n: NODECLASS" if self.test is None else "n"
            got = ", ".join(parameter.name for parameter in parameters)
            raise TypeError(
                f"{self.function.__qualname__}: expected the parameters (self, f, {expected}, why), "
                f"got ({got})"
            )

    @cached_property
    def _annotated(self) -> tuple[type, ...]:
        name = list(inspect.signature(self.function).parameters)[2]
        annotation = get_type_hints(self.function)[name]
        return get_args(annotation) or (annotation,)

    def is_for(self, cls: type[Node]) -> bool:
        """Whether nodes of class `cls` are tried."""
        return cls in self._annotated if self.test is None else self.test(cls.SCHEMA)


def rule(function: Callable[..., Replacement]) -> Rule:
    """Makes a method a rule for the node class, or the union of classes, in its annotation.

    Raises TypeError if its parameters are not those of a rule.
    """
    return Rule(function)


def rule_where(
    test: Callable[[NodeSchema], bool],
) -> Callable[[Callable[..., Replacement]], Rule]:
    """Makes a method a rule for every node class whose schema passes the test. Raises TypeError as `rule` does."""
    return lambda function: Rule(function, test)


class Stepping(Protocol):
    """A pass that changes a function in steps, as seen by the object that counts these."""

    name: ClassVar[str]
    is_required: ClassVar[bool]


class RuleOwner(Stepping, Protocol):
    """A rewrite pass, as the engine sees it."""

    rules: ClassVar[tuple[Rule, ...]]
    rewrites_quantized: ClassVar[bool]
    concerns: ClassVar[tuple[type[Node], ...]]


@dataclass(frozen=True)
class Place:
    """Replacement of a node by a rewrite: a value, and the nodes that were created for it."""

    value: NodeValue
    created: Collection[Node]


class Keeper(Protocol):
    """Decides whether a rewrite may be applied, and records each that was."""

    def allows(self, step: Stepping) -> bool:
        """Whether the next rewrite may be one by a rule of this pass."""

    def rewritten(
        self, step: Stepping, rule: str, f: Function, nodes: Sequence[Node], place: Place
    ) -> None:
        """Takes note of a rewrite: the node and what only it read are gone, or the node was changed in place."""


_BoundRule: TypeAlias = tuple[int, RuleOwner, Callable[..., Replacement]]

_LIMIT = 64
"""Rewrites for each node at most; rules that undo each other would never end."""


class Rewriter:
    """Applies the rules of some passes to one function until none fits.

    Attributes:
        tried: How often rules were tried, for each owner.
        applied: How often rules were applied, for each owner.
        seconds: Time spent, for each owner.
    """

    def __init__(
        self,
        f: Function,
        owners: Sequence[RuleOwner],
        *,
        check: Callable[[Function, Iterable[Node]], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        keeper: Keeper | None = None,
    ) -> None:
        self._f = f
        self._owners = owners
        self._check = check
        self._clock = clock
        self._keeper = keeper
        self._rules: dict[type[Node], list[_BoundRule]] = {}
        self._stack: list[Node] = []
        self._pending: set[Node] = set()
        self._why = Why()
        self._refusals: dict[tuple[Node, int], list[str]] = {}
        self._concerned: list[bool] = []
        self._budget = 0
        self.tried = [0] * len(owners)
        self.applied = [0] * len(owners)
        self.seconds = [0.0] * len(owners)

    def run(self) -> bool:
        """Visits all nodes, and again what changed; True iff any rule was applied.

        Raises InternalError if the rules do not come to an end.
        """
        f, stack, pending = self._f, self._stack, self._pending
        present = {type(node) for node in f.nodes}
        self._concerned = [
            not owner.concerns or not present.isdisjoint(owner.concerns) for owner in self._owners
        ]
        self._push(f.topological())
        self._budget = _LIMIT * (f.num_nodes + 1)
        with f.replacing_each() as replacing:
            now = self._clock()
            while stack:
                node = stack.pop()
                pending.remove(node)
                if node not in f:
                    continue
                rules = self._rules.get(type(node))
                if rules is None:
                    rules = self._rules_for(type(node))
                if rules:
                    replacing(node)
                    now = self._visit(node, rules, now)
        return any(self.applied)

    @property
    def reasons(self) -> list[str]:
        """Why rules did not apply to what is in the function now, each time with the names of node and pass."""
        return [
            f"%{node.name}: {reason} ({self._owners[self._rules[type(node)][position][0]].name})"
            for (node, position), reasons in self._refusals.items()
            if node in self._f
            for reason in reasons
        ]

    @property
    def refused(self) -> list[dict[str, str]]:
        """Reasons for refusals of each of the passes, by the node's name."""
        refused: list[dict[str, str]] = [{} for _ in self._owners]
        for (node, position), reasons in self._refusals.items():
            if node in self._f:
                index, _, _ = self._rules[type(node)][position]
                refused[index][node.name] = "; ".join(reasons)
        return refused

    def _rules_for(self, cls: type[Node]) -> list[_BoundRule]:
        rules: list[_BoundRule] = [
            (index, owner, rule.function)
            for index, owner in enumerate(self._owners)
            if self._concerned[index]
            for rule in owner.rules
            if rule.is_for(cls)
        ]
        self._rules[cls] = rules
        return rules

    def _visit(self, node: Node, rules: list[_BoundRule], now: float) -> float:
        """Tries `rules` in order and applies the first that fits; returns the time when that is done."""
        f, why, keeper = self._f, self._why, self._keeper
        before = f.num_nodes, f.module.num_constants
        quantized = node.SCHEMA.quant is Quantized.NUMBERS and node.result.type.quant is not None
        for position, (index, owner, function) in enumerate(rules):
            if (quantized and not owner.rewrites_quantized) or (
                keeper is not None and not keeper.allows(owner)
            ):
                continue
            try:
                replacement = function(owner, f, node, why)
            except UndecidedError as error:  # what the rule needs to know, symbols leave open
                f.erase_dead(f.newest(f.num_nodes - before[0]))
                replacement = why.no(error.diagnostics[0].message)
            self.tried[index] += 1
            if why.reasons or self._refusals:
                self._note(node, position)
            if replacement is not None:
                place = Place(value_of(replacement), f.newest(f.num_nodes - before[0]))
                self._settle(node, place, owner, function)
                self.applied[index] += 1
            start, now = now, self._clock()
            self.seconds[index] += now - start
            if replacement is not None:
                return now
        if before != (f.num_nodes, f.module.num_constants):
            owners = ", ".join(dict.fromkeys(type(owner).__name__ for _, owner, _ in rules))
            raise InternalError(f"%{node.name}: a rule of {owners} changed the graph and refused")
        return now

    def _note(self, node: Node, position: int) -> None:
        """Keeps what the rule said on its last visit only."""
        self._refusals.pop((node, position), None)
        if self._why.reasons:
            self._refusals[node, position] = self._why.reasons
            self._why.reasons = []

    def _settle(
        self, node: Node, place: Place, owner: RuleOwner, function: Callable[..., Replacement]
    ) -> None:
        """Applies what a rule has returned, and tells whoever keeps count."""
        try:
            nodes = self._apply(node, place.value, place.created)
        except InternalError as error:
            raise _blamed(error, owner, function) from error
        if self._keeper is not None:
            self._keeper.rewritten(owner, function.__name__, self._f, nodes, place)

    def _apply(self, node: Node, replacement: NodeValue, created: Collection[Node]) -> list[Node]:
        """Puts the replacement in the place of the node; what is gone with the node, which comes first, or changed."""
        f, users = self._f, node.result.users
        self._budget -= 1
        if self._budget < 0:
            raise InternalError(f"@{f.name}: rewriting does not end at %{node.name}")
        changed = [*created, *users]
        if replacement.producer is node:
            changed.append(node)
            affected = [node]
        else:
            affected = f.replace(node, (replacement, *node.results[1:]), created)
        if self._check is not None:
            self._check(f, [changed_node for changed_node in changed if changed_node in f])
        self._push(self._neighbours(affected))
        if replacement.node is not None:
            self._push((replacement.node,))
        self._push(changed)
        return affected

    def _neighbours(self, nodes: Iterable[Node]) -> list[Node]:
        """Returns the nodes that computed the operands of `nodes`, and those that are now the only user of one."""
        neighbours: dict[Node, None] = {}
        for node in nodes:
            for value in node.operand_values:
                if value.node is not None:
                    neighbours[value.node] = None
                if value.num_users == 1:
                    neighbours[value.uses[0][0]] = None
        return list(neighbours)

    def _push(self, nodes: Sequence[Node]) -> None:
        """Puts `nodes` on the stack, to be visited in this order, but for those that wait there."""
        stack, pending = self._stack, self._pending
        for node in reversed(nodes):
            if node not in pending:
                pending.add(node)
                stack.append(node)


def _blamed(
    error: InternalError, owner: RuleOwner, function: Callable[..., Replacement]
) -> InternalError:
    """The error with the rule that caused it, which a package of somebody else's may have."""
    message = f"pass {owner.name}, rule {function.__name__}: {error.args[0]}"
    if function.__module__.partition(".")[0] == "glowpy":
        return InternalError(message, remedy=error.remedy)
    return InternalError(message, remedy=f"mend the rule in {function.__module__}")
