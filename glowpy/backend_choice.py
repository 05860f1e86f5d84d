"""Which backend: by its name, with options of whoever compiles. One is imported when it is asked for."""

from __future__ import annotations

from dataclasses import fields

from glowpy.backend import Backend
from glowpy.backends.builtin import BACKENDS
from glowpy.support.errors import UserError, expect_type

__all__ = ["backend_class", "backend_of", "backend_with", "option_names", "package_of"]


def backend_class(name: str) -> type[Backend]:
    """The class of the backend called `name`: one of glowpy's own, or of a package that is installed.

    Raises UserError if there is none, if packages are at odds about the name, and for a package that is broken.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    from glowpy.plugins import load_plugin, plugins  # noqa: PLC0415 - what it checks, the compiler has

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
    from glowpy.plugins import plugins  # noqa: PLC0415 - what it checks, the compiler has

    return " ".join(plugin.package for plugin in plugins() if plugin.name == name)


def backend_of(
    name: str,
    threads: int | None = None,
    *,
    low_memory: bool | None = None,
    precision: str | None = None,
) -> Backend:
    """The backend called `name`, with its default options but for those that are given.

    Raises UserError as `backend_class` does, and for options that the backend does not have.
    """
    cls = backend_class(name)
    given = {"threads": threads, "low_memory": low_memory, "precision": precision}
    given = {option: value for option, value in given.items() if value is not None}
    if not given:
        return cls()
    for option in given:
        if option not in option_names(cls):
            raise UserError(f"the {name} backend has no option '{option}'", note="leave it out")
    assert cls.options_type is not None
    return cls(cls.options_type(**given))


def option_names(cls: type[Backend]) -> list[str]:
    """The names of a backend's own options."""
    return [] if cls.options_type is None else [option.name for option in fields(cls.options_type)]


def backend_with(
    backend: str | Backend,
    threads: int | None,
    *,
    low_memory: bool | None,
    precision: str | None = None,
) -> Backend:
    """A backend by its name, with these options. Raises UserError for options of one that is there already."""
    expect_type("threads", threads, int | None, "a number of threads")
    expect_type("low_memory", low_memory, bool | None, "whether weights take little memory")
    expect_type("precision", precision, str | None, "f32 or bf16")
    if isinstance(backend, str):
        return backend_of(backend, threads, low_memory=low_memory, precision=precision)
    given = {"threads": threads, "low_memory": low_memory, "precision": precision}
    for name, value in given.items():
        if value is not None:
            raise UserError(
                f"expected {name} among the options of the backend, which is given as an object",
                note=_with_option(backend, name, value),
            )
    return backend


def _with_option(backend: Backend, name: str, value: object) -> str:
    """Says how a backend is given an option, if it has that; else to leave it out."""
    cls = type(backend)
    if cls.options_type is None or name not in option_names(cls):
        return "leave it out"
    return f"{cls.__name__}({cls.options_type.__name__}({name}={value}))"
