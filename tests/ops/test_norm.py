"""Normalisation against the reference evaluator of the onnx package, in f64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.nodes_gen import (
    BatchNormalizationNode,
    LocalResponseNormalizationNode,
    LogSoftmaxNode,
    SoftmaxNode,
)
from tests.ops.harness import (
    FLOATS,
    Case,
    Row,
    Tolerance,
    channels_first,
    channels_last,
    check_row,
    normal_array,
    on_every_backend,
    onnx_model,
    onnx_reference,
    sum_tolerance,
)

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((7,), 0),
    ((1, 1000), 1),
    ((3, 5), 0),
    ((3, 5), 1),
    ((2, 3, 17), 1),
    ((2, 70, 131), 1),
    ((2, 3, 5, 7), 2),
    ((4, 1), 1),
    ((0, 3), 1),
]


def _softmax(kind: ElemKind, op: str) -> Iterator[Case]:
    for shape, axis in SHAPES:
        x = (normal_array(kind, shape).astype(np.float64) * 5).astype(kind.dtype)
        wide = x.astype(np.float64)
        expected = onnx_reference(op, [wide], axis=axis)[0] if x.size else wide
        # Log-softmax subtracts numbers of the size of its input; softmax is at most 1.
        scale = 30 if op == "LogSoftmax" else 1
        yield Case(
            [x], [expected], {"axis": axis}, tolerance=Tolerance(ulps=4, epsilons=8, scale=scale)
        )


def _softmax_special(kind: ElemKind, op: str) -> Iterator[Case]:
    """Large inputs do not overflow, and infinities and NaN go where exp takes them."""
    top, inf, nan = 6e4, np.inf, np.nan
    x = np.array(
        [[top, top, -top], [-top, -top, -top], [0, -inf, 1], [nan, 0, 1], [inf, 0, 1]], kind.dtype
    )
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis=1, keepdims=True)
        sums = np.exp(shifted).sum(axis=1, keepdims=True)
        expected = shifted - np.log(sums) if op == "LogSoftmax" else np.exp(shifted) / sums
    yield Case([x], [expected], {"axis": 1}, tolerance=Tolerance(ulps=4, epsilons=1))
    yield Case([x.T.copy()], [expected.T], {"axis": 0}, tolerance=Tolerance(ulps=4, epsilons=1))


LRN: list[tuple[tuple[int, ...], int, float, float, float]] = [
    ((1, 3, 3, 7), 5, 2.0**-10, 0.75, 1.0),
    ((2, 2, 5, 33), 4, 0.5, 0.5, 2.0),
    ((1, 1, 1, 3), 7, 0.25, 0.625, 1.5),
    ((1, 2, 2, 5), 1, 1.0, 1.0, 0.5),
    ((3, 1, 2, 64), 3, 0.125, 0.75, 1.0),
    ((0, 1, 1, 4), 3, 0.125, 0.75, 1.0),
    ((1, 2, 3, 37), 6, 0.5, 0.75, 0.0),
    ((1, 1, 3, 96), 5, 2.0**10, 0.75, 1.0),
]
"""Numbers that f32 holds exactly, for that is what ONNX attributes are."""


def local_response(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Channel by channel, in f64."""
    wide = x.astype(np.float64)
    result = np.empty_like(wide)
    for c in range(x.shape[-1]):
        first, last = max(0, c - (size - 1) // 2), min(x.shape[-1], c + size // 2 + 1)
        squares = (wide[..., first:last] ** 2).sum(axis=-1)
        result[..., c] = wide[..., c] / (k + alpha / size * squares) ** beta
    return result


def _local_response(kind: ElemKind) -> Iterator[Case]:
    for shape, size, alpha, beta, k in LRN:
        x = normal_array(kind, shape)
        attrs = {"size": size, "alpha": alpha, "beta": beta, "k": k}
        expected = local_response(x, size, alpha, beta, k)
        yield Case([x], [expected], attrs, tolerance=Tolerance(ulps=4, epsilons=4))


def _local_response_special(kind: ElemKind) -> Iterator[Case]:
    x = normal_array(kind, (1, 1, 3, 48))
    x[0, 0, 0, 7], x[0, 0, 1, 16], x[0, 0, 2, 40] = np.inf, np.nan, -np.inf
    attrs = {"size": 5, "alpha": 0.5, "beta": 0.75, "k": 1.0}
    with np.errstate(invalid="ignore"):
        expected = local_response(x, 5, 0.5, 0.75, 1.0)
    yield Case([x], [expected], attrs, tolerance=Tolerance(ulps=4, epsilons=4))


@pytest.mark.parametrize("row", [row for row in LRN if row[0][0] and row[1] % 2])
def test_local_response_agrees_with_onnxruntime(
    row: tuple[tuple[int, ...], int, float, float, float],
) -> None:
    """The reference evaluator of the onnx package normalises the first channels only."""
    shape, size, alpha, beta, k = row
    x = normal_array(ElemKind.F32, shape)
    attrs = {"size": size, "alpha": alpha, "beta": beta, "bias": k}
    model = onnx_model("LRN", [channels_first(x)], 1, 13, attrs)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"i0": channels_first(x)})
    got = local_response(x, size, alpha, beta, k)
    np.testing.assert_allclose(got, channels_last(expected), rtol=1e-5, atol=1e-6)


