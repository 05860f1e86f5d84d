"""Types of ONNX that no machine code has: strings, sequences, optionals and maps; which values of a graph have them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

import onnx
from onnx import TensorProto, checker, defs, helper, shape_inference

from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.signature import declared_names
from glowpy.importer.onnx.source import domain_of
from glowpy.importer.onnx.verdicts import wrong_type
from glowpy.importer.value_types import (
    UNDEFINED,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from glowpy.support.errors import UnsupportedError, UserError

__all__ = [
    "check_operands",
    "element_types",
    "element_word",
    "holds_strings",
    "is_numeric",
    "is_strings",
    "node_types",
    "spelled",
    "value_type",
]

_WORDS = {
    number: "bfloat16" if name == "BFLOAT16" else name.lower()
    for name, number in TensorProto.DataType.items()
}


def element_word(elem_type: int) -> str:
    """How ONNX calls an element type, such as `float`."""
    return _WORDS.get(elem_type, UNDEFINED)


def is_strings(type: onnx.TypeProto) -> bool:
    """Whether it is a tensor of strings."""
    return type.HasField("tensor_type") and type.tensor_type.elem_type == TensorProto.STRING


def is_numeric(type: onnx.TypeProto | None) -> bool:
    """Whether it is a tensor that machine code can have; what is not known is taken for one."""
    if type is None or type.WhichOneof("value") is None:
        return True
    return type.HasField("tensor_type") and not is_strings(type)


def holds_strings(type: onnx.TypeProto) -> bool:
    """Whether strings, or a map, are in a sequence or an optional, or are it."""
    if type.HasField("sequence_type"):
        return holds_strings(type.sequence_type.elem_type)
    if type.HasField("optional_type"):
        return holds_strings(type.optional_type.elem_type)
    return type.HasField("map_type") or is_strings(type)


def element_types(type: onnx.TypeProto) -> list[int]:
    """The element types of the tensors that a value of the type is made of."""
    match type.WhichOneof("value"):
        case "tensor_type":
            return [type.tensor_type.elem_type]
        case "sequence_type":
            return element_types(type.sequence_type.elem_type)
        case "optional_type":
            return element_types(type.optional_type.elem_type)
        case "map_type":
            return [type.map_type.key_type, *element_types(type.map_type.value_type)]
        case _:
            return [TensorProto.UNDEFINED]


def value_type(type: onnx.TypeProto | None) -> ValueType | None:
    """The type in the words of sessions; None for one that is not known, or that they do not have."""
    if type is None:
        return None
    match type.WhichOneof("value"):
        case "tensor_type":
            element = element_word(type.tensor_type.elem_type)
            names = declared_names(type.tensor_type)
            return TensorType(element, None if names is None else tuple(names))
        case "sequence_type":
            item = value_type(type.sequence_type.elem_type)
            return None if item is None else SequenceType(item)
        case "optional_type":
            item = value_type(type.optional_type.elem_type)
            return None if item is None else OptionalType(item)
        case "map_type":
            item = value_type(type.map_type.value_type)
            key = element_word(type.map_type.key_type)
            return None if item is None else MapType(key, item)
        case _:
            return None


def spelled(type: onnx.TypeProto) -> str:
    """As ONNX spells it: `seq(tensor(float))`."""
    return str(value_type(type) or "no type")


def parsed(text: str) -> onnx.TypeProto:
    """The type that ONNX spells so in its schemas. Raises UnsupportedError for those of other forms."""
    match = re.fullmatch(r"(\w+)\((.*)\)", text.replace(" ", ""))
    word, inner = match.groups() if match else (text, "")
    numbers = {name: number for number, name in _WORDS.items()}
    if (match is None and word in numbers) or (word == "tensor" and inner in numbers):
        return helper.make_tensor_type_proto(numbers[inner or word], None)
    if word == "seq":
        return helper.make_sequence_type_proto(parsed(inner))
    if word == "optional":
        return helper.make_optional_type_proto(parsed(inner))
    key, _, value = inner.partition(",")
    if word == "map" and key in numbers:
        return helper.make_map_type_proto(numbers[key], parsed(value))
    raise UnsupportedError(f"the type {text} is not supported")


def node_types(
    node: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto]
) -> dict[str, onnx.TypeProto]:
    """The types of a node's outputs, as far as ONNX or the attributes say; `types` are those of other values."""
    schema = schema_of(node, opsets.get(domain_of(node.domain), 0))
    inferred: dict[str, onnx.TypeProto] = {}
    if schema is not None and all(name in types for name in node.input if name):
        inputs = {name: types[name] for name in node.input if name}
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        # Whoever computes the node says what is wrong with it.
        with suppress(
            shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError
        ):
            inferred = shape_inference.infer_node_outputs(
                schema, node, inputs, opset_imports=imports
            )
    stated = _stated(node, types) if node.op_type in _STATED else {}
    types_by_name = {name: type for name, type in inferred.items() if type.WhichOneof("value")}
    return {**_by_schema(node, schema, types), **stated, **types_by_name}


