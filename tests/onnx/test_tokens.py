"""Tokenizer, an operator of onnxruntime's that converters of scikit-learn write: as onnxruntime computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.importer.onnx.contrib.schemas import CONTRIB

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("re2")

TEXTS = np.array(["a bc  d\u00e9f", "x", "", "hello world 12"], object)


def tokenizer(shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain=CONTRIB, pad_value="#", **attributes)
    graph = helper.make_graph(
        [node],
        "words",
        [helper.make_tensor_value_info("x", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info("y", TensorProto.STRING, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize(
    "words",
    [
        {"tokenexp": "[a-z]+"},
        {"tokenexp": r"\w\w+"},
        {"tokenexp": "l*"},
        {"tokenexp": "z"},
        {"separators": [" "]},
        {"separators": [" ", "l+"]},
        {"separators": [""]},
    ],
)
def test_words_are_those_of_onnxruntime(words: dict[str, Any], mark: int) -> None:
    long = 1 if words.get("separators") == [""] else 2
    for texts, least in ((TEXTS, 1), (TEXTS.reshape(2, 2), long)):
        model = tokenizer(texts.shape, mark=mark, mincharnum=least, **words)
        session = ort.InferenceSession(model.SerializeToString())
        (wanted,) = session.run(None, {"x": texts})
        (got,) = glowpy.InferenceSession(model).run(None, {"x": texts})
        assert got.shape == wanted.shape
        assert got.tolist() == wanted.tolist()


def test_an_expression_that_is_none() -> None:
    model = tokenizer((4,), mark=0, mincharnum=1, tokenexp="(")
    with pytest.raises(glowpy.UserError, match=r"pattern '\(': missing"):
        glowpy.InferenceSession(model)
    model = tokenizer((4,), mark=0, mincharnum=1)
    with pytest.raises(glowpy.UserError, match="expected either separators or tokenexp"):
        glowpy.InferenceSession(model)


@pytest.mark.parametrize("text", ["\udc80", "a\ud800b"])
def test_text_that_utf_8_cannot_spell(text: str) -> None:
    """A lone surrogate: onnxruntime has no such strings."""
    session = glowpy.InferenceSession(tokenizer((1,), mark=0, mincharnum=1, tokenexp="a"))
    with pytest.raises(glowpy.UserError, match="'x': expected text that UTF-8 can spell, got"):
        session.run(None, {"x": np.array([text], object)})


def test_what_needs_machine_code_names_the_session() -> None:
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.load(tokenizer((4,), mark=0, mincharnum=1, tokenexp="[a-z]+"))
    assert "only a session computes it\nnote: glowpy.InferenceSession" in str(caught.value)
