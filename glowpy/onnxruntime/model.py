"""The facts of a session's model: names and types, metadata, and initializers that may be overridden."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from glowpy.exporter import set_dims
from glowpy.importer import (
    Given,
    OnnxModel,
    inferred_outputs,
    read_proto,
)
from glowpy.importer.declared import ValueInfo
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.importer.onnx.host.model import open_model as read_model
from glowpy.importer.value_types import HostInfo
from glowpy.onnxruntime.errors import InvalidArgument, InvalidGraph, NoSuchFile, translated
from glowpy.onnxruntime.options import SessionOptions
from glowpy.support.errors import GlowError

__all__ = [
    "ModelMetadata",
    "NodeArg",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "metadata",
    "open_model",
    "output_infos",
    "overridable",
    "with_inputs",
]

_FIRST_OVERRIDABLE = 4
"""The IR version from which on an initializer that is listed as an input is a default; before, all were listed."""


_NO_VERSION = (1 << 63) - 1
"""The version that onnxruntime reports for a model without one."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output.

    Attributes:
        name: Its name.
        type: Its type as ONNX spells it, such as `tensor(float)`.
        shape: Sizes, names of symbolic dimensions, and None for what is neither; empty without a rank.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @staticmethod
    def of(info: ValueInfo | HostInfo) -> NodeArg:
        """As the model declares it."""
        return NodeArg(info.name, info.type, list(info.names or info.shape or ()))


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model: its producer, names, descriptions and version."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def open_model(
    path_or_bytes: str | bytes | PathLike[str], options: SessionOptions
) -> OnnxModel | OnnxHostedModel:
    """Reads a model, and gives its dimensions the sizes that the options name.

    Raises TypeError for what is neither a path nor bytes, and the exceptions that are named for what is wrong.
    """
    if not isinstance(path_or_bytes, str | bytes | PathLike):
        raise TypeError(f"expected a path or bytes, got {type(path_or_bytes).__name__}")
    source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(fspath(path_or_bytes))
    if isinstance(source, Path) and not source.exists():
        raise NoSuchFile(f"cannot read '{source}': there is no such file")
    if source == b"":
        raise InvalidArgument("No graph was found in the protobuf: the model has no bytes")
    tensors = {name: value.numpy() for name, value in options.initializers.items()}
    try:
        model = read_model(source, Given(tensors, options.files))
    except GlowError as error:
        raise translated(error, InvalidGraph) from error
    if options.dims:
        set_dims(model.source.proto.graph, options.dims)
        model = type(model)(model.source)
    unknown = set(tensors) - {tensor.name for tensor in model.source.proto.graph.initializer}
    if unknown:
        raise InvalidArgument(f"the model has no initializer '{min(unknown)}'")
    return model


def metadata(model: OnnxModel | OnnxHostedModel) -> ModelMetadata:
    """Reads the metadata of a model."""
    proto = model.source.proto
    return ModelMetadata(
        producer_name=proto.producer_name,
        graph_name=proto.graph.name,
        domain=proto.domain,
        description=proto.doc_string,
        graph_description=proto.graph.doc_string,
        version=proto.model_version if proto.HasField("model_version") else _NO_VERSION,
        custom_metadata_map={entry.key: entry.value for entry in proto.metadata_props},
    )


def output_infos(model: OnnxModel | OnnxHostedModel) -> list[NodeArg]:
    """The outputs, with sizes that follow from the inputs and are not declared."""
    nodes = [node for _, node in model.order] if isinstance(model, OnnxModel) else None
    proto = model.source.proto
    shapes = inferred_outputs(proto, proto.graph.node if nodes is None else nodes)
    shapes_by_name = {
        info.name: shape for info, shape in zip(proto.graph.output, shapes, strict=True)
    }
    args = [NodeArg.of(info) for info in model.outputs]
    return [
        NodeArg(arg.name, arg.type, shape)
        if (shape := shapes_by_name.get(arg.name)) is not None
        else arg
        for arg in args
    ]


def get_compatibility_info_from_model(model_path: str, ep_type: str) -> str | None:
    """Reads the entry of a provider that has compiled the model. Raises RuntimeError where either is none."""
    if not model_path or not Path(model_path).exists():
        raise RuntimeError(f"Load model {model_path} failed. File doesn't exist")
    return get_compatibility_info_from_model_bytes(Path(model_path).read_bytes(), ep_type)


def get_compatibility_info_from_model_bytes(model_data: bytes, ep_type: str) -> str | None:
    """The same of the bytes of a file."""
    if not ep_type:
        raise RuntimeError("expected the name of a provider, got ''")
    try:
        proto = read_proto(model_data)
    except GlowError as error:
        raise RuntimeError(str(error)) from error
    entries = {entry.key: entry.value for entry in proto.metadata_props}
    return entries.get(f"ep_compatibility_info.{ep_type}")


def overridable(model: OnnxModel | OnnxHostedModel) -> list[NodeArg]:
    """The initializers that are inputs as well: a run may give others, if all of the model is compiled."""
    if model.source.proto.ir_version < _FIRST_OVERRIDABLE:
        return []
    inputs = {value.name for value in model.source.proto.graph.input}
    return [NodeArg.of(info) for info in _stored(model) if info.name in inputs]


def _stored(model: OnnxModel | OnnxHostedModel) -> list[ValueInfo]:
    """The initializers that may be replaced."""
    if isinstance(model, OnnxHostedModel):
        return []
    return [
        ValueInfo(name, tensor.type.kind, list(tensor.type.extents))
        for name, tensor in model.initializers.items()
    ]


def with_inputs(model: OnnxModel, names: Iterable[str]) -> OnnxModel:
    """The model with inputs instead of these initializers."""
    input_names = set(names)
    proto = type(model.source.proto)()
    proto.CopyFrom(model.source.proto)  # large tensors are not in it
    graph = proto.graph
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name in input_names - inputs:
            value = graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            for size in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    _keep(graph.initializer, input_names, lambda tensor: tensor.name)
    _keep(graph.sparse_initializer, input_names, lambda tensor: tensor.values.name)
    return OnnxModel(replace(model.source, proto=proto))


def _keep(tensors: Any, dropped: set[str], name_of: Callable[[Any], str]) -> None:
    """Deletes the tensors of these names from a field of a protocol buffer."""
    for index in reversed(range(len(tensors))):
        if name_of(tensors[index]) in dropped:
            del tensors[index]
