"""Parameters of a verb as one argument: click gives them one by one, and a dataclass holds them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["gathered"]

F = TypeVar("F", bound=Callable[..., object])


def gathered(kind: type[Any], argument: str = "options") -> Callable[[F], F]:
    """Gives a verb those of its parameters that are fields of a dataclass as one; it takes the others as they are.

    Args:
        kind: The dataclass. A verb has a parameter for every field.
        argument: The argument of the verb that is one of `kind`.
    """
    names = [field.name for field in fields(kind)]

    def add(verb: F) -> F:
        @wraps(verb)
        def gathering(**values: Any) -> object:
            group = {name: values.pop(name) for name in names}
            return verb(**{argument: kind(**group)}, **values)

        return cast("F", gathering)

    return add