def _batch(kind: ElemKind, constants: frozenset[int]) -> Iterator[Case]:
    for shape, axis in [
        ((2, 3, 5, 7), 1),
        ((2, 3, 5, 7), 3),
        ((4, 17), 1),
        ((3, 1, 5), 1),
        ((5, 2), 0),
        ((0, 3), 1),
    ]:
        vector = (shape[axis],)
        x, scale, bias, mean = (
            normal_array(kind, size, seed) for seed, size in enumerate([shape] + [vector] * 3)
        )
        variance = np.abs(normal_array(kind, vector, 9)) + kind.dtype.type(0.5)
        arrays: list[Array] = [x, scale, bias, mean, variance]
        wide = [array.astype(np.float64) for array in arrays]
        moved = np.moveaxis(wide[0], axis, 1)
        expected = wide[0]
        if x.size:
            (result,) = onnx_reference("BatchNormalization", [moved, *wide[1:]], epsilon=2.0**-10)
            expected = np.moveaxis(result, 1, axis)
        yield Case(
            arrays,
            [expected],
            {"axis": axis, "epsilon": 2.0**-10},
            tolerance=sum_tolerance(kind, 8),
            constants=constants,
        )


ROWS = [
    Row(SoftmaxNode, FLOATS, lambda kind: _softmax(kind, "Softmax")),
    Row(LogSoftmaxNode, FLOATS, lambda kind: _softmax(kind, "LogSoftmax")),
    Row(SoftmaxNode, FLOATS, lambda kind: _softmax_special(kind, "Softmax"), "softmax of specials"),
    Row(
        LogSoftmaxNode,
        FLOATS,
        lambda kind: _softmax_special(kind, "LogSoftmax"),
        "log_softmax of specials",
    ),
    Row(LocalResponseNormalizationNode, FLOATS, _local_response),
    Row(LocalResponseNormalizationNode, FLOATS, _local_response_special, "lrn of specials"),
    Row(BatchNormalizationNode, FLOATS, lambda kind: _batch(kind, frozenset())),
    Row(
        BatchNormalizationNode,
        FLOATS,
        lambda kind: _batch(kind, frozenset({1, 2, 3, 4})),
        "batch_normalization of constants",
    ),
]


@on_every_backend(ROWS)
def test_norm(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_keeps_what_differences_from_the_largest_lose(axis: int) -> None:
    """Rounded, 30 less something of size 1 is wrong by up to 8 units in the last place of its exponential."""
    x = np.random.default_rng(3).uniform(0, 30, (64, 200)).astype(np.float32)
    module = glowpy.Module()
    f = module.create_function("main")
    node = f.create_softmax("s", module.create_placeholder("x", Tensor.of(x).type), axis)
    f.create_save("save", node, module.create_placeholder("y", node.type))
    result = glowpy.compile(f, "cpu")({"x": x})["y"]
    power = np.exp(x.astype(np.float64))
    expected = power / power.sum(axis=axis, keepdims=True)
    assert np.abs(result / expected - 1).max() < 4 * 2.0**-23


@pytest.mark.parametrize("columns", [5, 16, 19, 300])
def test_softmax_of_what_is_hidden_is_zero(columns: int) -> None:
    x = np.full((3, columns), -np.inf, np.float32)
    x[0, 0], x[1, 1:3], x[2] = 5, 1, -1e30
    x[2, columns - 1] = 3
    module = glowpy.Module()
    f = module.create_function("main")
    node = f.create_softmax("s", module.create_placeholder("x", Tensor.of(x).type), 1)
    f.create_save("save", node, module.create_placeholder("y", node.type))
    result = glowpy.compile(f, "cpu")({"x": x})["y"]
    assert (result != 0).tolist() == (x > -1e30).tolist()
