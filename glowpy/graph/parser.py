"""Reads the text that `printer` writes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from glowpy.core.initial import Initializer, initializer
from glowpy.core.schema import NodeSchema, check_attrs
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, read_type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue, Storage
from glowpy.graph.nodes_gen import NODES
from glowpy.support.errors import UserError
from glowpy.support.text import Attr, Lexer, Token

__all__ = ["parse_module", "read_module"]

NodeClasses = Mapping[str, type[Node]]


def parse_module(
    text: str,
    file: str = "<text>",
    *,
    extra: tuple[type[Node], ...] = (),
    blobs: Mapping[str, Array] | None = None,
) -> Module:
    """The module that `text` spells.

    Args:
        text: The output of `print_module`.
        file: The name for error messages.
        extra: Backend-specific node classes that may occur.
        blobs: Elements by SHA-256 for constants printed as a blob; without them such constants know
            only type and digest.

    Raises UserError with line, column and caret.
    """
    lexer = Lexer(text, file)
    module = read_module(lexer, extra, blobs or {})
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' after the module")
    return module


def read_module(lexer: Lexer, extra: tuple[type[Node], ...], blobs: Mapping[str, Array]) -> Module:
    """Consumes one module."""
    module = Module()
    classes = {cls.SCHEMA.mnemonic: cls for cls in (*NODES, *extra)}
    lexer.expect("module")
    lexer.expect("{")
    lexer.declarations()
    while not lexer.at("}"):
        if lexer.accept("placeholder"):
            token, type = _read_storage(lexer, module)
            module.create_placeholder(token.text[1:], type, loc=lexer.loc(token))
        elif lexer.accept("variable"):
            token, type = _read_storage(lexer, module)
            memory = read_type(lexer) if lexer.accept("in") else None
            initial = _read_initial(lexer, token, type, blobs) if lexer.accept("=") else None
            try:
                module.create_variable(
                    token.text[1:], type, memory, loc=lexer.loc(token), initial=initial
                )
            except UserError as error:
                raise lexer.error(error.diagnostics[0].message, token) from None
        elif lexer.accept("constant"):
            token, type = _read_storage(lexer, module)
            lexer.expect("=")
            constant = _read_constant(lexer, token, type, blobs)
            module.names.take(constant.name)
            module.add_constant(constant)
        elif lexer.at("function"):
            _read_function(lexer, module, classes)
        else:
            raise lexer.error(
                f"expected placeholder, variable, constant or function, got '{lexer.peek.text}'"
            )
    lexer.expect("}")
    return module


def _read_storage(lexer: Lexer, module: Module) -> tuple[Token, Type]:
    token = lexer.peek
    if module.storage(lexer.take("value")[1:]) is not None:
        raise lexer.error(f"{token.text} is defined twice", token)
    lexer.expect(":")
    return token, read_type(lexer)


def _read_initial(
    lexer: Lexer, token: Token, type: Type, blobs: Mapping[str, Array]
) -> Constant | Initializer:
    """Reads the initial value of a variable."""
    word = lexer.peek
    if word.kind != "word" or word.text in ("splat", "blob"):
        return _read_constant(lexer, token, type, blobs)
    lexer.next()
    try:
        random = initializer(word.text, lexer.attrs())
    except UserError as error:
        raise lexer.error(error.diagnostics[0].message, word) from None
    if random is None:
        raise lexer.error(f"expected elements, uniform or normal, got '{word.text}'", word)
    return random


def _read_constant(lexer: Lexer, token: Token, type: Type, blobs: Mapping[str, Array]) -> Constant:
    name, loc = token.text[1:], lexer.loc(token)
    if lexer.accept("splat"):
        at = lexer.peek
        return Constant(name, Tensor(type, _array(lexer, at, [lexer.number()], (), type)), loc)
    if lexer.accept("blob"):
        digest = lexer.attr()
        if not isinstance(digest, str) or not digest.startswith("sha256:"):
            raise lexer.error('expected a digest such as "sha256:..."', token)
        array = blobs.get(digest.removeprefix("sha256:"))
        tensor = _tensor_of_bytes(lexer, token, array, type) if array is not None else None
        return Constant(name, tensor, loc, type=type, digest=digest.removeprefix("sha256:"))
    at = lexer.expect("[")
    items: list[int | float] = []
    while not lexer.at("]"):
        items.append(lexer.number())
        if not lexer.accept(","):
            break
    lexer.expect("]")
    if len(items) != type.count:
        raise lexer.error(f"expected {type.count} elements, got {len(items)}", at)
    return Constant(name, Tensor(type, _array(lexer, at, items, type.extents, type)), loc)


def _tensor_of_bytes(lexer: Lexer, at: Token, array: Array, type: Type) -> Tensor:
    """Constants whose bytes are equal share a blob, whatever their types."""
    if array.nbytes != type.size:
        raise lexer.error(f"expected {type.size} bytes for {type}, got {array.nbytes}", at)
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(type, content.view(type.kind.dtype).reshape(type.extents))


def _array(
    lexer: Lexer, at: Token, items: list[int | float], shape: tuple[int, ...], type: Type
) -> Array:
    try:
        return np.broadcast_to(np.array(items, type.kind.dtype).reshape(shape), type.extents)
    except (OverflowError, ValueError):
        raise lexer.error(f"expected elements of kind {type.kind.value}", at) from None


def _read_function(lexer: Lexer, module: Module, classes: NodeClasses) -> None:
    lexer.expect("function")
    token = lexer.peek
    values: dict[str, NodeValue] = {s.name: s.value for s in module.storages}
    name = lexer.take("symbol")[1:]
    takes: list[Storage] = []
    gives: list[Storage] = []
    if lexer.at("("):
        takes = _read_ports(lexer, values)
        lexer.expect("-")
        lexer.expect(">")
        at = lexer.peek
        gives = _read_ports(lexer, values)
        if not gives:
            raise lexer.error("expected what a function that others call gives them", at)
    try:
        f = module.create_function(name, takes, gives)
    except UserError as error:
        raise lexer.error(str(error), token) from None
    lexer.expect("{")
    while not lexer.at("}"):
        _read_node(lexer, f, values, classes)
    lexer.expect("}")


def _read_ports(lexer: Lexer, values: Mapping[str, NodeValue]) -> list[Storage]:
    """Reads the ports that a function takes, or those that it gives."""
    ports: list[Storage] = []
    lexer.expect("(")
    while not lexer.at(")"):
        ports.append(_read_value(lexer, values).storage)
        if not lexer.accept(","):
            break
    lexer.expect(")")
    return ports


def _read_node(
    lexer: Lexer, f: Function, values: dict[str, NodeValue], classes: NodeClasses
) -> None:
    start = lexer.peek
    names: list[Token] = []
    while lexer.peek.kind == "value":
        names.append(lexer.next())
        lexer.accept(",")
    if names:
        lexer.expect("=")
    mnemonic = lexer.peek
    cls = classes.get(lexer.take("word"))
    if cls is None:
        raise lexer.unknown("node", mnemonic, classes)
    schema = cls.SCHEMA
    lexer.expect("(")
    inputs: list[NodeValue] = []
    while not lexer.at(")"):
        inputs.append(_read_value(lexer, values))
        if not lexer.accept(","):
            break
    lexer.expect(")")
    if len(inputs) != len(schema.inputs) and not schema.variadic:
        raise lexer.error(
            f"{schema.mnemonic}: expected {len(schema.inputs)} inputs, got {len(inputs)}", mnemonic
        )
    predicate = _read_value(lexer, values) if lexer.accept("if") else None
    attrs = _read_attrs(lexer, schema, mnemonic)
    types = _read_types(lexer, schema, names, start)
    name = names[0].text[1:] if names else schema.mnemonic
    node = f.add(
        cls(
            f.module.names.take(name),
            inputs,
            attrs,
            types,
            loc=lexer.loc(start),
            predicate=predicate,
        )
    )
    for token, result in zip(names, node.results, strict=True):
        if token.text[1:] in values:
            raise lexer.error(f"{token.text} is defined twice", token)
        values[token.text[1:]] = result


def _read_value(lexer: Lexer, values: Mapping[str, NodeValue]) -> NodeValue:
    token = lexer.peek
    value = values.get(lexer.take("value")[1:])
    if value is None:
        raise lexer.error(f"{token.text} is not defined", token)
    return value


def _read_attrs(lexer: Lexer, schema: NodeSchema, at: Token) -> dict[str, Attr]:
    attrs = lexer.attrs()
    try:
        return check_attrs(schema.attrs, attrs)
    except UserError as error:
        raise lexer.error(f"{schema.mnemonic}: {error.diagnostics[0].message}", at) from None


def _read_types(lexer: Lexer, schema: NodeSchema, names: list[Token], start: Token) -> list[Type]:
    if len(names) < 1 if schema.many_results else len(names) != len(schema.results):
        raise lexer.error(
            f"{schema.mnemonic}: expected {len(schema.results)} results, got {len(names)}", start
        )
    types: list[Type] = []
    for index in range(len(names)):
        lexer.expect("," if index else ":")
        types.append(read_type(lexer))
    return types
