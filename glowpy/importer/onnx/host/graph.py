"""The values that parts of a split graph read and write: constants, values of outer graphs, and bodies' inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, SparseTensorProto, TensorProto, helper

from glowpy.importer.onnx.host.types import is_strings, spelled
from glowpy.importer.onnx.source import domain_of
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.string_tensors import Stored, decoded

__all__ = [
    "body_inputs",
    "constant_of",
    "differing_types",
    "free_names",
    "graph_outputs",
    "graphs_of",
    "initializers",
    "stored_type",
    "takes_strings",
]


def graphs_of(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """The graphs among the attributes of a node, by name."""
    return {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}


def free_names(graph: onnx.GraphProto) -> list[str]:
    """Lists the values that a graph reads of the graphs around it."""
    names_inside = {info.name for info in graph.input} | set(initializers(graph))
    names_inside |= {name for node in graph.node for name in node.output}
    read = [name for node in graph.node for name in node.input]
    read += [n for node in graph.node for g in graphs_of(node).values() for n in free_names(g)]
    read += [info.name for info in graph.output]
    return [name for name in dict.fromkeys(read) if name and name not in names_inside]


def initializers(graph: onnx.GraphProto) -> dict[str, Stored]:
    """The tensors stored in a graph, by name."""
    dense: dict[str, Stored] = {proto.name: proto for proto in graph.initializer}
    return dense | {proto.values.name: proto for proto in graph.sparse_initializer}


def constant_of(node: onnx.NodeProto) -> Stored | None:
    """The tensor that a `Constant` has; None for other nodes, and for one that says several or none."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    (attribute,) = node.attribute
    stored: Stored | None = None
    match attribute.name:
        case "value":
            stored = TensorProto()
            stored.CopyFrom(attribute.t)
            stored.name = node.output[0]
        case "sparse_value":
            stored = SparseTensorProto()
            stored.CopyFrom(attribute.sparse_tensor)
            stored.values.name = node.output[0]
        case _ if attribute.name in _PLAIN:
            elem_type, field, is_list = _PLAIN[attribute.name]
            items = getattr(attribute, field)
            dims = [len(items)] if is_list else []
            values = list(items) if is_list else [items]
            stored = helper.make_tensor(node.output[0], elem_type, dims, values)
        case _:
            pass
    return stored


_PLAIN = {
    "value_float": (TensorProto.FLOAT, "f", False),
    "value_floats": (TensorProto.FLOAT, "floats", True),
    "value_int": (TensorProto.INT64, "i", False),
    "value_ints": (TensorProto.INT64, "ints", True),
    "value_string": (TensorProto.STRING, "s", False),
    "value_strings": (TensorProto.STRING, "strings", True),
}
"""The element type, the field of the attribute, and whether it is a vector, for each form of a constant."""


def stored_type(stored: Stored) -> onnx.TypeProto:
    """The type of a constant."""
    dense = stored if isinstance(stored, TensorProto) else stored.values
    return helper.make_tensor_type_proto(dense.data_type, list(stored.dims))


def body_inputs(
    node: onnx.NodeProto, graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, onnx.TypeProto]:
    """The types of a body's inputs: as it declares them, or as the operator gives them."""
    given: list[onnx.TypeProto | None] = [types.get(name) for name in node.input]
    match node.op_type:
        case "Loop":
            scalars = (TensorProto.INT64, TensorProto.BOOL)
            counts = [helper.make_tensor_type_proto(kind, ()) for kind in scalars]
            given = [*counts, *given[2:]]
        case "SequenceMap":
            given = [
                t.sequence_type.elem_type if t is not None and t.HasField("sequence_type") else t
                for t in given
            ]
        case _:
            given = [None if t is None else _without_shape(t) for t in given]
    types_by_name = {}
    for position, info in enumerate(graph.input):
        type = info.type if info.type.WhichOneof("value") else None
        if type is None and position < len(given):
            type = given[position]
        if type is not None:
            types_by_name[info.name] = type
    return types_by_name


def graph_outputs(
    node: onnx.NodeProto, results: Mapping[str, Sequence[onnx.TypeProto | None]]
) -> dict[str, onnx.TypeProto]:
    """The types of the outputs of a node with graphs, whose outputs have the types `results`, by the graph's name."""
    given = list(next(iter(results.values()), ()))
    match node.op_type:
        case "Loop":
            given = given[1:]
        case "SequenceMap":
            given = [None if t is None else helper.make_sequence_type_proto(t) for t in given]
        case _:
            pass
    types = [None if type is None else _without_shape(type) for type in given]
    pairs = zip(node.output, types, strict=False)
    return {name: type for name, type in pairs if name and type is not None}


def differing_types(
    node: onnx.NodeProto,
    inputs: Sequence[onnx.TypeProto | None],
    results: Sequence[Sequence[onnx.TypeProto | None]],
    types: Mapping[str, onnx.TypeProto],
) -> Iterator[tuple[str, str]]:
    """Yields what graphs of a node have, and what is expected of them, where these types differ.

    `inputs` are those of the first of its graphs, and `results` those of all of them.
    """
    pairs = [pair for other in results[1:] for pair in zip(other, results[0], strict=False)]
    if node.op_type == "Loop":
        carried = [types.get(name) for name in node.input[2:]]
        pairs = [
            *zip(inputs[2:], carried, strict=False),
            *zip(results[0][1:], carried, strict=False),
        ]
    for one, other in pairs:
        if one is not None and other is not None and _bare(one) != _bare(other):
            yield spelled(one), spelled(other)


def _bare(type: onnx.TypeProto) -> str:
    """A type as ONNX spells it; of an optional that of its element, which can be in its place."""
    return spelled(type.optional_type.elem_type if type.HasField("optional_type") else type)


def _without_shape(type: onnx.TypeProto) -> onnx.TypeProto:
    copy = onnx.TypeProto()
    copy.CopyFrom(type)
    if copy.HasField("tensor_type"):
        copy.tensor_type.ClearField("shape")
    return copy


_TAKERS = {("", "Gather"): 0, ("ai.onnx.ml", "ArrayFeatureExtractor"): -1}
"""Operators that take a part of what there is along an axis, and which if they do not say."""


def takes_strings(
    node: onnx.NodeProto, type: onnx.TypeProto | None, places: Stored | None, stores: Stores
) -> bool:
    """Whether a node takes strings of a matrix or more, whose type is given, at places that are known to be there."""
    default = _TAKERS.get((domain_of(node.domain), node.op_type))
    if default is None or type is None or places is None or not is_strings(type):
        return False
    dims = [dim.dim_value for dim in type.tensor_type.shape.dim]
    (axis,) = [a.i for a in node.attribute if a.name == "axis"] or [default]
    if len(dims) < 2 or not -len(dims) <= axis < len(dims):
        return False
    numbers = np.asarray(decoded("places", places, stores))
    return bool(np.all((-dims[axis] <= numbers) & (numbers < dims[axis])))
