"""Copies of ONNX files that keep the elements of initializers elsewhere: whoever copies says where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, external_data_helper, numpy_helper

from glowpy.core.tensor import Array
from glowpy.support.errors import LoadError

__all__ = ["Locate", "Place", "apart", "copied_model"]

Place = tuple[str, int, int]
"""A file, the first byte in it, and how many bytes."""

Locate = Callable[[str, Array, Place | None], Place | None]
"""Says of an initializer, its elements, and where these are so far, where they are to be: None for in the model."""


def copied_model(
    content: bytes,
    folder: Path | None,
    locate: Locate | None = None,
    *,
    dims: Mapping[tuple[str, str], int] | None = None,
    tensors: Mapping[str, Array] | None = None,
) -> bytes:
    """The bytes of a model with its initializers where `locate` says.

    Args:
        content: The bytes of a file.
        folder: Where its external data is.
        locate: Says where elements are to be. Without it, all are in the model.
        dims: Sizes of dimensions by ("name" or "denotation", what it is called).
        tensors: Elements in place of those of initializers.

    Raises LoadError for what is no model, and for external data that is missing.
    """
    try:
        model = ModelProto.FromString(content)
    except Exception as error:  # noqa: BLE001 -- what protocol buffers raise has no name of its own
        raise LoadError(
            f"expected an ONNX model, got something that does not parse: {error}"
        ) from None
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            for kind, called in (("name", dim.dim_param), ("denotation", dim.denotation)):
                if called and (kind, called) in (dims or {}):
                    dim.dim_value = (dims or {})[kind, called]
    for tensor in _initializers(model.graph):
        array = (tensors or {}).get(tensor.name)
        known = _place(tensor, folder)
        if array is not None:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
        elif known is not None:
            _take_in(tensor, folder)
        place = locate(tensor.name, numpy_helper.to_array(tensor), known) if locate else None
        if place is not None:
            _leave_out(tensor, place)
    return bytes(model.SerializeToString())


def apart(path: Path, threshold: int) -> Locate:
    """Keeps initializers of at least so many bytes in a file of its own, which is written at once, and begins empty."""
    path.write_bytes(b"")

    def locate(name: str, elements: Array, known: Place | None) -> Place | None:
        del name, known
        content = elements.tobytes()
        if len(content) < threshold or elements.dtype.kind == "O":
            return None
        with path.open("ab") as file:
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


def _place(tensor: TensorProto, folder: Path | None) -> Place | None:
    """Where the elements are, if they are not in the model."""
    if not external_data_helper.uses_external_data(tensor):
        return None
    info = external_data_helper.ExternalDataInfo(tensor)
    path = (folder or Path()) / info.location
    offset: int | None = info.offset
    length: int | None = info.length
    return str(path), offset or 0, length or 0


def _take_in(tensor: TensorProto, folder: Path | None) -> None:
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder or Path()))
    except (OSError, onnx.checker.ValidationError, ValueError) as error:
        raise LoadError(f"tensor '{tensor.name}': cannot read external data: {error}") from None
    tensor.data_location = TensorProto.DEFAULT
    tensor.ClearField("external_data")


def _leave_out(tensor: TensorProto, place: Place) -> None:
    head = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    head.data_location = TensorProto.EXTERNAL
    for key, value in zip(("location", "offset", "length"), place, strict=True):
        head.external_data.add(key=key, value=str(value))
    tensor.CopyFrom(head)
