"""Rules of recurrent cells: loops over steps. Each computes the gates from the state that the one before left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same, is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.graph.work import largest_count, macs
from glowpy.ir.insts_gen import GruInst, LstmInst, RnnInst
from glowpy.ops import numeric
from glowpy.support.errors import UserError

__all__ = ["ALPHAS", "BETAS", "FUNCTIONS"]

FUNCTIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign",
    "Softplus",
)  # fmt: skip
"""The activation functions by their numbers."""

ALPHAS: dict[str, float | None] = {
    "Affine": None, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": None, "HardSigmoid": 0.2, "Elu": 1.0,
}  # fmt: skip
"""The functions with an alpha, and what it is in ONNX where it is not given; None: it has to be."""

BETAS: dict[str, float | None] = {"Affine": None, "ScaledTanh": None, "HardSigmoid": 0.5}
"""Activations with a beta, and its default."""


# Types.


@infer(LstmNode)
def _infer_lstm(
    gates: Type,
    recurrence: Type,
    peepholes: Type,
    lengths: Type,
    initial_h: Type,
    initial_c: Type,
    coefficients: Type,
    *,
    functions: tuple[int, ...],
    **attrs: Any,
) -> tuple[Type, Type, Type]:
    del attrs
    result = _infer_cell(4, gates, recurrence, lengths, initial_h, coefficients, functions, 3)
    _expect("initial_c", initial_c, initial_h)
    if not peepholes.is_empty:
        _expect("peepholes", peepholes, gates.with_shape((3, initial_h.shape[1])))
    return result, initial_h, initial_c


@infer(GruNode)
def _infer_gru(
    gates: Type,
    recurrence: Type,
    bias: Type,
    lengths: Type,
    initial_h: Type,
    coefficients: Type,
    *,
    functions: tuple[int, ...],
    reset_after: bool,
    **attrs: Any,
) -> tuple[Type, Type]:
    del attrs
    result = _infer_cell(3, gates, recurrence, lengths, initial_h, coefficients, functions, 2)
    _expect("bias", bias, gates.with_shape(initial_h.shape[1:] if reset_after else (0,)))
    return result, initial_h


@infer(RnnNode)
def _infer_rnn(
    gates: Type,
    recurrence: Type,
    lengths: Type,
    initial_h: Type,
    coefficients: Type,
    *,
    functions: tuple[int, ...],
    **attrs: Any,
) -> tuple[Type, Type]:
    del attrs
    result = _infer_cell(1, gates, recurrence, lengths, initial_h, coefficients, functions, 1)
    return result, initial_h


def _infer_cell(
    count: int,
    gates: Type,
    recurrence: Type,
    lengths: Type,
    initial_h: Type,
    coefficients: Type,
    functions: tuple[int, ...],
    activations: int,
) -> Type:
    """The type of the result. Raises UserError where what all cells have does not fit together."""
    if not gates.kind.is_float or gates.rank != 3 or initial_h.rank != 2:
        raise UserError(
            f"expected floats of gates of rank 3 and a state of rank 2, got {gates} and {initial_h}"
        )
    steps, batch = gates.shape[:2]
    units = initial_h.shape[1]
    if not isinstance(units, int) or units < 1:
        raise UserError(f"expected a constant number of units, got {units}")
    _expect("gates", gates, gates.with_shape((steps, batch, count * units)))
    _expect("initial_h", initial_h, gates.with_shape((batch, units)))
    _expect("recurrence", recurrence, gates.with_shape((count, units, units)))
    has_lengths = lengths.rank == 1 and (lengths.shape[0] == 0 or is_same(lengths.shape[0], batch))
    if lengths.kind is not ElemKind.I32 or not has_lengths:
        raise UserError(f"expected lengths i32[{batch}] or i32[0], got {lengths}")
    _expect("coefficients", coefficients, gates.with_shape((activations, 2)))
    if len(functions) != activations or not all(0 <= item < len(FUNCTIONS) for item in functions):
        raise UserError(
            f"expected {activations} functions from 0 to {len(FUNCTIONS) - 1}, got {list(functions)}"
        )
    return gates.with_shape((steps, batch, units))


def _expect(name: str, type: Type, expected: Type) -> None:
    if type.kind is not expected.kind or not is_same_shape(type.shape, expected.shape):
        raise UserError(f"expected {name} {expected}, got {type}")


@macs(LstmNode, GruNode, RnnNode)
def _macs(n: LstmNode | GruNode | RnnNode) -> int:
    """Counts the multiply-adds of the state; the input is multiplied before."""
    return largest_count((*n.gates.type.shape, n.initial_h.type.shape[1]))


# Meaning.

_ACTIVATIONS: tuple[Callable[[Array, Array, Array], Array], ...] = (
    lambda x, alpha, beta: np.maximum(x, 0),
    lambda x, alpha, beta: np.tanh(x),
    lambda x, alpha, beta: numeric.sigmoid(x),
    lambda x, alpha, beta: alpha * x + beta,
    lambda x, alpha, beta: np.where(x < 0, alpha * x, x),
    lambda x, alpha, beta: np.where(x <= alpha, 0, x),
    lambda x, alpha, beta: alpha * np.tanh(beta * x),
    lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    lambda x, alpha, beta: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    lambda x, alpha, beta: x / (1 + np.abs(x)),
    lambda x, alpha, beta: numeric.softplus(x),
)


def _wide(tensor: Tensor) -> Array:
    """Returns the elements to compute with: halves in f32, which are rounded when all steps are done."""
    return tensor.array.astype(np.float32) if tensor.type.kind.is_half else tensor.array


class _Activations:
    """The activation functions of a cell. What gates compute is limited first."""

    def __init__(self, functions: tuple[int, ...], coefficients: Array, limit: float) -> None:
        self._functions, self._coefficients = functions, coefficients
        self._limit = coefficients.dtype.type(limit)

    def __call__(self, index: int, x: Array) -> Array:
        return self.unlimited(index, np.clip(x, -self._limit, self._limit))

    def unlimited(self, index: int, x: Array) -> Array:
        """The function of that number, of what no gate has computed."""
        return _ACTIVATIONS[self._functions[index]](x, *self._coefficients[index])


def _run(
    result: Tensor,
    gates: Array,
    lengths: Array,
    states: Sequence[Array],
    step: Callable[..., tuple[Array, ...]],
    *,
    reverse: bool,
) -> tuple[Array, ...]:
    """The states after all steps; `step` takes a step's gates and states of the sequences that have not ended."""
    steps, batch = gates.shape[:2]
    ends = np.clip(lengths, 0, steps) if lengths.size else np.full(batch, steps)
    result.array[...] = 0
    states = tuple(state.copy() for state in states)
    for number in range(steps):
        rows = np.flatnonzero(number < ends)
        places = ends[rows] - 1 - number if reverse else np.full(len(rows), number)
        after = step(gates[places, rows], *(state[rows] for state in states))
        for state, new in zip(states, after, strict=True):
            state[rows] = new
        result.array[places, rows] = after[0]
    return states


