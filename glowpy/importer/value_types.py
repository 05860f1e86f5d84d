"""Types of values that a session computes with, and what takes values of the user's: also strings, sequences and maps.

No machine code has these. Readers say with them what goes in and out of a model, and of each of its graphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import countOf
from typing import Any, NoReturn, TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import DeclaredDim, meaningful, spelled_shape
from glowpy.importer.elements import dtype_named, kind_named
from glowpy.support.errors import UserError

__all__ = [
    "STRING",
    "UNDEFINED",
    "HostInfo",
    "HostValue",
    "MapType",
    "OptionalType",
    "SequenceType",
    "TensorType",
    "ValueType",
    "is_numeric",
    "is_strings",
    "strings",
]

STRING = "string"
"""Name of the elements of tensors of strings."""

UNDEFINED = "undefined"
"""Name of elements of which no type is known."""

HostValue: TypeAlias = Any
"""An array, of `str` objects for strings; a list for a sequence; a dict for a map; None for an empty optional."""


@dataclass(frozen=True)
class TensorType:
    """A tensor.

    Attributes:
        element: What its elements are, in ONNX's words: `float`, `int64`, `string`.
        dims: Sizes and names of symbolic dimensions, as the model declares them; None without a rank.
    """

    element: str
    dims: tuple[DeclaredDim, ...] | None = None

    def __str__(self) -> str:
        return f"tensor({self.element})"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype of arrays of it, of objects for strings. Raises UnsupportedError for complex numbers."""
        return np.dtype(object) if self.element == STRING else dtype_named(self.element)


@dataclass(frozen=True)
class SequenceType:
    """A sequence of values of one type."""

    item: ValueType

    def __str__(self) -> str:
        return f"seq({self.item})"


@dataclass(frozen=True)
class OptionalType:
    """A value of a type, or none."""

    item: ValueType

    def __str__(self) -> str:
        return f"optional({self.item})"


@dataclass(frozen=True)
class MapType:
    """A map: what keys are, as the elements of a tensor, and the type of the values."""

    key: str
    item: ValueType

    def __str__(self) -> str:
        return f"map({self.key},{self.item})"


ValueType: TypeAlias = TensorType | SequenceType | OptionalType | MapType


def is_strings(type: ValueType | None) -> bool:
    """Whether it is a tensor of strings."""
    return isinstance(type, TensorType) and type.element == STRING


def is_numeric(type: ValueType | None) -> bool:
    """Whether it is a tensor that machine code can have; what is not known is taken for one."""
    return type is None or (isinstance(type, TensorType) and not is_strings(type))


@dataclass(frozen=True)
class HostInfo:
    """An input or output as a model declares it, of any type that a session knows.

    Attributes:
        name: Its name.
        declared: Its type.
    """

    name: str
    declared: ValueType

    @property
    def type(self) -> str:
        """The type as ONNX spells it, such as `seq(tensor(float))`."""
        return str(self.declared)

    @property
    def names(self) -> list[DeclaredDim] | None:
        """The shape with all its names, also those that say nothing, such as `?`; None without a rank."""
        dims = self.declared.dims if isinstance(self.declared, TensorType) else None
        return None if dims is None else [*dims]

    @property
    def shape(self) -> list[DeclaredDim] | None:
        """Sizes, names of symbolic dimensions, None where a dimension is neither; None without a rank."""
        return meaningful(self.names)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype of arrays for it: of objects for all but tensors of numbers."""
        return self.declared.dtype if isinstance(self.declared, TensorType) else np.dtype(object)

    @property
    def kind(self) -> ElemKind | None:
        """The element kind that a tensor of numbers is kept in; None for all else."""
        if not isinstance(self.declared, TensorType) or is_strings(self.declared):
            return None
        return kind_named(self.declared.element)

    @property
    def is_optional(self) -> bool:
        """Whether a run may leave it out."""
        return isinstance(self.declared, OptionalType)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.type}"
        return f"{self.name} {self.type[7:-1]}{spelled_shape(self.shape)}"

    def value(self, given: object) -> HostValue:
        """Takes a user's value for an input. Raises UserError if it is of another type."""
        return self._taking(f"'{self.name}'", given)

    @cached_property
    def _taking(self) -> _Taking:
        return _taking(self.declared)

    def plain(self, content: object) -> HostValue:
        """Reads a value from JSON: lists for arrays and sequences, objects for maps, null for an empty optional.

        Raises UserError for what is of another type.
        """
        return _plain(f"'{self.name}'", self.declared, content)


_Taking: TypeAlias = Callable[[str, Any], HostValue]
"""Makes a value of what is given; the text is what messages call it."""


def _taking(type: ValueType) -> _Taking:
    """Returns a function that takes values of a type, which is inspected only once: every run takes some."""
    match type:
        case OptionalType():
            inner = _taking(type.item)
            return lambda what, given: None if given is None else inner(what, given)
        case SequenceType():
            return partial(_sequence, type, _are_numbers(type.item), _taking(type.item))
        case MapType():
            return partial(_map, type)
        case TensorType():
            return _tensors(type)


def _tensors(type: TensorType) -> _Taking:
    """The same for arrays."""
    checked = _checking(meaningful(type.dims))
    if is_strings(type):
        return lambda what, given: checked(what, strings(what, given))
    dtype = type.dtype

    def numbers(what: str, given: object) -> Array:
        array = np.asarray(given)
        if array.dtype != dtype:
            raise UserError(f"{what}: expected {dtype}, got {array.dtype}")
        return checked(what, array)

    return numbers


