"""`glowpy.onnx_backend`: the interface that onnx defines for backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import glowpy
from glowpy import onnx_backend
from glowpy.backends.interpreter.backend import InterpreterBackend
from tests.onnx.comparison import graph_model, info

X = np.array([[-1, 2, -3]], np.float32)
C = np.array([1, 2, 3], np.float32)


def model() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "c"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    return graph_model(nodes, [info("x", X), info("c", C)], [info("y", X), info("s", X)], 17)


class Interpreted(onnx_backend.GlowpyBackend):
    backend = InterpreterBackend()


@pytest.mark.parametrize("backend", [onnx_backend, onnx_backend.GlowpyBackend, Interpreted])
def test_model_runs_prepared_and_at_once(backend: Any) -> None:
    prepared = backend.prepare(model())
    outputs = prepared.run([X, C])
    np.testing.assert_array_equal(outputs[0], [[0, 4, 0]])
    np.testing.assert_array_equal(outputs["s"], X + C)
    np.testing.assert_array_equal(prepared.run({"c": C, "x": X})["y"], outputs.y)
    np.testing.assert_array_equal(backend.run_model(model(), [X, C])[0], outputs[0])


def test_one_input_needs_no_list() -> None:
    one = graph_model([helper.make_node("Relu", ["x"], ["y"])], [info("x", X)], [info("y", X)], 17)
    (y,) = onnx_backend.prepare(one).run(X)
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_node_runs_with_inputs_that_are_left_out() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    high = np.array(1, np.float32)
    (y,) = onnx_backend.run_node(node, [X, high])
    np.testing.assert_array_equal(y, np.minimum(X, 1))
    (y,) = onnx_backend.run_node(node, [X, high], outputs_info=[(X.dtype, X.shape)])
    np.testing.assert_array_equal(y, np.minimum(X, 1))
    twice = helper.make_node("Add", ["x", "x"], ["y"])
    (y,) = onnx_backend.run_node(twice, [X], opset_version=7)
    np.testing.assert_array_equal(y, X + X)


def test_node_takes_inputs_as_a_model_does() -> None:
    node = helper.make_node("Sub", ["x", "c"], ["y"])
    (y,) = onnx_backend.run_node(node, {"c": C, "x": X})
    np.testing.assert_array_equal(y, X - C)
    with pytest.raises(glowpy.UserError, match=r"expected the inputs \['x', 'c'\], got \['x'\]"):
        onnx_backend.run_node(node, {"x": X})
    (y,) = onnx_backend.run_node(helper.make_node("Neg", ["x"], ["y"]), X)
    np.testing.assert_array_equal(y, -X)


def test_node_is_of_the_opset_that_is_asked_for() -> None:
    old = helper.make_node("Clip", ["x"], ["y"], min=0.0)
    (y,) = onnx_backend.run_node(old, [X], opset_version=6)
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    with pytest.raises(onnx.checker.ValidationError):
        onnx_backend.run_node(old, [X], opset_version=11)


def test_node_of_another_domain_runs() -> None:
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.0)
    (y,) = onnx_backend.run_node(node, [X])
    np.testing.assert_array_equal(y, np.float32(X > 1))


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")
    assert not onnx_backend.supports_device("CPU:1")
    with pytest.raises(glowpy.UserError, match="expected the device CPU, got 'CUDA:0'"):
        onnx_backend.prepare(model(), "CUDA:0")
    with pytest.raises(glowpy.UserError, match="expected the device CPU, got 'CUDA'"):
        onnx_backend.run_node(model().graph.node[0], [X, C], "CUDA")


def test_compatibility() -> None:
    unknown = graph_model(
        [helper.make_node("Foo", ["x"], ["y"])], [info("x", X)], [info("y", X)], 17
    )
    assert onnx_backend.is_compatible(model())
    assert not onnx_backend.is_compatible(model(), "CUDA")
    assert not onnx_backend.is_compatible(unknown)


def test_wrong_inputs_are_refused() -> None:
    prepared = onnx_backend.prepare(model())
    with pytest.raises(glowpy.UserError, match="expected 2 inputs, got 1"):
        prepared.run([X])
    with pytest.raises(glowpy.UserError, match="expected 1 inputs, got 2"):
        onnx_backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [X, X])
    with pytest.raises(onnx.checker.ValidationError):
        onnx_backend.prepare(onnx.ModelProto())