@interpret(LstmInst)
def _lstm(
    result: Tensor,
    last_h: Tensor,
    last_c: Tensor,
    gates: Tensor,
    recurrence: Tensor,
    peepholes: Tensor,
    lengths: Tensor,
    initial_h: Tensor,
    initial_c: Tensor,
    coefficients: Tensor,
    *,
    functions: tuple[int, ...],
    limit: float,
    reverse: bool,
    coupled: bool,
) -> None:
    f = _Activations(functions, _wide(coefficients), limit)
    matrices, units = _wide(recurrence), initial_h.type.extents[1]
    peeps = np.zeros((3, units), matrices.dtype)
    if peepholes.array.size:
        peeps = _wide(peepholes)

    def step(sums: Array, h: Array, c: Array) -> tuple[Array, Array]:
        enter, out, forget, cell = (
            sums[:, gate * units : (gate + 1) * units] + h @ matrices[gate] for gate in range(4)
        )
        enter = f(0, enter + peeps[0] * c)
        forget = 1 - enter if coupled else f(0, forget + peeps[2] * c)
        c = forget * c + enter * f(1, cell)
        return f(0, out + peeps[1] * c) * f.unlimited(2, c), c

    states = [_wide(initial_h), _wide(initial_c)]
    last_h.array[...], last_c.array[...] = _run(
        result, _wide(gates), lengths.array, states, step, reverse=reverse
    )


@interpret(GruInst)
def _gru(
    result: Tensor,
    last_h: Tensor,
    gates: Tensor,
    recurrence: Tensor,
    bias: Tensor,
    lengths: Tensor,
    initial_h: Tensor,
    coefficients: Tensor,
    *,
    functions: tuple[int, ...],
    limit: float,
    reverse: bool,
    reset_after: bool,
) -> None:
    f = _Activations(functions, _wide(coefficients), limit)
    matrices, units = _wide(recurrence), initial_h.type.extents[1]
    added = _wide(bias)

    def step(sums: Array, h: Array) -> tuple[Array]:
        update = f(0, sums[:, :units] + h @ matrices[0])
        reset = f(0, sums[:, units : 2 * units] + h @ matrices[1])
        after = h @ matrices[2] + added if reset_after else (reset * h) @ matrices[2]
        hidden = reset * after if reset_after else after
        return ((1 - update) * f(1, sums[:, 2 * units :] + hidden) + update * h,)

    (last_h.array[...],) = _run(
        result, _wide(gates), lengths.array, [_wide(initial_h)], step, reverse=reverse
    )


@interpret(RnnInst)
def _rnn(
    result: Tensor,
    last_h: Tensor,
    gates: Tensor,
    recurrence: Tensor,
    lengths: Tensor,
    initial_h: Tensor,
    coefficients: Tensor,
    *,
    functions: tuple[int, ...],
    limit: float,
    reverse: bool,
) -> None:
    f = _Activations(functions, _wide(coefficients), limit)
    (matrix,) = _wide(recurrence)

    def step(sums: Array, h: Array) -> tuple[Array]:
        return (f(0, sums + h @ matrix),)

    (last_h.array[...],) = _run(
        result, _wide(gates), lengths.array, [_wide(initial_h)], step, reverse=reverse
    )
