"""Passes and pipelines over either IR: naming, verifying, timing, printing.

A pass is a frozen dataclass: its fields are its options, its docstring shows the IR before and
after. A `Pipeline` is itself a pass. A `RewritePass` is rules for classes of nodes; `Rewrites` runs
several as one.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import ClassVar, Generic, TypeVar

from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.rewrite import Place, Rewriter, Rule, Stepping
from glowpy.graph.verifier import verify_function, verify_nodes
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.step_log import Steps
from glowpy.support.progress import report

__all__ = [
    "GraphPass",
    "IRPass",
    "Pass",
    "PassContext",
    "Pipeline",
    "RewritePass",
    "Rewrites",
]

T = TypeVar("T", Function, IRFunction)

Evaluate = Callable[[Sequence[NodeValue]], list[Tensor]]
"""The tensors of values that need only constants."""


@dataclass
class PassContext:
    """Options and services for passes; never state that one pass leaves for another."""

    evaluate: Evaluate
    """Computes values that need only constants. The engine injects the interpreter."""
    verify_each: bool = False
    """Verify after every pass."""
    before_pass: Callable[[str, Function | IRFunction], None] | None = None
    """Called before every pass with its name and what it will work on."""
    after_pass: Callable[[str, Function | IRFunction, bool], None] | None = None
    """Called after every pass with its name, what it worked on, and whether it changed it: printing, dumping.

    Rewrite passes that run as one are one pass here, `rewrite`."""
    after_rewrite: Callable[[str, str, Function], None] | None = None
    """Called after every rewrite with the names of its pass and of the node it was applied to, and the function."""
    explain: Callable[[str], None] | None = None
    """Takes the reasons rewrites give for not applying."""
    clock: Callable[[], float] = time.perf_counter
    """Seconds, of any kind."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds spent by pass name."""
    runs: Counter[str] = field(default_factory=Counter)
    """How often a pass ran, by its name."""
    tried: Counter[str] = field(default_factory=Counter)
    """How often the rules of a rewrite pass were tried, by pass name."""
    applied: Counter[str] = field(default_factory=Counter)
    """How often they were applied."""
    refused: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    """Why they were not, where they say that: by pass name, then by the names of function and node."""
    steps: Steps = field(default_factory=Steps)
    """Permission for changes, and those that have happened."""

    def allows(self, step: Stepping) -> bool:
        """Whether a pass may run, or the next rewrite by its rules be applied. A required one always may."""
        return step.is_required or self.steps.may_happen(step.name)

    def rewritten(
        self, step: Stepping, rule: str, f: Function, nodes: Sequence[Node], place: Place
    ) -> None:
        """Takes note of a rewrite that was applied: see `Steps.rewritten`."""
        self.steps.rewritten(step, rule, f, nodes, place)
        if self.after_rewrite is not None:
            self.after_rewrite(step.name, nodes[0].name, f)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the time spent inside the `with` to `times[name]`, and reports that `name` begins."""
        report(name)
        start = self.clock()
        try:
            yield
        finally:
            self.spent(name, self.clock() - start)

    def spent(self, name: str, seconds: float) -> None:
        """Adds to `times[name]`."""
        self.times[name] = self.times.get(name, 0.0) + seconds


class Pass(ABC, Generic[T]):
    """A change of a function that keeps its meaning."""

    name: ClassVar[str] = ""
    is_required: ClassVar[bool] = False
    """Whether nothing runs without it, or other numbers come out: it cannot be disabled, nor stopped before."""

    def __init_subclass__(cls, *, is_named: bool = True) -> None:
        """Raises TypeError for a pass without a name; `is_named` is False for bases and for what is made of passes."""
        super().__init_subclass__()
        if is_named and not cls.name:
            raise TypeError(
                f"{cls.__qualname__}: expected a name, as in name: ClassVar[str] = 'dce'"
            )

    @abstractmethod
    def run(self, f: T, ctx: PassContext) -> bool:
        """Changes `f`; True iff anything changed."""

    def flattened(self) -> Iterator[Pass[T]]:
        """This pass, or the passes it is made of, in order."""
        yield self


GraphPass = Pass[Function]
IRPass = Pass[IRFunction]


@dataclass(frozen=True)
class Pipeline(Pass[T], is_named=False):
    """Passes in order; with `fixpoint`, round and round until none of them changes anything.

    If that takes more than `limit` rounds, the pipeline stops with a RuntimeWarning: the function is right, but some
    passes undo what others do. That is a bug in the passes, which our tests take for an error; a user gets a network
    that runs, perhaps not as fast as it could, and sees the warning once on standard error.
    """

    title: str
    passes: Sequence[Pass[T]]
    fixpoint: bool = False
    limit: int = 64

    def flattened(self) -> Iterator[Pass[T]]:
        """Every pass in order, those of inner pipelines in their place."""
        for inner in self.passes:
            yield from inner.flattened()

    def run(self, f: T, ctx: PassContext) -> bool:
        """Runs the passes, verifying and reporting after each as the context says."""
        changed = False
        idle = 0
        rounds = self.limit if self.fixpoint else 1
        for step in islice(cycle(self.passes), rounds * len(self.passes)):
            step_changed = _run_step(step, f, ctx)
            changed |= step_changed
            idle = 0 if step_changed else idle + 1
            if self.fixpoint and idle == len(self.passes):
                return changed
        if self.fixpoint and self.passes:
            message = f"{self.title}: @{f.name} still changes after {self.limit} rounds of passes"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return changed


def _run_step(step: Pass[T], f: T, ctx: PassContext) -> bool:
    if isinstance(step, (Pipeline, Rewrites)):
        return step.run(f, ctx)
    if not ctx.allows(step):
        return False
    if ctx.before_pass is not None:
        ctx.before_pass(step.name, f)
    before = ctx.steps.snapshot(f)
    with ctx.timed(step.name):
        changed = step.run(f, ctx)
    ctx.runs[step.name] += 1
    if changed and not isinstance(step, RewritePass):  # whose rewrites are steps
        ctx.steps.passed(step, f, before)
    if ctx.verify_each:
        _verify(f)
    if ctx.after_pass is not None:
        ctx.after_pass(step.name, f, changed)
    return changed


def _verify(f: Function | IRFunction) -> None:
    if isinstance(f, Function):
        verify_function(f)
    else:
        verify_irfunction(f)


class RewritePass(GraphPass, is_named=False):
    """Rules for classes of nodes, which `run` applies until none fits: methods with `@rule` or `@rule_where`.

    See `glowpy.graph.rewrite` for what a rule may look at.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    rewrites_quantized: ClassVar[bool] = False
    """Whether the rules hold for arithmetic on quantized types too, whose results have a type of their own."""
    concerns: ClassVar[tuple[type[Node], ...]] = ()
    """Nodes without any of which in a function the rules have nothing to do; empty: they always may have."""

    def __init_subclass__(cls, *, is_named: bool = True) -> None:
        super().__init_subclass__(is_named=is_named)
        cls.rules = tuple(member for member in vars(cls).values() if isinstance(member, Rule))

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Applies the rules of this pass alone."""
        return any(_rewrite(f, (self,), ctx).applied)


@dataclass(frozen=True)
class Rewrites(GraphPass):
    """Rewrite passes that run as one: a node is tried with the rules of all, in order.

    Each is timed and counted under its own name: `ctx.applied` says how often. There is no moment after one of them
    alone, so `after_pass` is called once, for `rewrite`, after all. With `verify_each`, what a rewrite made is
    verified at once, and the function at the end.
    """

    passes: Sequence[RewritePass]
    name: ClassVar[str] = "rewrite"

    def flattened(self) -> Iterator[GraphPass]:
        """The rewrite passes in order."""
        yield from self.passes

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Applies the rules of all passes until none fits."""
        if not ctx.allows(self) and not any(member.is_required for member in self.passes):
            return False
        report(self.name)
        if ctx.before_pass is not None:
            ctx.before_pass(self.name, f)
        rewriter = _rewrite(f, self.passes, ctx)
        ctx.runs[self.name] += 1
        if ctx.verify_each:
            verify_function(f)
        for step, seconds in zip(self.passes, rewriter.seconds, strict=True):
            ctx.spent(step.name, seconds)
        changed = any(rewriter.applied)
        if ctx.after_pass is not None:
            ctx.after_pass(self.name, f, changed)
        return changed


def _rewrite(f: Function, passes: Sequence[RewritePass], ctx: PassContext) -> Rewriter:
    check = verify_nodes if ctx.verify_each else None
    keeper = ctx if ctx.steps.is_asked or ctx.after_rewrite is not None else None
    rewriter = Rewriter(f, passes, check=check, clock=ctx.clock, keeper=keeper)
    rewriter.run()
    for step, tried, applied in zip(passes, rewriter.tried, rewriter.applied, strict=True):
        ctx.tried[step.name] += tried
        ctx.applied[step.name] += applied
    for step, refused in zip(passes, rewriter.refused, strict=True):
        named = {(f.name, name): reason for name, reason in refused.items()}
        ctx.refused.setdefault(step.name, {}).update(named)
    if ctx.explain is not None:
        for reason in rewriter.reasons:
            ctx.explain(reason)
    return rewriter
