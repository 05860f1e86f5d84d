"""Recalls functions from the cache, or compiles them now, for which alone the compiler is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from glowpy.backend import Backend, CompileOptions
from glowpy.backend_choice import package_of
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import LoadError
from glowpy.support.progress import report

if TYPE_CHECKING:
    from glowpy.graph.function import Function, Module
    from glowpy.runtime.compiled import CompiledFunction

__all__ = ["compile_or_recall", "maker_of"]


def maker_of(backend: Backend, options: CompileOptions) -> tuple[str, ...]:
    """Names what makes artifacts: the backend, its class, its package, and what it says itself that they depend on.

    Empty where the cache is not to have them. What tells of its runs is never there: it would say nothing of them, and
    who asks for it would get what does not.
    """
    if not options.cache or options.instrument or options.sanitize:
        return ()
    own, cls = backend.artifact_key(options), type(backend)
    if not own:
        return ()
    return backend.name, f"{cls.__module__}.{cls.__qualname__}", package_of(backend.name), own


def compile_or_recall(
    key: str, build: Callable[[], Module | Function], backend: Backend, options: CompileOptions
) -> CompiledFunction:
    """Loads the artifact that is in the cache under `key`; else compiles what `build` returns, and puts it there.

    Args:
        key: Names everything that the network depends on.
        build: Makes the function, or a module with one. It is called only if the cache has nothing, and before the
            compiler is imported.
        backend: What to compile for. It says whether artifacts are kept.
        options: How to compile.

    Raises what `build` and `compile` raise.
    """
    maker = maker_of(backend, options)
    entry = Key.of("program", key, options.code_key, *maker) if maker else None
    if entry is not None and (recalled := _recalled(entry, backend)) is not None:
        report("recall", 1, 1)
        return recalled
    built = build()
    from glowpy.engine import compile_artifact  # noqa: PLC0415 - the compiler

    artifact = compile_artifact(built, backend, options)
    function = backend.load(artifact, options)
    if entry is not None:
        write(entry, artifact.payload())
    return function


def _recalled(entry: Key, backend: Backend) -> CompiledFunction | None:
    """The function of an artifact in the cache, if all of its constants are there as well."""
    payload = read(entry)
    if payload is None:
        return None
    try:
        artifact = backend.device.parse(payload)
    except LoadError:  # it is damaged
        return None
    return backend.device.load(artifact)
