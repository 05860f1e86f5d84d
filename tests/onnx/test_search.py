"""Models whose extents elements decide: compiled once for all of them, they give what onnxruntime gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy import UserError
from glowpy.core.tensor import Array
from glowpy.support.symbolic import symbol
from tests.onnx.session_models import programs_of

BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])
Node = onnx.NodeProto
node = helper.make_node


def model(
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model; outputs have no declared shapes."""
    graph = helper.make_graph(
        nodes,
        "search",
        [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], backend: str) -> None:
    """One compilation serves all feeds, as onnxruntime does."""
    ort = pytest.importorskip("onnxruntime")
    reference = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(proto, backend=backend)
    for feed in feeds:
        for actual, expected in zip(
            session.run(None, feed), reference.run(None, feed), strict=True
        ):
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
            assert actual.shape == expected.shape
    assert not programs_of(session).values  # nothing was compiled for elements


def detector(number: int = 64, classes: int = 3) -> onnx.ModelProto:
    """An image, a score for each class and a box for each place, and what is left of these."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((classes + 4, 3, 3, 3)).astype(np.float32) / 4,
        "cut": np.array([classes, 4]),
        "flat": np.array([1, -1, number]),
        "scale": np.float32(3),
        "most": np.array(9),
        "overlap": np.float32(0.4),
        "threshold": np.float32(0.55),
        "column": np.array(2),
        "zero": np.array([0]),
    }
    nodes = [
        node("Conv", ["x", "w"], ["features"], pads=[1, 1, 1, 1]),
        node("Split", ["features", "cut"], ["logits", "deltas"], axis=1),
        node("Sigmoid", ["logits"], ["chances"]),
        node("Reshape", ["chances", "flat"], ["scores"]),
        node("Reshape", ["deltas", "flat"], ["sides"]),
        node("Transpose", ["sides"], ["boxes"], perm=[0, 2, 1]),
        node("Mul", ["boxes", "scale"], ["wide"]),
        node("NonMaxSuppression", ["wide", "scores", "most", "overlap", "threshold"], ["selected"]),
        node("Gather", ["selected", "column"], ["indices"], axis=1),
        node("Squeeze", ["wide", "zero"], ["all"]),
        node("Gather", ["all", "indices"], ["kept"], axis=0),
        node("Softmax", ["kept"], ["shares"], axis=1),
    ]
    return model(
        nodes,
        {"x": (TensorProto.FLOAT, [1, 3, 8, 8])},
        {"selected": TensorProto.INT64, "kept": TensorProto.FLOAT, "shares": TensorProto.FLOAT},
        constants,
    )


@BACKENDS
def test_a_detector(backend: str) -> None:
    rng = np.random.default_rng(1)
    images = [rng.standard_normal((1, 3, 8, 8)).astype(np.float32) * scale for scale in (1, 0, 2)]
    check(detector(), [{"x": image} for image in images], backend)


@BACKENDS
def test_two_searches_of_one_mask_are_one_extent(backend: str) -> None:
    """As exporters write `x[x > 0] * y[x > 0]`."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("Compress", ["x", "mask"], ["a"]),
        node("Greater", ["x", "zero"], ["again"]),
        node("Compress", ["y", "again"], ["b"]),
        node("Mul", ["a", "b"], ["product"]),
        node("Shape", ["b"], ["count"]),
    ]
    proto = model(
        nodes,
        {name: (TensorProto.FLOAT, ["n"]) for name in "xy"},
        {"product": TensorProto.FLOAT, "count": TensorProto.INT64},
        {"zero": np.float32(0)},
    )
    rng = np.random.default_rng(2)
    pairs = [rng.standard_normal((2, n)).astype(np.float32) for n in (5, 30, 1, 6)]
    check(proto, [{"x": x, "y": y} for x, y in pairs], backend)


