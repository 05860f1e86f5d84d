"""Operators on images of which any dimension may be empty: one compilation, watched by the sanitizer."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import glowpy
from glowpy import CompileOptions
from glowpy.support.symbolic import symbol

OPERATORS = {
    "convolution": "Conv<pads=[1,1,1,1]>(x, full)",
    "pointwise": "Conv(x, point)",
    "every second pixel": "Conv<strides=[2,2]>(x, point)",
    "grouped": "Conv<pads=[1,1,1,1], group=2>(x, half)",
    "depthwise": "Conv<pads=[1,1,1,1], group=8>(x, deep)",
    "strided depthwise": "Conv<pads=[1,1,1,1], strides=[2,2], group=8>(x, deep)",
    "max pool": "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
    "mean": "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
}
FILTERS = {
    "full": (16, 8, 3, 3),
    "point": (16, 8, 1, 1),
    "half": (8, 4, 3, 3),
    "deep": (8, 1, 3, 3),
}


@pytest.mark.parametrize("title", OPERATORS)
def test_nothing_is_touched_where_there_is_nothing(title: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 17]>
    net (float[N, 8, H, W] x) => (float[N, C, A, B] y) {{ z = {OPERATORS[title]} y = Relu(z) }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in FILTERS.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    dims = {name: symbol(name, 0, 5) for name in "NHW"}
    options = CompileOptions(sanitize=True)
    compiled, interpreted = (
        glowpy.compile(glowpy.load(model, dims=dims), backend, options)
        for backend in ("cpu", "interpreter")
    )
    for batch, height, width in itertools.product((0, 1, 2), (0, 1, 5), (0, 1, 5)):
        inputs = {"x": rng.standard_normal((batch, 8, height, width)).astype(np.float32)}
        got, expected = compiled(inputs)["y"], interpreted(inputs)["y"]
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4)
