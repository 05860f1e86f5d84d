"""Attention with a state: every rule, shared heads, factors of both shapes, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from glowpy import UserError
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.graph.infer import infer_types
from glowpy.graph.nodes_gen import LinearAttentionNode
from tests.ops.harness import Case, Row, check_row, normal_array, on_every_backend, sum_tolerance

KINDS = (ElemKind.F32, ElemKind.F64, ElemKind.F16, ElemKind.BF16)


@dataclass(frozen=True)
class Setting:
    """Sequences, steps, heads of queries and of keys, and what keys and values are made of."""

    sizes: tuple[int, int, int, int, int, int]
    factors: int = 0
    """Factors of a head: one, or one for each number of a key."""
    rates: int = 0
    """Rates of a step: one, or one for each head."""


_SETTINGS = [
    Setting((2, 3, 2, 2, 3, 5)),
    Setting((1, 4, 6, 3, 4, 17), factors=4, rates=3),
    Setting((2, 3, 4, 1, 7, 33), factors=1, rates=1),
    Setting((3, 1, 2, 2, 2, 16), rates=2),
    Setting((1, 2, 2, 2, 1, 1), factors=1),
    Setting((2, 0, 2, 1, 2, 3)),
    Setting((0, 2, 2, 1, 2, 3), factors=2),
]


def _reference(
    query: Array, key: Array, value: Array, factors: Array, rates: Array, initial: Array
) -> list[Array]:
    """A head at a time, in f64."""
    batch, steps, heads, _ = query.shape
    shared = key.shape[2]
    result = np.zeros((batch, steps, heads, value.shape[3]))
    last = initial.astype(np.float64)
    for row, head, step in np.ndindex(batch, shared, steps):
        state, k, v = last[row, head], key[row, step, head], value[row, step, head].copy()
        if factors.size:
            for line, factor in enumerate(np.broadcast_to(factors[row, step, head], k.shape)):
                state[line] *= factor
        if rates.size:
            rate = rates[row, step, head if rates.shape[2] > 1 else 0]
            v = rate * (v - sum(k[line] * state[line] for line in range(len(k))))
        for line in range(len(k)):
            state[line] += k[line] * v
        for reader in range(head * heads // shared, (head + 1) * heads // shared):
            numbers = query[row, step, reader]
            result[row, step, reader] = sum(numbers[line] * state[line] for line in range(len(k)))
    return [result, last]


def _cases(kind: ElemKind) -> Iterator[Case]:
    for setting in _SETTINGS:
        batch, steps, heads, shared, depth, width = setting.sizes
        lead = batch, steps
        inputs = [
            normal_array(kind, (*lead, heads, depth), 1),
            normal_array(kind, (*lead, shared, depth), 2) / kind.dtype.type(depth),
            normal_array(kind, (*lead, shared, width), 3),
            np.abs(normal_array(kind, (*lead, shared, setting.factors), 4)) / kind.dtype.type(4)
            if setting.factors
            else np.zeros(0, kind.dtype),
            normal_array(kind, (*lead, setting.rates) if setting.rates else (0,), 5),
            normal_array(kind, (batch, shared, depth, width), 6),
        ]
        wide = [array.astype(np.float64) for array in inputs]
        yield Case(inputs, _reference(*wide), tolerance=sum_tolerance(kind, 8 * depth + 16))


ROWS = [Row(LinearAttentionNode, KINDS, _cases)]


@on_every_backend(ROWS)
def test_attention(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize(
    ("index", "text", "message"),
    [
        (0, "f32[2x3x8]", "expected floats of rank 4"),
        (0, "f32[2x3x3x4]", "expected heads of queries that are a multiple of those of keys, got 3 and 2"),
        (1, "f32[2x3x2x5]", "expected key f32[2x3x2x4], got f32[2x3x2x5]"),
        (2, "f64[2x3x2x7]", "expected value f32[2x3x2x7], got f64[2x3x2x7]"),
        (3, "f32[2x3x2x2]", "expected factors f32[0] or f32[2x3x2x4] or f32[2x3x2x1], got f32[2x3x2x2]"),
        (4, "f32[2x3x4]", "expected rates f32[0] or f32[2x3x2] or f32[2x3x1], got f32[2x3x4]"),
        (5, "f32[2x2x7x4]", "expected initial f32[2x2x4x7], got f32[2x2x7x4]"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused(index: int, text: str, message: str) -> None:
    texts = ["f32[2x3x4x4]", "f32[2x3x2x4]", "f32[2x3x2x7]", "f32[0]", "f32[0]", "f32[2x2x4x7]"]
    texts[index] = text
    with pytest.raises(UserError) as error:
        infer_types(LinearAttentionNode, list(map(parse_type, texts)), {})
    assert message in str(error.value)
