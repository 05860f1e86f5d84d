"""The backend that --backend names, with the options that the command line has for it."""

from __future__ import annotations

from dataclasses import fields

from glowpy.backend import Backend
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.engine import backend_class
from glowpy.support.errors import UserError

__all__ = ["bound_backend"]


def bound_backend(name: str, options: CpuOptions) -> Backend:
    """The backend called `name` with options.

    Raises UserError for an unknown backend, and for options that it does not have: they are those of the CPU backend
    and of backends that derive from it.
    """
    cls = backend_class(name)
    if issubclass(cls, CpuBackend):
        return cls(options)
    for option in fields(options):
        if getattr(options, option.name) != option.default:
            raise UserError(
                f"the {name} backend has no option --{option.name.replace('_', '-')}",
                note="leave it out, or use --backend cpu",
            )
    return cls()
