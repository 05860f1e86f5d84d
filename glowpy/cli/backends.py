"""The option --backend, and the backend that it names, with the options that the command line has for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

import click

from glowpy.backend import Backend
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.engine import BACKENDS, backend_class
from glowpy.support.errors import UserError

__all__ = ["backend_option", "bound_backend"]

F = TypeVar("F", bound=Callable[..., object])


def backend_option(default: str, text: str = "What to compile for.") -> Callable[[F], F]:
    """The option --backend of a verb. Which names there are is known when one is asked for.

    Raises UserError for a name that is none, before the verb begins.
    """
    names = f"{text} One of {', '.join(BACKENDS)}, or of an installed package: see glowpy doctor."
    return click.option(
        "--backend",
        metavar="NAME",
        default=default,
        show_default=True,
        help=names,
        callback=_existing,
    )


def _existing(ctx: click.Context, param: click.Parameter, name: str) -> str:
    del ctx, param
    return backend_class(name).name


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
