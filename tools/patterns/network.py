"""A random ONNX model under construction, and what it is run with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from glowpy.core.tensor import Array

__all__ = ["Extent", "Network"]

_MEDDLING = ("output", "output", "negated", "doubled", "kept", "there and back")


class Extent(int):
    """A number of a shape that the model may leave open: inputs are then declared with its name."""

    name: str

    def __new__(cls, number: int, name: str) -> Extent:
        """A number with a name."""
        extent = super().__new__(cls, number)
        extent.name = name
        return extent


class Network:
    """Nodes in order, their inputs and weights; now and then something is done to a value that no pattern expects.

    Attributes:
        rng: The random numbers that decide about the graph.
        dtype: The type of floats.
        opset: The opset of the model.
        inputs: The inputs that the model is run with.
        is_open: Whether the model may leave extents open.
        extents: The extents that it leaves open, by name, and two numbers for each.
        blurs: Whether an infinite number may make NaN of its neighbours, as with algorithms that add up patches.
        tolerance: By how much of the largest result floats may be off.
        least: By how much they may be off however small results are.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.opset = rng.choice((13, 17, 17, 20, 21))
        self.dtype: Any = rng.choices((np.float32, np.float16, np.float64), (30, 2, 2))[0]
        self.inputs: dict[str, Array] = {}
        self.extents: dict[str, tuple[int, int]] = {}
        self.blurs = False
        self.tolerance = {np.float32: 4e-4, np.float16: 3e-2, np.float64: 1e-9}[self.dtype]
        self.least = 0.0
        self._numbers = np.random.default_rng(rng.getrandbits(32))
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, Array] = {}
        self._declared: list[onnx.ValueInfoProto] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._outputs: list[str] = []
        self.is_open = rng.random() < 0.3
        self._may_be_empty = rng.random() < 0.06
        self._meddling = rng.choice((0.0, 0.0, 0.0, 0.02, 0.08))
        self._values = rng.choices(
            ("normal", "small", "large", "whole", "zero", "special"), (20, 1, 1, 2, 1, 2)
        )[0]

    def extent(self, name: str, numbers: Sequence[int]) -> int:
        """One of some numbers; in a network with open shapes often one that the model does not know."""
        numbers = (*numbers, 0) if self._may_be_empty else numbers
        number = self.rng.choice(numbers)
        if not self.is_open or self.rng.random() < 0.4:
            return number
        self.extents[name] = (number, self.rng.choice(numbers))
        return Extent(number, name)

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def array(self, shape: Sequence[int], dtype: Any = None, scale: float = 1.0) -> Array:
        """Numbers of the kind that this network is run with."""
        normal = scale * self._numbers.standard_normal(tuple(shape))
        match self._values:
            case "small":
                normal *= 1e-3 if self.dtype is np.float16 else 1e-18
            case "large":
                normal *= 30 if self.dtype is np.float16 else 1e6
            case "whole":
                normal = np.round(3 * normal)
            case "zero":
                normal *= self._numbers.random(normal.shape) < 0.3
            case _:
                pass
        return np.asarray(normal, dtype or self.dtype)

    def input(self, shape: Sequence[int], dtype: Any = None) -> str:
        """An input of floats."""
        array = self.array(shape, dtype)
        if self._values == "special" and array.size and self.chance(0.7):
            flat = array.reshape(-1)
            for _ in range(self.rng.choice((1, 1, 3))):
                odd = (np.nan, np.inf, -np.inf, -0.0, 1e-40, np.finfo(array.dtype).max)
                flat[self.rng.randrange(flat.size)] = self.rng.choice(odd)
        return self.given(array, shape)

    def given(self, array: Array, shape: Sequence[int] | None = None) -> str:
        """An input with these elements, declared as `shape` says."""
        name = f"x{len(self.inputs)}"
        self._shapes[name] = tuple(array.shape if shape is None else shape)
        dims = [getattr(size, "name", size) for size in self._shapes[name]]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self._declared.append(helper.make_tensor_value_info(name, kind, dims))
        self.inputs[name] = array
        return name

    @property
    def open_extents(self) -> dict[str, tuple[int, int]]:
        """The extents that inputs are declared with, and their two numbers."""
        sizes = [size for shape in self._shapes.values() for size in shape]
        names = {size.name for size in sizes if isinstance(size, Extent)}
        return {name: pair for name, pair in self.extents.items() if name in names}

    def feeds(self, index: int) -> dict[str, Array]:
        """The inputs of a run at the first or second choice of its open extents."""
        if index == 0:
            return self.inputs
        feeds = {}
        for name, array in self.inputs.items():
            shape = [
                self.extents[size.name][index] if isinstance(size, Extent) else size
                for size in self._shapes[name]
            ]
            feeds[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
        return feeds

    def known(self, array: Any, dtype: Any = None) -> str:
        """A constant with these elements."""
        contents = np.asarray(array, dtype)
        for name, other in self._weights.items():
            if other is array:
                return name
        name = f"w{len(self._weights)}"
        self._weights[name] = contents
        return name

    def weights(self, shape: Sequence[int], scale: float = 0.3) -> str:
        """Constants; now and then computed, or given."""
        if self.chance(0.06):
            return self.input(shape)
        name = self.known(self.array(shape, scale=scale))
        return self.op("Abs", name) if self.chance(0.03) else name

    def number(self, value: float, rank: int = 0) -> str:
        """A constant of one element, of some rank up to `rank`."""
        shape = (1,) * self.rng.choice((0, 0, 1, rank))
        return self.known(np.full(shape, value), self.dtype)

    def ints(self, *numbers: int) -> str:
        """A constant vector of integers."""
        return self.known(np.array(numbers), np.int64)

    def op(self, op_type: str, *operands: str, results: int = 0, **attributes: Any) -> Any:
        """Adds a node, and returns the name of its result, or a list of names; perhaps meddled with."""
        names = [f"v{len(self._nodes)}_{index}" for index in range(max(results, 1))]
        self._nodes.append(helper.make_node(op_type, operands, names, **attributes))
        if results:
            return names
        (name,) = names
        return self._meddled(name) if self.chance(self._meddling) else name

    def axes_op(self, op_type: str, operand: str, axes: Sequence[int], **attributes: Any) -> str:
        """A reduction over axes, which are an input from some opset on."""
        as_input = self.opset >= (13 if op_type in ("ReduceSum", "Squeeze", "Unsqueeze") else 18)
        if as_input:
            name: str = self.op(op_type, operand, self.ints(*axes), **attributes)
        else:
            name = self.op(op_type, operand, axes=list(axes), **attributes)
        return name

    def output(self, name: str) -> None:
        """Makes a value an output of the graph."""
        if name not in self._outputs and name not in self.inputs:
            self._outputs.append(name)

    def _meddled(self, name: str) -> str:
        how = self.rng.choice(_MEDDLING)
        before, self._meddling = self._meddling, 0.0
        if how == "output":
            self.output(name)
        elif how == "negated":
            self.output(self.op("Identity", self.op("Neg", name)))
        elif how == "doubled":
            name = self.op("Add", name, name)
        elif how == "kept":
            name = self.op("Identity", name)
        else:
            name = self.op("Neg", self.op("Neg", name))
        self._meddling = before
        return name

    def model(self) -> onnx.ModelProto:
        """The model that was built, with every value that no node reads as an output."""
        read = {name for node in self._nodes for name in node.input}
        for node in self._nodes:
            for name in node.output:
                if name not in read:
                    self.output(name)
        stored = [numpy_helper.from_array(array, name) for name, array in self._weights.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in self._outputs]
        graph = helper.make_graph(self._nodes, "g", self._declared, outputs, initializer=stored)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        types = {info.name: info for info in inferred.graph.value_info}
        for output in inferred.graph.output:
            if not output.type.tensor_type.elem_type and output.name in types:
                output.CopyFrom(types[output.name])
        onnx.checker.check_model(inferred)
        return inferred
