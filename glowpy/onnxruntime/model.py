"""The facts of a session's model: names and types, metadata, and initializers that may be overridden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import DeclaredDim, ValueInfo
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.storage import InFile
from glowpy.onnxruntime.errors import InvalidArgument, InvalidGraph, NoSuchFile, translated
from glowpy.onnxruntime.options import SessionOptions
from glowpy.session.kept import opened, told
from glowpy.session.kept_model import open_kept
from glowpy.support.errors import GlowError, LoadError
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from glowpy.importer import OnnxModel
    from glowpy.importer.onnx.host.model import OnnxHostedModel
    from glowpy.importer.value_types import HostInfo

__all__ = [
    "Facts",
    "ModelMetadata",
    "NodeArg",
    "facts",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "open_model",
    "output_infos",
    "read_model",
    "whole",
    "whole_model",
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
) -> Model | HostedModel:
    """Opens a model, from the cache if it is there, and gives its dimensions the sizes that the options name.

    Raises TypeError for what is neither a path nor bytes, and the exceptions that are named for what is wrong.
    """
    if not isinstance(path_or_bytes, str | bytes | PathLike):
        raise TypeError(f"expected a path or bytes, got {type(path_or_bytes).__name__}")
    source = path_or_bytes if isinstance(path_or_bytes, bytes) else Path(fspath(path_or_bytes))
    if isinstance(source, Path) and not source.exists():
        raise NoSuchFile(f"cannot read '{source}': there is no such file")
    if source == b"":
        raise InvalidArgument("No graph was found in the protobuf: the model has no bytes")
    try:
        if options.initializers or options.files:
            return read_model(source, options)
        reading = partial(read_model, source, options)
        return open_kept(source, reading, f"{sorted(options.dims.items())}" * bool(options.dims))
    except GlowError as error:
        raise translated(error, InvalidGraph) from error


def read_model(
    source: bytes | Path, options: SessionOptions, files: Mapping[Path, InFile] | None = None
) -> OnnxModel | OnnxHostedModel:
    """Reads a model, of which these files are open already.

    Raises InvalidArgument for initializers that it does not have.
    """
    from glowpy.exporter import set_dims  # noqa: PLC0415 - ONNX
    from glowpy.importer import Given  # noqa: PLC0415 - the reader
    from glowpy.importer.formats import Reader, format_of  # noqa: PLC0415 - the same
    from glowpy.importer.onnx.opening import open_onnx  # noqa: PLC0415 - the same

    tensors = {name: value.numpy() for name, value in options.initializers.items()}
    try:
        model = open_onnx(source, Given(tensors, options.files), files)
    except LoadError:
        format = format_of(source)
        if not isinstance(format, Reader):
            raise
        raise LoadError(
            f"expected an ONNX model, got a file of the format {format.name}",
            loc=Loc(str(source) if isinstance(source, Path) else "model"),
            note="glowpy.InferenceSession opens it",
        ) from None
    if options.dims:
        set_dims(model.source.proto.graph, options.dims)
        model = replace(model)
    unknown = set(tensors) - {tensor.name for tensor in model.source.proto.graph.initializer}
    if unknown:
        raise InvalidArgument(f"the model has no initializer '{min(unknown)}'")
    return model


def whole_model(
    path_or_bytes: str | bytes | PathLike[str], options: SessionOptions
) -> OnnxModel | OnnxHostedModel:
    """The model itself. Raises what `open_model` raises."""
    model = open_model(path_or_bytes, options)
    try:
        return whole(model)
    except GlowError as error:
        raise translated(error, InvalidGraph) from error


def whole(model: Model | HostedModel) -> OnnxModel | OnnxHostedModel:
    """The model itself of what `open_model` returns. Raises LoadError if its file was changed since."""
    return cast("OnnxModel | OnnxHostedModel", opened(model))


@dataclass(frozen=True)
class Facts:
    """Facts that a session of onnxruntime's says of its model beside what every session does.

    Attributes:
        metadata: The metadata.
        overridable: The initializers that a run may give others for.
        keeps_caches: Whether attention keeps what it was given, in memory that may be that of its past.
    """

    metadata: ModelMetadata
    overridable: list[ValueInfo]
    keeps_caches: bool


def facts(model: Model | HostedModel) -> Facts:
    """Reads the facts of a model, or recalls them."""
    fields = told(model, "onnxruntime", _facts)
    overridable = [ValueInfo(n, ElemKind(kind), shape) for n, kind, shape in fields["overridable"]]
    return Facts(ModelMetadata(**fields["metadata"]), overridable, fields["keeps_caches"])


def _facts(model: OnnxModel | OnnxHostedModel) -> dict[str, Any]:
    return {
        "metadata": asdict(_metadata(model)),
        "overridable": [(i.name, i.kind.value, i.shape) for i in _overridable(model)],
        "keeps_caches": model.source.keeps_caches,
    }


def _metadata(model: OnnxModel | OnnxHostedModel) -> ModelMetadata:
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


def _overridable(model: OnnxModel | OnnxHostedModel) -> list[ValueInfo]:
    """The initializers that are inputs as well: a run may give others, if all of the model is compiled."""
    proto = model.source.proto
    if proto.ir_version < _FIRST_OVERRIDABLE or isinstance(model, HostedModel):
        return []
    inputs = {value.name for value in proto.graph.input}
    return [
        ValueInfo(name, tensor.type.kind, list(tensor.type.extents))
        for name, tensor in model.initializers.items()
        if name in inputs
    ]


def output_infos(model: Model | HostedModel) -> list[NodeArg]:
    """The outputs, with sizes that follow from the inputs and are not declared."""
    shapes = told(model, "output shapes", _output_shapes)
    args = [NodeArg.of(info) for info in model.outputs]
    return [
        NodeArg(arg.name, arg.type, shapes[arg.name]) if shapes.get(arg.name) is not None else arg
        for arg in args
    ]


def _output_shapes(model: OnnxModel | OnnxHostedModel) -> dict[str, list[DeclaredDim] | None]:
    """The shapes of outputs by name, as far as they follow."""
    from glowpy.importer import inferred_outputs  # noqa: PLC0415 - ONNX

    proto = model.source.proto
    ordered = proto.graph.node if isinstance(model, HostedModel) else [n for _, n in model.order]
    shapes = inferred_outputs(proto, ordered)
    return {info.name: shape for info, shape in zip(proto.graph.output, shapes, strict=True)}


def get_compatibility_info_from_model(model_path: str, ep_type: str) -> str | None:
    """Reads the entry of a provider that has compiled the model. Raises RuntimeError where either is none."""
    if not model_path or not Path(model_path).exists():
        raise RuntimeError(f"Load model {model_path} failed. File doesn't exist")
    return get_compatibility_info_from_model_bytes(Path(model_path).read_bytes(), ep_type)


def get_compatibility_info_from_model_bytes(model_data: bytes, ep_type: str) -> str | None:
    """The same of the bytes of a file."""
    if not ep_type:
        raise RuntimeError("expected the name of a provider, got ''")
    from glowpy.importer import read_proto  # noqa: PLC0415 - ONNX

    try:
        proto = read_proto(model_data)
    except GlowError as error:
        raise RuntimeError(str(error)) from error
    entries = {entry.key: entry.value for entry in proto.metadata_props}
    return entries.get(f"ep_compatibility_info.{ep_type}")


def with_inputs(model: Model, names: Iterable[str]) -> OnnxModel:
    """The model with inputs instead of these initializers."""
    from glowpy.importer import OnnxModel  # noqa: PLC0415 - the reader

    source = whole(model).source
    input_names = set(names)
    proto = type(source.proto)()
    proto.CopyFrom(source.proto)  # large tensors are not in it
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
    return OnnxModel(replace(source, proto=proto))


def _keep(tensors: Any, dropped: set[str], name_of: Callable[[Any], str]) -> None:
    """Deletes the tensors of these names from a field of a protocol buffer."""
    for index in reversed(range(len(tensors))):
        if name_of(tensors[index]) in dropped:
            del tensors[index]
