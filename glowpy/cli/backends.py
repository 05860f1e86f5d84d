"""The option --backend, and the backend that it names, with the options that the command line has for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import wraps
from typing import Any, TypeVar, cast, get_args, get_type_hints

import click

from glowpy.backend import Backend
from glowpy.backend_choice import option_names
from glowpy.backends.cpu.options import CpuOptions, Precision
from glowpy.cli.completion import Items, beginning, complete_target
from glowpy.cli.verb import Number
from glowpy.engine import BACKENDS, backend_class
from glowpy.plugins import plugins
from glowpy.support.errors import UserError

__all__ = [
    "backend_option",
    "bound_backend",
    "chosen_backend",
    "computing_options",
    "option_group",
    "settings_option",
    "target_options",
]

F = TypeVar("F", bound=Callable[..., object])


def backend_option(default: str, text: str = "The backend to compile for.") -> Callable[[F], F]:
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
        shell_complete=_complete_backend,
    )


def _existing(ctx: click.Context, param: click.Parameter, name: str) -> str:
    del ctx, param
    return backend_class(name).name


def settings_option() -> Callable[[F], F]:
    """The option --set of a verb, for `bound_backend`: options of the chosen backend's own."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        shell_complete=_complete_setting,
        help="An option of the backend; may be given several times.",
    )


def computing_options() -> Callable[[F], F]:
    """The options --precision, --exact, --low-memory and --tune of a verb."""
    return option_group(
        click.option(
            "--precision",
            type=click.Choice(get_args(Precision)),
            default="f32",
            show_default=True,
            help="Compute products in f32 as they are, or in bf16, which rounds what is multiplied to 8 bits.",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Use no algorithm that rounds more: products with all their multiplications, long sums in parts.",
        ),
        click.option(
            "--low-memory",
            is_flag=True,
            help="Read weights from the memory of the model, where a copy in another layout would be faster.",
        ),
        click.option(
            "--tune",
            type=Number(finite=False),
            metavar="SECONDS",
            help="Tune matrix products on this machine for so long, and keep the result; 0 uses kept results only.",
        ),
        names=("precision", "exact", "low_memory", "tune"),
    )


def target_options() -> Callable[[F], F]:
    """The options --target, --cpu and --features of a verb."""
    return option_group(
        click.option(
            "--target",
            default="",
            shell_complete=complete_target,
            help="A preset (glowpy targets) or an LLVM triple; this machine if left out.",
        ),
        click.option("--cpu", default="", help="The LLVM name of the processor."),
        click.option("--features", default="", help="LLVM features, such as +avx2,-fma."),
        names=("target", "cpu", "features"),
    )


def option_group(*options: Callable[[F], F], names: tuple[str, ...]) -> Callable[[F], F]:
    """Options of a verb, which takes those of all groups as one argument: `cpu_options`, of type `CpuOptions`."""

    def add(verb: F) -> F:
        @wraps(verb)
        def collecting(**values: Any) -> object:
            before = values.pop("cpu_options", CpuOptions())
            group = {name: values.pop(name) for name in names}
            return verb(cpu_options=replace(before, **group), **values)

        decorated = cast("F", collecting)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add


def chosen_backend(ctx: click.Context) -> str:
    """The backend of a command line that is still being typed."""
    option = next(param for param in ctx.command.params if param.name == "backend")
    return str(ctx.params.get("backend") or option.default)


def _complete_backend(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    del ctx, param
    names = dict.fromkeys(BACKENDS, "") | {plugin.name: plugin.package for plugin in plugins()}
    return beginning(names, incomplete)


def _complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    del param
    types = _option_types(backend_class(chosen_backend(ctx)))
    return beginning({f"{name}=": type.__name__ for name, type in types.items()}, incomplete)


def bound_backend(name: str, options: CpuOptions, settings: Sequence[str] = ()) -> Backend:
    """The backend called `name` with options: those that verbs have for the CPU backend, and NAME=VALUE for any.

    Raises UserError for an unknown backend, for options that it does not have or that are given twice, and for values
    of another type than the option's.
    """
    cls = backend_class(name)
    values: dict[str, object] = {
        option.name: value
        for option in fields(options)
        if (value := getattr(options, option.name)) != option.default
    }
    for option_name in values:
        if option_name not in option_names(cls):
            raise UserError(
                f"the {name} backend has no option --{option_name.replace('_', '-')}",
                note="leave it out, or use --backend cpu",
            )
    types = _option_types(cls)
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"--set: expected NAME=VALUE, got '{setting}'")
        if key not in types:
            raise UserError(
                f"--set: the {name} backend has no option '{key}'; it has {', '.join(types) or 'none'}"
            )
        if key in values:
            raise UserError(f"--set {key}: the option is given twice")
        values[key] = _parsed(key, text, types[key])
    return cls(cls.options_type(**values)) if values and cls.options_type is not None else cls()


def _option_types(cls: type[Backend]) -> dict[str, type]:
    """The type of every option that can be written as text, by its name."""
    if cls.options_type is None:
        return {}
    types = get_type_hints(cls.options_type)
    names = [option.name for option in fields(cls.options_type) if option.init]
    return {name: types[name] for name in names if types[name] in (str, int, float, bool)}


def _parsed(name: str, text: str, type: type) -> object:
    """Raises UserError for text that is no value of the type."""
    try:
        return {"true": True, "false": False}[text] if type is bool else type(text)
    except (KeyError, ValueError):
        expected = "true or false" if type is bool else f"a value of type {type.__name__}"
        raise UserError(f"--set {name}: expected {expected}, got '{text}'") from None
