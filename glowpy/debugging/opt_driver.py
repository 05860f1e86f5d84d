"""Runs passes and stages by name on text of either level: what `glowpy opt` and the file tests do.

A text is a module, an IR function or a memory plan; the first word says which. `lower` lowers to what the backend
keeps, `irgen` turns a module into an IR function, `runs` says what is computed together of that, and `memory` turns it
into its memory plan. Without any names, the text is parsed, verified and printed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from glowpy.backend import Backend
from glowpy.core.tensor import Array
from glowpy.engine import BACKENDS, known_instructions, known_nodes
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import MemoryPlan, parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.opt.pipelines import GRAPH_PASSES, IR_PASSES
from glowpy.passes import GraphPass, IRPass, PassContext, Pipeline
from glowpy.recipe import generate_all, graph_recipe, ir_recipe, plan_memory, put_in_runs
from glowpy.support.errors import UserError
from glowpy.support.text import Lexer

__all__ = ["OptDriver"]

Subject = Module | IRFunction | MemoryPlan


class OptDriver:
    """The passes and stages of one backend, by name.

    Attributes:
        passes: Everything `run` knows: the passes of the backend's recipes over the graph and over the IR, those that
            no recipe runs, and the stages.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._graph: dict[str, GraphPass] = {
            **GRAPH_PASSES,
            **{p.name: p for p in graph_recipe(backend).flattened()},
        }
        self._ir: dict[str, IRPass] = {
            **IR_PASSES,
            **{p.name: p for p in ir_recipe(backend).flattened()},
        }
        self._stages: dict[str, Callable[[Subject, PassContext], Subject]] = {
            "irgen": self._irgen,
            "runs": _runs,
            "memory": _memory,
        }
        self._nodes = known_nodes(type(backend))
        self._instructions = known_instructions(type(backend))
        self.passes: Mapping[str, object] = {**self._graph, **self._ir, **self._stages}

    def _irgen(self, subject: Subject, ctx: PassContext) -> IRFunction:
        """Schedules the only function of a module with all that it calls, and generates its IR."""
        if not isinstance(subject, Module):
            raise UserError("irgen: expected a module", note="it makes an IR function of one")
        f = subject.main
        return generate_all(f, self._backend, ctx, lambda ir: None, inputs=f.parameters)

    def named(self, name: str) -> object:
        """The pass or stage called `name`.

        Raises UserError if there is none, which says whose pass it is, or which name is the closest.
        """
        if name in self.passes:
            return self.passes[name]
        listing = f"glowpy opt --list --backend {self._backend.name} shows all passes"
        for other in BACKENDS.values():
            if other.name != self._backend.name and name in OptDriver(other()).passes:
                raise UserError(
                    f"{name} is a pass of the {other.name} backend, expected one of the "
                    f"{self._backend.name} backend",
                    note=f"add --backend {other.name}",
                )
        closest = difflib.get_close_matches(name, self.passes, 1)
        note = f"did you mean {closest[0]}? {listing}" if closest else listing
        raise UserError(f"unknown pass '{name}'", note=note)

    def run(
        self,
        text: str,
        file: str,
        names: Sequence[str],
        ctx: PassContext,
        blobs: Mapping[str, Array] | None = None,
    ) -> str:
        """The text of what `text` spells after the named passes and stages.

        Args:
            text: A module, an IR function or a memory plan.
            file: Its name for error messages.
            names: Keys of `passes`, in order.
            ctx: Verifies, prints, explains and times as for any compilation.
            blobs: The elements of constants that the text shows only the digest of, by that.

        Raises UserError for a syntax error, an unknown pass and one for another level, VerifyError
        for broken rules.
        """
        for name in names:
            self.named(name)
        subject = self._parsed(text, file, blobs or {})
        _verify(subject)
        for name in names:
            stage = self._stages.get(name)
            subject = stage(subject, ctx) if stage is not None else self._run(name, subject, ctx)
            _verify(subject)
        return _printed(subject)

    def _parsed(self, text: str, file: str, blobs: Mapping[str, Array]) -> Subject:
        match Lexer(text, file).peek.text:
            case "irfunction":
                return parse_irfunction(text, file, extra=self._instructions)
            case "memory":
                return parse_plan(text, file)
            case _:
                return parse_module(text, file, extra=self._nodes, blobs=blobs)

    def _run(self, name: str, subject: Subject, ctx: PassContext) -> Subject:
        if isinstance(subject, Module) and name in self._graph:
            for f in subject.functions:
                Pipeline(name, (self._graph[name],)).run(f, ctx)
        elif isinstance(subject, IRFunction) and name in self._ir:
            for ir in (*subject.callees.values(), subject):
                ir.group(())  # runs are those of the instructions after all passes
                Pipeline(name, (self._ir[name],)).run(ir, ctx)
        else:
            note = "modules" if name in self._graph else "IR functions; irgen makes one of a module"
            raise UserError(f"{name}: expected text of another level", note=f"it works on {note}")
        return subject


def _runs(subject: Subject, ctx: PassContext) -> IRFunction:
    """Forms the runs of an IR function and of what it calls."""
    if not isinstance(subject, IRFunction):
        raise UserError("runs: expected an IR function", note="irgen makes one of a module")
    for ir in (*subject.callees.values(), subject):
        put_in_runs(ir, ctx)
    return subject


def _memory(subject: Subject, ctx: PassContext) -> MemoryPlan:
    """Plans the memory of an IR function, and checks the plan."""
    if not isinstance(subject, IRFunction):
        raise UserError("memory: expected an IR function", note="irgen makes one of a module")
    with ctx.timed("memory"):
        return plan_memory(subject)


def _verify(subject: Subject) -> None:
    match subject:
        case Module():
            verify_module(subject)
        case IRFunction():
            verify_irfunction(subject)
        case MemoryPlan():
            pass


def _printed(subject: Subject) -> str:
    match subject:
        case Module():
            return print_module(subject)
        case IRFunction():
            return print_irfunction(subject)
        case MemoryPlan():
            return print_plan(subject)
