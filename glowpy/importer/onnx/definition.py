"""Operators that ONNX itself defines by simpler ones: the definition stands for those without an import function.

The definition is taken for one node at a time, with the types that its inputs have by then: many of them depend on
shapes, or on which inputs are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx
from onnx import defs, helper

from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.elements import elem_type_of
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.contrib.schemas import contrib_schema
from glowpy.importer.onnx.node import TensorSequence
from glowpy.importer.onnx.order import names_read
from glowpy.importer.onnx.source import domain_of
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.symbolic import Expr, UndecidedError

__all__ = ["Definition", "definition_of", "is_defined", "schema_of"]


@dataclass(frozen=True)
class Definition:
    """The nodes that define an operator, in order; they read and write the names that its node has.

    `opsets` are those of their domains, as far as they are not the model's.
    """

    nodes: Sequence[onnx.NodeProto]
    opsets: dict[str, int]


def schema_of(node: onnx.NodeProto, opset: int) -> defs.OpSchema | None:
    """Returns the schema of an operator, from the onnx package or the table of contrib operators; None without any."""
    return _schema(node.op_type, opset, domain_of(node.domain))


@lru_cache(maxsize=1024)
def _schema(op_type: str, opset: int, domain: str) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op_type, opset, domain)
    except (defs.SchemaError, TypeError):  # TypeError: the number is larger than any opset's
        return contrib_schema(domain, op_type)


def is_defined(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines the operator by others.

    A definition that depends on the node may take a graph of the node apart, as FlexAttention's does.
    """
    return _is_defined(node.op_type, opset, domain_of(node.domain))


@lru_cache(maxsize=1024)
def _is_defined(op_type: str, opset: int, domain: str) -> bool:
    """Checks without a node: a definition that depends on it says later what it needs."""
    schema = _schema(op_type, opset, domain)
    return schema is not None and any(version <= opset for version in _versions(schema))


def _versions(schema: defs.OpSchema) -> list[int]:
    """The opsets in whose operators the definition is written."""
    plain: list[int] = schema.function_opset_versions  # type: ignore[attr-defined]
    dependent: list[int] = schema.context_dependent_function_opset_versions  # type: ignore[attr-defined]
    return [*plain, *dependent]


def definition_of(
    node: onnx.NodeProto,
    opset: int,
    inputs: Sequence[Value | SymbolicTensor | TensorSequence | None],
) -> Definition:
    """The definition of a node with these inputs; None stands for one that is not given.

    Raises UserError if an input is missing, UnsupportedError with what the onnx package says if it cannot write
    the definition.
    """
    schema = schema_of(node, opset)
    assert schema is not None
    for index, value in enumerate(inputs):  # it would crash the onnx package
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if value is None and formal.option is not defs.OpSchema.FormalParameterOption.Optional:
            raise UserError(f"expected a value as input {index}, got none")
    complete = _with_defaults(node, schema)
    try:
        content = _content(schema, complete, opset, [_type_of(value) for value in inputs])
    except (RuntimeError, ValueError) as error:  # what the C++ side throws
        raise UnsupportedError(f"ONNX gives no definition for this node: {error}") from None
    function = onnx.FunctionProto()
    function.ParseFromString(content)
    opsets = {domain_of(entry.domain): entry.version for entry in function.opset_import}
    nodes = _instantiated(function, complete)
    if not nodes:
        values = [value for value in inputs if isinstance(value, NodeValue)]
        dims = [dim for v in values for dim in v.type.shape if isinstance(dim, Expr)]
        if dims:
            raise UndecidedError("ONNX defines it for constant extents only", dims)
        raise UnsupportedError("ONNX gives no definition for this node")
    return Definition(nodes, opsets)


def _content(
    schema: defs.OpSchema, node: onnx.NodeProto, opset: int, types: Sequence[bytes]
) -> bytes:
    """The serialized definition, in operators of the newest opset that is not newer than the model's."""
    version = max(version for version in _versions(schema) if version <= opset)
    content: bytes
    if schema.has_context_dependent_function:  # type: ignore[attr-defined]
        content = schema.get_context_dependent_function_with_opset_version(  # type: ignore[attr-defined]
            version, node.SerializeToString(), types
        )
    else:
        content = schema.get_function_with_opset_version(version)  # type: ignore[attr-defined]
    return content


