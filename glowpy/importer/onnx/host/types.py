"""Types of ONNX that no machine code has: strings, sequences, optionals and maps; which values have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, shape_inference

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import DeclaredDim, spelled_shape
from glowpy.importer.elements import NARROW, kind_of
from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.signature import declared_names, declared_shape
from glowpy.importer.onnx.source import domain_of
from glowpy.importer.onnx.string_tensors import strings
from glowpy.importer.onnx.verdicts import wrong_type
from glowpy.support.errors import UnsupportedError, UserError

__all__ = [
    "HostInfo",
    "HostValue",
    "check_operands",
    "dtype_of",
    "element_types",
    "holds_strings",
    "is_numeric",
    "is_strings",
    "node_types",
    "spelled",
]

HostValue: TypeAlias = Any
"""An array, of `str` objects for strings; a list for a sequence; a dict for a map; None for an empty optional."""

_WORDS = {
    number: "bfloat16" if name == "BFLOAT16" else name.lower()
    for name, number in TensorProto.DataType.items()
}


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


def dtype_of(elem_type: int) -> np.dtype[np.generic]:
    """The numpy dtype of an element type; of objects for strings. Raises UnsupportedError for complex numbers."""
    if elem_type == TensorProto.STRING:
        return np.dtype(object)
    narrow = NARROW.get(elem_type)
    return kind_of(elem_type).dtype if narrow is None else narrow.dtype


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


def spelled(type: onnx.TypeProto) -> str:
    """As ONNX spells it: `seq(tensor(float))`."""
    match type.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_WORDS.get(type.tensor_type.elem_type, 'undefined')})"
        case "sequence_type":
            return f"seq({spelled(type.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({spelled(type.optional_type.elem_type)})"
        case "map_type":
            key = _WORDS.get(type.map_type.key_type, "undefined")
            return f"map({key},{spelled(type.map_type.value_type)})"
        case _:
            return "no type"


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


@dataclass(frozen=True)
class HostInfo:
    """An input or output as a model declares it, of any type that a session knows.

    Attributes:
        name: Its name.
        proto: Its type.
    """

    name: str
    proto: onnx.TypeProto

    @property
    def type(self) -> str:
        """The type as ONNX spells it, such as `seq(tensor(float))`."""
        return spelled(self.proto)

    @property
    def shape(self) -> list[DeclaredDim] | None:
        """Sizes, names of symbolic dimensions, None where a dimension is neither; None without a rank."""
        return declared_shape(self.proto.tensor_type)

    @property
    def names(self) -> list[DeclaredDim] | None:
        """The shape with names that say nothing, such as `?`, which are None there."""
        return declared_names(self.proto.tensor_type)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype of arrays for it: of objects for all but tensors of numbers."""
        numeric = is_numeric(self.proto)
        return dtype_of(self.proto.tensor_type.elem_type) if numeric else np.dtype(object)

    @property
    def kind(self) -> ElemKind | None:
        """The element kind that a tensor of numbers is kept in; None for all else."""
        if not is_numeric(self.proto):
            return None
        elem_type = self.proto.tensor_type.elem_type
        narrow = NARROW.get(elem_type)
        return kind_of(elem_type) if narrow is None else narrow.kind

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.type}"
        return f"{self.name} {self.type[7:-1]}{spelled_shape(self.shape)}"

    def value(self, given: object) -> HostValue:
        """Takes a user's value for an input. Raises UserError if it is of another type."""
        return self._taking(f"'{self.name}'", given)

    @cached_property
    def _taking(self) -> _Taking:
        return _taking(self.proto)

    def plain(self, content: object) -> HostValue:
        """Reads a value from JSON: lists for arrays and sequences, objects for maps, null for an empty optional.

        Raises UserError for what is of another type.
        """
        return _plain(f"'{self.name}'", self.proto, content)


_Taking: TypeAlias = Callable[[str, Any], HostValue]
"""Makes a value of what is given; the text is what messages call it."""


def _taking(type: onnx.TypeProto) -> _Taking:
    """Returns a function that takes values of a type, which is inspected only once: every run takes some."""
    match type.WhichOneof("value"):
        case "optional_type":
            inner = _taking(type.optional_type.elem_type)
            return lambda what, given: None if given is None else inner(what, given)
        case "sequence_type":
            return partial(_sequence, type, _taking(type.sequence_type.elem_type))
        case "map_type":
            return partial(_map, type)
        case _:
            return _tensors(type)


