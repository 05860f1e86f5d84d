"""Passes and pipelines over either IR: naming, verifying, timing, printing.

A pass is a frozen dataclass: its fields are its options, its docstring shows the IR before and
after. A `Pipeline` is itself a pass.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.verifier import verify_function
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.verifier import verify_irfunction

__all__ = ["GraphPass", "IRPass", "Pass", "PassContext", "Pipeline", "RewritePass", "Why"]

T = TypeVar("T", Function, IRFunction)

Evaluate = Callable[[Function], list[Tensor]]
"""Runs a function without inputs; the tensors of its saves in order."""


@dataclass
class PassContext:
    """Options and services for passes; never state that one pass leaves for another."""

    evaluate: Evaluate
    """Runs a function that reads only constants. The engine injects the interpreter."""
    verify_each: bool = False
    """Verify after every pass."""
    after_pass: Callable[[str, Function | IRFunction, bool], None] | None = None
    """Called behind every pass with its name, what it worked on, and whether it changed it: printing, dumping."""
    explain: Callable[[str], None] | None = None
    """Takes the reasons rewrites give for not applying."""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds spent by pass name."""

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the time spent inside the `with` to `times[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[name] = self.times.get(name, 0.0) + time.perf_counter() - start


class Pass(ABC, Generic[T]):
    """A change of a function that keeps its meaning."""

    name: ClassVar[str] = ""

    @abstractmethod
    def run(self, f: T, ctx: PassContext) -> bool:
        """Changes `f`; True iff anything changed."""


GraphPass = Pass[Function]
IRPass = Pass[IRFunction]


@dataclass(frozen=True)
class Pipeline(Pass[T]):
    """Passes in order; with `fixpoint`, again until nothing changes or `limit` rounds are done."""

    title: str
    passes: Sequence[Pass[T]]
    fixpoint: bool = False
    limit: int = 8

    def flattened(self) -> Iterator[Pass[T]]:
        """Every pass in order, those of inner pipelines in their place."""
        for inner in self.passes:
            if isinstance(inner, Pipeline):
                yield from inner.flattened()
            else:
                yield inner

    def run(self, f: T, ctx: PassContext) -> bool:
        """Runs every pass, verifying and reporting behind each as the context says."""
        changed = False
        for _ in range(self.limit if self.fixpoint else 1):
            round_changed = False
            for each in self.passes:
                if isinstance(each, Pipeline):
                    round_changed |= each.run(f, ctx)
                    continue
                with ctx.timed(each.name):
                    pass_changed = each.run(f, ctx)
                if ctx.verify_each:
                    _verify(f)
                if ctx.after_pass is not None:
                    ctx.after_pass(each.name, f, pass_changed)
                round_changed |= pass_changed
            changed |= round_changed
            if not round_changed:
                break
        return changed


def _verify(f: Function | IRFunction) -> None:
    if isinstance(f, Function):
        verify_function(f)
    else:
        verify_irfunction(f)


@dataclass(frozen=True)
class Why:
    """Where a rewrite says why it does not apply to a pattern it knows."""

    node: Node
    explain: Callable[[str], None] | None

    def no(self, reason: str) -> NodeValue | None:
        """Refuses, with a reason for `--explain`; returns None, for the rewrite to return."""
        if self.explain is not None:
            self.explain(f"%{self.node.name}: {reason}")
        return None


class RewritePass(GraphPass):
    """Tries `rewrite` on every node; it returns the value that replaces the node's first result."""

    @abstractmethod
    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """The replacement of `node`, or None. Nodes created inside get the location and the predicate of `node`."""

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Visits nodes in topological order, once; pipelines repeat passes."""
        changed = False
        for node in f.topological():
            if node not in f:
                continue
            with f.replacing(node):
                replacement = self.rewrite(f, node, Why(node, ctx.explain))
            if replacement is None:
                continue
            f.replace(node, (replacement, *node.results[1:]))
            changed = True
        return changed
