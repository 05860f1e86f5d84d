"""Import of DynamicQuantizeLSTM, which onnxruntime's quantizer makes of LSTM: weights are stored integers.

The input of all steps is quantized by the range that it has when the network runs, and so is the state at every step:
both are multiplied in integers. The state is that of the whole batch, as in onnxruntime with one thread; with several
it quantizes what each of them has. The steps are a Scan of ONNX's own operators, imported in place of the node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape, slice_axis
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.contrib.quant import scaled
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import Item, OnnxNode, from_onnx
from glowpy.importer.onnx.quant import integer_product
from glowpy.importer.onnx.recurrent import Direction, Layer
from glowpy.importer.onnx.subgraph import inlined
from glowpy.ops.recurrent import FUNCTIONS
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__: list[str] = []

_GATES = 4


class _QuantizedLayer(Layer):
    """An LSTM whose weights are [directions, depth, units of all gates], with a scale each or one for each column."""

    units_axis = 1

    def __init__(self, n: OnnxNode) -> None:
        super().__init__(n, _GATES)
        stored, scale, zero = n.f.create_dynamic_quantize(n.name, n.input(0)).results
        self._stored, self._scale, self._zero = stored, scale, zero

    def weight_shapes(self, width: Dim) -> dict[int, Shape]:
        """Those of the inputs that are weights, where the layer's input is so wide."""
        count, columns = len(self.directions), _GATES * self.units
        self._check_parameters(8, (count, columns))
        self._check_parameters(10, (count, columns))
        return {1: (count, width, columns), 2: (count, self.units, columns)}

    def _check_parameters(self, index: int, shape: tuple[int, int]) -> None:
        """Raises UserError unless scale and zero point are of directions, or of all columns."""
        for place in (index, index + 1):
            if self.n.type(place).shape not in (shape, shape[:1]):
                raise UserError(
                    f"expected input {place} of shape {[shape[0]]} or {list(shape)}, got {self.n.type(place)}"
                )

    def of(self, index: int, direction: int) -> Value:
        """Takes the part of an input for one direction: a matrix, a vector for its columns, or one number."""
        n = self.n
        part = slice_axis(n, n.value(index), 0, direction, 1, 1)
        return reshape(n, part, n.type(index).shape[1:])

    def input_product(self, direction: int) -> NodeValue:
        """The input of all steps times its weights, in integers."""
        weights, zero = self.of(1, direction), self.of(9, direction)
        sums = integer_product(self.n, self._stored, weights, self._zero, zero)
        return scaled(self.n, sums, self._scale, self.of(8, direction))


