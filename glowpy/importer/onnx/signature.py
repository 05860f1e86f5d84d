"""The inputs and outputs of a model: names, element kinds, and shapes with the symbolic dimensions bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import onnx
from onnx import defs, helper, shape_inference

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import DeclaredDim, ValueInfo, meaningful, type_name
from glowpy.importer.elements import NARROW, elem_type_of, kind_of
from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.source import domain_of
from glowpy.support.errors import UnsupportedError, UserError

__all__ = [
    "declared_names",
    "declared_shape",
    "inferred_outputs",
    "is_typed",
    "typed_outputs",
    "value_info",
]

_MAX_RANK = 32
"""More sizes than any shape has."""

_SESSION = (
    "glowpy.InferenceSession and glowpy run take strings, sequences, optionals and maps;"
    " machine code does not"
)


def value_info(proto: onnx.ValueInfoProto) -> ValueInfo:
    """The declaration of an input or output.

    Raises UnsupportedError for anything but a dense tensor of a supported element type.
    """
    which = proto.type.WhichOneof("value")
    if which != "tensor_type":
        raise UnsupportedError(
            f"'{proto.name}': expected a dense tensor, got {(which or 'no type').removesuffix('_type')}",
            note=_SESSION,
        )
    tensor = proto.type.tensor_type
    try:
        kind = kind_of(tensor.elem_type)
    except UnsupportedError as error:
        first = error.diagnostics[0]
        note = _SESSION if tensor.elem_type == onnx.TensorProto.STRING else first.note
        raise UnsupportedError(f"'{proto.name}': {first.message}", note=note) from None
    narrow = NARROW.get(tensor.elem_type)
    names = declared_names(tensor)
    return ValueInfo(proto.name, kind, declared_shape(tensor), narrow, names)


def declared_shape(tensor: onnx.TypeProto.Tensor) -> list[DeclaredDim] | None:
    """The shape that a type declares, with None for names that say nothing; None without a rank."""
    return meaningful(declared_names(tensor))


def declared_names(tensor: onnx.TypeProto.Tensor) -> list[DeclaredDim] | None:
    """The shape that a type declares with all its names; None without a rank."""
    return [_dim(dim) for dim in tensor.shape.dim] if tensor.HasField("shape") else None


def is_typed(proto: onnx.ValueInfoProto) -> bool:
    """Whether the model declares the type of an output; a shape it may leave out."""
    type = proto.type
    return type.WhichOneof("value") is not None and (
        not type.HasField("tensor_type") or type.tensor_type.elem_type != 0
    )


def typed_outputs(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]
) -> list[onnx.ValueInfoProto]:
    """The outputs of a model, with the types that ONNX infers where the model declares none.

    `nodes` are those of the model, each after those it needs. Raises UserError where no type is inferred.
    """
    inferred = _inferred(model, nodes)
    typed = []
    for proto in model.graph.output:
        declaration = proto if is_typed(proto) else inferred.get(proto.name)
        if declaration is None:
            raise UserError(
                f"output '{proto.name}' has no type, and ONNX infers none",
                note="declare its type in the model",
            )
        typed.append(declaration)
    return typed


def inferred_outputs(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]
) -> list[list[DeclaredDim] | None]:
    """The shapes of the outputs as far as ONNX infers them, with what is declared of the rest; None without a rank.

    `nodes` are those of the model, each after those it needs.
    """
    graph = model.graph
    open_outputs = [_unshaped(proto) for proto in graph.output]
    values = [*graph.input, *graph.output, *graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim}
    inferred = _inferred(model, nodes, open_outputs)
    shapes = []
    for output in graph.output:
        declaration = inferred.get(output.name)
        found = None if declaration is None else declared_names(declaration.type.tensor_type)
        if found is not None:  # ONNX makes up names for what it does not know
            found = [dim if isinstance(dim, int) or dim in names else None for dim in found]
        shapes.append(_merged(found, declared_names(output.type.tensor_type)))
    return shapes


def _is_shape(proto: onnx.TensorProto) -> bool:
    """Whether a tensor may be a shape or a part of one, and is in the parsed model."""
    few = len(proto.dims) < 2 and all(size <= _MAX_RANK for size in proto.dims)
    return few and proto.data_type == onnx.TensorProto.INT64 and not proto.external_data


def _unshaped(proto: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """An output with its element type alone."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(proto)
    if copy.type.HasField("tensor_type"):
        copy.type.tensor_type.ClearField("shape")
    return copy


