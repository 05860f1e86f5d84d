"""`TensorProto` to `Tensor`: element kinds, sizes that agree, and external data that stays in the model's folder."""

from __future__ import annotations

import math
import os
import stat
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, numpy_helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE, Array, Tensor, stored_key
from glowpy.core.type import Type
from glowpy.importer.elements import PACKED, kind_of
from glowpy.importer.onnx.narrow import unpacked
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.storage import InFile, InMemory, Storage
from glowpy.support.errors import LoadError, UserError
from glowpy.support.symbolic import ceil_div

__all__ = [
    "decode",
    "decode_all",
    "decode_sparse",
    "number_in",
    "open_external",
]


_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
"""Which field holds the elements that are not raw; int32_data for the rest."""

_MAX_DENSE = 1 << 30
"""A sparse tensor is made dense, and a few bytes of a file may say that it has any size."""

_SAMPLE = 512
"""Only a large tensor that begins with so many equal bytes is looked at, whether all its elements are the same."""


def decode(proto: TensorProto, stores: Stores) -> Tensor:
    """The elements of a tensor; those of a large one are read when they are asked for.

    Raises UnsupportedError for an element type, UserError for dimensions that overflow or do not match the
    elements, and for external data that is missing, out of range, or not a plain file in the model's folder or below.
    """
    type = Type(kind_of(proto.data_type), tuple(proto.dims))
    bits = PACKED.get(proto.data_type, 8 * type.kind.size)
    if external_data_helper.uses_external_data(proto):
        return _stored(proto.name, type, bits, *_external(proto, type, bits, stores))
    span = stores.extracted.span(proto.raw_data) if proto.HasField("raw_data") else None
    if span is not None:
        return _stored(proto.name, type, bits, stores.own, *span)
    if proto.HasField("raw_data"):
        return _stored(proto.name, type, bits, InMemory(proto.raw_data), 0, len(proto.raw_data))
    got = len(getattr(proto, _FIELDS.get(proto.data_type, "int32_data")))
    expected = _size(type, bits) if bits in (2, 4) else type.count  # of 6 bits each has an entry
    if got != expected:
        raise UserError(
            f"tensor '{proto.name}': expected {expected} elements for {type}, got {got}"
        )
    try:
        array: Array = numpy_helper.to_array(proto)
    except (OverflowError, ValueError, TypeError) as error:
        raise UserError(f"tensor '{proto.name}': {error}") from None
    return Tensor(type, np.asarray(array, dtype=type.kind.dtype).reshape(type.extents))


def _size(type: Type, bits: int) -> int:
    """How many bytes elements of so many bits take."""
    return ceil_div(math.prod(type.extents) * bits, 8)


def _stored(name: str, type: Type, bits: int, storage: Storage, start: int, length: int) -> Tensor:
    """A tensor whose elements are stored as raw data: the lowest byte of each first, row by row."""
    if length != _size(type, bits):
        raise UserError(
            f"tensor '{name}': expected {_size(type, bits)} bytes for {type}, got {length}"
        )

    def elements() -> Array:
        raw = storage.read(start, length)
        if bits < 8:
            raw = unpacked(raw, bits, signed=type.kind is ElemKind.I8)[: type.count]
        return _elements(raw, type.kind).reshape(type.extents)

    def key() -> str:
        digest = storage.digest(start, length)
        return stored_key(type, digest if bits >= 8 else f"{digest} {bits} bits")

    if type.size < LARGE:
        return Tensor(type, elements().copy())  # a view would keep all of a model that is in memory
    first = storage.read(start, _SAMPLE).reshape(-1, type.kind.size)
    if (first == first[0]).all():
        splat = Tensor(type, elements()).compact()
        if splat.splat_value is not None:
            return splat
    return Tensor.deferred(type, key, elements)


def _elements(raw: Array, kind: ElemKind) -> Array:
    if kind is ElemKind.BOOL:
        return np.asarray(raw != 0)
    elements = raw.view(kind.dtype)
    return elements if sys.byteorder == "little" else elements.byteswap()


def decode_sparse(proto: onnx.SparseTensorProto, stores: Stores) -> Tensor:
    """The dense form of a sparse tensor. Raises UserError where indices lie outside of it, and what `decode` raises."""
    values, indices = decode(proto.values, stores), decode(proto.indices, stores)
    type = Type(values.type.kind, tuple(proto.dims))
    flat = indices.array.astype(np.int64)
    if flat.ndim == 2 and flat.shape[1] == type.rank:
        inside = bool(((flat >= 0) & (flat < np.array(type.extents))).all())
        flat = np.ravel_multi_index(tuple(flat.T), type.extents) if inside else flat
    else:
        inside = flat.ndim == 1 and bool(((flat >= 0) & (flat < math.prod(type.extents))).all())
    if not inside or len(flat) != values.type.count:
        raise UserError(f"sparse tensor '{proto.values.name}': expected indices inside of {type}")
    if type.size > _MAX_DENSE:
        raise UserError(
            f"sparse tensor '{proto.values.name}': expected at most {_MAX_DENSE} bytes when it is dense, got {type}"
        )
    dense = np.zeros(type.extents, type.kind.dtype).reshape(-1)
    dense[flat] = values.array
    return Tensor(type, dense.reshape(type.extents))


