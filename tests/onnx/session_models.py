"""Models of a few nodes whose shapes a session hears of when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import glowpy
from glowpy.session.compiled import Compiled
from glowpy.session.programs import Programs
from tests.onnx.comparison import graph_model, info

F32 = np.float32
X = np.arange(6, dtype=F32).reshape(2, 3) - 2


def symbolic() -> onnx.ModelProto:
    """y = relu(x), z = x + x, of n x 3."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Add", ["x", "x"], ["z"]),
    ]
    dims: list[str | int | None] = ["n", 3]
    outputs = [info("y", X, dims), info("z", X, dims)]
    return graph_model(nodes, [info("x", X, dims)], outputs, 13)


def expanding() -> onnx.ModelProto:
    """y = the rows of x, repeated to shape: an input whose elements have to be known while compiling."""
    nodes = [helper.make_node("Resize", ["x", "", "", "shape"], ["y"], mode="nearest")]
    inputs = [info("x", X[:1, :]), info("shape", np.zeros(2, np.int64))]
    return graph_model(nodes, inputs, [info("y", X, [None, None])], 13)


def make(model: onnx.ModelProto, **options: Any) -> glowpy.InferenceSession:
    return glowpy.InferenceSession(model, backend="interpreter", **options)


def programs_of(session: glowpy.InferenceSession) -> Programs:
    """The code that a session has of a model as a whole."""
    assert isinstance(session._runner, Compiled)
    return session._runner.programs
