"""The backends that glowpy itself has, by their names; each is imported when it is first asked for.

`pyproject.toml` names the same ones in the group of entry points in which other packages name theirs, so whoever lists
the group sees all. To find its own, glowpy does not look there: a checkout need not be installed, what is installed may
be older than the tree, and to read metadata takes longer than to open a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from glowpy.backend import Backend

__all__ = ["BACKENDS", "PLACES"]

PLACES: Mapping[str, str] = {
    "cpu": "glowpy.backends.cpu.backend:CpuBackend",
    "interpreter": "glowpy.backends.interpreter.backend:InterpreterBackend",
}
"""The module and the class of each, as entry points spell it."""


class _Builtin(Mapping[str, type[Backend]]):
    """The classes by the names of `PLACES`."""

    def __getitem__(self, name: str) -> type[Backend]:
        module, _, cls = PLACES[name].partition(":")
        backend: type[Backend] = getattr(import_module(module), cls)
        return backend

    def __contains__(self, name: object) -> bool:
        return name in PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


BACKENDS: Mapping[str, type[Backend]] = _Builtin()
"""Every backend of glowpy's own, by its name. Names can be listed without an import."""
