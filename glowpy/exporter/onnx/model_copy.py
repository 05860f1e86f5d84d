"""Copies of ONNX files that keep the elements of initializers elsewhere: whoever copies says where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from glowpy.core.tensor import Array
from glowpy.support.errors import LoadError
from glowpy.support.output_files import write_output_file

__all__ = ["Locate", "Place", "copied_model", "set_dims", "with_data_apart"]

Place = tuple[str, int, int]
"""A file, the first byte in it, and how many bytes."""

Locate = Callable[[str, Array, Place | None], Place | None]
"""Says of an initializer, its elements, and where these are so far, where they are to be: None for in the model."""

External = Callable[[TensorProto], tuple[Place | None, Callable[[], bytes]] | None]
"""Finds the elements of an initializer that are not in it: where they are, and what reads them."""

_ELEMENTS = (
    *("external_data", "data_location", "raw_data", "string_data"),
    *("float_data", "double_data", "int32_data", "int64_data", "uint64_data"),
)


def copied_model(
    content: bytes,
    external: External,
    locate: Locate | None = None,
    *,
    dims: Mapping[tuple[str, str], int] | None = None,
) -> bytes:
    """The bytes of a model with its initializers where `locate` says.

    Args:
        content: The bytes of a file.
        external: Finds the elements that are not in the file, or are others.
        locate: Says where elements are to be. Without it, all are in the model.
        dims: Sizes of dimensions by ("name" or "denotation", what it is called).

    Raises LoadError for what is no model, and what `external` raises.
    """
    try:
        model = ModelProto.FromString(content)
    except Exception as error:  # noqa: BLE001 -- what protocol buffers raise has no name of its own
        raise LoadError(
            f"expected an ONNX model, got something that does not parse: {error}"
        ) from None
    set_dims(model.graph, dims or {})
    for tensor in _initializers(model.graph):
        found = external(tensor)
        if found is not None:
            _take_in(tensor, found[1]())
        location = found[0] if found is not None else None
        place = locate(tensor.name, numpy_helper.to_array(tensor), location) if locate else None
        if place is not None:
            _leave_out(tensor, place)
    return bytes(model.SerializeToString())


def set_dims(graph: GraphProto, dims: Mapping[tuple[str, str], int]) -> None:
    """Gives dimensions of a graph sizes, by their names or denotations."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            for kind, called in (("name", dim.dim_param), ("denotation", dim.denotation)):
                if called and (kind, called) in dims:
                    dim.dim_value = dims[kind, called]


def with_data_apart(path: Path, threshold: int, copy: Callable[[Locate], bytes]) -> bytes:
    """Copies a model by `copy`, with initializers of at least so many bytes in a file of its own.

    The file is written whole or not at all. Raises UserError where it cannot be.
    """
    copies: list[bytes] = []
    write_output_file(path, lambda file: copies.append(copy(_apart(path, file, threshold))))
    return copies[0]


def _apart(path: Path, file: IO[bytes], threshold: int) -> Locate:
    def locate(name: str, elements: Array, known: Place | None) -> Place | None:
        del known
        content = elements.tobytes()
        if len(content) < threshold or elements.dtype.kind == "O":
            return None
        start = file.tell()
        file.write(content)
        return path.name, start, len(content)

    return locate


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    work = [graph]
    while work:
        graph = work.pop()
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                work += [attribute.g] if attribute.HasField("g") else attribute.graphs


def _take_in(tensor: TensorProto, content: bytes) -> None:
    for name in _ELEMENTS:
        tensor.ClearField(name)
    tensor.raw_data = content


def _leave_out(tensor: TensorProto, place: Place) -> None:
    head = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    head.data_location = TensorProto.EXTERNAL
    for key, value in zip(("location", "offset", "length"), place, strict=True):
        head.external_data.add(key=key, value=str(value))
    tensor.CopyFrom(head)
