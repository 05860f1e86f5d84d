"""Depthwise convolutions of lines whose width is open: tiles between the edges, and pixels one by one at them."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import glowpy
from glowpy import CompileOptions
from glowpy.backends.cpu.strategy.depthwise import has_open_edges
from glowpy.support.symbolic import symbol

WINDOWS = {
    "same": ((3, 3), "pads=[1,1,1,1]"),
    "every second": ((3, 5), "pads=[1,2,1,2], strides=[2,2]"),
    "more at the right": ((1, 4), "pads=[0,0,0,3]"),
    "far apart": ((3, 3), "pads=[2,5,2,4], dilations=[2,3], strides=[1,2]"),
    "pads beyond the window": ((1, 2), "pads=[0,9,0,2]"),
    "no pads": ((2, 3), "pads=[0,0,0,0]"),
}


@pytest.mark.parametrize("title", WINDOWS)
def test_lines_of_any_width(title: str) -> None:
    kernels, attributes = WINDOWS[title]
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17]>
    net (float[1, 19, 5, W] x) => (float[1, 19, A, B] y) {{
      z = Conv<group=19, {attributes}>(x, filter)
      y = Relu(z)
    }}""")
    rng = np.random.default_rng(0)
    filter = rng.standard_normal((19, 1, *kernels)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(filter, "filter"))
    dims = {"W": symbol("W", 3, 40)}
    options = CompileOptions(sanitize=True)
    compiled, interpreted = (
        glowpy.compile(glowpy.load(model, dims=dims), backend, options)
        for backend in ("cpu", "interpreter")
    )
    for width in (*range(3, 28), 40):
        inputs = {"x": rng.standard_normal((1, 19, 5, width)).astype(np.float32)}
        got, expected = compiled(inputs)["y"], interpreted(inputs)["y"]
        np.testing.assert_allclose(got, expected, 1e-5, 1e-5, err_msg=str(width))


def test_edges_are_open_where_a_width_or_a_pad_is() -> None:
    width, none = symbol("W", 1, 9), (0,) * 4
    known, open_one, open_rows = (1, 8, 8, 4), (1, 8, width, 4), (1, width, 8, 4)
    assert not has_open_edges(known, known, none)
    assert not has_open_edges(open_rows, open_rows, (width, 0, 0, 0))
    assert has_open_edges(open_one, open_one, none)
    assert has_open_edges(known, open_one, (0, 8 - width, 0, 0))
