"""Runs passes and stages by name on text of either level: `glowpy opt` and the file tests.

A text is a module, an IR function or a memory plan; the first word says which. `irgen` turns a
module into an IR function, and `memory` turns that into its memory plan. Without any names, the
text is parsed, verified and printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.engine import BACKENDS
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import MemoryPlan, parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate
from glowpy.lower import LowerPass
from glowpy.memory import check, plan
from glowpy.opt.pipelines import GRAPH_PASSES, IR_PASSES
from glowpy.passes import GraphPass, PassContext, Pipeline
from glowpy.schedule import schedule
from glowpy.support.errors import UserError
from glowpy.support.text import Lexer

__all__ = ["PASSES", "run_passes"]

_NODES = tuple(node for backend in BACKENDS.values() for node in backend.nodes)
_INSTRUCTIONS = tuple(inst for backend in BACKENDS.values() for inst in backend.instructions)

Subject = Module | IRFunction | MemoryPlan


def irgen(subject: Subject) -> IRFunction:
    """Schedules the only function of a module and generates its IR."""
    if not isinstance(subject, Module):
        raise UserError("irgen: expected a module", note="it makes an IR function of one")
    return generate(subject.main, schedule(subject.main), _INSTRUCTIONS)


def memory(subject: Subject) -> MemoryPlan:
    """Plans the memory of an IR function, and checks the plan."""
    if not isinstance(subject, IRFunction):
        raise UserError("memory: expected an IR function", note="irgen makes one of a module")
    found = plan(subject)
    check(subject, found)
    return found


_GRAPH: dict[str, GraphPass] = {
    **GRAPH_PASSES,
    "lower": LowerPass(InterpreterBackend().keeps),
}
_STAGES: dict[str, Callable[[Subject], Subject]] = {"irgen": irgen, "memory": memory}

PASSES: Mapping[str, object] = {**_GRAPH, **IR_PASSES, **_STAGES}
"""Everything `run_passes` knows, by name: passes over the graph, passes over the IR, and stages."""


def run_passes(text: str, file: str, names: Sequence[str], ctx: PassContext) -> str:
    """The text of what `text` spells after the named passes and stages.

    Args:
        text: A module, an IR function or a memory plan.
        file: Its name for error messages.
        names: Keys of `PASSES`, in order.
        ctx: Verifies, prints, explains and times as for any compilation.

    Raises UserError for a syntax error, an unknown pass and one for another level, VerifyError
    for broken rules.
    """
    for name in names:
        if name not in PASSES:
            known = ", ".join(PASSES)
            raise UserError(f"unknown pass '{name}'", note=f"the passes are {known}")
    subject = _parsed(text, file)
    _verify(subject)
    for name in names:
        stage = _STAGES.get(name)
        subject = stage(subject) if stage is not None else _run(name, subject, ctx)
        _verify(subject)
    return _printed(subject)


def _parsed(text: str, file: str) -> Subject:
    match Lexer(text, file).peek.text:
        case "irfunction":
            return parse_irfunction(text, file, extra=_INSTRUCTIONS)
        case "memory":
            return parse_plan(text, file)
        case _:
            return parse_module(text, file, extra=_NODES)


def _verify(subject: Subject) -> None:
    match subject:
        case Module():
            verify_module(subject)
        case IRFunction():
            verify_irfunction(subject)
        case MemoryPlan():
            pass


def _run(name: str, subject: Subject, ctx: PassContext) -> Subject:
    if isinstance(subject, Module) and name in _GRAPH:
        for f in subject.functions:
            Pipeline(name, (_GRAPH[name],)).run(f, ctx)
    elif isinstance(subject, IRFunction) and name in IR_PASSES:
        Pipeline(name, (IR_PASSES[name],)).run(subject, ctx)
    else:
        level = "modules" if name in _GRAPH else "IR functions"
        raise UserError(f"{name}: expected text of another level", note=f"it works on {level}")
    return subject


def _printed(subject: Subject) -> str:
    match subject:
        case Module():
            return print_module(subject)
        case IRFunction():
            return print_irfunction(subject)
        case MemoryPlan():
            return print_plan(subject)
