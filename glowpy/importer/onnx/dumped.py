"""Reads a graph back that `glowpy dump --format onnx` wrote: the same nodes, names, types and storage.

What the file says is checked as text is: names, attributes and types first, then the whole module by the verifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import AttributeProto

from glowpy.core.schema import NodeSchema, check_attrs
from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type, read_type
from glowpy.engine import known_nodes
from glowpy.graph.function import Module
from glowpy.graph.node import Constant, NodeValue, Storage, Variable
from glowpy.graph.nodes_gen import NODES
from glowpy.graph.state import keep_others
from glowpy.graph.verifier import verify_module
from glowpy.importer.onnx.initial import set_initial_values
from glowpy.importer.onnx.source import Source
from glowpy.support.dumped import (
    CALLED,
    CONSTANTS,
    DECLARATIONS,
    DOMAIN,
    FUNCTIONS,
    GIVES,
    NUMBERED,
    PREDICATE,
    SAVED,
    TAKES,
    TYPES,
)
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.text import Attr, Lexer

__all__ = ["dumped_module", "dumped_state"]


def dumped_module(
    source: Source,
    tensors: Mapping[str, Tensor],
    state: StatePairs | None = None,
    *,
    other_shapes: bool = False,
) -> Module:
    """The module with the function that was dumped.

    Args:
        source: The model.
        tensors: Its initializers.
        state: If it is given, which inputs and outputs are variables, in place of those that were dumped.
        other_shapes: Whether somebody asks for other shapes, which is refused where they are open.

    Raises UserError for a file that was damaged or changed.
    """
    reader = _read(source, tensors)
    set_initial_values(reader.module, source.proto.graph, tensors, source.file)
    verify_module(reader.module)
    if other_shapes and reader.module.symbols:
        raise UserError(
            "the shapes of a dumped graph are written in it",
            loc=Loc(source.file),
            note="compile what glowpy.load gives, or dump it with other shapes",
        )
    if state is not None and state != reader.kept:
        keep_others(reader.module.main, state, reader.kept)
    return reader.module


def dumped_state(source: Source, tensors: Mapping[str, Tensor]) -> StatePairs:
    """The inputs and outputs of the file that are variables of the function. Raises UserError for a damaged file."""
    return _read(source, tensors).kept


def _read(source: Source, tensors: Mapping[str, Tensor]) -> _Reader:
    reader = _Reader(source, tensors)
    for proto in reader.called:
        reader.function(proto)
    reader.network(source.proto.graph)
    return reader


class _Reader:
    """Reads storage and functions.

    Attributes:
        module: The module as read so far.
        called: The functions that nodes call, each after those that it calls itself.
        kept: The names of variables, and of the outputs of the file that they are in the next run.
    """

    def __init__(self, source: Source, tensors: Mapping[str, Tensor]) -> None:
        graph = source.proto.graph
        self.module = Module()
        self.kept: dict[str, str] = {}
        self.called = [p for p in source.proto.functions if p.name.startswith(CALLED)]
        self._file = source.file
        self._tensors = tensors
        self._values: dict[str, NodeValue] = {}
        self._classes = {cls.SCHEMA.mnemonic: cls for cls in (*NODES, *known_nodes())}
        metadata, lists = _metadata(graph), [*map(_ports, self.called)]
        self._inner = {name for takes, gives in lists for name in (*takes, *gives)}
        lexer = Lexer(metadata[DECLARATIONS], f"{self._file}: {DECLARATIONS}")
        lexer.declarations()
        self._symbols = lexer.symbols
        while lexer.peek.kind != "end":
            self._storage(lexer)
        ports = dict(zip((proto.name for proto in self.called), lists, strict=True))
        for name in _list(metadata.get(FUNCTIONS, graph.name)):
            takes, gives = ports.get(CALLED + name, ([], []))
            taken = [s for s in self._storages(takes) if not isinstance(s, Constant)]
            self.module.create_function(name, taken, self._storages(gives))

    def network(self, graph: onnx.GraphProto) -> None:
        """Reads the function that users call."""
        self._f = self.module.function(graph.name)
        for index, node in enumerate(graph.node):
            if not self._is_same(node):
                self._node(index, node)
            saved = self.module.storage(_metadata(node).get(SAVED, ""))
            if isinstance(saved, Variable):
                self.kept[saved.original] = node.output[0]

    def _is_same(self, node: onnx.NodeProto) -> bool:
        """Whether a node gives a variable as it is, which no node of the function does."""
        if node.domain or node.op_type != "Identity" or not (node.input and node.output):
            return False
        value = self._values.get(node.input[0])
        if value is None or not isinstance(value.producer, Variable):
            return False
        self.kept[value.producer.original] = node.output[0]
        return True

    def function(self, proto: onnx.FunctionProto) -> None:
        """Reads a function that nodes call."""
        self._f = self.module.function(proto.name[len(CALLED) :])
        values, (takes, _) = self._values, _ports(proto)
        inputs = (storage.value for storage in self._storages(takes))
        self._values = dict(zip(proto.input, inputs, strict=False))
        for index, node in enumerate(proto.node):
            if node.domain or node.op_type != "Identity":  # which gives a variable as it is
                self._node(index, node)
        self._values = values

    def _storages(self, names: Sequence[str]) -> list[Storage]:
        storages = [self.module.storage(name) for name in names]
        if not all(storages):
            raise UserError("expected functions of storages that the file has", loc=Loc(self._file))
        return [storage for storage in storages if storage is not None]

    def _storage(self, lexer: Lexer) -> None:
        """One declaration: what text says of a storage, and its name in the model, or, of a constant, in the file."""
        word, token = lexer.take("word"), lexer.peek
        name = lexer.take("value")[1:]
        lexer.expect(":")
        type = read_type(lexer)
        memory = read_type(lexer) if lexer.accept("in") else None
        is_splat = lexer.accept("splat")
        attribute = lexer.attr()
        if self.module.storage(name) is not None or not isinstance(attribute, str):
            raise lexer.error(f"expected another declaration of {token.text}", token)
        loc = Loc(self._file)
        if word == "placeholder":
            value = self.module.create_placeholder(name, type, loc=loc, original=attribute).value
        elif word == "variable":
            value = self.module.create_variable(
                name, type, memory, loc=loc, original=attribute
            ).value
        elif word == "constant" and attribute in self._tensors:
            tensor = _typed(self._tensors[attribute], type)
            tensor = tensor.compact() if is_splat else tensor
            taken = self.module.names.take(name)
            value = self.module.add_constant(Constant(taken, tensor, loc)).value
        else:
            raise lexer.error(f"expected a storage that the file has, got '{word}'", token)
        if word == "constant" or name not in self._inner:
            self._values[attribute] = value

    def _node(self, index: int, proto: onnx.NodeProto) -> None:
        """Adds a node. Raises UserError for one that is none of ours, or that does not fit."""
        loc = Loc(self._file, node=proto.name or proto.op_type, index=index, operator=proto.op_type)
        try:
            self._add(proto, loc)
        except UserError as error:
            raise UserError(error.diagnostics[0].message, loc=loc) from None

    def _add(self, proto: onnx.NodeProto, loc: Loc) -> None:
        metadata = _metadata(proto)
        cls = self._classes.get(proto.op_type.partition(NUMBERED)[0])
        if cls is None or proto.domain != DOMAIN:
            raise UserError(f"{proto.op_type}: expected an operator of the domain {DOMAIN}")
        schema = cls.SCHEMA
        constants = metadata.get(CONSTANTS, "0")
        count = next((n for n in range(len(proto.input)) if str(n) == constants), 0)
        operands = [self._value(name) for name in proto.input[: len(proto.input) - count]]
        predicate = operands.pop() if PREDICATE in metadata and operands else None
        if SAVED in metadata:
            storage = self.module.storage(metadata[SAVED])
            operands += [storage.value] if storage is not None else []
        if len(operands) != len(schema.inputs) and not schema.variadic:
            raise UserError(f"{proto.op_type}: expected {len(schema.inputs)} inputs")
        types = [] if SAVED in metadata else self._types(metadata.get(TYPES, ""))
        if not types if schema.many_results else len(types) != len(schema.results):
            raise UserError(f"{proto.op_type}: expected {len(schema.results)} types of results")
        attrs = check_attrs(schema.attrs, self._attrs(proto, schema))
        name = self.module.names.take(proto.name or proto.op_type)
        node = self._f.add(cls(name, operands, attrs, types, loc=loc, predicate=predicate))
        self._values |= dict(zip(proto.output, node.results, strict=False))

    def _value(self, name: str) -> NodeValue:
        if name not in self._values:
            raise UserError(f"'{name}' is not computed before")
        return self._values[name]

    def _types(self, text: str) -> list[Type]:
        lexer = self._lexer(text)
        types = []
        while lexer.peek.kind != "end":
            types.append(read_type(lexer))
            lexer.accept(",")
        return types

    def _lexer(self, text: str) -> Lexer:
        lexer = Lexer(text, self._file)
        lexer.symbols = self._symbols
        return lexer

    def _attrs(self, proto: onnx.NodeProto, schema: NodeSchema) -> dict[str, Attr]:
        kinds = {spec.name: spec.kind for spec in schema.attrs}
        return {a.name: self._attr(a, kinds.get(a.name, "")) for a in proto.attribute}

    def _attr(self, attribute: AttributeProto, kind: str) -> Attr:
        match attribute.type:
            case AttributeProto.INT:
                return bool(attribute.i) if kind == "flag" else attribute.i
            case AttributeProto.INTS:
                return tuple(attribute.ints)
            case AttributeProto.FLOAT:
                return float(attribute.f)
            case AttributeProto.STRING:
                text = attribute.s.decode("utf-8", "replace")
                return text if kind in ("text", "function") else self._lexer(text).attr()
            case _:
                raise UserError(f"attribute '{attribute.name}' is of no type that a dump has")


def _typed(tensor: Tensor, type: Type) -> Tensor:
    """The elements as those of a quantized type. Raises UserError for another kind or shape."""
    if tensor.type == type:
        return tensor
    if (tensor.type.kind, tensor.type.shape) != (type.kind, type.shape):
        raise UserError(f"expected a constant of {type}, got {tensor.type}")
    return Tensor.derived(type, "stored integers", [tensor], lambda array: array)


def _ports(proto: onnx.FunctionProto) -> tuple[list[str], list[str]]:
    """The names of a function's inputs and outputs; constants that it reads are the last inputs."""
    metadata = _metadata(proto)
    return _list(metadata.get(TAKES, "")), _list(metadata.get(GIVES, ""))


def _list(text: str) -> list[str]:
    return text.split(", ") if text else []


def _metadata(proto: onnx.GraphProto | onnx.FunctionProto | onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}
