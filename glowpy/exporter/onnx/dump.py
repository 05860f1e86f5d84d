"""`dump_onnx`: a graph as it is, at any stage, as an ONNX file that is valid, and that `load` reads back.

Each node is one operator of our own domain, in the order of the graph, between the same values. Where ONNX can say what
a node computes, the file has a function with that body, so that other runtimes compute it as well. A function that
nodes call is a function of the file. See `glowpy.support.dumped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, helper

from glowpy.core.state_pairs import next_name
from glowpy.core.tensor import LARGE
from glowpy.exporter.onnx.body import Bodies
from glowpy.exporter.onnx.calling import OPSETS_OF_DUMPS, constants_read
from glowpy.exporter.onnx.file import LIMIT, write_model
from glowpy.exporter.onnx.graph import StoredTensor, elem_type_of
from glowpy.exporter.onnx.initial import initial_values
from glowpy.exporter.onnx.model import check_model, value_info
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Storage, Variable
from glowpy.graph.nodes_gen import SaveNode
from glowpy.support.dumped import (
    CALLED,
    CONSTANTS,
    DECLARATIONS,
    DOMAIN,
    FUNCTIONS,
    GIVES,
    INITIAL,
    PREDICATE,
    SAVED,
    TAKES,
    TYPES,
)
from glowpy.support.output_files import check_output_file
from glowpy.support.text import Attr, print_attr, print_symbol

__all__ = ["dump_onnx"]

_IR_VERSION = 10
"""The first with metadata of nodes, and with several functions of one name."""

_LAST_TYPE = 22
"""The last element type of that version."""

Named: TypeAlias = NodeValue | SaveNode
"""Anything with a name in the file: a value, and a save for the storage that it writes."""
Names: TypeAlias = dict[Named, str]


def dump_onnx(f: Function, path: str | Path) -> None:
    """Writes a function as it is.

    Raises UserError for a file that cannot be written, and for constants of which only the digests are known.
    """
    check_output_file(str(path))
    names = _names(f)
    unsaved = _unsaved(f, names)
    initial, values = initial_values(f.variables, {*names.values(), *unsaved.values()})
    tensors = {names[c.value]: StoredTensor.of(c.tensor) for c in constants_read([f])}
    tensors |= {name: StoredTensor.of(tensor) for name, tensor in values.items()}
    large = {name: tensor for name, tensor in tensors.items() if tensor.size >= LARGE}
    small = [tensor.proto(name) for name, tensor in tensors.items() if name not in large]
    proto = _proto(f, names, unsaved, small)
    if initial:
        proto.graph.metadata_props.add(key=INITIAL, value=initial)
    check_model(proto, large)
    write_model(path, proto, large, limit=LIMIT)


def _proto(
    f: Function,
    names: Names,
    unsaved: Mapping[Variable, str],
    tensors: Sequence[onnx.TensorProto],
) -> ModelProto:
    """The model without its large tensors."""
    same = [helper.make_node("Identity", [names[v.value]], [n]) for v, n in unsaved.items()]
    bodies = Bodies()
    for callee in f.called:
        bodies.protos.append(_called(callee, bodies))  # after the bodies of its nodes
    graph = helper.make_graph(
        [*(_node(f, node, names, bodies) for node in f.topological()), *same],
        f.name,
        [value_info(names[s.value], s.type) for s in _storages(f) if s.value in names],
        [
            *(value_info(names[save], save.input.type) for save in f.saves),
            *(value_info(name, variable.type) for variable, name in unsaved.items()),
        ],
        tensors,
        value_info=_computed(f, names),
    )
    lines = [print_symbol(symbol) for symbol in f.module.symbols.values()]
    declarations = "\n".join([*lines, *_declarations(f, names)])
    needed = {f, *f.called}
    functions = ", ".join(g.name for g in f.module.functions if g in needed)
    helper.set_metadata_props(graph, {DECLARATIONS: declarations, FUNCTIONS: functions})
    protos = bodies.protos
    opsets = {o.domain: o for o in OPSETS_OF_DUMPS} | {
        o.domain: o for p in protos for o in p.opset_import
    }
    return helper.make_model(
        graph,
        producer_name="glowpy",
        functions=protos,
        ir_version=_ir_version(f),
        opset_imports=[opsets[domain] for domain in sorted(opsets)],
    )


def _called(f: Function, bodies: Bodies) -> FunctionProto:
    """A function that nodes call."""
    names = _names(f)
    takes: list[Storage] = [*f.takes, *constants_read([f])]
    nodes = [_node(f, node, names, bodies) for node in f.topological()]
    saves = {save.output: names[save] for save in f.saves}
    outputs = []
    for storage in f.gives:
        name = saves.get(storage.value, "")
        if not name:  # a variable that stays as it is
            name = f"{names[storage.value]}_same"
            nodes.append(helper.make_node("Identity", [names[storage.value]], [name]))
        outputs.append(name)
    proto = helper.make_function(
        DOMAIN, CALLED + f.name, [names[s.value] for s in takes], outputs, nodes,
        OPSETS_OF_DUMPS, value_info=_computed(f, names),
    )  # fmt: skip
    lists = {TAKES: takes, GIVES: f.gives}
    texts = {
        key: ", ".join(storage.name for storage in storages) for key, storages in lists.items()
    }
    helper.set_metadata_props(proto, texts)
    return proto


def _computed(f: Function, names: Names) -> list[onnx.ValueInfoProto]:
    """The types of what nodes compute."""
    values = [value for node in f.topological() for value in node.results]
    return [value_info(names[value], value.type) for value in values]


def _ir_version(f: Function) -> int:
    """One that has the types of all values."""
    storages = (*_storages(f), *constants_read([f]))
    types = [storage.type for storage in storages]
    types += [v.type for g in (*f.called, f) for node in g.nodes for v in node.results]
    last = max((elem_type_of(type.kind) for type in types), default=0)
    return _IR_VERSION if last <= _LAST_TYPE else onnx.IR_VERSION


def _storages(f: Function) -> list[Storage]:
    """The placeholders that a function uses or that nobody does, and its variables, in the order of the module."""
    placeholders = {*f.parameters, *f.outputs}
    return [*(p for p in f.module.placeholders if p in placeholders), *f.variables]


def _declared(f: Function) -> list[Storage]:
    """These, and those of the functions that it calls, in the order of the module."""
    storages = {*_storages(f), *(s for g in f.called for s in (*g.takes, *g.gives))}
    return [s for s in (*f.module.placeholders, *f.module.variables) if s in storages]


def _operands(node: Node) -> Sequence[NodeValue]:
    """The values that a node reads: a save does not read the storage that it writes."""
    return [node.input] if isinstance(node, SaveNode) else node.operand_values


def _names(f: Function) -> Names:
    """Names every value and save: ports as in the user's model, all else as in dumps where that name is free."""
    names: Names = {}
    taken: set[str] = set()
    read = {value for node in f.nodes for value in _operands(node)}
    written = {save.output for save in f.saves}
    for storage in f.takes if f.is_called else _storages(f):
        value = storage.value
        if f.is_called or value in read or value not in written or isinstance(storage, Variable):
            names[value] = _name(taken, storage.original)
    for save in f.saves:
        port = save.output.producer
        assert isinstance(port, Storage)
        new = f.is_called or port.value in names
        names[save] = next_name(port.original, taken) if new else port.original
        taken.add(names[save])
    for constant in constants_read([f]):
        names[constant.value] = _name(taken, constant.name)
    for node in f.topological():
        names |= {value: _name(taken, value.name) for value in node.results}
    return names