def decode_all(
    graph: onnx.GraphProto, stores: Stores
) -> tuple[dict[str, Tensor], dict[str, UserError]]:
    """The tensors stored in a graph, and what is wrong with those that cannot be read, by name."""
    tensors: dict[str, Tensor] = {}
    wrong: dict[str, UserError] = {}
    pairs: list[tuple[str, TensorProto | onnx.SparseTensorProto]] = [
        *((proto.name, proto) for proto in graph.initializer),
        *((proto.values.name, proto) for proto in graph.sparse_initializer),
    ]
    for name, proto in pairs:
        try:
            if isinstance(proto, TensorProto):
                tensors[name] = decode(proto, stores)
            else:
                tensors[name] = decode_sparse(proto, stores)
        except UserError as error:
            wrong[name] = error
    return tensors, wrong


def external_span(proto: TensorProto, stores: Stores) -> tuple[InFile, int, int]:
    """The file of external data, the first byte in it, and how many there are. Raises UserError as `decode` does."""
    type = Type(kind_of(proto.data_type), tuple(proto.dims))
    return _external(proto, type, PACKED.get(proto.data_type, 8 * type.kind.size), stores)


def _external(proto: TensorProto, type: Type, bits: int, stores: Stores) -> tuple[InFile, int, int]:
    """The same of a tensor of a known type."""
    size = _size(type, bits)
    entries = {entry.key: entry.value for entry in proto.external_data}
    file, location = open_external(proto, stores), entries.get("location", "")
    offset = number_in(proto.name, "offset", entries.get("offset", "0"))
    length = number_in(proto.name, "length", entries.get("length", str(size)))
    if length != size:
        raise UserError(
            f"tensor '{proto.name}': expected {size} bytes of external data for {type}, got {length}"
        )
    if offset + length > file.size:
        raise UserError(
            f"tensor '{proto.name}': expected external data up to byte {offset + length}, "
            f"but '{location}' has {file.size}"
        )
    return file, offset, length


def open_external(proto: TensorProto, stores: Stores) -> InFile:
    """The file that holds the external data of a tensor.

    Raises UserError where it is missing, or not a plain file in the model's folder or below.
    """
    if stores.folder is None:
        raise UserError(
            f"tensor '{proto.name}' has external data, which only a model read from a file can have",
            note="load the model by its path",
        )
    locations = [entry.value for entry in proto.external_data if entry.key == "location"]
    location = locations[-1] if locations else ""
    path = _checked_location(proto.name, location, stores.folder, stores.model)
    try:
        return stores.file(path)
    except LoadError as error:
        raise UserError(f"tensor '{proto.name}': cannot read external data: {error}") from None


def number_in(name: str, key: str, text: str) -> int:
    """Where external data begins, or how long it is. Raises UserError for what is no such number."""
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise UserError(
            f"tensor '{name}': expected a number for the {key} of its external data, got '{text[:40]}'"
        )
    return int(text)


def _checked_location(name: str, location: str, folder: Path, model: Path | None) -> Path:
    """The file at `location`: a plain one of one name, in `folder` or below, reached without links.

    Where the model is in a hub's cache, it may be a link to where that keeps files. Raises UserError for anything else.
    """
    plain = f"tensor '{name}': expected external data in a plain file in the model's folder"
    if not location or "\0" in location or Path(location).is_absolute() or "\\" in location:
        raise UserError(f"{plain}, got '{location}'")
    if ".." in Path(location).parts:
        raise UserError(f"{plain}, got '{location}'")
    root = folder.resolve()
    path = root / location
    try:
        target = path.resolve()
        if target != path and not _is_cached(target, path, root, model):
            raise UserError(f"{plain}, got '{location}', which is reached through a symbolic link")
        status = os.lstat(target)
    except (OSError, RuntimeError):
        raise UserError(
            f"{plain}, but there is no '{location}'",
            note="put it there, or export the model with its weights inside",
        ) from None
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise UserError(f"{plain}, got '{location}', which is a directory, a device or a hard link")
    return target


def _is_cached(target: Path, path: Path, folder: Path, model: Path | None) -> bool:
    """Whether a link at `path`, in the folder of a model, leads to where a cache keeps the model's files.

    In the cache of huggingface_hub, a file of `snapshots/REVISION` is a link to one of `blobs`, or of a folder of that.
    Else it is where the model's own is, if that is a link itself, as in volumes of Kubernetes and Bazel's runfiles:
    beside it, or at the same place below. So a link made by whoever made the model leads nowhere that the user has not
    chosen by naming it.
    """
    parents = [parent for parent in (folder, *folder.parents) if parent.name == "snapshots"]
    if any(parent.parent / "blobs" in target.parents for parent in parents[:1]):
        return True
    if model is None or (link_target := model.resolve()) == folder / model.name:
        return False
    home = link_target.parent
    return target.parent == home or target == home / path.relative_to(folder)
