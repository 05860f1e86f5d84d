"""Scatters, TopK and BitCast on odd shapes and kinds: against onnxruntime, and where it has no answer, numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same, graph_model, info


def compare(op_type: str, inputs: list[Array], results: int, **attributes: Any) -> None:
    """All inputs come at run time, but for the k of TopK."""
    names = [f"i{index}" for index in range(len(inputs))]
    outputs = [f"o{index}" for index in range(results)]
    node = helper.make_node(op_type, names, outputs, **attributes)
    infos = [info(name, array) for name, array in zip(names, inputs, strict=True)]
    elem_types = [infos[0].type.tensor_type.elem_type, TensorProto.INT64]
    ports = [
        helper.make_tensor_value_info(name, elem_type, [None] * inputs[0].ndim)
        for name, elem_type in zip(outputs, elem_types, strict=False)
    ]
    stored = {"i1": inputs[1]} if op_type == "TopK" else {}
    model = graph_model([node], [one for one in infos if one.name not in stored], ports, 18, stored)
    feeds = {n: a for n, a in zip(names, inputs, strict=True) if n not in stored}
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, feeds)
    results_here = glowpy.InferenceSession(model, backend="interpreter").run(None, feeds)
    for got, wanted in zip(results_here, expected, strict=True):
        assert_same(got, wanted, context=f"{op_type} {attributes}")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_scatter_elements_as_onnxruntime(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    picked = [data.draw(st.integers(0, size)) for size in shape]
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "max", "min"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    indices = rng.integers(-shape[axis], shape[axis], picked)
    values = [rng.integers(-3, 4, size).astype(np.float32) for size in (shape, picked)]
    compare("ScatterElements", [values[0], indices, values[1]], 1, axis=axis, reduction=reduction)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_scatter_nd_as_onnxruntime(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    depth = data.draw(st.integers(1, len(shape)))
    lead = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "max", "min"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    columns = [rng.integers(-size, size, lead) for size in shape[:depth]]
    x = rng.integers(-3, 4, shape).astype(np.float32)
    updates = rng.integers(-3, 4, [*lead, *shape[depth:]]).astype(np.float32)
    compare("ScatterND", [x, np.stack(columns, -1), updates], 1, reduction=reduction)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_top_k_as_onnxruntime(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(1, shape[axis]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-4, 5, shape)
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.int64]))
    largest = data.draw(st.integers(0, 1))
    compare("TopK", [x.astype(dtype), np.array([k])], 2, axis=axis, largest=largest)


def test_bools_are_updated_as_bits() -> None:
    """Or is their sum, and their product."""
    x, updates = np.array([False, False, True, True]), np.array([True, False, True, False])
    indices = np.array([0, 1, 2, 3])
    wanted = {"add": x | updates, "max": x | updates, "mul": x & updates, "min": x & updates}
    for reduction, expected in {**wanted, "none": updates}.items():
        node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction=reduction)
        infos = [info("x", x), info("i", indices), info("u", updates)]
        session = glowpy.InferenceSession(
            graph_model([node], infos, [info("y", x)], 18), backend="interpreter"
        )
        (got,) = session.run(None, {"x": x, "i": indices, "u": updates})
        np.testing.assert_array_equal(got, expected)


SAME_BITS: list[tuple[Array, Array]] = [
    (np.array([1, -2], np.float16), np.array([0x3C00, -0x4000], np.int16)),
    (np.array([0x3F80, 0x8000], np.uint16), np.array([1, -0.0], ml_dtypes.bfloat16)),
    (np.array([True, False]), np.array([1, 0], np.int8)),
    (np.array([0, 7, -1], np.int8), np.array([False, True, True])),
    (np.array([0x38, 0xB8], np.uint8), np.array([1, -1], ml_dtypes.float8_e4m3fn)),
    (np.array([1, -2], ml_dtypes.float8_e5m2), np.array([0x3C, -0x40], np.int8)),
    (np.array([-1, 7, -8], ml_dtypes.int4), np.array([15, 7, 8], ml_dtypes.uint4)),
    (np.array([15, 7, 8], ml_dtypes.uint4), np.array([-1, 7, -8], ml_dtypes.int4)),
    (np.array([2, 10], ml_dtypes.uint4), np.array([1, -1], ml_dtypes.float4_e2m1fn)),
    (np.array([1, -1], ml_dtypes.float4_e2m1fn), np.array([2, -6], ml_dtypes.int4)),
    (np.array([-1, 1], ml_dtypes.int2), np.array([3, 1], ml_dtypes.uint2)),
]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(("x", "expected"), SAME_BITS)
def test_bits_stay(x: Array, expected: Array, backend: str) -> None:
    to = helper.np_dtype_to_tensor_dtype(expected.dtype)
    node = helper.make_node("BitCast", ["x"], ["y"], to=to)
    model = graph_model([node], [info("x", x)], [info("y", expected)], 26)
    (got,) = glowpy.InferenceSession(model, backend=backend).run(None, {"x": x})
    assert got.dtype == expected.dtype
    assert got.tobytes() == expected.tobytes()