def check_operands(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> None:
    """Raises UserError for an input of a type that the schema does not allow, as far as types are known."""
    schema = schema_of(node, opset)
    allowed = {} if schema is None else dict(_allowed(schema))
    formals = [] if schema is None else _formals(schema.inputs, node.input)
    for position, (formal, name) in enumerate(formals):
        type = types.get(name)
        if type is not None and spelled(type) not in allowed.get(formal, {formal, spelled(type)}):
            verdict = wrong_type(node, name, spelled(type))
            message = f"'{name}' cannot be of {spelled(type)}, as input {position}"
            raise UserError(message, verdict=verdict)


def _allowed(schema: defs.OpSchema) -> Iterator[tuple[str, set[str]]]:
    """Yields the types that each type parameter may be, spelled as types are here."""
    for constraint in schema.type_constraints:
        texts = set()
        for text in constraint.allowed_type_strs:
            with suppress(UnsupportedError):
                texts.add(spelled(parsed(text)))
        yield constraint.type_param_str, texts


_STATED = ("CastMap", "CategoryMapper", "DictVectorizer", "LabelEncoder", "ZipMap")
"""Operators of ai.onnx.ml whose attributes, or input's type, say what they give."""


def _stated(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> dict[str, onnx.TypeProto]:
    attributes = {attribute.name: attribute for attribute in node.attribute}
    given, text = types.get(node.input[0]), ""
    match node.op_type:
        case "ZipMap":
            texts = "classlabels_strings" in attributes
            text = f"seq(map({'string' if texts else 'int64'},float))"
        case "CastMap":
            to = attributes["cast_to"].s if "cast_to" in attributes else b"TO_FLOAT"
            text = f"tensor({to.decode('utf-8', 'replace').removeprefix('TO_').lower()})"
        case "DictVectorizer" if given is not None and given.HasField("map_type"):
            return {node.output[0]: given.map_type.value_type}
        case "CategoryMapper" | "LabelEncoder" if given is not None:
            texts = not is_strings(given) if _keys_are_others(attributes) else False
            texts = texts or "values_strings" in attributes
            text = "tensor(string)" if texts else ""
    return {node.output[0]: parsed(text)} if text else {}


def _keys_are_others(attributes: Collection[str]) -> bool:
    """Whether strings become integers and integers strings, as the table has only one of each."""
    return "cats_strings" in attributes or "classes_strings" in attributes


def _by_schema(
    node: onnx.NodeProto, schema: defs.OpSchema | None, types: Mapping[str, onnx.TypeProto]
) -> dict[str, onnx.TypeProto]:
    """The outputs whose type the schema says: one type only, or that of an input."""
    if schema is None:
        return {}
    bound: dict[str, onnx.TypeProto] = {}
    for formal, name in _formals(schema.inputs, node.input):
        if name in types:
            bound.setdefault(formal, types[name])
    for constraint in schema.type_constraints:
        if len(constraint.allowed_type_strs) == 1:
            bound.setdefault(constraint.type_param_str, parsed(constraint.allowed_type_strs[0]))
    return {
        name: bound[formal] if formal in bound else parsed(formal)
        for formal, name in _formals(schema.outputs, node.output)
        if name and (formal in bound or "(" in formal)
    }


def _formals(
    formals: Collection[defs.OpSchema.FormalParameter], names: Iterable[str]
) -> list[tuple[str, str]]:
    """The type parameters of operands, with their names: the last one may be variadic."""
    listed = list(formals)
    return [(listed[min(i, len(listed) - 1)].type_str, name) for i, name in enumerate(names)]
