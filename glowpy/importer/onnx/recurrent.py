"""Import of recurrent layers: one product for the input of all steps, then a loop over steps for each direction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    concat,
    convert,
    filled,
    full,
    reshape,
    slice_axis,
    transpose,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.ops.recurrent import ALPHAS, BETAS, FUNCTIONS
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, static

__all__ = ["Direction", "Layer"]

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: what its cell reads.

    Attributes:
        gates: The sums of the input's products and of biases, for all steps.
        biases: The bias of each gate beside them, a vector of all of them; None where there is none.
        activations: Its functions and their coefficients.
        layer: The layer, with all that its directions share.
    """

    index: int
    reverse: bool
    gates: NodeValue
    biases: Value | None
    functions: tuple[int, ...]
    coefficients: NodeValue
    layer: Layer

    @property
    def recurrence(self) -> NodeValue:
        """A matrix for each gate, from the state to the gate's sums."""
        layer, units = self.layer, self.layer.units
        weights = reshape(layer.n, layer.part(2, self.index), (layer.gates, units, units))
        return layer.n.operand(transpose(layer.n, weights, (0, 2, 1)), f"{layer.n.name}_recurrence")

    def state(self, index: int) -> NodeValue:
        """The initial state that input `index` gives; zeros if it is not there."""
        layer, n = self.layer, self.layer.n
        type = Type(layer.kind, (layer.batch, layer.units))
        if not n.has(index):
            return n.operand(filled(n, type, 0.0), f"{n.name}_zeros")
        axis = 1 if layer.batch_first else 0
        return n.operand(reshape(n, layer.part(index, self.index, axis), type.shape))


