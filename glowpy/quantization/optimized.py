"""Networks as they are profiled and quantized: optimized, and not lowered for any backend."""

from __future__ import annotations

from glowpy.backend import CompileOptions
from glowpy.engine import context
from glowpy.graph.function import Function, Module
from glowpy.graph.verifier import verify_module
from glowpy.opt.pipelines import GRAPH_DEFAULT
from glowpy.passes import Pipeline
from glowpy.recipe import run_on_all
from glowpy.support.errors import expect_type

__all__ = ["optimize", "optimized"]


def optimized(model: Module | Function) -> Function:
    """A copy of a function in a module of its own, optimized for no backend: what is profiled, and quantized.

    Raises VerifyError for a malformed graph, UserError for a module without a function or with several, and for what is
    no model.
    """
    expect_type(
        "model", model, Module | Function, "a Module or a Function, such as glowpy.load(path) gives"
    )
    f = model.main if isinstance(model, Module) else model
    work = f.module.clone().function(f.name)
    verify_module(work.module)
    optimize(work)
    return work


def optimize(f: Function) -> None:
    """Optimizes a function, and what it calls, for no backend."""
    run_on_all(Pipeline("optimize", GRAPH_DEFAULT, fixpoint=True), f, context(CompileOptions()))
