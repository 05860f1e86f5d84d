"""Attributes of classes that other modules have, which are imported when somebody asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, final

__all__ = ["imported"]


@final
class _Imported:
    """Descriptor for an object of a module that is imported at the first access."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return getattr(import_module(self._module), self._name)


def imported(module: str, name: str) -> Any:
    """An attribute of a class that is what a module has under a name."""
    return _Imported(module, name)