class Layer:
    """The common parts of LSTM, GRU and RNN. A subclass whose weights are stored otherwise says what they are.

    Raises UserError where shapes or attributes do not fit.
    """

    def __init__(self, n: OnnxNode, gates: int) -> None:
        self.n, self.gates = n, gates
        direction = n.text("direction", "forward")
        if direction not in _DIRECTIONS:
            raise UserError(
                f"attribute 'direction': expected {_spell(_DIRECTIONS)}, got '{direction}'"
            )
        self.directions = _DIRECTIONS[direction]
        self.batch_first = n.integer("layout", 0) == 1
        for index in range(3):
            if n.type(index).rank != 3:
                raise UserError(f"expected input {index} of rank 3, got {n.type(index)}")
        input = n.type(0)
        self.kind = ElemKind.F32 if input.kind.is_half else input.kind
        (self.units,) = static(n.type(2).shape[self.units_axis :][:1])
        self.steps, self.batch = input.shape[:2][:: -1 if self.batch_first else 1]
        self._check_shapes(input.shape[2])

    units_axis = 2
    """The dimension of the weights of the state that is as long as the state."""

    def weight_shapes(self, width: Dim) -> dict[int, Shape]:
        """Those of the inputs that are weights, where the layer's input is so wide."""
        count, rows = len(self.directions), self.gates * self.units
        return {1: (count, rows, width), 2: (count, rows, self.units)}

    def input_product(self, direction: int) -> NodeValue:
        """The input of all steps times its weights."""
        n = self.n
        weights = reshape(n, self.part(1, direction), n.type(1).shape[1:])
        operands = n.operand(self.wide(0)), n.operand(transpose(n, weights, (1, 0)))
        return n.f.create_mat_mul(n.name, *operands).result

    def _check_shapes(self, width: Dim) -> None:
        count, units, n = len(self.directions), self.units, self.n
        state = (self.batch, count, units) if self.batch_first else (count, self.batch, units)
        expected: dict[int, Shape] = {
            **self.weight_shapes(width),
            3: (count, 2 * self.gates * units),
            4: (self.batch,),
            5: state,
            6: state,
            7: (count, 3 * units),
        }
        for index, shape in expected.items():
            if n.has(index) and not is_same_shape(n.type(index).shape, shape):
                raise UserError(
                    f"expected input {index} of shape {list(shape)}, got {n.type(index)}"
                )
        if n.integer("hidden_size", units) != units:
            raise UserError(
                f"attribute 'hidden_size': expected {units}, as R has, got {n.integer('hidden_size', 0)}"
            )

    def wide(self, index: int) -> Value:
        """Input `index`; halves in f32, in which all is computed, and rounded once."""
        return convert(self.n, self.n.value(index), self.kind)

    def part(self, index: int, direction: int, axis: int = 0) -> Value:
        """Takes the part of an input for one direction; `axis` is the axis of directions."""
        return slice_axis(self.n, self.wide(index), axis, direction, 1, 1)

    @property
    def lengths(self) -> NodeValue:
        """The lengths of sequences, none if all of them are whole."""
        n = self.n
        if n.has(4):
            return n.input(4)
        return n.operand(Tensor.of(np.zeros(0, np.int32)), f"{n.name}_lengths")

    @property
    def nothing(self) -> NodeValue:
        """In place of an operand that is missing."""
        return self.n.operand(full(Type(self.kind, (0,)), 0.0), f"{self.n.name}_none")

    @property
    def limit(self) -> float:
        """Where numbers are clipped before an activation."""
        return self.n.real("clip", math.inf)

    def cells(self, defaults: Sequence[str], own_bias: int = 0) -> Iterator[Direction]:
        """Each direction; the last `own_bias` gates keep the bias of the state by itself."""
        n = self.n
        functions, coefficients = _activations(n, defaults, len(self.directions))
        for index, reverse in enumerate(self.directions):
            mine = slice(index * len(defaults), (index + 1) * len(defaults))
            table = np.array(coefficients[mine], np.float32).astype(self.kind.dtype)
            gates, biases = self._gates(index, own_bias)
            yield Direction(
                index, reverse, gates, biases, tuple(functions[mine]),
                n.operand(Tensor.of(table), f"{n.name}_coefficients"), self,
            )  # fmt: skip

    def _gates(self, index: int, own_bias: int) -> tuple[NodeValue, Value | None]:
        """The sums that no state is part of, [T, B, gates * units], and the biases that are kept apart."""
        n, f, size = self.n, self.n.f, self.gates * self.units
        product = self.input_product(index)
        apart: Value | None = None
        if n.has(3):
            both, joined = (
                reshape(n, self.part(3, index), (2 * size,)),
                size - own_bias * self.units,
            )
            bias = slice_axis(n, both, 0, size, joined, 1)
            if own_bias:
                apart = slice_axis(n, both, 0, size + joined, size - joined, 1)
                bias = concat(n, [bias, full(Type(self.kind, (size - joined,)), 0.0)], 0)
            first = n.operand(slice_axis(n, both, 0, 0, size, 1), f"{n.name}_bias")
            biases = f.create_add(n.name, first, n.operand(bias, f"{n.name}_bias"))
            product = f.create_add(n.name, product, biases).result
        if self.batch_first:
            product = n.operand(transpose(n, product, (1, 0, 2)))
        return product, apart

    def outputs(self, cells: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
        """The results of all directions, in the layout and the kind of the model.

        Those of a step are joined side by side, as what reads them mostly wants: its transpose meets ours.
        """
        n, kind = self.n, self.n.kind(0)
        count = len(cells)
        joined = concat(n, [cell[0] for cell in cells], 2)
        lines = (self.steps, self.batch, count, self.units)
        sequence = transpose(
            n, reshape(n, joined, lines), (1, 0, 2, 3) if self.batch_first else (0, 2, 1, 3)
        )
        axis = 1 if self.batch_first else 0
        state = (self.batch, 1, self.units) if self.batch_first else (1, self.batch, self.units)
        lasts = [
            concat(n, [reshape(n, cell[index], state) for cell in cells], axis)
            for index in range(1, len(cells[0]))
        ]
        return tuple(convert(n, value, kind) for value in (sequence, *lasts))


def _spell(names: Sequence[str] | dict[str, tuple[bool, ...]]) -> str:
    *before, last = names
    return f"{', '.join(before)} or {last}"


def _activations(
    n: OnnxNode, defaults: Sequence[str], directions: int
) -> tuple[list[int], list[tuple[float, float]]]:
    """The numbers of all functions, and alpha and beta of each; only those that have one take the next of a list."""
    names = n.texts("activations") or tuple(defaults) * directions
    if len(names) != directions * len(defaults):
        raise UserError(
            f"attribute 'activations': expected {directions * len(defaults)}, got {len(names)}"
        )
    spelled = {name.lower(): name for name in FUNCTIONS}
    alphas, betas = iter(n.reals("activation_alpha") or ()), iter(n.reals("activation_beta") or ())

    def taken(
        name: str, defaults: dict[str, float | None], given: Iterator[float], what: str
    ) -> float:
        if name not in defaults:
            return 0.0
        number = next(given, defaults[name])
        if number is None:
            raise UserError(f"attribute 'activation_{what}': expected a number for {name}")
        return number

    functions, coefficients = [], []
    for given in names:
        name = spelled.get(given.lower())
        if name is None:
            raise UserError(f"attribute 'activations': expected {_spell(FUNCTIONS)}, got '{given}'")
        functions.append(FUNCTIONS.index(name))
        pair = taken(name, ALPHAS, alphas, "alpha"), taken(name, BETAS, betas, "beta")
        coefficients.append(pair)
    return functions, coefficients


@from_onnx("LSTM")
def _lstm(n: OnnxNode) -> tuple[Value, ...]:
    layer = Layer(n, 4)
    lengths, coupled = layer.lengths, n.flag("input_forget")

    def peepholes(direction: int) -> NodeValue:
        if not n.has(7):
            return layer.nothing
        return n.operand(
            reshape(n, layer.part(7, direction), (3, layer.units)), f"{n.name}_peepholes"
        )

    return layer.outputs([
        n.f.create_lstm(
            n.name, cell.gates, cell.recurrence, peepholes(cell.index), lengths, cell.state(5), cell.state(6),
            cell.coefficients, cell.functions, layer.limit, cell.reverse, coupled,
        ).results
        for cell in layer.cells(("Sigmoid", "Tanh", "Tanh"))
    ])  # fmt: skip


@from_onnx("GRU")
def _gru(n: OnnxNode) -> tuple[Value, ...]:
    layer = Layer(n, 3)
    lengths, reset_after = layer.lengths, n.flag("linear_before_reset")

    def bias(cell: Direction) -> NodeValue:
        if not reset_after:
            return layer.nothing
        zeros = full(Type(layer.kind, (layer.units,)), 0.0)
        return n.operand(zeros if cell.biases is None else cell.biases, f"{n.name}_state_bias")

    return layer.outputs([
        n.f.create_gru(
            n.name, cell.gates, cell.recurrence, bias(cell), lengths, cell.state(5), cell.coefficients,
            cell.functions, layer.limit, cell.reverse, reset_after,
        ).results
        for cell in layer.cells(("Sigmoid", "Tanh"), own_bias=int(reset_after))
    ])  # fmt: skip


@from_onnx("RNN")
def _rnn(n: OnnxNode) -> tuple[Value, ...]:
    layer = Layer(n, 1)
    lengths = layer.lengths
    return layer.outputs([
        n.f.create_rnn(
            n.name, cell.gates, cell.recurrence, lengths, cell.state(5), cell.coefficients, cell.functions,
            layer.limit, cell.reverse,
        ).results
        for cell in layer.cells(("Tanh",))
    ])  # fmt: skip
