"""Compiles functions for a backend and runs constant ones: the public face of the compiler's middle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.interpreter.evaluate import evaluate
from glowpy.graph.alone import alone, alone_key
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.passes import PassContext
from glowpy.plugins import BACKENDS, installed_operators, load_plugin, plugins
from glowpy.recipe import Compilation, refusals
from glowpy.runtime.compiled import CompiledFunction
from glowpy.steps import Steps
from glowpy.support.errors import UnsupportedError, UserError, expect_type
from glowpy.support.limits import within_limits
from glowpy.support.progress import report

__all__ = [
    "BACKENDS",
    "backend_class",
    "backend_of",
    "backend_with",
    "compilation",
    "compile",
    "compile_or_recall",
    "context",
    "evaluate",
    "known_instructions",
    "known_nodes",
    "package_of",
    "unsupported",
]

_MOST_ANSWERS = 10_000
"""The number of kinds of nodes a backend remembers answers about, before it begins anew."""


def backend_class(name: str) -> type[Backend]:
    """The class of the backend called `name`: one of glowpy's own, or of a package that is installed.

    Raises UserError if there is none, if packages are at odds about the name, and for a package that is broken.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    named = [plugin for plugin in plugins() if plugin.name == name]
    if not named:
        names = dict.fromkeys([*BACKENDS, *(plugin.name for plugin in plugins())])
        raise UserError(f"expected one of the backends {', '.join(names)}, got '{name}'")
    if len(named) > 1:
        packages = " and ".join(plugin.package for plugin in named)
        raise UserError(f"{packages} both have a backend '{name}'", note="uninstall one of them")
    return load_plugin(named[0])


def package_of(name: str) -> str:
    """The package and version that the backend called `name` comes from; empty for glowpy's own."""
    if name in BACKENDS:
        return ""
    return " ".join(plugin.package for plugin in plugins() if plugin.name == name)


def backend_of(name: str, threads: int | None = None, *, low_memory: bool | None = None) -> Backend:
    """The backend called `name`, with its default options but for those that are given.

    Raises UserError as `backend_class` does, and for options that the backend does not have.
    """
    cls = backend_class(name)
    given = {"threads": threads, "low_memory": low_memory}
    given = {option: value for option, value in given.items() if value is not None}
    if not given:
        return cls()
    options = cls.options_type
    names = () if options is None else [option.name for option in fields(options)]
    for option in given:
        if option not in names:
            raise UserError(f"the {name} backend has no option '{option}'", note="leave it out")
    assert options is not None
    return cls(options(**given))


def backend_with(
    backend: str | Backend, threads: int | None, *, low_memory: bool | None
) -> Backend:
    """A backend by its name, with these options. Raises UserError for options of one that is there already."""
    expect_type("threads", threads, int | None, "a number of threads")
    expect_type("low_memory", low_memory, bool | None, "whether weights take little memory")
    if isinstance(backend, str):
        return backend_of(backend, threads, low_memory=low_memory)
    for name, value in (("threads", threads), ("low_memory", low_memory)):
        if value is not None:
            raise UserError(
                f"expected {name} among the options of the backend, which is given as an object",
                note=f"CpuBackend(CpuOptions({name}={value}))",
            )
    return backend


def known_nodes(backend: type[Backend]) -> tuple[type[Node], ...]:
    """The node classes of `backend`, glowpy's own and installed operators: what text may name beside the core's."""
    classes = (cls for other in BACKENDS.values() for cls in other.nodes)
    others = (cls for operators in installed_operators() for cls in operators.nodes)
    return tuple(dict.fromkeys([*classes, *backend.nodes, *others]))


def known_instructions(backend: type[Backend]) -> tuple[type[Instruction], ...]:
    """Returns the instruction classes of `backend`, glowpy's own and installed operators: see `known_nodes`."""
    classes = (cls for other in BACKENDS.values() for cls in other.instructions)
    others = (cls for operators in installed_operators() for cls in operators.instructions)
    return tuple(dict.fromkeys([*classes, *backend.instructions, *others]))


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


def compile_or_recall(
    key: str,
    build: Callable[[], Module | Function],
    backend: Backend,
    options: CompileOptions,
    *,
    ctx: PassContext | None = None,
) -> CompiledFunction:
    """Recalls the function stored under `key`; else compiles what `build` returns, and stores it if the backend can.

    Args:
        key: Names everything that the function depends on.
        build: Makes the function, or a module with one. It is called only if nothing is remembered.
        backend: The backend to compile for.
        options: How to compile.
        ctx: Watches the passes, if anybody does: then they run, whatever is remembered.

    Raises what `build` and `compile` raise.
    """
    remembers = backend.remembers(options)
    key = f"{key} {options.code_key}".rstrip()
    if remembers and ctx is None and (recalled := backend.recall(key)) is not None:
        report("recall", 1, 1)
        return recalled
    function = compile(build(), backend, options, ctx=ctx)
    if remembers:
        backend.remember(key, function)
    return function
