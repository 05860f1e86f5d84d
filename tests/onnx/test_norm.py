"""Normalisations of data far from zero, whose variance must not be a difference of squares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same, graph_model, info

F64 = np.dtype(np.float64)
SCALE = np.array([1.5, -2, 0.5, 1])
BIAS = np.array([0, 1, -1, 0.25])


def standardized(
    x: Array, axes: tuple[int, ...], epsilon: float = float(np.float32(1e-5))
) -> Array:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    result: Array = (x - mean) / np.sqrt(variance + epsilon)
    return result


def scaled(normal: Array) -> Array:
    result: Array = normal * SCALE.reshape(4, 1, 1) + BIAS.reshape(4, 1, 1)
    return result


def grouped(x: Array) -> Array:
    wide = x.reshape(2, 2, -1)
    return standardized(wide, (2,)).reshape(x.shape)


def centred(x: Array, axes: tuple[int, ...]) -> Array:
    result: Array = (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)
    return result


def root_of_squares(x: Array, axes: tuple[int, ...]) -> Array:
    result: Array = np.sqrt((x**2).mean(axes, keepdims=True) + 1e-5)
    return result


@dataclass(frozen=True)
class Case:
    """An operator with so many vectors, and what it computes of doubles."""

    op_type: str
    opset: int
    vectors: int
    attributes: dict[str, Any]
    formula: Callable[[Array], Array]

    def __str__(self) -> str:
        return f"{self.op_type}-{self.opset}"


CASES = [
    Case("LayerNormalization", 17, 2, {}, lambda x: standardized(x, (3,)) * SCALE + BIAS),
    Case("LayerNormalization", 28, 1, {"axis": 1}, lambda x: standardized(x, (1, 2, 3)) * SCALE),
    Case("InstanceNormalization", 6, 2, {}, lambda x: scaled(standardized(x, (2, 3)))),
    Case("GroupNormalization", 21, 2, {"num_groups": 2}, lambda x: scaled(grouped(x))),
    Case("MeanVarianceNormalization", 9, 0, {}, lambda x: centred(x, (0, 2, 3))),
    Case("MeanVarianceNormalization", 13, 0, {"axes": [1]}, lambda x: centred(x, (1,))),
    Case("RMSNormalization", 23, 1, {"axis": -2}, lambda x: x / root_of_squares(x, (2, 3)) * SCALE),
]  # fmt: skip


def run(case: Case, opset: int, x: Array, backend: str) -> Array:
    arrays = {"s": SCALE.astype(x.dtype), "b": BIAS.astype(x.dtype)}
    names = ["x", *list(arrays)[: case.vectors]]
    node = helper.make_node(case.op_type, names, ["y"], **case.attributes)
    model = graph_model([node], [info("x", x)], [info("y", x)], opset, arrays)
    (y,) = glowpy.InferenceSession(model, backend=backend).run(None, {"x": x})
    return y


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(("dtype", "mean"), [(np.float32, 1000), (np.float64, 1e6)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mean_far_from_zero(case: Case, dtype: Any, mean: float, backend: str) -> None:
    """As exact as the mean itself: a rounded mean moves everything by its error."""
    x = (np.random.default_rng(0).standard_normal((2, 4, 3, 4)) + mean).astype(dtype)
    y = run(case, case.opset, x, backend)
    tolerance = 4 * mean * float(np.finfo(dtype).eps)
    assert_same(y, case.formula(x.astype(F64)).astype(dtype), tolerance, tolerance)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_halves_are_rounded_once(case: Case, dtype: Any, backend: str) -> None:
    """All else is computed in f32, where the mean is not rounded to a half."""
    x = (8 * np.random.default_rng(0).standard_normal((2, 4, 3, 4)) + 100).astype(dtype)
    y = run(case, max(case.opset, 22), x, backend)  # which all have halves
    ulp = 2**-10 if dtype is np.float16 else 2**-7
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(F64), case.formula(x.astype(F64)), ulp, ulp / 4)


def test_statistics_are_results() -> None:
    """Mean and inverse deviation are f32 whatever the input is."""
    x = (np.random.default_rng(0).standard_normal((2, 3, 4)) + 10).astype(np.float16)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "m", "i"], axis=1)
    narrow = np.zeros((2, 1, 1), np.float32)
    model = graph_model(
        *([node], [info("x", x)], [info("y", x), info("m", narrow), info("i", narrow)], 17),
        {"s": np.ones(12, np.float16)},
    )
    y, mean, inverse = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": x})
    wide = x.astype(F64)
    assert_same(mean, wide.mean((1, 2), keepdims=True).astype(np.float32), 1e-6)
    deviation = np.sqrt(wide.var((1, 2), keepdims=True) + 1e-5)
    assert_same(inverse, (1 / deviation).astype(np.float32), 1e-6)
    assert_same(y, standardized(wide, (1, 2)).astype(np.float16), 2**-10, 2**-12)
