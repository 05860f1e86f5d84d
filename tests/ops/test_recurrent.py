"""Recurrent cells: every activation function, direction, length and option, on every backend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import glowpy
from glowpy import UserError
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.graph.infer import infer_types
from glowpy.graph.nodes_gen import GruNode, LstmNode, RnnNode
from glowpy.ops.recurrent import FUNCTIONS
from tests.ops.cells import Cell
from tests.ops.harness import Case, Row, check_row, normal_array, on_every_backend, sum_tolerance

KINDS = (ElemKind.F32, ElemKind.F64, ElemKind.F16, ElemKind.BF16)
SIGMOID, TANH = FUNCTIONS.index("Sigmoid"), FUNCTIONS.index("Tanh")


@dataclass(frozen=True)
class Setting:
    """A cell's sizes, steps x batch x units, and its options."""

    sizes: tuple[int, int, int]
    functions: tuple[int, ...]
    lengths: tuple[int, ...] = ()
    limit: float = math.inf
    reverse: bool = False
    option: bool = False
    """`coupled` of an LSTM, `reset_after` of a GRU."""
    peepholes: bool = False


def _operands(kind: ElemKind, gates: int, setting: Setting) -> tuple[Array, Array, Array, Array]:
    """Sums, matrices, a state and coefficients: numbers for which nothing grows."""
    steps, batch, units = setting.sizes
    sums = normal_array(kind, (steps, batch, gates * units), 1)
    scale = np.sqrt(units).astype(kind.dtype)
    matrices = normal_array(kind, (gates, units, units), 2) / scale
    state = normal_array(kind, (batch, units), 3)
    coefficients = np.tile(np.array([0.625, 0.25], kind.dtype), (len(setting.functions), 1))
    return sums, matrices.astype(kind.dtype), state, coefficients


def _case(kind: ElemKind, setting: Setting, inputs: list[Array], option: str, cell: Cell) -> Case:
    attrs = {"functions": setting.functions, "limit": setting.limit, "reverse": setting.reverse}
    if option:
        attrs[option] = setting.option
    return Case(
        inputs, cell.run(), attrs, tolerance=sum_tolerance(kind, 8 * setting.sizes[2] + 16),
        constants=frozenset({1}) if setting.sizes[2] != 5 else frozenset(),
    )  # fmt: skip


def _wide(*arrays: Array) -> list[Array]:
    return [array.astype(np.float64) for array in arrays]


_LSTMS = [
    Setting((3, 2, 5), (SIGMOID, TANH, TANH)),
    Setting((4, 1, 17), (SIGMOID, TANH, TANH), reverse=True, peepholes=True),
    Setting((3, 7, 33), (SIGMOID, TANH, TANH), (3, 0, 1, 2, 3, 3, 1), reverse=True, limit=0.5),
    Setting((2, 3, 2), (7, 3, 4), option=True, peepholes=True),
    Setting((3, 2, 3), (2, 8, 9), (1, 3), limit=0.25),
    Setting((2, 1, 140), (SIGMOID, TANH, TANH)),
    Setting((0, 2, 3), (SIGMOID, TANH, TANH)),
]


def _lstm_cases(kind: ElemKind) -> Iterator[Case]:
    for setting in _LSTMS:
        units = setting.sizes[2]
        sums, matrices, state, coefficients = _operands(kind, 4, setting)
        peeps = normal_array(kind, (3, units) if setting.peepholes else (0,), 4)
        lengths = np.array(setting.lengths, np.int32)
        inputs = [sums, matrices, peeps, lengths, state, state[::-1].copy(), coefficients]
        gates, recurrence, first, second, table = _wide(
            sums, matrices, state, inputs[5], coefficients
        )
        cell = Cell(
            gates, recurrence, [first, second], setting.functions, table, setting.lengths or None,
            peeps.astype(np.float64) if setting.peepholes else None, None, setting.limit, setting.reverse,
            setting.option,
        )  # fmt: skip
        yield _case(kind, setting, inputs, "coupled", cell)


_GRUS = [
    Setting((3, 2, 5), (SIGMOID, TANH)),
    Setting((4, 1, 17), (SIGMOID, TANH), reverse=True, option=True),
    Setting((3, 7, 33), (SIGMOID, TANH), (3, 0, 1, 2, 3, 3, 1), reverse=True, limit=0.5),
    Setting((3, 3, 3), (7, 6), (1, 3, 2), option=True),
    Setting((2, 2, 4), (2, 10)),
    Setting((0, 2, 3), (SIGMOID, TANH)),
]