def _type_of(value: Value | SymbolicTensor | TensorSequence | None) -> bytes:
    """A serialized TypeProto; empty for what is not given."""
    if value is None:
        return b""
    if isinstance(value, TensorSequence):
        items = [_tensor_type(item.type) for item in value.items] or [onnx.TypeProto()]
        proto = helper.make_sequence_type_proto(items[0])
    else:
        proto = _tensor_type(value.type)
    content: bytes = proto.SerializeToString()
    return content


def _tensor_type(type: Type) -> onnx.TypeProto:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return helper.make_tensor_type_proto(elem_type_of(type.kind), shape)


def _with_defaults(node: onnx.NodeProto, schema: defs.OpSchema) -> onnx.NodeProto:
    """A copy with all attributes that have a default: definitions do not know it."""
    complete = onnx.NodeProto()
    complete.CopyFrom(node)
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.name:
            complete.attribute.append(attribute.default_value)
    return complete


def _instantiated(function: onnx.FunctionProto, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes that the outputs of `node` need, with its names and attributes."""
    names = _names(function, node)
    values = {attribute.name: attribute for attribute in node.attribute}
    needed = {name for name in node.output if name}
    first = next(iter(node.output))
    nodes: list[onnx.NodeProto] = []
    for inner in reversed(function.node):
        inputs = [_name_in(names, name, inner.op_type) for name in inner.input]
        outputs = [names[name] if name else "" for name in inner.output]
        if needed.isdisjoint(outputs):
            continue
        needed.update(names[name] for name in names_read(inner) if name)
        name = node.name if outputs[0] == first else ""
        copy = helper.make_node(inner.op_type, inputs, outputs, name, domain=inner.domain)
        _add_attributes(copy, inner, names, values)
        nodes.append(copy)
    return nodes[::-1]


def _add_attributes(
    copy: onnx.NodeProto,
    inner: onnx.NodeProto,
    names: Mapping[str, str],
    values: Mapping[str, onnx.AttributeProto],
) -> None:
    """Gives a copy of a node its attributes: those that it names of the node that is defined, and graphs renamed."""
    for attribute in inner.attribute:
        value = values.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if value is not None:
            copy.attribute.add().CopyFrom(value)
            copy.attribute[-1].name = attribute.name
        if not attribute.ref_attr_name and attribute.type == onnx.AttributeProto.GRAPH:
            copy.attribute[-1].g.CopyFrom(_renamed(attribute.g, names, values))


def _renamed(
    graph: onnx.GraphProto,
    names: Mapping[str, str],
    values: Mapping[str, onnx.AttributeProto],
) -> onnx.GraphProto:
    """A subgraph with the names that the definition has outside, and with names of its own that nothing else has."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    prefix = next(iter(names.values()))
    names_inside = [info.name for info in copy.input] + [
        name for n in copy.node for name in n.output
    ]
    names_inside += [tensor.name for tensor in copy.initializer]
    inside = {**names, "": "", **{name: f"{prefix}_{name}_inside" for name in names_inside if name}}
    for info in (*copy.input, *copy.output, *copy.initializer):
        info.name = _name_in(inside, info.name, "a graph")
    del copy.node[:]
    for node in graph.node:
        inputs = [_name_in(inside, name, node.op_type) for name in node.input]
        outputs = [inside[name] for name in node.output]
        twin = helper.make_node(node.op_type, inputs, outputs, node.name, domain=node.domain)
        _add_attributes(twin, node, inside, values)
        copy.node.append(twin)
    return copy


def _name_in(names: Mapping[str, str], name: str, reader: str) -> str:
    """A name outside of the definition. Raises UserError for one that nothing defines, as in a graph of the node."""
    if name and name not in names:
        raise UserError(f"its definition reads '{name}' in {reader}, which nothing defines")
    return names[name] if name else ""


def _names(function: onnx.FunctionProto, node: onnx.NodeProto) -> dict[str, str]:
    """Names in the definition -> names outside of it; inputs that are not given have none."""
    outer = {*node.input, *node.output}
    prefix = node.name or next(name for name in node.output if name)
    names = dict.fromkeys(function.input, "")
    names |= dict(zip(function.input, node.input, strict=False))
    for name in (output for inner in function.node for output in inner.output if output):
        names[name] = f"{prefix}_{name}"
        while names[name] in outer:
            names[name] += "_"
    names |= {
        inner_name: name
        for inner_name, name in zip(function.output, node.output, strict=False)
        if name
    }
    return names
