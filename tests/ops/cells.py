"""What recurrent cells compute, a number at a time: the reference of tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from glowpy.core.tensor import Array

Activation = Callable[[float], float]

_FUNCTIONS: tuple[Callable[[float, float, float], float], ...] = (
    lambda x, a, b: max(x, 0.0),
    lambda x, a, b: math.tanh(x),
    lambda x, a, b: 1 / (1 + math.exp(-x)),
    lambda x, a, b: a * x + b,
    lambda x, a, b: x if x >= 0 else a * x,
    lambda x, a, b: x if x > a else 0.0,
    lambda x, a, b: a * math.tanh(b * x),
    lambda x, a, b: min(max(a * x + b, 0.0), 1.0),
    lambda x, a, b: x if x >= 0 else a * (math.exp(x) - 1),
    lambda x, a, b: x / (1 + abs(x)),
    lambda x, a, b: math.log(1 + math.exp(x)),
)


@dataclass(frozen=True)
class Cell:
    """A cell with the sums of its input and its weights, all in f64; None stands for what is missing."""

    gates: Array
    recurrence: Array
    initial: Sequence[Array]
    functions: Sequence[int]
    coefficients: Array
    lengths: Sequence[int] | None = None
    peepholes: Array | None = None
    bias: Array | None = None
    limit: float = math.inf
    reverse: bool = False
    coupled: bool = False

    def activation(self, index: int, *, gate: bool = True) -> Activation:
        """The function of that number; what a gate computes is limited first."""
        function, (alpha, beta) = _FUNCTIONS[self.functions[index]], self.coefficients[index]
        limit = self.limit if gate else math.inf
        return lambda x: function(min(max(x, -limit), limit), alpha, beta)

    def run(self) -> list[Array]:
        """The result and the last states."""
        steps, batch, _ = self.gates.shape
        units = self.recurrence.shape[-1]
        result = np.zeros((steps, batch, units))
        last = [state.copy() for state in self.initial]
        steps_of: dict[int, Callable[..., tuple[Array, ...]]] = {
            4: self._lstm,
            3: self._gru,
            1: self._rnn,
        }
        step = steps_of[len(self.recurrence)]
        for row in range(batch):
            length = steps if self.lengths is None else self.lengths[row]
            times = range(length)
            for time in reversed(times) if self.reverse else times:
                sums = self.gates[time, row].reshape(-1, units)
                after = step(sums, *(state[row] for state in last))
                for state, new in zip(last, after, strict=True):
                    state[row] = new
                result[time, row] = after[0]
        return [result, *last]

    def _times(self, state: Array, gate: int) -> Array:
        return np.array([
            sum(state[k] * self.recurrence[gate, k, unit] for k in range(len(state)))
            for unit in range(len(state))
        ])  # fmt: skip

    def _lstm(self, sums: Array, h: Array, c: Array) -> tuple[Array, Array]:
        f, g, out = self.activation(0), self.activation(1), self.activation(2, gate=False)
        enter, leave, keep, cell = (sums[gate] + self._times(h, gate) for gate in range(4))
        peeps = np.zeros((3, len(h))) if self.peepholes is None else self.peepholes
        after_h, after_c = h.copy(), c.copy()
        for unit in range(len(h)):
            i = f(enter[unit] + peeps[0, unit] * c[unit])
            kept = 1 - i if self.coupled else f(keep[unit] + peeps[2, unit] * c[unit])
            after_c[unit] = kept * c[unit] + i * g(cell[unit])
            o = f(leave[unit] + peeps[1, unit] * after_c[unit])
            after_h[unit] = o * out(after_c[unit])
        return after_h, after_c

    def _gru(self, sums: Array, h: Array) -> tuple[Array]:
        f, g = (self.activation(index) for index in range(2))
        update = np.array([f(x) for x in sums[0] + self._times(h, 0)])
        reset = np.array([f(x) for x in sums[1] + self._times(h, 1)])
        inner = self._times(reset * h, 2)
        if self.bias is not None:
            inner = reset * (self._times(h, 2) + self.bias)
        hidden = np.array([g(x) for x in sums[2] + inner])
        return ((1 - update) * hidden + update * h,)

    def _rnn(self, sums: Array, h: Array) -> tuple[Array]:
        f = self.activation(0)
        return (np.array([f(x) for x in sums[0] + self._times(h, 0)]),)