def _unsaved(f: Function, names: Names) -> dict[Variable, str]:
    """The variables that no node saves, with names of the outputs by which they stay what they are."""
    taken, saved = {*names.values()}, {save.output for save in f.saves}
    unsaved: dict[Variable, str] = {}
    for variable in f.variables:
        if variable.value not in saved:
            unsaved[variable] = next_name(variable.original, taken)
            taken.add(unsaved[variable])
    return unsaved


def _name(taken: set[str], hint: str) -> str:
    name, count = hint, 0
    while name in taken:
        count += 1
        name = f"{hint}_{count}"
    taken.add(name)
    return name


def _declarations(f: Function, names: Names) -> Iterator[str]:
    """The storage, as in text but for constants' elements, each with its name in the user's model or in the file."""
    for storage in _declared(f):
        word, memory = "placeholder", ""
        if isinstance(storage, Variable):
            word, memory = "variable", f" in {storage.memory}"
        yield f"{word} %{storage.name} : {storage.type}{memory} {print_attr(storage.original)}"
    for constant in constants_read([f]):
        splat = "splat " if constant.tensor.splat_value is not None else ""
        name = print_attr(names[constant.value])
        yield f"constant %{constant.name} : {constant.type} {splat}{name}"


def _node(f: Function, node: Node, names: Names, bodies: Bodies) -> NodeProto:
    save = node if isinstance(node, SaveNode) else None
    constants = [names[c.value] for c in constants_read(f.callees(node).values())]
    proto = helper.make_node(
        bodies.operator(f, node),
        [*(names[value] for value in _operands(node)), *constants],
        [names[save]] if save else [names[value] for value in node.results],
        name=node.name, domain=DOMAIN,
    )  # fmt: skip
    for name, value in sorted(node.attrs.items()):
        content, kind = _attribute(value)
        proto.attribute.append(helper.make_attribute(name, content, attr_type=kind))
    metadata = {TYPES: ", ".join(str(value.type) for value in node.results)}
    if save:
        metadata = {SAVED: save.output.name}
    if node.predicate is not None:
        metadata[PREDICATE] = "last input"
    if constants:
        metadata[CONSTANTS] = str(len(constants))
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