def _tensors(type: onnx.TypeProto) -> _Taking:
    """The same for arrays."""
    checked = _checking(declared_shape(type.tensor_type))
    if is_strings(type):
        return lambda what, given: checked(what, strings(what, given))
    dtype = dtype_of(type.tensor_type.elem_type)

    def numbers(what: str, given: object) -> Array:
        array = np.asarray(given)
        if array.dtype != dtype:
            raise UserError(f"{what}: expected {dtype}, got {array.dtype}")
        return checked(what, array)

    return numbers


def _sequence(type: onnx.TypeProto, inner: _Taking, what: str, given: Any) -> list[HostValue]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UserError(f"{what}: expected a list for {spelled(type)}, got {_kind(given)}")
    return [inner(f"{what}[{i}]", item) for i, item in enumerate(given)]


def _map(type: onnx.TypeProto, what: str, given: Any) -> dict[Any, HostValue]:
    if not isinstance(given, Mapping):
        raise UserError(f"{what}: expected a dict for {spelled(type)}, got {_kind(given)}")
    inner = type.map_type.value_type
    return {key: _scalar(f"{what}[{key!r}]", inner, item) for key, item in given.items()}


def _plain(what: str, type: onnx.TypeProto, content: Any) -> HostValue:
    """Arrays are as deep as their lists, which sequences begin; keys of maps are text in JSON."""
    if type.HasField("optional_type"):
        return None if content is None else _plain(what, type.optional_type.elem_type, content)
    if type.HasField("sequence_type"):
        inner = type.sequence_type.elem_type
        items = content if isinstance(content, list) else _refuse(what, "a list", type, content)
        return [_plain(f"{what}[{i}]", inner, item) for i, item in enumerate(items)]
    if type.HasField("map_type"):
        entries = (
            content if isinstance(content, dict) else _refuse(what, "an object", type, content)
        )
        if type.map_type.key_type == TensorProto.STRING:
            return entries
        try:
            return {int(key): item for key, item in entries.items()}
        except ValueError:
            raise UserError(
                f"{what}: expected keys that are integers for {spelled(type)}"
            ) from None
    if is_strings(type):
        return strings(what, content)
    dtype = dtype_of(type.tensor_type.elem_type)
    try:
        numbers = np.array(content)
        array: Array = numbers.astype(dtype)
        fits = numbers.dtype.kind in _TAKEN.get(dtype.kind, "iuf") or not numbers.size
        if fits and (dtype.kind not in "biu" or np.array_equal(array, numbers)):
            return array
    except (ValueError, TypeError, OverflowError):
        pass
    raise UserError(f"{what}: expected numbers for {spelled(type)}, in lists of equal length")


_TAKEN = {"b": "b", "i": "iu", "u": "iu"}
"""The kinds of numbers that become others without a loss, by the kind that they become."""


def _refuse(what: str, expected: str, type: onnx.TypeProto, given: object) -> NoReturn:
    raise UserError(f"{what}: expected {expected} for {spelled(type)}, got {_kind(given)}")


def _scalar(what: str, type: onnx.TypeProto, given: Any) -> HostValue:
    """An element of a map: a number or a text."""
    if isinstance(given, str) == is_strings(type) and isinstance(
        given, str | int | float | np.generic
    ):
        return given
    raise UserError(f"{what}: expected a value of {spelled(type)}, got {_kind(given)}")


def _checking(shape: list[DeclaredDim] | None) -> Callable[[str, Array], Array]:
    """Returns a function that passes an array on, or raises UserError if the declared shape does not admit it."""
    if shape is None:
        return lambda what, array: array
    axes = [axis for axis, dim in enumerate(shape) if isinstance(dim, int)]
    sizes = [shape[axis] for axis in axes]

    def checked(what: str, array: Array) -> Array:
        given = array.shape
        if len(given) != len(shape) or [given[axis] for axis in axes] != sizes:
            declared, got = spelled_shape(shape), spelled_shape(given)
            raise UserError(f"{what}: expected the shape {declared}, got {got}")
        return array

    return checked


def _kind(given: object) -> str:
    return "None" if given is None else f"{type(given).__name__}"


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
