"""Takes the large tensors out of an ONNX file before it is parsed, so that no copy of the weights is made.

A message of protocol buffers is fields one after the other: a tag with the number of the field and how it is encoded,
then its content (https://protobuf.dev/programming-guides/encoding). `extract` walks over the messages that may hold a
tensor (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) and puts a *ticket* in place of the elements of every
large one: bytes that only this reading of this file can know, and how many tickets came before. `Extracted` knows what
they are for.

What is not well formed is left as it is: the parser says so better.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from glowpy.support.protobuf import field_header

__all__ = ["Extracted", "Span", "extract"]

Buffer: TypeAlias = bytes | memoryview

Span: TypeAlias = tuple[int, int]
"""Where elements lie in the file: the first byte, and how many there are."""

_LARGE = 1 << 12
"""Messages of fewer bytes are not looked into, and such tensors stay where they are."""

_MAX_DEPTH = 64
"""Messages within so many others are not looked into; the parser takes no more than 100."""

_MAX_FIELDS = 1 << 20
"""A file in which more fields have to be looked at is left to the parser, which is faster."""

_WINDOW = 1 << 16

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _FUNCTION, _TENSOR, _SPARSE = range(7)

_CHILDREN: Mapping[int, Mapping[int, int]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _FUNCTION: {7: _NODE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
}
"""For each message, which fields hold a message that may hold a tensor."""

_SINGULAR: Mapping[int, Collection[int]] = {_MODEL: {7}, _ATTRIBUTE: {5, 6, 22}, _SPARSE: {1, 2}}
"""Those of them that a message has at most once."""

_LISTS = (7, 8, 9)
"""The fields of an attribute that hold floats, integers and texts: trees have millions of them, each a field."""

_DATA_TYPE, _RAW_DATA = 2, 9

_PACKED = {1: 4, 11: 10}
"""Element types whose own field, packed, holds the same bytes as raw data: FLOAT, float_data; DOUBLE, double_data."""


@dataclass
class Extracted:
    """The parts taken out of a file: the span of each, by the ticket that stands for it."""

    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _spans: list[Span] = field(default_factory=list)

    def take(self, span: Span) -> bytes:
        """The ticket of what lies at `span`."""
        self._spans.append(span)
        return self._secret + (len(self._spans) - 1).to_bytes(8, "little")

    def span(self, content: bytes) -> Span | None:
        """Where the elements lie for which `content` is the ticket; None if it is none."""
        if len(content) != 24 or not content.startswith(self._secret):
            return None
        return self._spans[int.from_bytes(content[16:], "little")]

    def parts(self, size: int) -> Iterator[Span]:
        """Yields the parts that were taken out of a file of `size` bytes, and those between, in order."""
        at = 0
        for start, count in self._spans:
            yield at, start - at
            yield start, count
            at = start + count
        yield at, size - at


class _MalformedError(Exception):
    """The content is no message."""


def extract(size: int, read: Callable[[int, int], Buffer]) -> tuple[bytes, Extracted]:
    """A model file of so many bytes without its large tensors, and these; `read` gives bytes from one on."""
    extracted = Extracted()
    view = _View(size, read)
    try:
        parts = _message(view, 0, size, _MODEL, extracted, 0)
    except _MalformedError:
        parts, extracted = None, Extracted()
    return b"".join(parts or [view.part(0, size)]), extracted


class _View:
    """The bytes of a file, read in windows. It counts fields: a file of nothing else is left to the parser."""

    def __init__(self, size: int, read: Callable[[int, int], Buffer]) -> None:
        self._size, self._read = size, read
        self._start, self._window = 0, memoryview(b"")
        self._fields = 0

    def count_field(self) -> None:
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise _MalformedError

    def byte(self, at: int) -> int:
        if not 0 <= at - self._start < len(self._window):
            self._start = at
            self._window = memoryview(self._read(at, min(_WINDOW, self._size - at)))
        return self._window[at - self._start]

    def part(self, start: int, end: int) -> Buffer:
        return self._read(start, end - start)


def _message(
    view: _View, start: int, end: int, kind: int, extracted: Extracted, depth: int
) -> list[Buffer] | None:
    """The message between `start` and `end`, in parts, with tickets in it; None if nothing was taken out."""
    if end - start < _LARGE or depth > _MAX_DEPTH:
        return None
    if kind == _TENSOR:
        return _tensor(view, start, end, extracted)
    parts: list[Buffer] = []
    copied = start
    children = _CHILDREN[kind]
    met: set[int] = set()
    for number, wire, begin, first, last in _fields(view, start, end):
        if kind == _ATTRIBUTE and number in _LISTS and not met:
            return None  # what it is
        child = children.get(number) if wire == _BYTES else None
        if child is not None and number in _SINGULAR.get(kind, ()):
            if number in met:
                raise _MalformedError  # the parser makes one message of both
            met.add(number)
        inner = None if child is None else _message(view, first, last, child, extracted, depth + 1)
        if inner is not None:
            parts += [view.part(copied, begin), *_field(number, inner)]
            copied = last
    return [*parts, view.part(copied, end)] if parts else None


def _tensor(view: _View, start: int, end: int, extracted: Extracted) -> list[Buffer] | None:
    """A tensor whose elements are one large field; as it is where they come in several."""
    type = 0
    data: dict[int, tuple[int, int, int]] = {}
    for number, wire, begin, first, last in _fields(view, start, end):
        if (number, wire) == (_DATA_TYPE, _VARINT):
            type = _varint(view, first, end)[0]
        elif number in (_RAW_DATA, *_PACKED.values()):
            if wire != _BYTES or number in data:
                return None
            data[number] = begin, first, last
    fields = {
        number: place for number, place in data.items() if number in (_RAW_DATA, _PACKED.get(type))
    }
    if len(fields) != 1:
        return None
    ((begin, first, last),) = fields.values()
    if last - first < _LARGE:
        return None
    ticket = extracted.take((first, last - first))
    return [view.part(start, begin), *_field(_RAW_DATA, [ticket]), view.part(last, end)]


def _field(number: int, parts: list[Buffer]) -> list[Buffer]:
    length = sum(len(part) for part in parts)
    return [field_header(number, length), *parts]


def _fields(view: _View, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields for each field its number, its encoding, where it begins, and from where to where its content is."""
    at = start
    while at < end:
        begin = at
        tag, at = _varint(view, at, end)
        number, wire = tag >> 3, tag & 7
        view.count_field()
        first, at = _CONTENT.get(wire, _unknown)(view, at, end)
        if at > end:
            raise _MalformedError
        yield number, wire, begin, first, at


def _unknown(view: _View, at: int, end: int) -> tuple[int, int]:
    raise _MalformedError


def _bytes_content(view: _View, at: int, end: int) -> tuple[int, int]:
    length, first = _varint(view, at, end)
    return first, first + length


_CONTENT: Mapping[int, Callable[[_View, int, int], tuple[int, int]]] = {
    _VARINT: lambda view, at, end: (at, _varint(view, at, end)[1]),
    _FIXED64: lambda view, at, end: (at, at + 8),
    _BYTES: _bytes_content,
    _FIXED32: lambda view, at, end: (at, at + 4),
}
"""For each encoding, from where to where the content of a field is."""


def _varint(view: _View, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = view.byte(at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _MalformedError