@BACKENDS
def test_masks_of_images(backend: str) -> None:
    """As `x[mask]` is exported: places, and what is there."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("NonZero", ["mask"], ["columns"]),
        node("Transpose", ["columns"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["y"]),
        node("Div", ["y", "y"], ["ones"]),
        node("Shape", ["columns"], ["shape"]),
    ]
    proto = model(
        nodes,
        {"x": (TensorProto.FLOAT, ["height", "width"])},
        {"rows": TensorProto.INT64, "ones": TensorProto.FLOAT, "shape": TensorProto.INT64},
        {"zero": np.float32(0.5)},
    )
    rng = np.random.default_rng(5)
    shapes = (4, 5), (6, 9), (1, 1), (5, 4)
    check(proto, [{"x": rng.random(shape).astype(np.float32)} for shape in shapes], backend)


@BACKENDS
def test_slices_with_computed_ends(backend: str) -> None:
    nodes = [
        node("Slice", ["x", "first", "last", "axis"], ["middle"]),
        node("Slice", ["x", "zero", "last", "axis"], ["begin"]),
        node("Slice", ["x", "last", "first", "axis", "back"], ["reverse"]),
        node("Softmax", ["middle"], ["chances"], axis=1),
    ]
    proto = model(
        nodes,
        {
            "x": (TensorProto.FLOAT, ["rows", 7]),
            "first": (TensorProto.INT64, [1]),
            "last": (TensorProto.INT64, [1]),
        },
        dict.fromkeys(("middle", "begin", "reverse", "chances"), TensorProto.FLOAT),
        {"axis": np.array([1]), "zero": np.array([0]), "back": np.array([-2])},
    )
    x = np.random.default_rng(3).standard_normal((3, 7)).astype(np.float32)
    limits = (0, 1, -2, 7, -9, 99, -(1 << 63), (1 << 63) - 1)
    feeds = [
        {"x": x[: 1 + n % 3], "first": np.array([first]), "last": np.array([last])}
        for n, first in enumerate(limits[:-1])  # onnxruntime reverses up to the first with that
        for last in limits
    ]
    check(proto, feeds[::2] if backend == "cpu" else feeds, backend)


@BACKENDS
def test_slices_with_steps_that_lead_beyond_all_elements(backend: str) -> None:
    most = (1 << 63) - 1
    nodes = [
        node("Slice", ["x", "zero", "last", "zero", "far"], ["first"]),
        node("Slice", ["x", "back", "last", "zero", "near"], ["final"]),
    ]
    constants = {
        "zero": np.array([0]),
        "back": np.array([-1]),
        "far": np.array([most]),
        "near": np.array([-most]),
    }
    proto = model(
        nodes,
        {"x": (TensorProto.FLOAT, ["n"]), "last": (TensorProto.INT64, [1])},
        dict.fromkeys(("first", "final"), TensorProto.FLOAT),
        constants,
    )
    x = np.arange(6, dtype=np.float32)
    check(proto, [{"x": x, "last": np.array([last])} for last in (5, 1, 0)], backend)


@BACKENDS
def test_extents_that_arithmetic_bounds(backend: str) -> None:
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["whole"], to=TensorProto.INT64),
        node("Clip", ["whole", "zero", "ten"], ["size"]),
        node("Range", ["zero", "size", "one"], ["up"]),
        node("Range", ["ten", "size", "step"], ["down"]),
        node("Unsqueeze", ["size", "axis"], ["sizes"]),
        node("ConstantOfShape", ["sizes"], ["zeros"]),
        node("Concat", ["sizes", "ones"], ["shape"], axis=0),
        node("Expand", ["up", "shape"], ["square"]),
        node("Add", ["sizes", "ones"], ["depth"]),
        node("OneHot", ["up", "depth", "values"], ["hot"]),
        node("Tile", ["x", "sizes"], ["tiled"]),
    ]
    kinds = {"up": 7, "down": 7, "zeros": 1, "square": 7, "hot": 1, "tiled": 1}
    constants = {
        "ten": np.int64(10),
        "zero": np.int64(0),
        "one": np.int64(1),
        "step": np.int64(-3),
        "axis": np.array([0]),
        "ones": np.array([1]),
        "values": np.array([2, 3], np.float32),
    }
    proto = model(nodes, {"x": (TensorProto.FLOAT, ["n"])}, kinds, constants)
    xs = ([3.7, 1], [-1, 0, -5], [99, 2, 1, 0], [10])
    check(proto, [{"x": np.array(x, np.float32)} for x in xs], backend)


UNBOUNDED = model(
    [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Range", ["zero", "most", "one"], ["y"]),
    ],
    {"x": (TensorProto.INT64, ["n"])},
    {"y": TensorProto.INT64},
    {"zero": np.int64(0), "one": np.int64(1)},
)


def test_an_extent_without_a_bound_has_to_be_known() -> None:
    """A session supposes one."""
    session = glowpy.InferenceSession(UNBOUNDED, backend="interpreter")
    for most in (3, 5):
        assert session.run(None, {"x": np.array([most, 1])})[0].tolist() == [*range(most)]
    message = "'most' must be known while compiling, but depends on the input 'x'"
    with pytest.raises(UserError, match=message):
        glowpy.load(UNBOUNDED, dims={"n": symbol("n", 1, 9)})


def test_a_found_extent_may_fit_for_some_elements_only() -> None:
    """A reshape of what is found to four elements is right for some elements, and wrong for all others."""
    nodes = [node("NonZero", ["x"], ["places"]), node("Reshape", ["places", "four"], ["y"])]
    proto = model(
        nodes, {"x": (TensorProto.FLOAT, [6])}, {"y": TensorProto.INT64}, {"four": np.array([4])}
    )
    session = glowpy.InferenceSession(proto, backend="interpreter")
    fits, wrong = np.array([1, 0, 1, 1, 0, 1]), np.array([1, 0, 1, 0, 0, 1])
    for _ in range(2):
        assert session.run(None, {"x": fits.astype(np.float32)})[0].tolist() == [0, 2, 3, 5]
        with pytest.raises(UserError, match="expected a shape of 3 elements"):
            session.run(None, {"x": wrong.astype(np.float32)})


def test_known_elements_are_searched_while_importing() -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Unique", ["x"], ["values", "", "", "counts"]),
    ]
    outputs = {
        "places": TensorProto.INT64,
        "values": TensorProto.FLOAT,
        "counts": TensorProto.INT64,
    }
    module = glowpy.load(model(nodes, {}, outputs, {"x": np.array([3, 0, 1, 3], np.float32)}))
    assert [str(p.type) for p in module.main.outputs] == ["i64[1x3]", "f32[3]", "i64[3]"]
    assert not module.main.definitions
