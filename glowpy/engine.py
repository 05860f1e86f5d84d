"""Compiles functions for a backend and runs constant ones: the public face of the compiler's middle."""

from __future__ import annotations

from glowpy.backend import Backend, CompileOptions
from glowpy.backend_choice import backend_class, backend_of, backend_with, package_of
from glowpy.backends.builtin import BACKENDS
from glowpy.backends.interpreter.evaluate import evaluate
from glowpy.graph.alone import alone, alone_key
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.passes import PassContext
from glowpy.plugins import installed_operators
from glowpy.recipe import Compilation, refusals
from glowpy.runtime.artifact import Artifact
from glowpy.runtime.compiled import CompiledFunction
from glowpy.step_log import Steps
from glowpy.support.errors import UnsupportedError, expect_type
from glowpy.support.limits import within_limits

__all__ = [
    "BACKENDS",
    "backend_class",
    "backend_of",
    "backend_with",
    "compilation",
    "compile",
    "compile_artifact",
    "context",
    "evaluate",
    "known_instructions",
    "known_nodes",
    "package_of",
    "unsupported",
]

_MOST_ANSWERS = 10_000
"""The number of kinds of nodes a backend remembers answers about, before it begins anew."""


def known_nodes(*backends: type[Backend]) -> tuple[type[Node], ...]:
    """The node classes of `backends`, glowpy's own and installed operators: what text may name beside the core's."""
    classes = (cls for backend in (*BACKENDS.values(), *backends) for cls in backend.nodes)
    others = (cls for operators in installed_operators() for cls in operators.nodes)
    return tuple(dict.fromkeys([*classes, *others]))


def known_instructions(*backends: type[Backend]) -> tuple[type[Instruction], ...]:
    """Returns the instruction classes of `backends`, glowpy's own and installed operators: see `known_nodes`."""
    classes = (cls for backend in (*BACKENDS.values(), *backends) for cls in backend.instructions)
    others = (cls for operators in installed_operators() for cls in operators.instructions)
    return tuple(dict.fromkeys([*classes, *others]))


def unsupported(node: Node, backend: Backend) -> list[str]:
    """Why a backend cannot run a node, whatever lowering and optimizing make of it; empty if it can.

    The node need not be lowered, and nothing is done to it: what is tried is a network of this node alone, with the
    same inputs constant. The backend remembers the answer for equal nodes. Functions that the node calls are made of
    nodes, which are to be asked about by themselves.
    """
    if node.callees:
        return []
    key = alone_key(node)
    answers = backend.answers
    if key not in answers:
        if len(answers) >= _MOST_ANSWERS:
            answers.clear()
        answers[key] = _reasons(node, backend)
    return list(answers[key])


def _reasons(node: Node, backend: Backend) -> tuple[str, ...]:
    options = CompileOptions()
    try:
        ir = Compilation(alone(node).main, backend, options, context(options)).ir
    except UnsupportedError as error:
        return tuple(diagnostic.message for diagnostic in error.diagnostics)
    return tuple(reason for _, reason in refusals(ir, backend))


def context(options: CompileOptions) -> PassContext:
    """A pass context whose `evaluate` is the interpreter, with the steps that the options allow."""
    steps = Steps(options.stop_after, options.disabled, options.recorded)
    return PassContext(evaluate, verify_each=options.verify_each, steps=steps)


def compilation(
    model: Module | Function,
    backend: str | Backend = "cpu",
    options: CompileOptions | None = None,
    *,
    ctx: PassContext | None = None,
) -> Compilation:
    """The compilation of a function, none of whose stages is computed yet.

    Args:
        model: The function, or a module with one function. It is not changed.
        backend: `cpu` (machine code for this processor) or `interpreter` (numpy, the reference), or a backend with
            options, such as `CpuBackend(CpuOptions(cpu="x86-64-v3"))`.
        options: Verification, caching, instrumentation.
        ctx: Where times and dumps go; made from the options if absent.

    Raises UserError for an unknown backend, arguments of other types, and a module without a function or with several.
    """
    expect_type("model", model, Module | Function, "a Module or Function, as glowpy.load gives")
    expect_type("backend", backend, str | Backend, "a Backend or its name")
    expect_type("options", options, CompileOptions | None, "CompileOptions")
    target = backend_of(backend) if isinstance(backend, str) else backend
    chosen_options = options or CompileOptions()
    f = model.main if isinstance(model, Module) else model
    return Compilation(f, target, chosen_options, ctx or context(chosen_options))


@within_limits
def compile_artifact(
    model: Module | Function,
    backend: str | Backend = "cpu",
    options: CompileOptions | None = None,
    *,
    ctx: PassContext | None = None,
) -> Artifact:
    """Compiles a function without loading it: the backend's `device` does, or that of an equal one in another process.

    The arguments are those of `compilation`. Raises what `compile` raises.
    """
    stages = compilation(model, backend, options, ctx=ctx)
    try:
        return stages.artifact
    finally:
        stages.close()


@within_limits
def compile(
    model: Module | Function,
    backend: str | Backend = "cpu",
    options: CompileOptions | None = None,
    *,
    ctx: PassContext | None = None,
) -> CompiledFunction:
    """Turns a function into something that runs.

    The arguments are those of `compilation`.

    Raises VerifyError for a malformed graph, UnsupportedError for what the backend cannot run.
    """
    stages = compilation(model, backend, options, ctx=ctx)
    try:
        return stages.compiled
    finally:
        stages.close()
