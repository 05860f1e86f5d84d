"""Typed access to an attribute by its name, as a descriptor of a node's or an instruction's class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar, final, overload

__all__ = ["AttrField"]

T = TypeVar("T", covariant=True)


class HasAttrs(Protocol):
    """A node or an instruction."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes by their names in the schema."""


@final
class AttrField(Generic[T]):
    """The attribute that the class variable is named after: `axis = AttrField[int]()`, read as `node.axis`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, cls: type) -> Self: ...
    @overload
    def __get__(self, owner: HasAttrs, cls: type) -> T: ...
    def __get__(self, owner: HasAttrs | None, cls: type) -> Self | T:
        if owner is None:
            return self
        value: T = owner.attrs[self._name]
        return value
