"""Arguments of a session that are of another type than it takes: an error that says which, and no TypeError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glowpy
from tests.onnx.host_models import tagger, texts

FEED = {"text": texts("the", "cat")}


@pytest.fixture(scope="module")
def session() -> glowpy.InferenceSession:
    return glowpy.InferenceSession(tagger(), backend="interpreter")


@pytest.mark.parametrize(
    ("model", "how", "message"),
    [
        (5, {}, "model: expected a path, the bytes of a file or a ModelProto, got int"),
        (None, {}, "model: expected a path, the bytes of a file or a ModelProto, got NoneType"),
        (b"", {"threads": "2"}, "threads: expected a number of threads, got '2'"),
        (b"", {"limit": "2"}, "limit: expected a number of specialisations, got '2'"),
        (b"", {"options": 3}, "options: expected CompileOptions, got int"),
    ],
)
def test_arguments(model: Any, how: Any, message: str) -> None:
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.InferenceSession(model, **how)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([np.zeros(2)], "out: expected a dict of arrays, got list"),
        ({"tags": np.zeros(2)}, "out: expected object[2] for 'tags', got float64[2]"),
        (
            {"logits": np.zeros((2, 2))},
            "out: expected float32[2, 2] for 'logits', got float64[2, 2]",
        ),
        ({"tags": [1, 2]}, "out: expected object[2] for 'tags', got list"),
        ({"tagz": np.zeros(2)}, "out: expected one of the outputs 'tags', 'logits', got 'tagz'"),
    ],
)
def test_memory_for_outputs(session: glowpy.InferenceSession, out: Any, message: str) -> None:
    with pytest.raises(glowpy.UserError) as caught:
        session.run(None, FEED, out=out)
    assert str(caught.value) == message


def test_outputs_are_stored_where_the_caller_wants_them(session: glowpy.InferenceSession) -> None:
    out = {"tags": np.zeros(2, object), "logits": np.zeros((2, 2), np.float32)}
    results = session.run(None, FEED, out=out)
    assert [result is array for result, array in zip(results, out.values(), strict=True)] == [
        True
    ] * 2
    for array, expected in zip(out.values(), session.run(None, FEED), strict=True):
        np.testing.assert_array_equal(array, expected)
