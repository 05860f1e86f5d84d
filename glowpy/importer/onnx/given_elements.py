"""Elements that a caller gives in place of those that a model stores, or says to be in a file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from onnx import external_data_helper

from glowpy.core.tensor import Array
from glowpy.importer.elements import kind_of
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.source import Source
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import external_span, number_in
from glowpy.importer.reports import located
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["External", "Given", "external_reader", "replaced"]

External = tuple[tuple[str, int, int] | None, Callable[[], bytes]]
"""The file, first byte and number of bytes of external data, if it is in a file, and what reads it."""


@dataclass(frozen=True)
class Given:
    """Elements from the caller: arrays by initializer, and bytes of external data by the names of its files."""

    tensors: Mapping[str, Array] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def replaced(source: Source, given: Given) -> Source:
    """The source with elements of the caller's, which need not be on disk then.

    Raises UserError for an array of another type or shape than the initializer, for a file that ends too early, and
    for places in it that are no numbers.
    """
    digest, is_same = hashlib.sha256(), True
    for tensor in _stored(source.proto.graph):
        content = _content(tensor, given, source.file)
        if content is None:
            continue
        for name in ("external_data", "data_location", "float_data", "int32_data", "int64_data"):
            tensor.ClearField(name)
        for name in ("double_data", "uint64_data", "string_data"):
            tensor.ClearField(name)
        tensor.raw_data = content
        digest.update(tensor.name.encode() + b"\0" + content)
        is_same = False
    return source if is_same else replace(source, part=f"{source.part} {digest.hexdigest()}")


def _stored(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The initializers of a graph and of those in it."""
    work = [graph]
    while work:
        graph = work.pop()
        yield from graph.initializer
        work += [inner for node in graph.node for inner in subgraphs(node)]


def external_reader(
    path: Path | None, given: Given | None = None
) -> Callable[[onnx.TensorProto], External | None]:
    """Returns a reader of elements that lie outside of a tensor of the model at `path`; None for one with its own.

    It raises UserError for external data that is missing, out of range, or where `decode` reads none.
    """
    stores = Stores(folder=path.parent if path is not None else None, model=path)

    def external(tensor: onnx.TensorProto) -> External | None:
        content = _content(tensor, given or Given(), path.name if path is not None else "model")
        if content is not None:
            return None, lambda: content
        if not external_data_helper.uses_external_data(tensor):
            return None
        file, start, length = external_span(tensor, stores)
        return (str(file.path), start, length), lambda: file.read(start, length).tobytes()

    return external


def _content(tensor: onnx.TensorProto, given: Given, file: str) -> bytes | None:
    """The caller's bytes for a tensor of a model in this file, if there are any."""
    try:
        if tensor.name in given.tensors:
            return _elements(tensor, given.tensors[tensor.name])
        return _external(tensor, given)
    except UserError as error:
        raise located(error, Loc(file)) from None


def _external(tensor: onnx.TensorProto, given: Given) -> bytes | None:
    if not external_data_helper.uses_external_data(tensor):
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    content = given.files.get(entries.get("location", ""))
    if content is None:
        return None
    start = number_in(tensor.name, "offset", entries.get("offset", "0"))
    length = entries.get("length")
    end = max(start, len(content))
    if length is not None:
        end = start + number_in(tensor.name, "length", length)
    if end > len(content):
        raise UserError(
            f"tensor '{tensor.name}': expected external data up to byte {end}, "
            f"but '{entries['location']}' has {len(content)}"
        )
    return bytes(content[start:end])


def _elements(tensor: onnx.TensorProto, array: Array) -> bytes:
    kind, shape = kind_of(tensor.data_type), tuple(tensor.dims)
    if (array.dtype, array.shape) != (kind.dtype, shape):
        raise UserError(
            f"initializer '{tensor.name}': expected {kind.dtype}{list(shape)}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    return (array if sys.byteorder == "little" else array.byteswap()).tobytes()
