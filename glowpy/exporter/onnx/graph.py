"""`OnnxGraph`: the ONNX graph under construction, and `to_onnx`, the table of what each node becomes.

A rule writes one node. It names the operands with `graph.operand`, adds operators for what lies between with
`graph.add`, and ends with `graph.result`, whose operator computes the node's first result. What ONNX cannot say goes
to `graph.refuse`; all refusals are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE, Array, Tensor
from glowpy.core.type import Type
from glowpy.exporter.onnx.extents import ExtentVectors
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue, Placeholder
from glowpy.graph.nodes_gen import StorageCastNode
from glowpy.support.errors import Diagnostic
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, ceil_div, depends_on_symbols, static

__all__ = ["OPSETS", "OnnxGraph", "StoredTensor", "elem_type_of", "opset_imports", "to_onnx"]

OPSETS = {"": 21, "ai.onnx.ml": 5}
"""The opset of each domain: the first with 16-bit integers in QuantizeLinear, and with TreeEnsemble."""

_FEW = 1024
"""Bytes of equal elements that are written one by one; more are one ConstantOfShape."""

_DEFAULTS = {
    "ceil_mode": 0, "count_include_pad": 0, "dilations": 1, "group": 1, "output_padding": 0,
    "pads": 0, "strides": 1,
}  # fmt: skip
"""ONNX's defaults for the attributes of windows, the same along all dimensions."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file: its elements are the bytes of `content`, as they are, whose own type does not matter."""

    elem_type: int
    dims: tuple[int, ...]
    content: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> StoredTensor:
        """The same elements."""
        return cls(elem_type_of(tensor.type.kind), tensor.type.extents, tensor)

    @classmethod
    def packed(cls, tensor: Tensor) -> StoredTensor:
        """Integers of 8 bits that need 4: two in a byte, the first in its lower half."""
        signed = tensor.type.kind is ElemKind.I8
        elem_type = TensorProto.INT4 if signed else TensorProto.UINT4
        type = Type(ElemKind.U8, (ceil_div(tensor.type.count, 2),))
        return cls(
            elem_type, tensor.type.extents, Tensor.derived(type, "pack 4", [tensor], _packed)
        )

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.content.type.room

    def head(self, name: str) -> TensorProto:
        """All but the elements."""
        return TensorProto(dims=self.dims, data_type=self.elem_type, name=name)

    def proto(self, name: str) -> TensorProto:
        """The whole tensor."""
        proto = self.head(name)
        proto.raw_data = b"".join(piece.tobytes() for piece in self.content.raw_pieces())
        return proto


