"""`Rules`: a table from class to function, the one extension mechanism."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from glowpy.support.errors import InternalError

__all__ = ["Rules"]

F = TypeVar("F", bound=Callable[..., object])


class Rules(Generic[F]):
    """Table of rules, one for each class of a kind.

    `@verify(ConvolutionNode)` adds a rule, `verify[type(node)]` reads it, and raises InternalError if there is none:
    who declared the class has forgotten it. A table stands beside the
    engine that reads it and is filled, at import time only, by modules of a higher layer. They are
    imported when a table is first asked for a rule it does not have: see `fill`.
    """

    fill: ClassVar[Callable[[], object]] = staticmethod(lambda: None)
    """Imports the modules with the rules of every table; does nothing after the first time.

    The package sets it, so that whoever begins at any module finds full tables, and programs that need no rules
    do not wait for them."""

    def __init__(self, name: str, remedy: str = "") -> None:
        self.name = name
        places = "glowpy/ops/ or in the folder of the class's backend"
        self._remedy = remedy or f"Declare one with @{name} in {places}."
        self._rules: dict[type, F] = {}

    def __call__(self, *classes: type) -> Callable[[F], F]:
        """Registers the decorated function for each class. Raises InternalError on a second rule for one class."""

        def add(function: F) -> F:
            for cls in classes:
                if cls in self._rules:
                    raise InternalError(
                        f"second '{self.name}' rule for {cls.__name__}, in {function.__module__}; "
                        f"the first is in {self._rules[cls].__module__}",
                        remedy="Keep one of them.",
                    )
                self._rules[cls] = function
            return function

        return add

    def __getitem__(self, cls: type) -> F:
        return self.required(cls)

    def required(self, cls: type, subject: str = "") -> F:
        """The rule for `cls`. Raises InternalError that names the class and, where it is known, what needs the rule."""
        rule = self.get(cls)
        if rule is None:
            missing = f"no '{self.name}' rule for {cls.__name__}"
            raise InternalError(
                f"{subject}: {missing}" if subject else missing, remedy=self._remedy
            )
        return rule

    def __contains__(self, cls: type) -> bool:
        return self.get(cls) is not None

    def get(self, cls: type) -> F | None:
        """The rule for `cls`, or None."""
        rule = self._rules.get(cls)
        if rule is None:
            Rules.fill()
            rule = self._rules.get(cls)
        return rule

    @property
    def classes(self) -> tuple[type, ...]:
        """All classes that have a rule."""
        Rules.fill()
        return tuple(self._rules)

    def missing(self, classes: Iterable[type]) -> list[type]:
        """Returns the classes that have no rule, of `classes`."""
        return [cls for cls in classes if cls not in self]
