"""Bounds that a user gives for extents that elements decide, where there is no session that supposes some."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import glowpy
from glowpy.cli.main import run
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol

TEXT = """<ir_version: 10, opset_import: ["": 17]>
    net (int64 k, float[N] x) => (float[K] y) {
        zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
        [frames] t = Range(zero, k, one) f = Cast<to = 1>(t) s = ReduceSum<keepdims = 0>(x) y = Add(f, s) }"""
N = symbol("N", 1, 4)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_an_extent_is_bounded_by_its_name(backend: str) -> None:
    """More than the bound are not computed, and the output beside those of the model says how many there would be."""
    dims = {"N": N, "frames_count": symbol("frames_count", 0, 10)}
    network = glowpy.compile(glowpy.load(parser.parse_model(TEXT), dims=dims), backend=backend)
    x = np.ones(2, np.float32)
    for k, shown in ((3, 3), (0, 0), (10, 10), (12, 10), (1 << 40, 10)):
        outputs = network({"k": np.array(k), "x": x})
        np.testing.assert_array_equal(outputs["y"], np.arange(shown, dtype=np.float32) + 2)
        assert outputs["extent frames_count"].tolist() == [k]


def test_the_refusal_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    arguments = ["dump", str(path), "--shape", "N=2"]
    refused, out = io.StringIO(), io.StringIO()
    assert run(arguments, io.StringIO(), refused) == 1
    assert "--shape frames_count=0..100" in refused.getvalue()
    assert run([*arguments, "--shape", "frames_count=0..100"], io.StringIO(), out) == 0
    assert "%y_1 : f32[frames_count]" in out.getvalue()


def test_other_names_are_refused() -> None:
    dims = {"N": N, "frames_count": symbol("frames_count", 0, 9), "many": symbol("many", 0, 9)}
    with pytest.raises(UserError, match="no symbolic dimension 'many', expected one of: 'N'"):
        glowpy.load(parser.parse_model(TEXT), dims=dims)