def _packed(array: Array) -> Array:
    flat = array.reshape(-1).view(np.uint8) & 15
    low, high = flat[0::2], np.zeros((flat.size + 1) // 2, np.uint8)
    high[: flat.size // 2] = flat[1::2]
    return low | high << 4


class OnnxGraph:
    """Operators and tensors, in the order in which they were added.

    Attributes:
        nodes: The operators.
        origins: For each operator, the node it was written for.
        tensors: The constants, by name.
        refusals: The reasons why ONNX cannot express the graph.
    """

    def __init__(self, f: Function) -> None:
        self._module = f.module
        self.nodes: list[NodeProto] = []
        self.origins: list[Node] = []
        self.tensors: dict[str, StoredTensor] = {}
        self.refusals: list[Diagnostic] = []
        self._names: dict[NodeValue, str] = {}
        self._packed: dict[Constant, str] = {}
        self._shared: dict[tuple[Type, bytes], str] = {}
        self._node: Node | None = None
        self._taken: set[str] = set()
        self._open: set[NodeValue] = set()
        self._extents = ExtentVectors(
            f.parameters,
            lambda operator, *inputs, **rest: self.add(operator, *inputs, name="extent", **rest),
            lambda numbers: self.ints("number", numbers),
            self.refuse,
        )
        for placeholder in f.module.placeholders:
            self._names[placeholder.value] = placeholder.original
            self._taken.add(placeholder.original)
        for save in f.saves:
            value, output = _computed(save.input), save.output.producer
            if value.node is not None and value not in self._names:
                assert isinstance(output, Placeholder)
                self._names[value] = output.original

    def inner(self, names: Mapping[NodeValue, str]) -> OnnxGraph:
        """A graph in this one, where `names` are those of values that are there already. It has the same tensors."""
        graph = copy(self)
        constants = {v: name for v, name in self._names.items() if name in self.tensors}
        graph.nodes, graph.origins = [], []
        graph._names, graph._open = {**constants, **names}, set()
        return graph

    def function(self, name: str) -> Function:
        """A function that a node calls."""
        return self._module.function(name)

    def write(self, node: Node, rule: Callable[[OnnxGraph, Any], None]) -> None:
        """Adds the operators of a node."""
        self._node = node
        rule(self, node)

    def operand(self, value: NodeValue) -> str:
        """The name of a value that is there already, or is a constant."""
        value = _computed(value)
        if value not in self._names:
            constant = value.constant
            if constant is None:  # of a node that was refused
                return self.name_of(value)
            self._names[value] = self._of_constant(constant)
        return self._names[value]

    def _of_constant(self, constant: Constant) -> str:
        tensor = constant.tensor
        splat = tensor.splat_value
        if splat is not None and tensor.type.size > _FEW:
            return self.filled(constant.name, constant.type, splat)
        name = self._unique(constant.name)
        self.tensors[name] = StoredTensor.of(tensor)
        return name

    def packed(self, constant: Constant) -> str:
        """A tensor of integers of 4 bits, which are a constant of 8."""
        if constant not in self._packed:
            self._packed[constant] = self._unique(constant.name)
            self.tensors[self._packed[constant]] = StoredTensor.packed(constant.tensor)
        return self._packed[constant]

    def filled(self, name: str, type: Type, value: float) -> str:
        """The same stored element everywhere."""
        element = np.asarray(value, type.kind.dtype)
        if type.is_static and type.size <= _FEW:
            return self.constant(name, np.broadcast_to(element, type.extents))
        proto = onnx.numpy_helper.from_array(element.reshape(1))
        shape = self.ints("shape", type.shape)
        return self.add("ConstantOfShape", shape, name=name, value=proto)

    def constant(self, name: str, array: Array) -> str:
        """A small tensor; equal ones are written once."""
        tensor = Tensor.of(np.ascontiguousarray(array).reshape(array.shape))
        key = tensor.type, tensor.array.tobytes()
        if key not in self._shared:
            self._shared[key] = self._unique(name)
            self.tensors[self._shared[key]] = StoredTensor.of(tensor)
        return self._shared[key]

    def ints(self, name: str, values: Iterable[Dim]) -> str:
        """A vector of i64, which is computed where a number is symbolic."""
        dims = tuple(values)
        if depends_on_symbols(dims):
            return self._extents.vector(dims)
        return self.constant(name, np.array(static(dims), np.int64))

    def define(self, symbol: str, number: str) -> None:
        """Says what a symbol is that no input says: a vector of one number."""
        self._extents.defined[symbol] = number

    def leave_open(self, *values: NodeValue) -> None:
        """Says nothing of the shapes of values, which have fewer elements in the file."""
        self._open.update(values)

    def scalar(self, name: str, kind: ElemKind, value: float) -> str:
        """One number, without dimensions."""
        return self.constant(name, np.asarray(value, kind.dtype))

    def add(self, op_type: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Adds an operator with one result, which is named after the node that is written if not by `name`."""
        hint = name or f"{self._current.name}_{op_type.lower()}"
        return self.add_all(op_type, *inputs, outputs=[self._unique(hint)], **attributes)[0]

    def add_all(
        self, op_type: str, *inputs: str, outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """Adds an operator with the results `outputs`, which it returns.

        Defaults are left out: onnxruntime refuses some that it moves to operators of its own, as QLinearAveragePool.
        """
        attributes = {k: v for k, v in attributes.items() if not _is_default(k, v)}
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=outputs[0], **attributes))
        self.origins.append(self._current)
        return outputs

    def result(self, op_type: str, *inputs: str, index: int = 0, **attributes: Any) -> None:
        """Adds the operator that computes result `index` of the node that is written."""
        output = self.name_of(self._current.results[index])
        self.add_all(op_type, *inputs, outputs=[output], **attributes)

    def results(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Adds the operator that computes all results of the node that is written."""
        outputs = [self.name_of(value) for value in self._current.results]
        self.add_all(op_type, *inputs, outputs=outputs, **attributes)

    def be(self, name: str) -> None:
        """Makes the result of the node that is written a tensor that is there already."""
        value = self._current.result
        if value in self._names:  # an output, which no other tensor can be
            self.result("Identity", name)
        else:
            self._names[value] = name

    def names(self, hint: str, count: int) -> list[str]:
        """New names, for results that are no values of the graph."""
        return [self._unique(f"{self._current.name}_{hint}") for _ in range(count)]

    @property
    def _current(self) -> Node:
        assert self._node is not None
        return self._node

    def refuse(self, reason: str, node: Node | None = None) -> None:
        """Notes why a node, the one that is written if none is given, cannot be."""
        node = node or self._current
        self.refusals.append(
            Diagnostic(f"%{node.name} ({node.SCHEMA.mnemonic}): {reason}", node.loc)
        )

    def name_of(self, value: NodeValue) -> str:
        """The name of a computed value."""
        if value not in self._names:
            self._names[value] = self._unique(value.name)
        return self._names[value]

    def _unique(self, hint: str) -> str:
        name, count = hint, 0
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name

    def values(self) -> list[tuple[str, Type]]:
        """Name and type of every computed value that is no output, in the order in which they were named."""
        ports = {
            name for value, name in self._names.items() if isinstance(value.producer, Placeholder)
        }
        return [
            (name, value.type)
            for value, name in self._names.items()
            if value.node is not None
            and value not in self._open
            and name not in ports
            and name not in self.tensors
        ]

    def is_stored_apart(self, name: str) -> bool:
        """Whether a tensor is so large that its elements are only read while the file is written."""
        return self.tensors[name].size >= LARGE


def opset_imports(nodes: Iterable[NodeProto]) -> list[onnx.OperatorSetIdProto]:
    """The opsets of the domains that operators are of, ONNX's own among them in any case."""
    domains = {""}
    work = list(nodes)
    while work:
        node = work.pop()
        domains.add(node.domain)
        work += [inner for attribute in node.attribute for inner in attribute.g.node]
    return [helper.make_opsetid(domain, OPSETS[domain]) for domain in sorted(domains)]


def elem_type_of(kind: ElemKind) -> int:
    """The ONNX element type of a kind."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))


def _is_default(name: str, value: Any) -> bool:
    return name in _DEFAULTS and bool(np.all(np.asarray(value) == _DEFAULTS[name]))


def _computed(value: NodeValue) -> NodeValue:
    """The value whose stored integers `value` has: in ONNX these are plain, whatever they stand for."""
    while isinstance(value.node, StorageCastNode):
        value = value.node.input
    return value


to_onnx: Rules[Callable[[OnnxGraph, Any], None]] = Rules("to_onnx")
