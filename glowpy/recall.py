"""Recalls functions from the memory of a backend, or compiles them now, for which alone the compiler is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from glowpy.backend import Backend, CompileOptions
from glowpy.support.progress import report

if TYPE_CHECKING:
    from glowpy.graph.function import Function, Module
    from glowpy.passes import PassContext
    from glowpy.runtime.compiled import CompiledFunction

__all__ = ["compile_or_recall"]


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
        backend: What to compile for.
        options: How to compile.
        ctx: Watches the passes, if anybody does: then they run, whatever is remembered.

    Raises what `build` and `compile` raise.
    """
    remembers = backend.remembers(options)
    key = f"{key} {options.code_key}".rstrip()
    if remembers and ctx is None and (recalled := backend.recall(key)) is not None:
        report("recall", 1, 1)
        return recalled
    from glowpy.engine import compile  # noqa: PLC0415 - the compiler

    function = compile(build(), backend, options, ctx=ctx)
    if remembers:
        backend.remember(key, function)
    return function
