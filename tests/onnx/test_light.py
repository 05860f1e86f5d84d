"""The nine networks of the onnx package, imported and interpreted; as they are, in test_suite.py, and compiled, in
tests/e2e/test_light_networks.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import glowpy
from glowpy.core.tensor import Array
from tools import zoo


def relative_error(got: Array, expected: Array) -> float:
    """The largest error, as part of the largest output."""
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def reference(model: onnx.ModelProto | Path, feeds: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    content = model if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, feeds)[0]
    return result


@pytest.mark.parametrize("name", zoo.NAMES)
def test_light_network_imports(name: str) -> None:
    """No weight is computed at run time, and no constant is transposed there."""
    f = glowpy.load(zoo.packaged(name)).main
    assert [p.type.shape[0] for p in f.inputs] == [1]
    assert len(f.outputs) == 1
    assert all(any(v.constant is None for v in node.inputs) for node in f.nodes if node.inputs)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_light_network_with_weights_matches_onnxruntime_on_interpreter(name: str) -> None:
    model = zoo.initialised(name)
    feeds = zoo.example_input(model)
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, feeds)
    assert relative_error(got, reference(model, feeds)) < 1e-4
