"""Scan against onnxruntime: any axis and direction, batches, open lengths, nothing to scan."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import BACKENDS
from tests.onnx.calls_models import check, model_of

ort = pytest.importorskip("onnxruntime")


def test_scans_along_any_axis_in_both_directions() -> None:
    body = onnx.parser.parse_graph(
        """
        step (float[2] state, float[2] a, float[3] b) => (float[2] next, float[3] row, float[2] out) {
            next = Add (state, a)
            row = Neg (b)
            out = Mul (next, next)
        }
        """
    )
    for directions, axes in (([0, 1], [0, 1]), ([1, 0], [1, 0])):
        node = helper.make_node(
            "Scan",
            ["s", "a", "b"],
            ["y", "rows", "outs"],
            body=body,
            num_scan_inputs=2,
            scan_input_axes=axes,
            scan_input_directions=directions,
            scan_output_axes=[1, -1],
            scan_output_directions=[1, 0],
        )
        shapes = {"a": [4, 2] if axes[0] == 0 else [2, 4], "b": [4, 3] if axes[1] == 0 else [3, 4]}
        floats = TensorProto.FLOAT
        infos = [
            helper.make_tensor_value_info(n, floats, d) for n, d in {"s": [2], **shapes}.items()
        ]
        results = [
            helper.make_tensor_value_info(n, floats, d)
            for n, d in {"y": [2], "rows": [3, 4], "outs": [2, 4]}.items()
        ]
        graph = helper.make_graph([node], "scan", infos, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        rng = np.random.default_rng(0)
        feed = {
            info.name: rng.standard_normal(d).astype(np.float32)
            for info, d in zip(infos, ([2], *shapes.values()), strict=True)
        }
        check(model, feed)


def batches(batch: int | str, length: int, directions: tuple[int, int] = (0, 0)) -> onnx.ModelProto:
    """A scan of opset 8, of every sequence of a batch."""
    floats = f"float[{batch}, {length}"
    return model_of(
        f"""
        net (float[{batch}, 2] s, {floats}, 2] a, {floats}, 3] b)
            => (float[{batch}, 2] y, {floats}, 3] rows, {floats}, 2] outs) {{
            y, rows, outs = Scan <num_scan_inputs = 2, directions = [{directions[0]}, {directions[1]}],
                body = step (float[2] state, float[2] x, float[3] z)
                    => (float[2] next, float[3] row, float[2] out) {{
                    next = Add (state, x)
                    row = Neg (z)
                    out = Mul (next, next)
                }}
            > (, s, a, b)
        }}
        """,
        8,
    )


def batch_feed(batch: int, length: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"s": (batch, 2), "a": (batch, length, 2), "b": (batch, length, 3)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("directions", [(0, 0), (1, 0)])
def test_a_scan_of_batches(directions: tuple[int, int]) -> None:
    check(batches(3, 4, directions), batch_feed(3, 4))


@pytest.mark.parametrize(("batch", "length"), [(0, 4), (3, 0)])
def test_a_scan_of_nothing(batch: int, length: int) -> None:
    feed = batch_feed(batch, length)
    for backend in BACKENDS:
        outputs = glowpy.compile(glowpy.load(batches(batch, length)), backend)(feed)
        np.testing.assert_array_equal(outputs["y"], feed["s"])
        assert outputs["rows"].shape == (batch, length, 3)
        assert outputs["outs"].shape == (batch, length, 2)


@pytest.mark.parametrize(("name", "type"), [("s", "float s"), ("a", "float[3] a")])
def test_a_scan_of_what_has_no_batch_or_no_sequence(name: str, type: str) -> None:
    model = batches(3, 4)
    (info,) = [info for info in model.graph.input if info.name == name]
    info.CopyFrom(onnx.parser.parse_graph(f"g ({type}) => (float y) {{ }}").input[0])
    message = "expected states of a rank of at least 1, and inputs to scan of at least 2"
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(model)


def test_a_scan_of_batches_is_one_loop() -> None:
    """Of rows, around one over their elements, however many rows there are."""
    for batch in (2, 300):
        module = glowpy.load(batches(batch, 20))
        assert len(module.functions) == 3
        assert sum(f.num_nodes for f in module.functions) < 30
    session = glowpy.InferenceSession(batches("n", 2), backend="interpreter")
    for batch in (2, 5, 0):
        y, *_ = session.run(None, feed := batch_feed(batch, 2))
        np.testing.assert_allclose(y, feed["s"] + feed["a"].sum(1), 1e-5)


def test_a_scan_over_an_open_length() -> None:
    text = """
    net (float[2] s, float[length, 2] a) => (float[2] y, float[length, 2] outs) {
        y, outs = Scan <num_scan_inputs = 1,
            body = step (float[2] state, float[2] x) => (float[2] next, float[2] out) {
                next = Add (state, x)
                out = Neg (next)
            }
        > (s, a)
    }
    """
    reference = ort.InferenceSession(model_of(text).SerializeToString())
    for backend in BACKENDS:
        session = glowpy.InferenceSession(model_of(text), backend=backend)
        for length in (3, 7, 1, 5):
            feed = {
                "s": np.array([1, 2], np.float32),
                "a": np.arange(2 * length, dtype=np.float32).reshape(length, 2),
            }
            for actual, expected in zip(
                session.run(None, feed), reference.run(None, feed), strict=True
            ):
                np.testing.assert_array_equal(actual, expected)
        nothing = {"s": np.array([1, 2], np.float32), "a": np.zeros((0, 2), np.float32)}
        y, outs = session.run(None, nothing)
        assert (y.tolist(), outs.shape) == ([1, 2], (0, 2))
        assert len(session.assumptions) == 1
