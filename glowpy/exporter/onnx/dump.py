"""`dump_onnx`: a graph as it is, at any stage, as an ONNX file that is valid, and that `load` reads back.

Each node is one operator of our own domain, in the order of the graph, between the same values. Where ONNX can say what
a node computes, the file has a function with that body, so that other runtimes compute it as well. See
`glowpy.support.dumped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, helper

from glowpy.core.tensor import LARGE
from glowpy.exporter.onnx.body import Bodies
from glowpy.exporter.onnx.file import LIMIT, write_model
from glowpy.exporter.onnx.graph import StoredTensor, elem_type_of, opset_imports
from glowpy.exporter.onnx.model import check_model, value_info
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Storage, Variable
from glowpy.graph.nodes_gen import SaveNode
from glowpy.graph.state import next_name
from glowpy.support.dumped import DECLARATIONS, DOMAIN, PREDICATE, SAVED, TYPES
from glowpy.support.errors import Diagnostic, UnsupportedError
from glowpy.support.output_files import check_output_file
from glowpy.support.text import Attr, print_attr, print_symbol

__all__ = ["dump_onnx"]

_IR_VERSION = 10
"""The first with metadata of nodes, and with several functions of one name."""

_LAST_TYPE = 22
"""The last element type of that version."""

Named: TypeAlias = NodeValue | SaveNode
"""What has a name in the file: a value, and a save for what it writes."""


def dump_onnx(f: Function, path: str | Path) -> None:
    """Writes a function as it is.

    Raises UserError for a file that cannot be written, and for constants of which only the digests are known,
    UnsupportedError for a function that calls others.
    """
    check_output_file(str(path))
    if calls := [node for node in f.topological() if node.callees]:
        note = "`glowpy export` writes such networks"
        raise UnsupportedError.of(
            Diagnostic(f"%{n.name}: a graph that calls functions is no ONNX file", n.loc, note=note)
            for n in calls
        )
    names = _names(f)
    tensors = {names[c.value]: StoredTensor.of(c.tensor) for c in f.constants}
    large = {name: tensor for name, tensor in tensors.items() if tensor.size >= LARGE}
    small = [tensor.proto(name) for name, tensor in tensors.items() if name not in large]
    proto = _proto(f, names, small)
    check_model(proto, large)
    write_model(path, proto, large, limit=LIMIT)


def _proto(f: Function, names: dict[Named, str], tensors: Sequence[onnx.TensorProto]) -> ModelProto:
    """The model without its large tensors."""
    bodies = Bodies()
    computed = [value for node in f.topological() for value in node.results]
    graph = helper.make_graph(
        [_node(node, names, bodies) for node in f.topological()],
        f.name,
        [value_info(names[s.value], s.type) for s in _storages(f) if s.value in names],
        [value_info(names[save], save.input.type) for save in f.saves],
        tensors,
        value_info=[value_info(names[value], value.type) for value in computed],
    )
    lines = [print_symbol(one) for one in f.module.symbols.values()]
    helper.set_metadata_props(graph, {DECLARATIONS: "\n".join([*lines, *_declarations(f, names)])})
    types = [elem_type_of(value.type.kind) for value in names if isinstance(value, NodeValue)]
    version = _IR_VERSION if max(types, default=0) <= _LAST_TYPE else onnx.IR_VERSION
    return helper.make_model(
        graph, producer_name="glowpy", functions=bodies.protos, ir_version=version,
        opset_imports=[
            *opset_imports(node for body in bodies.protos for node in body.node),
            helper.make_opsetid(DOMAIN, 1),
        ],
    )  # fmt: skip


def _storages(f: Function) -> list[Storage]:
    """The placeholders that a function uses or that nobody does, and its variables, in the order of the module."""
    placeholders = {*f.parameters, *f.outputs}
    return [*(p for p in f.module.placeholders if p in placeholders), *f.variables]


def _operands(node: Node) -> Sequence[NodeValue]:
    """What a node reads: a save does not read the storage that it writes."""
    return [node.input] if isinstance(node, SaveNode) else node.operand_values


def _names(f: Function) -> dict[Named, str]:
    """What everything is called in the file: ports as in the user's model, all else as in dumps if that is free."""
    names: dict[Named, str] = {}
    taken: set[str] = set()
    read = {value for node in f.nodes for value in _operands(node)}
    written = {save.output for save in f.saves}
    for storage in _storages(f):
        value = storage.value
        if value in read or value not in written or isinstance(storage, Variable):
            names[value] = _name(taken, storage.original)
    for save in f.saves:
        port = save.output.producer
        assert isinstance(port, Storage)
        names[save] = next_name(port.original, taken) if port.value in names else port.original
        taken.add(names[save])
    for value in (c.value for c in f.constants):
        names[value] = _name(taken, value.name)
    for node in f.topological():
        names |= {value: _name(taken, value.name) for value in node.results}
    return names


def _name(taken: set[str], hint: str) -> str:
    name, count = hint, 0
    while name in taken:
        count += 1
        name = f"{hint}_{count}"
    taken.add(name)
    return name


def _declarations(f: Function, names: dict[Named, str]) -> Iterator[str]:
    """The storage, as in text but for constants' elements, each with its name in the user's model or in the file."""
    for storage in _storages(f):
        word, memory = "placeholder", ""
        if isinstance(storage, Variable):
            word, memory = "variable", f" in {storage.memory}"
        yield f"{word} %{storage.name} : {storage.type}{memory} {print_attr(storage.original)}"
    for constant in f.constants:
        splat = "splat " if constant.tensor.splat_value is not None else ""
        name = print_attr(names[constant.value])
        yield f"constant %{constant.name} : {constant.type} {splat}{name}"


def _node(node: Node, names: dict[Named, str], bodies: Bodies) -> NodeProto:
    save = node if isinstance(node, SaveNode) else None
    proto = helper.make_node(
        node.SCHEMA.mnemonic,
        [names[value] for value in _operands(node)],
        [names[save]] if save else [names[value] for value in node.results],
        name=node.name, domain=DOMAIN, overload=bodies.overload(node) or None,
    )  # fmt: skip
    for name, value in sorted(node.attrs.items()):
        content, kind = _attribute(value)
        proto.attribute.append(helper.make_attribute(name, content, attr_type=kind))
    metadata = {TYPES: ", ".join(str(value.type) for value in node.results)}
    if save:
        metadata = {SAVED: save.output.name}
    if node.predicate is not None:
        metadata[PREDICATE] = "last input"
    helper.set_metadata_props(proto, metadata)
    return proto


def _attribute(value: Attr) -> tuple[object, int]:
    """The value as ONNX has it; as text where it is symbolic, or a number that ONNX would round."""
    match value:
        case str():
            return value, AttributeProto.STRING
        case int() if -(1 << 63) <= value < 1 << 63:
            return int(value), AttributeProto.INT
        case float() if float(np.float32(value)) == value:
            return value, AttributeProto.FLOAT
        case tuple() if all(isinstance(item, int) for item in value):
            return list(value), AttributeProto.INTS
    return print_attr(value), AttributeProto.STRING
