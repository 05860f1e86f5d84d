"""The order of the stages, as data: from a function to a program that a backend can make executable."""

from __future__ import annotations

from collections.abc import Collection

from glowpy.backend import Backend, CompileOptions, Port, Program
from glowpy.graph.function import Function
from glowpy.graph.node import Placeholder
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate
from glowpy.lower import LowerPass
from glowpy.memory import check, plan
from glowpy.opt.pipelines import GRAPH_DEFAULT, IR_DEFAULT
from glowpy.passes import PassContext, Pipeline
from glowpy.schedule import schedule
from glowpy.support.errors import Diagnostic, UnsupportedError

__all__ = ["build_program", "generate_ir", "graph_recipe", "reference_recipe"]


def graph_recipe(backend: Backend, options: CompileOptions) -> Pipeline[Function]:
    """Everything that happens to a function before it is scheduled, in order."""
    optimize = Pipeline("optimize", tuple(backend.pipeline(GRAPH_DEFAULT)), fixpoint=True)
    return Pipeline(
        "graph",
        (
            optimize,
            LowerPass(backend.keeps),
            optimize,
            *backend.post_lowering(options),
            optimize,
        ),
    )


def reference_recipe(backend: Backend) -> Pipeline[Function]:
    """The least that makes a function executable: what constant folding runs, and what tests compare with."""
    return Pipeline("reference", (LowerPass(backend.keeps),))


def generate_ir(f: Function, backend: Backend, ctx: PassContext) -> IRFunction:
    """Schedules a lowered function, generates its IR, and optimizes that."""
    with ctx.timed("schedule"):
        order = schedule(f)
    with ctx.timed("irgen"):
        ir = generate(f, order, backend.instructions)
    Pipeline("ir", (*IR_DEFAULT, *backend.ir_passes())).run(ir, ctx)
    return ir


def build_program(
    f: Function,
    ir: IRFunction,
    backend: Backend,
    ctx: PassContext,
    *,
    inputs: Collection[Placeholder] = (),
) -> Program:
    """Plans memory for the optimized IR of `f` and checks the result.

    `inputs` are what the program takes even if the optimizer left nothing that reads them.

    Raises UnsupportedError that lists every instruction the backend cannot run, with its location.
    """
    missing = [(inst, reason) for inst in ir.instructions if (reason := backend.unsupported(inst))]
    if missing:
        raise UnsupportedError.of(
            [Diagnostic(f"{backend.name} backend: {reason}", inst.loc) for inst, reason in missing]
        )
    with ctx.timed("memory"):
        verify_irfunction(ir)
        memory = plan(ir)
        check(ir, memory)
    used = [c for c in f.module.constants if c.name in ir.weights]
    return Program(
        ir,
        memory,
        {c.name: c.tensor for c in used},
        _ports(f, {*inputs, *f.inputs}),
        _ports(f, f.outputs),
    )


def _ports(f: Function, placeholders: Collection[Placeholder]) -> tuple[Port, ...]:
    """In the order of the module, which is the order of the user's model."""
    chosen = set(placeholders)
    return tuple(Port(p.original, p.name, p.type) for p in f.module.placeholders if p in chosen)
