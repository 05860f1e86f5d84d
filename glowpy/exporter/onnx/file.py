"""Writing a model with its tensors one at a time: what is not in memory anyway is read or computed while it is written.

A protocol buffer is a sequence of fields, whose order is free but within a repeated one. So the file begins with the
model without its large tensors, and these follow as the last fields of the graph. A file of more than 2 GiB cannot be
parsed: then they are in a second file, as ONNX's external data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO

from onnx import GraphProto, ModelProto, TensorProto

from glowpy.exporter.onnx.graph import StoredTensor
from glowpy.support.output_files import write_output_file
from glowpy.support.protobuf import field_header

__all__ = ["LIMIT", "write_model"]

LIMIT = (1 << 31) - (1 << 20)
"""Bytes of a file that surely can be parsed."""

_PAGE = 4096
"""External data begins at multiples of this, so that it can be mapped into memory."""

_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_RAW_DATA = TensorProto.RAW_DATA_FIELD_NUMBER


def write_model(
    path: str | Path, model: ModelProto, tensors: Mapping[str, StoredTensor], *, limit: int = LIMIT
) -> None:
    """Writes a model whole or not at all, and next to it, if it is larger than `limit`, `<path>.data`.

    Args:
        path: Where to.
        model: All but `tensors`, with which its graph gets further initializers.
        tensors: By name.
        limit: Bytes.

    Raises UserError where that is impossible.
    """
    envelope = ModelProto()
    envelope.CopyFrom(model)
    envelope.ClearField("graph")
    head = envelope.SerializeToString(deterministic=True)
    heads = {name: _head(name, tensor) for name, tensor in tensors.items()}
    graph = model.graph.SerializeToString(deterministic=True)
    size = len(head) + len(graph) + sum(tensor.size for tensor in tensors.values())
    if size > limit:
        data = Path(f"{path}.data")
        write_output_file(data, lambda file: _write_data(file, tensors))
        model_proto = ModelProto()
        model_proto.CopyFrom(model)
        model_proto.graph.initializer.extend(_external(tensors, data.name))
        content = model_proto.SerializeToString(deterministic=True)
        write_output_file(path, lambda file: file.write(content))
        return
    write_output_file(path, lambda file: _write(file, head, graph, heads, tensors))


def _head(name: str, tensor: StoredTensor) -> bytes:
    """A tensor without its elements, up to where they begin."""
    return bytes(tensor.head(name).SerializeToString(deterministic=True)) + field_header(
        _RAW_DATA, tensor.size
    )


def _write(
    file: IO[bytes], head: bytes, graph: bytes, heads: Mapping[str, bytes],
    tensors: Mapping[str, StoredTensor],
) -> None:  # fmt: skip
    starts = {
        name: field_header(_INITIALIZER, len(heads[name]) + tensor.size) + heads[name]
        for name, tensor in tensors.items()
    }
    size = sum(len(starts[name]) + tensor.size for name, tensor in tensors.items())
    file.write(head + field_header(_GRAPH, len(graph) + size) + graph)
    for name, tensor in tensors.items():
        file.write(starts[name])
        for piece in tensor.content.raw_pieces():
            file.write(piece.data)


def _write_data(file: IO[bytes], tensors: Mapping[str, StoredTensor]) -> None:
    for tensor in tensors.values():
        for piece in tensor.content.raw_pieces():
            file.write(piece.data)
        file.write(bytes(-tensor.size % _PAGE))


def _external(tensors: Mapping[str, StoredTensor], location: str) -> list[TensorProto]:
    """Tensors whose elements are in the file `location`, in this order."""
    protos, offset = [], 0
    for name, tensor in tensors.items():
        proto = tensor.head(name)
        proto.data_location = TensorProto.EXTERNAL
        entries = {"location": location, "offset": offset, "length": tensor.size}
        for key, value in entries.items():
            proto.external_data.add(key=key, value=str(value))
        protos.append(proto)
        offset += tensor.size + -tensor.size % _PAGE
    return protos
