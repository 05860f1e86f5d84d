"""Random numbers, and what trains: distributions, what a seed decides, and both backends alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import graph_model, info

COUNT = 20_000


def run(
    op_type: str,
    inputs: dict[str, Array],
    results: list[Array],
    backend: str = "interpreter",
    **more: Any,
) -> list[Array]:
    """The outputs of a node, whose name decides where it has no seed; `opset` and `known` inputs are no attributes."""
    opset, known = more.pop("opset", 22), more.pop("known", {})
    names = [f"y{index}" for index in range(len(results))]
    node = helper.make_node(op_type, [*inputs, *known], names, **more)
    infos = [info(name, array) for name, array in inputs.items()]
    outputs = [info(name, array) for name, array in zip(names, results, strict=True)]
    model = graph_model([node], infos, outputs, opset, known)
    arrays: list[Array] = glowpy.InferenceSession(model, backend=backend).run(None, inputs)
    return arrays


def uniform(dtype: type = np.float32, backend: str = "interpreter", **attributes: Any) -> Array:
    x: Array = np.zeros((COUNT // 100, 100), dtype)
    return run("RandomUniformLike", {"x": x}, [x], backend, **attributes)[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_uniform_numbers_are_spread_evenly(dtype: type) -> None:
    numbers = uniform(dtype, low=-1.0, high=3.0, seed=5.0).astype(np.float64)
    assert -1 <= numbers.min() < -0.99
    assert 2.99 < numbers.max() <= 3
    counts, _ = np.histogram(numbers, 16, (-1, 3))
    # 16 cells with a deviation of 34: six of them
    assert np.abs(counts - COUNT / 16).max() < 6 * np.sqrt(COUNT / 16)
    neighbours = np.corrcoef(numbers.reshape(-1)[1:], numbers.reshape(-1)[:-1])[0, 1]
    assert abs(neighbours) < 6 / np.sqrt(COUNT)


def test_seeds_and_names_decide() -> None:
    same = [uniform(seed=5.0), uniform(seed=5.0, name="other"), uniform(backend="cpu", seed=5.0)]
    for numbers in same[1:]:
        np.testing.assert_array_equal(numbers, same[0])
    others = [uniform(seed=6.0), uniform(), uniform(name="other")]
    for index, numbers in enumerate(others):
        for other in [*others[:index], same[0]]:
            assert not (numbers == other).mean() > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_have_moments(dtype: type) -> None:
    x: Array = np.zeros(COUNT, dtype)
    (numbers,) = run("RandomNormalLike", {"x": x}, [x], mean=2.0, scale=3.0)
    (alike,) = run("RandomNormalLike", {"x": x}, [x], "cpu", mean=2.0, scale=3.0)
    np.testing.assert_allclose(numbers, alike, rtol=1e-5, atol=1e-5)
    standard = (numbers - 2) / 3
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((standard**power).mean() - moment) < 6 * np.sqrt(spread / COUNT)


def test_shapes_and_kinds_may_be_attributes() -> None:
    for op_type in ("RandomUniform", "RandomNormal"):
        for dtype, elem_type in (
            (np.float16, TensorProto.FLOAT16),
            (np.float64, TensorProto.DOUBLE),
        ):
            result = np.zeros((3, 5), dtype)
            (got,) = run(op_type, {}, [result], shape=[3, 5], dtype=elem_type)
            assert got.dtype == dtype
            assert len(np.unique(got)) > 12


def test_events_happen_as_often_as_said() -> None:
    chances = np.repeat(np.array([0, 0.1, 0.5, 0.9, 1], np.float32), COUNT // 5)
    events = np.zeros(COUNT, bool)
    (got,) = run("Bernoulli", {"x": chances}, [events], dtype=TensorProto.BOOL)
    shares = got.reshape(5, -1).mean(1)
    assert shares[0] == 0
    assert shares[4] == 1
    np.testing.assert_allclose(shares, [0, 0.1, 0.5, 0.9, 1], atol=6 * 0.5 / np.sqrt(COUNT / 5))


def test_classes_come_as_often_as_said() -> None:
    chances = np.array([[0.1, 0.2, 0.7, 0], [0.25, 0.25, 0.25, 0.25]], np.float32)
    with np.errstate(divide="ignore"):
        x = np.log(chances) + np.float32(3)
    for dtype, elem_type in ((np.int32, TensorProto.INT32), (np.int64, TensorProto.INT64)):
        result = np.zeros((2, COUNT), dtype)
        options: dict[str, Any] = {"sample_size": COUNT, "dtype": elem_type, "seed": 1.0}
        (got,) = run("Multinomial", {"x": x}, [result], **options)
        assert got.dtype == dtype
        counts = np.stack([np.bincount(row, minlength=4) for row in got])
        np.testing.assert_allclose(counts / COUNT, chances, atol=6 * 0.5 / np.sqrt(COUNT))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_dropout_keeps_some_and_scales_them(backend: str) -> None:
    x = np.arange(1, COUNT + 1, dtype=np.float32)
    known = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}
    got, mask = run("Dropout", {"x": x}, [x, x > 0], backend, known=known, seed=3)
    assert abs(mask.mean() - 0.75) < 6 * 0.5 / np.sqrt(COUNT)
    np.testing.assert_allclose(got, np.where(mask, x / np.float32(0.75), 0), rtol=1e-6)


def test_dropout_drops_all_or_half() -> None:
    x = np.array([1, np.inf, -2] * 20, np.float32)
    known = {"ratio": np.array(1.0, np.float32), "training": np.array(True)}
    got, mask = run("Dropout", {"x": x}, [x, x > 0], known=known)
    assert not mask.any()
    assert not got.any()
    got, mask = run("Dropout", {"x": x}, [x, x], opset=6, is_test=0)
    assert mask.dtype == np.float32
    assert set(mask.tolist()) == {0, 1}
    np.testing.assert_array_equal(got, np.where(mask == 1, 2 * x, 0))


@pytest.mark.parametrize("opset", [7, 13, 14, 22])
def test_normalization_in_training(opset: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 2, 5)).astype(np.float32) * 3 + 1
    names = ("scale", "bias", "mean", "variance")
    vectors = {name: rng.uniform(0.5, 2, 3).astype(np.float32) for name in names}
    scale, bias, mean, variance = vectors.values()
    now, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    column = (3, 1, 1)
    normal = (x - now.reshape(column)) / np.sqrt(spread.reshape(column) + 1e-5)
    expected = [
        normal * scale.reshape(column) + bias.reshape(column),
        mean * 0.8 + now * 0.2,
        variance * 0.8 + spread * 0.2,
        *((now, spread) if opset < 14 else ()),
    ]
    training = {"training_mode": 1} if opset >= 14 else {}
    results = [np.asarray(array, np.float32) for array in expected]
    options = {"known": vectors, "opset": opset, "momentum": 0.8, **training}
    for backend in ("interpreter", "cpu"):
        got = run("BatchNormalization", {"x": x}, results, backend, **options)
        for array, result in zip(got, results, strict=True):
            np.testing.assert_allclose(array, result, rtol=1e-4, atol=1e-5)
