"""Adapters: tensors in a file that take the places of overridable initializers, such as those of LoRA.

The file is a FlatBuffer (https://flatbuffers.dev/internals) of one table with a vector of tables, little-endian: small
enough to be read and written here. Whatever it refers to is looked at before it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import final

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.elements import kind_of
from glowpy.onnxruntime.values import OrtValue
from glowpy.support.errors import UnsupportedError

__all__ = ["AdapterFormat", "LoraAdapter"]

_MAGIC = b"TORT"
_VERSION = 1
"""The version of the format of files."""

_Versions = tuple[int, int, int]


@final
class AdapterFormat:
    """The tensors of an adapter by name, and the versions of the adapter and its model."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._versions: _Versions = (_VERSION, 0, 0) if adapter is None else adapter._versions
        self._parameters: dict[str, OrtValue] = {} if adapter is None else adapter.get_parameters()

    @staticmethod
    def read_adapter(file_path: str | PathLike[str]) -> AdapterFormat:
        """Reads an adapter from a file. Raises RuntimeError for one that is missing, damaged, or of another format."""
        adapter = AdapterFormat()
        try:
            content = Path(file_path).read_bytes()
            adapter._versions, adapter._parameters = _read(content)
        except (OSError, struct.error, UnsupportedError, UnicodeDecodeError, ValueError) as error:
            raise RuntimeError(f"cannot read the adapter '{file_path}': {error}") from None
        return adapter

    def export_adapter(self, file_path: str | PathLike[str]) -> None:
        """Writes a file. Raises RuntimeError for tensors of strings, and for a file that cannot be written."""
        content = _written(self._versions, self._parameters)
        try:
            Path(file_path).write_bytes(content)
        except OSError as error:
            raise RuntimeError(f"cannot write the adapter '{file_path}': {error}") from None

    def get_format_version(self) -> int:
        """The version of the file's format."""
        return self._versions[0]

    def set_adapter_version(self, adapter_version: int) -> None:
        """Says which version of the adapter it is."""
        self._versions = self._versions[0], adapter_version, self._versions[2]

    def get_adapter_version(self) -> int:
        """Which version of the adapter it is."""
        return self._versions[1]

    def set_model_version(self, model_version: int) -> None:
        """Says for which version of the model it is."""
        self._versions = *self._versions[:2], model_version

    def get_model_version(self) -> int:
        """The version of the model that it is for."""
        return self._versions[2]

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Takes these tensors in place of all others."""
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """The tensors by name."""
        return dict(self._parameters)


@final
class LoraAdapter:
    """An adapter for `RunOptions.add_active_adapter`."""

    def __init__(self) -> None:
        self._parameters: dict[str, OrtValue] = {}

    def Load(self, file_path: str | PathLike[str]) -> None:  # noqa: N802 -- the name is onnxruntime's
        """Reads a file. Raises RuntimeError as `AdapterFormat.read_adapter` does."""
        self._parameters = AdapterFormat.read_adapter(file_path).get_parameters()

    @property
    def arrays(self) -> dict[str, Array]:
        """The tensors by name."""
        return {name: value.numpy() for name, value in self._parameters.items()}


# Reading.


def _number(content: bytes, form: str, place: int) -> int:
    if place < 0:
        raise ValueError("it is damaged")
    (number,) = struct.unpack_from(form, content, place)
    return int(number)


def _target(content: bytes, place: int) -> int:
    """Where the offset at a place leads."""
    return place + _number(content, "<I", place)


def _fields(content: bytes, table: int) -> list[int]:
    """Where the first four fields of a table are; 0 for those that it does not have."""
    vtable = table - _number(content, "<i", table)
    count = (_number(content, "<H", vtable) - 4) // 2
    offsets = [_number(content, "<H", vtable + 4 + 2 * i) if i < count else 0 for i in range(4)]
    return [table + offset if offset else 0 for offset in offsets]


def _vector(content: bytes, place: int, size: int) -> tuple[int, int]:
    """The first element of the vector that an offset leads to, and how many there are; elements take `size` bytes."""
    start = _target(content, place)
    count = _number(content, "<I", start)
    if start + 4 + count * size > len(content):
        raise ValueError("it ends too early")
    return start + 4, count


def _read(content: bytes) -> tuple[_Versions, dict[str, OrtValue]]:
    if content[4:8] != _MAGIC:
        raise ValueError("expected an adapter file")
    fields = _fields(content, _target(content, 0))
    form, adapter, model = (_number(content, "<i", at) if at else 0 for at in fields[:3])
    if form != _VERSION:
        raise ValueError(f"expected the format {_VERSION}, got {form}")
    start, count = _vector(content, fields[3], 4) if fields[3] else (0, 0)
    tables = [_target(content, start + 4 * index) for index in range(count)]
    return (form, adapter, model), dict(_parameter(content, table) for table in tables)


def _parameter(content: bytes, table: int) -> tuple[str, OrtValue]:
    name_at, dims_at, type_at, data_at = _fields(content, table)
    if not (name_at and type_at and data_at):
        raise ValueError("a tensor has no name, type or elements")
    start, length = _vector(content, name_at, 1)
    name = content[start : start + length].decode()
    start, rank = _vector(content, dims_at, 8) if dims_at else (0, 0)
    shape = struct.unpack_from(f"<{rank}q", content, start) if rank else ()
    kind = kind_of(_number(content, "<i", type_at))
    start, size = _vector(content, data_at, 1)
    raw = np.frombuffer(content, np.uint8, size, start)
    return name, OrtValue(raw.copy().view(kind.dtype).reshape(shape))


# Writing: every object after those that refer to it, since offsets lead forwards.

_VTABLE = struct.pack("<6H", 12, 20, 4, 8, 12, 16)
"""The layout of a table with four fields of four bytes each."""


class _Buffer:
    """A buffer of bytes that grows."""

    def __init__(self, head: bytes) -> None:
        self.content = bytearray(head)

    def table(self, *fields: int) -> int:
        """A table with its vtable before it; the place of its first field."""
        self.align(4)
        self.content += _VTABLE + struct.pack("<i4i", len(_VTABLE), *fields)
        return len(self.content) - 16

    def align(self, alignment: int, after: int = 0) -> None:
        """Fills up so that what comes `after` further bytes is aligned."""
        self.content += bytes(-(len(self.content) + after) % alignment)

    def refer(self, place: int) -> None:
        """Lets the offset at a place lead to what comes next."""
        struct.pack_into("<I", self.content, place, len(self.content) - place)

    def vector(self, place: int, elements: bytes, count: int, alignment: int = 4) -> int:
        """A vector that the offset at a place leads to; where its elements are."""
        self.align(max(alignment, 4), 4)
        self.refer(place)
        self.content += struct.pack("<I", count)
        start = len(self.content)
        self.content += elements
        return start


def _written(versions: _Versions, parameters: Mapping[str, OrtValue]) -> bytes:
    buffer = _Buffer(bytes(4) + _MAGIC)
    root = buffer.table(*versions, 0)
    struct.pack_into("<I", buffer.content, 0, root - 4)
    start = buffer.vector(root + 12, bytes(4 * len(parameters)), len(parameters))
    for index, (name, value) in enumerate(parameters.items()):
        if value.data_type() == "tensor(string)":
            raise RuntimeError(f"parameter '{name}': STRING tensors cannot be in an adapter")
        array = np.require(value.numpy(), requirements="C")
        fields = buffer.table(0, 0, value.element_type(), 0)
        struct.pack_into("<I", buffer.content, start + 4 * index, fields - 4 - start - 4 * index)
        text = name.encode()
        buffer.vector(fields, text + b"\0", len(text))
        dims = struct.pack(f"<{array.ndim}q", *array.shape)
        buffer.vector(fields + 4, dims, array.ndim, alignment=8)
        buffer.vector(fields + 12, array.tobytes(), array.nbytes, alignment=8)
    buffer.align(8)
    return bytes(buffer.content)