def _gru_cases(kind: ElemKind) -> Iterator[Case]:
    for setting in _GRUS:
        sums, matrices, state, coefficients = _operands(kind, 3, setting)
        bias = normal_array(kind, (setting.sizes[2],) if setting.option else (0,), 4)
        inputs = [sums, matrices, bias, np.array(setting.lengths, np.int32), state, coefficients]
        gates, recurrence, first, table, added = _wide(sums, matrices, state, coefficients, bias)
        cell = Cell(
            gates, recurrence, [first], setting.functions, table, setting.lengths or None, None,
            added if setting.option else None, setting.limit, setting.reverse,
        )  # fmt: skip
        yield _case(kind, setting, inputs, "reset_after", cell)


_RNNS = [
    *(
        Setting((2, 2, 3), (function,), reverse=function % 2 > 0)
        for function in range(len(FUNCTIONS))
    ),
    Setting((3, 9, 40), (TANH,), (3, 0, 1, 2, 3, 3, 1, 2, 2), limit=0.75),
    Setting((0, 1, 2), (TANH,)),
]


def _rnn_cases(kind: ElemKind) -> Iterator[Case]:
    for setting in _RNNS:
        sums, matrices, state, coefficients = _operands(kind, 1, setting)
        inputs = [sums, matrices, np.array(setting.lengths, np.int32), state, coefficients]
        gates, recurrence, first, table = _wide(sums, matrices, state, coefficients)
        cell = Cell(
            gates, recurrence, [first], setting.functions, table, setting.lengths or None,
            limit=setting.limit, reverse=setting.reverse,
        )  # fmt: skip
        yield _case(kind, setting, inputs, "", cell)


ROWS = [
    Row(LstmNode, KINDS, _lstm_cases),
    Row(GruNode, KINDS, _gru_cases),
    Row(RnnNode, KINDS, _rnn_cases),
]


@on_every_backend(ROWS)
def test_cell(row: Row, backend: str) -> None:
    check_row(row, backend)


def test_halves_are_rounded_once() -> None:
    """A state that is rounded at every step would not get past 1 here."""
    steps, units = 64, 1
    expected = np.float16(1 + steps * 2**-12)
    for backend in ("interpreter", "cpu"):
        module = glowpy.Module()
        f = module.create_function("main")
        kind = ElemKind.F16
        gates = module.create_placeholder("gates", Type(kind, (steps, 1, units)))
        last = module.create_placeholder("last", Type(kind, (1, units)))
        one = module.create_constant("one", np.ones((1, 1, 1), np.float16))
        none = module.create_constant("none", np.zeros(0, np.int32))
        state = module.create_constant("state", np.ones((1, 1), np.float16))
        table = module.create_constant("table", np.zeros((1, 2), np.float16))
        cell = f.create_rnn("cell", gates, one, none, state, table, (0,), math.inf)
        f.create_save("save", cell.results[1], last)
        compiled = glowpy.compile(module, backend)
        small = np.full((steps, 1, units), 2**-12, np.float16)
        assert compiled({"gates": small})["last"] == expected


GATES, MATRICES, NONE, STATE, TABLE = (
    parse_type(text) for text in ("f32[5x2x3]", "f32[1x3x3]", "i32[0]", "f32[2x3]", "f32[1x2]")
)


@pytest.mark.parametrize(
    ("index", "text", "message"),
    [
        (0, "f32[5x3]", "expected floats of gates of rank 3"),
        (0, "i32[5x2x3]", "expected floats of gates of rank 3"),
        (0, "f32[5x2x4]", "expected gates f32[5x2x3], got f32[5x2x4]"),
        (1, "f32[2x3x3]", "expected recurrence f32[1x3x3], got f32[2x3x3]"),
        (1, "f64[1x3x3]", "expected recurrence f32[1x3x3], got f64[1x3x3]"),
        (2, "i32[3]", "expected lengths i32[2] or i32[0], got i32[3]"),
        (2, "i64[2]", "expected lengths i32[2] or i32[0], got i64[2]"),
        (3, "f32[3x3]", "expected initial_h f32[2x3], got f32[3x3]"),
        (3, "f32[2x0]", "expected a constant number of units, got 0"),
        (4, "f32[2x2]", "expected coefficients f32[1x2], got f32[2x2]"),
    ],
)
def test_operands_that_do_not_fit_are_refused(index: int, text: str, message: str) -> None:
    types = [GATES, MATRICES, NONE, STATE, TABLE]
    types[index] = parse_type(text)
    attrs = {"functions": (1,), "limit": math.inf, "reverse": False}
    with pytest.raises(UserError) as error:
        infer_types(RnnNode, types, attrs)
    assert message in str(error.value)


def test_functions_are_checked() -> None:
    for functions in ((11,), (-1,), (1, 1)):
        attrs = {"functions": functions, "limit": math.inf, "reverse": False}
        with pytest.raises(UserError, match="expected 1 functions from 0 to 10"):
            infer_types(RnnNode, [GATES, MATRICES, NONE, STATE, TABLE], attrs)