@dataclass
class _Steps:
    """The steps of one direction as a graph: nodes, and what they read that does not change from step to step."""

    layer: _QuantizedLayer
    cell: Direction
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    known: dict[str, Item] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._prefix = f"{self.layer.n.name}/{self.cell.index}/"

    def name(self, text: str) -> str:
        """A name that nothing else has."""
        return self._prefix + text

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator, and names its result."""
        (result,) = self.several(op_type, inputs, 1, **attributes)
        return result

    def several(
        self, op_type: str, inputs: tuple[str, ...], count: int, **attributes: Any
    ) -> list[str]:
        """Adds an operator with several results, and names them."""
        results = [self.name(f"{op_type}_{len(self.nodes)}_{place}") for place in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, results, **attributes))
        return results

    def keep(self, text: str, value: Item) -> str:
        """The name of something from around the graph."""
        self.known[self.name(text)] = value
        return self.name(text)

    def number(self, text: str, value: float) -> str:
        """The name of a number in f32."""
        return self.keep(text, Tensor.of(np.array(value, np.float32)))

    def activated(self, place: int, value: str) -> str:
        """One of the three activation functions of a vector."""
        function = FUNCTIONS[self.cell.functions[place]]
        constant = self.cell.coefficients.constant
        assert constant is not None
        alpha, beta = (float(number) for number in constant.tensor.array[place])
        if function in ("Affine", "ScaledTanh"):
            first, second = self.number(f"alpha_{place}", alpha), self.number(f"beta_{place}", beta)
            if function == "Affine":
                return self.add("Add", self.add("Mul", value, first), second)
            return self.add("Mul", self.add("Tanh", self.add("Mul", value, second)), first)
        attributes = {"alpha": alpha, "beta": beta}
        takes = {"LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1, "HardSigmoid": 2}.get(function, 0)
        return self.add(function, value, **dict([*attributes.items()][:takes]))

    def limited(self, value: str) -> str:
        """Limits a value before an activation function."""
        limit = self.layer.limit
        if np.isinf(limit):
            return value
        return self.add("Clip", value, self.number("low", -limit), self.number("high", limit))

    def sums(self, h: str, gates: str) -> list[str]:
        """The sums of the four gates: those of the input, and the state times its weights."""
        layer, index = self.layer, self.cell.index
        stored, scale, zero = self.several("DynamicQuantizeLinear", (h,), 3)
        weights, own_zero = (self.keep(f"r{i}", layer.of(i, index)) for i in (2, 11))
        product = self.add("MatMulInteger", stored, weights, zero, own_zero)
        bias = self.keep("r10", layer.of(10, index))
        steps = self.add("Mul", self.add("Cast", product, to=1), self.add("Mul", scale, bias))
        total = self.add("Add", gates, steps)
        axis = self.keep("axis", Tensor.of(np.array([1])))
        places = [
            self.keep(f"place_{gate}", Tensor.of(np.array([gate * layer.units])))
            for gate in range(_GATES + 1)
        ]
        return [
            self.add("Slice", total, places[gate], places[gate + 1], axis) for gate in range(_GATES)
        ]

    def states(self, h: str, c: str, gates: str) -> tuple[str, str]:
        """The state and the cell after a step."""
        n, layer = self.layer.n, self.layer
        inner, out, forget, cell = self.sums(h, gates)

        def peeped(value: str, state: str, place: int) -> str:
            if not n.has(7):
                return value
            part = slice_axis(
                n, layer.of(7, self.cell.index), 0, place * layer.units, layer.units, 1
            )
            return self.add("Add", value, self.add("Mul", state, self.keep(f"p{place}", part)))

        inner = self.activated(0, self.limited(peeped(inner, c, 0)))
        if n.flag("input_forget"):
            forget = self.add("Sub", self.number("one", 1), inner)
        else:
            forget = self.activated(0, self.limited(peeped(forget, c, 2)))
        cell = self.activated(1, self.limited(cell))
        after = self.add("Add", self.add("Mul", forget, c), self.add("Mul", inner, cell))
        out = self.activated(0, self.limited(peeped(out, after, 1)))
        return self.add("Mul", out, self.activated(2, after)), after

    def graph(self) -> onnx.GraphProto:
        """The Scan over all steps, as a graph of its own: the last state, the last cell, and all states."""
        names = [self.name(text) for text in ("h", "c", "gates", "time")]
        h, c, gates, time = names
        next_h, next_c = self.states(h, c, gates)
        result = next_h
        if self.layer.n.has(4):
            runs = self.add("Less", time, self.keep("lengths", self._lengths()))
            next_h, next_c = (
                self.add("Where", runs, new, old) for new, old in ((next_h, h), (next_c, c))
            )
            result = self.add("Where", runs, next_h, self.number("zero", 0))
        outputs = [self.add("Identity", value) for value in (next_h, next_c, result)]
        body = helper.make_graph(self.nodes, "step", _untyped(names), _untyped(outputs))
        inputs = [self.name(f"all_{text}") for text in ("h", "c", "gates", "time")]
        results = [self.name(f"last_{text}") for text in ("h", "c", "states")]
        backwards = [int(self.cell.reverse)]
        scan = helper.make_node(
            "Scan", inputs, results, self.name("scan"), body=body, num_scan_inputs=2,
            scan_input_directions=backwards * 2, scan_output_directions=backwards,
        )  # fmt: skip
        times = helper.make_node(
            "Range", [self.name(text) for text in ("none", "steps", "unit")], [inputs[3]]
        )
        return helper.make_graph([times, scan], "steps", [], _untyped(results))

    def _lengths(self) -> Value:
        """The lengths of sequences, as a column."""
        n = self.layer.n
        return convert(n, reshape(n, n.value(4), (self.layer.batch, 1)), ElemKind.I64)

    def results(self) -> tuple[Value, Value, Value]:
        """All states, the last state, and the last cell."""
        n = self.layer.n
        graph = self.graph()
        for text, value in (("h", self.cell.state(5)), ("c", self.cell.state(6))):
            self.keep(f"all_{text}", value)
        self.keep("all_gates", self.cell.gates)
        for text, number in (("none", 0), ("unit", 1)):
            self.keep(text, Tensor.of(np.array(number)))
        self.keep("steps", self._number_of_steps())
        last_h, last_c, states = inlined(n, graph, self.known)
        assert isinstance(last_h, NodeValue | Tensor)
        assert isinstance(last_c, NodeValue | Tensor)
        assert isinstance(states, NodeValue | Tensor)
        return states, last_h, last_c

    def _number_of_steps(self) -> Item:
        """How many steps there are."""
        steps = self.layer.steps
        if isinstance(steps, int):
            return Tensor.of(np.array(steps))
        return SymbolicTensor(Type(ElemKind.I64, ()), np.array(steps, object))


def _untyped(names: list[str]) -> list[onnx.ValueInfoProto]:
    return [helper.make_empty_tensor_value_info(name) for name in names]


@from_onnx("DynamicQuantizeLSTM", domain=CONTRIB)
def _dynamic_quantize_lstm(n: OnnxNode) -> tuple[Value, ...]:
    layer = _QuantizedLayer(n)
    cells = layer.cells(("Sigmoid", "Tanh", "Tanh"))
    return layer.outputs([_Steps(layer, cell).results() for cell in cells])
