"""Models with loops that several tests share, and their comparison with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import BACKENDS


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def check(model: onnx.ModelProto, *feeds: dict[str, Array], values: tuple[str, ...] = ()) -> None:
    """The same as onnxruntime on every backend; `values` are known while compiling."""
    onnx.checker.check_model(model)
    ort = pytest.importorskip("onnxruntime")
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for backend in BACKENDS:
        for feed in feeds:
            known = {name: feed[name] for name in values}
            compiled = glowpy.compile(glowpy.load(model, values=known), backend)
            outputs = compiled(feed)
            for info, expected in zip(
                reference.get_outputs(), reference.run(None, feed), strict=True
            ):
                actual = outputs[info.name]
                assert actual.dtype == expected.dtype
                np.testing.assert_allclose(actual, expected, 1e-5, 1e-6, err_msg=backend)


COUNTING = """
net (int64 n, float[3] x, float most) => (float[3] last, float[k, 3] all) {
    eight = Constant <value = int64 {8}> ()
    limit = Min (n, eight)
    true = Constant <value = bool {1}> ()
    last, all = Loop (limit, true, x) <
        body = step (int64 i, bool c, float[3] before) => (bool more, float[3] after, float[3] row) {
            number = Cast <to = 1> (i)
            sum = Add (before, x)
            after = Add (sum, number)
            row = Neg (after)
            top = ReduceMax <keepdims = 0> (after)
            more = Less (top, most)
        }
    >
}
"""


DECODER = """
net (int64 first, int64 most) => (int64[12] tokens, float[k, 16] chances, float[8] state) {
    true = Constant <value = bool {1}> ()
    room = Constant <value = int64 {11}> ()
    one = Constant <value = int64 {1}> ()
    zero = Constant <value = int64 {0}> ()
    end = Constant <value = int64 {3}> ()
    places = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]> ()
    limit = Min (most, room)
    is_first = Equal (places, zero)
    prompt = Where (is_first, first, zero)
    state_shape = Constant <value_ints = [8]> ()
    calm = ConstantOfShape (state_shape)
    tokens, state, chances = Loop (limit, true, prompt, calm) <
        body = step (int64 i, bool c, int64[12] seen, float[8] before)
            => (bool more, int64[12] longer, float[8] after, float[16] likely) {
            token = Gather (seen, i)
            word = Gather (words, token)
            memory = MatMul (before, recurrent)
            sum = Add (word, memory)
            after = Tanh (sum)
            scores = MatMul (after, heads)
            likely = Softmax (scores)
            next = ArgMax <axis = 0, keepdims = 0> (scores)
            following = Add (i, one)
            is_next = Equal (places, following)
            longer = Where (is_next, next, seen)
            ended = Equal (next, end)
            more = Not (ended)
        }
    >
}
"""


def decoder() -> onnx.ModelProto:
    """A small recurrent decoder with random weights, whose greedy search is an ONNX loop."""
    model = model_of(DECODER)
    rng = np.random.default_rng(3)
    for name, shape in (("words", (16, 8)), ("recurrent", (8, 8)), ("heads", (8, 16))):
        weights = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    return model