def _merged(
    inferred: list[DeclaredDim] | None, declared: list[DeclaredDim] | None
) -> list[DeclaredDim] | None:
    """Sizes that are inferred, then those declared, then names that are declared, then other names."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return declared if inferred is None else inferred
    return [
        next((dim for dim in dims if isinstance(dim, int)), dims[1] or dims[0])
        for dims in zip(inferred, declared, strict=True)
    ]


def _inferred(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
) -> dict[str, onnx.ValueInfoProto]:
    """Infers the types of values, by name; large weights take part without their elements.

    `outputs` stand for those of the model, if they are given.
    """
    graph = model.graph
    opsets = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    ends = graph.output if outputs is None else outputs
    bare.graph.CopyFrom(onnx.GraphProto(name="types", node=nodes, output=ends))
    inputs = {proto.name: proto for proto in graph.input}
    for name, elem_type, dims in [
        *((proto.name, proto.data_type, proto.dims) for proto in graph.initializer),
        *((p.values.name, p.values.data_type, p.dims) for p in graph.sparse_initializer),
    ]:
        inputs.setdefault(name, helper.make_tensor_value_info(name, elem_type, list(dims)))
    bare.graph.input.extend(inputs.values())
    if outputs is not None:
        bare.graph.initializer.extend(filter(_is_shape, graph.initializer))
    bare.graph.value_info.extend(graph.value_info)
    result = bare.graph
    # ONNX's inference of some operators reads a null pointer where an input is missing. The build says what is wrong.
    if all(_has_inputs(node, opsets) for node in nodes):
        with suppress(shape_inference.InferenceError, RuntimeError, ValueError):
            result = shape_inference.infer_shapes(bare, data_prop=outputs is not None).graph
    values = [*result.input, *result.value_info, *result.output]
    types = {proto.name: proto for proto in values if is_typed(proto)}
    for node in nodes:
        for proto in _by_schema(node, opsets, types):
            types.setdefault(proto.name, proto)
    return types


def _has_inputs(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether a node and those of its graphs have every input that their operators must have."""
    schema = schema_of(node, opsets.get(domain_of(node.domain), 0))
    formals = schema.inputs if schema is not None else ()
    names = [*node.input, *[""] * len(formals)]
    single = defs.OpSchema.FormalParameterOption.Single
    return all(
        name or formal.option is not single for name, formal in zip(names, formals, strict=False)
    ) and all(_has_inputs(inner, opsets) for graph in subgraphs(node) for inner in graph.node)


def _by_schema(
    node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.ValueInfoProto]
) -> Iterator[onnx.ValueInfoProto]:
    """The outputs of one type, or of that of an input or attribute, for operators without an inference of their own."""
    schema = schema_of(node, opsets.get(domain_of(node.domain), 0))
    if schema is None:
        return
    elem_types = {type_name(kind): elem_type_of(kind) for kind in ElemKind}
    stash = (attribute.i for attribute in node.attribute if attribute.name == "stash_type")
    elem_types["stash"] = next(stash, onnx.TensorProto.FLOAT)
    for index, name in enumerate(node.input):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if name in types and types[name].type.HasField("tensor_type"):
            elem_types.setdefault(formal.type_str, types[name].type.tensor_type.elem_type)
    for index, name in enumerate(node.output):
        formal = schema.outputs[min(index, len(schema.outputs) - 1)]
        if name and formal.type_str in elem_types:
            yield helper.make_tensor_value_info(name, elem_types[formal.type_str], None)


def _dim(proto: onnx.TensorShapeProto.Dimension) -> DeclaredDim:
    """Exporters write -1, too, for a size that is not known."""
    if proto.HasField("dim_value"):
        return proto.dim_value if proto.dim_value >= 0 else None
    return proto.dim_param or None
