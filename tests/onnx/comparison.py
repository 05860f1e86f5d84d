"""What the tests of the importer share: one-node models, conversion of test data, and comparison of outputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import glowpy
from glowpy.core.tensor import Array

PREVIEW = "ai.onnx.preview.training"


def info(name: str, array: Array, dims: Sequence[str | int | None] | None = None) -> Any:
    """How a graph declares an array; with other dimensions than its own if `dims` says so."""
    elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, elem_type, array.shape if dims is None else dims)


def graph_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    opset: int,
    initializers: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes. Not checked: it may be wrong on purpose."""
    stored = [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(PREVIEW, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def value_of(item: Any) -> Any:
    """An array from what onnx keeps test data in; a list for a sequence, and None for an empty optional."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if item is None or isinstance(item, list):
        return item if item is None else [value_of(part) for part in item]
    return np.asarray(item)


def assert_same(
    got: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-7, context: str = ""
) -> None:
    """Element type, shape, and elements within the tolerance; bfloat16 within two units in the last place.

    Strings are equal whether they are kept as objects or not; of sequences, element by element.
    """
    if expected is None or isinstance(expected, list):
        assert type(got) is type(expected), context
        for part, wanted in zip(got or (), expected or (), strict=True):
            assert_same(part, wanted, rtol, atol, context)
        return
    if expected.dtype.kind in "OU":
        assert got.dtype == object, context
        assert (got.shape, got.tolist()) == (expected.shape, expected.tolist()), context
        return
    assert got.dtype == expected.dtype, context
    assert got.shape == expected.shape, context
    if got.dtype.name == "bfloat16":
        got, expected, rtol = got.astype(np.float32), expected.astype(np.float32), 2**-6
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=context)


def check_session(
    session: glowpy.InferenceSession,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    rtol: float,
    atol: float,
) -> None:
    """Runs the inputs, given in order, and compares all outputs."""
    names = [argument.name for argument in session.get_inputs()]
    feeds = dict(zip(names, (value_of(item) for item in inputs), strict=True))
    for got, expected in zip(session.run(None, feeds), outputs, strict=True):
        assert_same(got, value_of(expected), rtol, atol)


def node_cases() -> dict[str, TestCase]:
    """onnx's own cases of single operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}
