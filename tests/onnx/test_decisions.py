"""Numbers that runtimes disagree on, and what `docs/onnx.md` decides about them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.tensor import Array

BACKENDS = ["interpreter", "cpu"]


def outputs(
    node: onnx.NodeProto, feeds: dict[str, Array], known: dict[str, Array], backend: str
) -> list[Array]:
    """What one node computes of inputs, and of what is known."""
    return [
        np.asarray(y)
        for y in glowpy.InferenceSession(model(node, feeds, known), backend=backend).run(
            None, feeds
        )
    ]


def model(
    node: onnx.NodeProto, feeds: dict[str, Array], known: dict[str, Array]
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    kinds = helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    types = [kinds, TensorProto.FLOAT, TensorProto.UINT8]
    if node.op_type == "DynamicQuantizeLinear":
        types[0] = TensorProto.UINT8
    results = [
        helper.make_tensor_value_info(name, type, None)
        for name, type in zip(node.output, types, strict=False)
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph([node], "g", inputs, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


BASES = [3, -3, 7, 2, 10, -7, 2**53 + 1, -(2**62), 0, 1, -1, -1, 5, 2]
EXPONENTS = [39, 39, 19, 62, 18, 17, 1, 1, 0, 1000, 1001, 64, 0, 63]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("exponents", [np.int64, np.int32, np.float32])
@pytest.mark.parametrize("bases", [np.int64, np.int32])
def test_powers_of_integers(bases: type, exponents: type, backend: str) -> None:
    """Exactly, modulo 2 to the power of the bits that there are."""
    bits = 8 * np.dtype(bases).itemsize
    half = 1 << (bits - 1)
    pairs = [(b, e) for b, e in zip(BASES, EXPONENTS, strict=True) if -half <= b < half]
    exact = [(b**e + half) % (2 * half) - half for b, e in pairs]
    x, y = (np.array(column) for column in zip(*pairs, strict=True))
    node = helper.make_node("Pow", ["x", "y"], ["z"])
    feeds: dict[str, Array] = {"x": x.astype(bases), "y": y.astype(exponents)}
    (z,) = outputs(node, feeds, {}, backend)
    assert z.dtype == bases
    assert z.tolist() == exact


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_that_are_no_integers_are_truncated(backend: str) -> None:
    most = np.iinfo(np.int64).max
    x = np.array([7, 7, 2, 1, -1, -1, 0, 9], np.int64)
    y = np.array([2.5, -1, -3, -2, -3, -2, -1, 0.5])
    node = helper.make_node("Pow", ["x", "y"], ["z"])
    (z,) = outputs(node, {"x": x, "y": y}, {}, backend)
    assert z.tolist() == [129, 0, 0, 1, -1, 1, most, 3]
    whole = np.array([-1, -3, -2, -3, -2, -1])
    (z,) = outputs(node, {"x": x[1:7], "y": whole}, {}, backend)
    assert z.tolist() == [0, 0, 1, -1, 1, most]


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_elements_of_symmetric_places(nearest: str) -> None:
    """Among them places that are whole numbers but for the rounding of the scale."""
    attributes = {"mode": "nearest", "nearest_mode": nearest}
    attributes["coordinate_transformation_mode"] = "half_pixel_symmetric"
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attributes)
    for scale, size in ((1 / 3, 9), (0.6, 10), (0.2, 15), (0.75, 12), (1.5, 4), (2.3, 7), (0.4, 5)):
        x = {"x": np.arange(size, dtype=np.float32).reshape(1, 1, size)}
        known = {"s": np.array([1, 1, scale], np.float32)}
        (expected,) = ReferenceEvaluator(model(node, x, known)).run(None, x)
        (y,) = outputs(node, x, known, "interpreter")
        np.testing.assert_array_equal(y, np.asarray(expected), str((scale, size)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("x", [np.zeros((2, 3)), np.zeros((0,)), np.array([0.0, -0.0])])
def test_a_range_of_nothing_has_steps_of_one(x: Array, backend: str) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    y, scale, zero = outputs(node, {"x": x.astype(np.float32)}, {}, backend)
    assert y.tolist() == np.zeros(x.shape).tolist()
    assert [scale.item(), zero.item()] == [1, 0]
