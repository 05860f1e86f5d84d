"""Fourier transforms against sums of products."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import FourierTransformNode
from tests.ops.harness import (
    HALVES,
    Case,
    Row,
    Tolerance,
    check_row,
    normal_array,
    on_every_backend,
)


def transformed(signal: Array, length: int, inverse: bool, half: bool) -> Array:
    """Every element by itself."""
    wide = signal.astype(np.float64)
    numbers = wide[..., 0] + (1j * wide[..., 1] if wide.shape[-1] == 2 else 0)
    rows = length // 2 + 1 if inverse and half else length
    whole = np.zeros((*numbers.shape[:-1], length), np.complex128)
    given = min(rows, numbers.shape[-1])
    whole[..., :given] = numbers[..., :given]
    if inverse and half:
        for row in range(1, (length + 1) // 2):
            whole[..., length - row] = whole[..., row].conj()
        for row in {0, length // 2} if length % 2 == 0 else {0}:
            whole[..., row] = whole[..., row].real
    turn = np.outer(np.arange(length), np.arange(length)) % length / length
    result = whole @ np.exp((2j if inverse else -2j) * np.pi * turn)
    result = result / length if inverse else result
    if inverse and half:
        return np.asarray(result.real[..., None])
    result = result[..., :rows] if not half else result[..., : length // 2 + 1]
    return np.stack([result.real, result.imag], -1)


LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 30, 49, 64)
MANY = (14, 32, 60, 63, 65, 70, 80, 90)
"""Lengths of so many signals that several are transformed side by side."""


def _cases(kind: ElemKind) -> Iterator[Case]:
    """Signals that are as long as the transform, shorter, longer, or empty."""
    modes = itertools.cycle(itertools.product((False, True), (False, True), (1, 2)))
    few = itertools.chain(LENGTHS, LENGTHS[2:], (16, 45, 6))
    for number, (length, (inverse, half, parts)) in enumerate(
        zip(itertools.chain(few, MANY), modes, strict=False)
    ):
        batch = (66,) if length in MANY else [(2, 3), (), (4,), (0,)][number % 4]
        given = [length, length + 2, max(length - 3, 1)][number % 3]
        signal = normal_array(kind, (*batch, given, parts), number)
        turns = -2j * np.pi * np.arange(length) / length
        roots = np.stack([np.exp(turns).real, np.exp(turns).imag], -1).astype(kind.dtype)
        yield Case(
            [signal, roots],
            [transformed(signal, length, inverse, half)],
            {"inverse": inverse, "half": half},
            tolerance=Tolerance(ulps=2, epsilons=4, scale=8 if inverse else 4 * length**0.5),
            constants=frozenset({1}),
        )


ROWS = [
    Row(FourierTransformNode, (ElemKind.F32, ElemKind.F64), _cases),
    Row(FourierTransformNode, HALVES, lambda kind: itertools.islice(_cases(kind), 4), "halves"),
]


@on_every_backend(ROWS)
def test_transform(row: Row, backend: str) -> None:
    check_row(row, backend)