def _are_numbers(of: ValueType) -> Callable[[list[object]], bool]:
    """Returns whether all elements of a list are arrays of a type: an eighth of the time that each one takes."""
    if not isinstance(of, TensorType) or is_strings(of):
        return lambda given: False
    dtype, shape = of.dtype, meaningful(of.dims)
    if shape is not None and any(isinstance(dim, int) for dim in shape):
        return lambda given: False
    ranks = {len(shape)} if shape is not None else range(65)

    def are_numbers(given: list[object]) -> bool:
        for item in given:
            if type(item) is not np.ndarray or item.dtype is not dtype:
                return False
            if item.ndim not in ranks:
                return False
        return True

    return are_numbers


def _sequence(
    type: SequenceType,
    are_numbers: Callable[[list[object]], bool],
    inner: _Taking,
    what: str,
    given: Any,
) -> list[HostValue]:
    if isinstance(given, list) and are_numbers(given):
        return [*given]
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UserError(f"{what}: expected a list for {type}, got {_kind(given)}")
    return [inner(f"{what}[{i}]", item) for i, item in enumerate(given)]


def _map(type: MapType, what: str, given: Any) -> dict[Any, HostValue]:
    if not isinstance(given, Mapping):
        raise UserError(f"{what}: expected a dict for {type}, got {_kind(given)}")
    return {key: _scalar(f"{what}[{key!r}]", type.item, item) for key, item in given.items()}


def _plain(what: str, type: ValueType, content: Any) -> HostValue:
    """Arrays are as deep as their lists, which sequences begin; keys of maps are text in JSON."""
    match type:
        case OptionalType():
            return None if content is None else _plain(what, type.item, content)
        case SequenceType():
            items = content if isinstance(content, list) else _refuse(what, "a list", type, content)
            return [_plain(f"{what}[{i}]", type.item, item) for i, item in enumerate(items)]
        case MapType():
            return _plain_map(what, type, content)
        case TensorType():
            return (
                strings(what, content) if is_strings(type) else _plain_numbers(what, type, content)
            )


def _plain_map(what: str, type: MapType, content: Any) -> dict[Any, Any]:
    entries = content if isinstance(content, dict) else _refuse(what, "an object", type, content)
    if type.key == STRING:
        return entries
    try:
        return {int(key): item for key, item in entries.items()}
    except ValueError:
        raise UserError(f"{what}: expected keys that are integers for {type}") from None


def _plain_numbers(what: str, type: TensorType, content: Any) -> Array:
    dtype = type.dtype
    try:
        numbers = np.array(content)
        array: Array = numbers.astype(dtype)
        fits = numbers.dtype.kind in _TAKEN.get(dtype.kind, "iuf") or not numbers.size
        if fits and (dtype.kind not in "biu" or np.array_equal(array, numbers)):
            return array
    except (ValueError, TypeError, OverflowError):
        pass
    raise UserError(f"{what}: expected numbers for {type}, in lists of equal length")


_TAKEN = {"b": "b", "i": "iu", "u": "iu"}
"""The kinds of numbers that become others without a loss, by the kind that they become."""


def _refuse(what: str, expected: str, type: ValueType, given: object) -> NoReturn:
    raise UserError(f"{what}: expected {expected} for {type}, got {_kind(given)}")


def _scalar(what: str, type: ValueType, given: Any) -> HostValue:
    """An element of a map: a number or a text."""
    if isinstance(given, str) == is_strings(type) and isinstance(
        given, str | int | float | np.generic
    ):
        return given
    raise UserError(f"{what}: expected a value of {type}, got {_kind(given)}")


def _checking(shape: list[DeclaredDim] | None) -> Callable[[str, Array], Array]:
    """Returns a function that passes an array on, or raises UserError if the declared shape does not admit it."""
    if shape is None:
        return lambda what, array: array
    axes = [axis for axis, dim in enumerate(shape) if isinstance(dim, int)]
    sizes = [shape[axis] for axis in axes]

    def checked(what: str, array: Array) -> Array:
        given = array.shape
        if len(given) != len(shape) or [given[axis] for axis in axes] != sizes:
            declared, got = spelled_shape(shape), spelled_shape(given)
            raise UserError(f"{what}: expected the shape {declared}, got {got}")
        return array

    return checked


def _kind(given: object) -> str:
    return "None" if given is None else f"{type(given).__name__}"


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character in UTF-16, which Python's text may hold alone, and neither UTF-8 nor ONNX does."""


def strings(what: str, given: object) -> Array:
    """An array of `str` objects, from an array of text, of UTF-8 or of such objects, or nested lists.

    Raises UserError for elements that are no strings.
    """
    array: Array = np.asarray(given) if isinstance(given, np.ndarray) else np.array(given, object)
    if array.dtype.kind not in "OUST":
        raise UserError(f"{what}: expected an array of strings, got {array.dtype}")
    items = array.reshape(-1).tolist()
    if countOf(map(type, items), str) == len(items) and "".join(items).isascii():
        return array.astype(object)
    result = np.empty(array.size, object)
    result[:] = [_text(what, item) for item in items]
    return result.reshape(array.shape)


def _text(what: str, item: Any) -> str:
    """A string as Python has it. Raises UserError for anything else."""
    if isinstance(item, bytes):
        try:
            item = item.decode()
        except UnicodeDecodeError:
            raise UserError(f"{what}: expected strings in UTF-8, got {item[:40]!r}") from None
    if not isinstance(item, str):
        raise UserError(
            f"{what}: expected strings, got {'None' if item is None else type(item).__name__}"
        )
    if _SURROGATE.search(item):
        raise UserError(f"{what}: expected text that UTF-8 can spell, got {item[:40]!a}")
    return str(item)
