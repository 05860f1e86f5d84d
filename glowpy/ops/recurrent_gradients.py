"""Gradients of recurrent cells: those of the loops that they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from glowpy.autodiff.derivative import derivative
from glowpy.autodiff.gradients import flows_through
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.ops.operands import widened
from glowpy.ops.positions import extent, number, positions
from glowpy.ops.recurrent import FUNCTIONS
from glowpy.ops.term import Term
from glowpy.support.symbolic import Dim

__all__: list[str] = []

Cell: TypeAlias = LstmNode | GruNode | RnnNode

_NUMBER = Type(ElemKind.I64, ())
_TRUTH = Type(ElemKind.BOOL, ())

_ACTIVATIONS: dict[str, Callable[[Term, Term, Term], Term]] = {
    "Relu": lambda x, alpha, beta: x.max(0.0),
    "Tanh": lambda x, alpha, beta: x.tanh(),
    "Sigmoid": lambda x, alpha, beta: x.sigmoid(),
    "Affine": lambda x, alpha, beta: x * alpha + beta,
    "LeakyRelu": lambda x, alpha, beta: (x * alpha).where(x < 0.0, x),
    "ThresholdedRelu": lambda x, alpha, beta: x.where(x > alpha, 0.0),
    "ScaledTanh": lambda x, alpha, beta: (x * beta).tanh() * alpha,
    "HardSigmoid": lambda x, alpha, beta: (x * alpha + beta).max(0.0).min(1.0),
    "Elu": lambda x, alpha, beta: ((x.min(0.0).exp() - 1.0) * alpha).where(x < 0.0, x),
    "Softsign": lambda x, alpha, beta: x / (abs(x) + 1.0),
    "Softplus": lambda x, alpha, beta: x.max(0.0) + ((-abs(x)).exp() + 1.0).log(),
}


@derivative(LstmNode, GruNode, RnnNode)
def _differentiate_cell(f: Function, n: Cell, *flows: NodeValue | None) -> list[Operand | None]:
    return list(flows_through(f, n.inputs, lambda inputs: _loop(f, n, inputs), flows))


def _loop(f: Function, n: Cell, inputs: Sequence[NodeValue]) -> list[NodeValue]:
    """The results of a cell, computed by a loop over the steps. Halves are computed in f32."""
    names = type(n).SCHEMA.inputs
    given = {
        name: value_of(widened(f, n.name, value)) if value.type.kind.is_float else value
        for name, value in zip(names, inputs, strict=True)
    }
    gates, lengths = given["gates"], given["lengths"]
    steps, batch = gates.type.shape[:2]
    ends = None if lengths.type.shape[0] == 0 else _ends(f, n.name, lengths, steps)
    order = _backwards(f, n.name, steps, batch, ends) if n.reverse else None
    if order is not None:
        gates = _rearranged(f, n.name, gates, order)
    states = [given[name] for name in names if name.startswith("initial")]
    rest = {name: v for name, v in given.items() if v not in (*states, lengths)} | {"gates": gates}
    always = f.module.create_constant("always", Tensor.splat(_TRUTH, True))
    limit = f.create_reshape(n.name, _NUMBER, extent(f, n.name, steps))
    operands: list[Operand] = [limit, always, *states, *rest.values()]
    operands += [ends] if ends is not None else []
    name = _step_function(f.module, n, states, rest, ends)
    *last, result, _ = f.create_loop(n.name, operands, name, len(states), steps).results
    if order is not None:
        result = _rearranged(f, n.name, result, order)
        if ends is not None:
            result = _until(f, n.name, result, ends)
    pairs = zip((result, *last), n.results, strict=True)
    return [value_of(Term(f, n.name, value).as_type(like.type)) for value, like in pairs]


def _ends(f: Function, name: str, lengths: NodeValue, steps: Dim) -> NodeValue:
    """The number of steps of each sequence, as i64[B, 1]."""
    column = Type(ElemKind.I64, (lengths.type.shape[0], 1))
    wide = f.create_convert(name, Type(ElemKind.I64, lengths.type.shape), lengths)
    least = f.create_max(name, f.create_reshape(name, column, wide), number(f, name, 0))
    return f.create_min(name, least, extent(f, name, steps)).result


def _backwards(f: Function, name: str, steps: Dim, batch: Dim, ends: NodeValue | None) -> NodeValue:
    """Where the steps of each sequence are, from the last to the first: i64[T * B]. It is its own inverse."""

    def shaped(value: Operand, *shape: Dim) -> NodeValue:
        return f.create_reshape(name, Type(ElemKind.I64, shape), value).result

    count = extent(f, name, steps) if ends is None else shaped(ends, 1, batch)
    after = f.create_add(name, shaped(positions(f, name, steps), steps, 1), number(f, name, 1))
    step = f.create_max(name, f.create_sub(name, count, after), number(f, name, 0))
    row = f.create_mul(name, step, extent(f, name, batch))
    places = f.create_add(name, row, shaped(positions(f, name, batch), 1, batch))
    return shaped(places, steps * batch)


def _rearranged(f: Function, name: str, value: NodeValue, order: NodeValue) -> NodeValue:
    """[T, B, H] in another order of steps."""
    steps, batch, width = value.type.shape
    rows = f.create_reshape(name, value.type.with_shape((steps * batch, width)), value)
    return f.create_reshape(name, value.type, f.create_gather(name, rows, order, 0)).result


def _until(f: Function, name: str, value: NodeValue, ends: NodeValue) -> NodeValue:
    """[T, B, H] with zeros after the end of each sequence."""
    steps, batch, _ = value.type.shape
    places = positions(f, name, steps)
    column = f.create_reshape(name, places.type.with_shape((steps, 1, 1)), places)
    row = f.create_reshape(name, ends.type.with_shape((1, batch, 1)), ends)
    zero = f.create_splat(name, value.type.with_shape(()), 0)
    return f.create_select(name, f.create_lt(name, column, row), value, zero).result


def _step_function(
    module: Module,
    n: Cell,
    states: Sequence[NodeValue],
    rest: Mapping[str, NodeValue],
    ends: NodeValue | None,
) -> str:
    """Adds the body of the loop; its name. It takes the number of a step, states, what all steps read, and the ends."""
    turn = module.create_placeholder("step", _NUMBER)
    carried = [module.create_variable(value.name, value.type) for value in states]
    others = {key: module.create_placeholder(key, value.type) for key, value in rest.items()}
    last = [] if ends is None else [module.create_placeholder("ends", ends.type)]
    keep = module.create_placeholder("keep", _TRUTH)
    row = module.create_placeholder("row", states[0].type)
    name = module.unused_function_name(f"{n.name}_step")
    takes = [turn, *carried, *others.values(), *last]
    f = module.create_function(name, takes, [keep, *carried, row])
    step = _Step(f, n, {key: value.value for key, value in others.items()}, turn.value)
    before = [Term(f, n.name, variable) for variable in carried]
    after = step.states(*before)
    result = after[0]
    if last:
        goes_on = Term(f, n.name, f.create_lt(n.name, turn, last[0]))
        result = result.where(goes_on, 0.0)
        after = [new.where(goes_on, old) for new, old in zip(after, before, strict=True)]
    f.create_save("keep", module.create_constant("always", Tensor.splat(_TRUTH, True)), keep)
    f.create_save("row", result.value, row)
    for variable, new in zip(carried, after, strict=True):
        f.create_save(variable.name, new.value, variable)
    return name


@dataclass(frozen=True)
class _Step:
    """One step of a cell, in formulas."""

    f: Function
    n: Cell
    given: Mapping[str, NodeValue]
    """Values that all steps read, by the names of the node's operands."""
    turn: NodeValue

    def states(self, *before: Term) -> list[Term]:
        """The states after the step, h first."""
        match self.n:
            case LstmNode():
                return self._lstm(*before)
            case GruNode():
                return [self._gru(*before)]
            case _:
                (h,) = before
                return [self._active(0, self._sums(0) + self._product(h, 0))]

    def _lstm(self, h: Term, c: Term) -> list[Term]:
        enter, out, forget, cell = (self._sums(at) + self._product(h, at) for at in range(4))
        if not self.given["peepholes"].type.is_empty:
            enter, out_peep, forget = (
                enter + self._peep(0) * c,
                self._peep(1),
                forget + self._peep(2) * c,
            )
        else:
            out_peep = None
        enter = self._active(0, enter)
        forget = 1.0 - enter if self._coupled else self._active(0, forget)
        after = forget * c + enter * self._active(1, cell)
        if out_peep is not None:
            out = out + out_peep * after
        return [self._active(0, out) * self._function(2, after), after]

    @property
    def _coupled(self) -> bool:
        return isinstance(self.n, LstmNode) and self.n.coupled

    def _gru(self, h: Term) -> Term:
        update = self._active(0, self._sums(0) + self._product(h, 0))
        reset = self._active(0, self._sums(1) + self._product(h, 1))
        if isinstance(self.n, GruNode) and self.n.reset_after:
            hidden = reset * (self._product(h, 2) + self._term(self.given["bias"]))
        else:
            hidden = self._product(reset * h, 2)
        return (1.0 - update) * self._active(1, self._sums(2) + hidden) + update * h

    def _term(self, value: Operand) -> Term:
        return Term(self.f, self.n.name, value)

    def _part(self, value: NodeValue, shape: Shape, starts: tuple[Dim, ...]) -> NodeValue:
        type = value.type.with_shape(shape)
        return self.f.create_slice(self.n.name, type, value, starts, (1,) * type.rank).result

    def _sums(self, gate: int) -> Term:
        """The sums of a gate that follow from the step's input: [B, H]."""
        gates, name = self.given["gates"], self.n.name
        _, batch, width = gates.type.shape
        units = self.given["recurrence"].type.shape[-1]
        place = self.f.create_reshape(name, Type(ElemKind.I64, (1,)), self.turn)
        type = gates.type.with_shape((1, batch, width))
        row = self.f.create_dynamic_slice(name, type, gates, place, 0, 1).result
        part = self._part(row, (1, batch, units), (0, 0, gate * units))
        return self._term(self.f.create_reshape(name, gates.type.with_shape((batch, units)), part))

    def _product(self, h: Term, gate: int) -> Term:
        matrices = self.given["recurrence"]
        _, rows, columns = matrices.type.shape
        part = self._part(matrices, (1, rows, columns), (gate, 0, 0))
        matrix = self.f.create_reshape(self.n.name, matrices.type.with_shape((rows, columns)), part)
        return self._term(self.f.create_mat_mul(self.n.name, h.value, matrix))

    def _peep(self, gate: int) -> Term:
        peepholes = self.given["peepholes"]
        return self._term(self._part(peepholes, (1, peepholes.type.shape[1]), (gate, 0)))

    def _active(self, index: int, x: Term) -> Term:
        """An activation of what a gate has computed, which is limited first."""
        limit = self.n.limit
        return self._function(index, x if math.isinf(limit) else x.max(-limit).min(limit))

    def _function(self, index: int, x: Term) -> Term:
        alpha, beta = (
            self._term(self._part(self.given["coefficients"], (1, 1), (index, at))) for at in (0, 1)
        )
        return _ACTIVATIONS[FUNCTIONS[self.n.functions[index]]](x, alpha, beta)
