"""Functions that are called, as the bodies of loops and branches, are converted as the network around them is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import DequantizeBlocksNode, DynamicQuantizeNode
from glowpy.quantization import inspect, profile
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.convert import convert
from glowpy.quantization.dynamic import quantize_dynamic
from glowpy.quantization.halves import halve
from glowpy.quantization.options import Options
from glowpy.quantization.weights import quantize_weights
from glowpy.support.errors import UserError
from tests.onnx.calls_models import model_of

STEPS = """
net (float[20, 8] x, float[8] y, bool up) => (float[8] last, float[20, 8] rows) {
    [scan] state, rows = Scan <num_scan_inputs = 1, body = step (float[8] before, float[8] row)
        => (float[8] after, float[8] out) {
            [sum] sum = Add (before, row) [product] t = MatMul (sum, w) after = Tanh (t) out = Neg (after)
        }
    > (y, x)
    [choice] last = If (up) <
        then_branch = a () => (float[8] p) { [in_branch] p = MatMul (state, w) },
        else_branch = b () => (float[8] n) { n = Neg (state) }
    >
}
"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    model = model_of(STEPS)
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 4
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


@pytest.fixture(scope="module")
def module(model: onnx.ModelProto) -> Module:
    return glowpy.load(model)


def feed(up: bool = True) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {"x": (20, 8), "y": (8,)}
    arrays = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    return {**arrays, "up": np.array(up)}


def nearly(result: Conversion, module: Module, error: float) -> None:
    """On both backends, the outputs are as near as that to those in floats."""
    for up in (False, True):
        expected = glowpy.compile(module, "interpreter")(feed(up))
        for backend in ("interpreter", "cpu"):
            outputs = glowpy.compile(result.module, backend)(feed(up))
            for name, array in expected.items():
                difference = np.abs(outputs[name].astype(np.float64) - array)
                assert 0 < difference.max() < error or (not up and name == "last")


def run_verb(*argv: str) -> str:
    """What a verb that succeeds says on both outputs."""
    out = io.StringIO()
    assert run(argv, io.StringIO(), out) == 0, out.getvalue()
    return out.getvalue()


def converted(result: Conversion) -> set[str]:
    return {node.origin.split("'")[1] for node in result.nodes if not node.reason}


def matrices(result: Conversion) -> list[ElemKind]:
    """The kinds of the matrices that are stored: functions share the one that they all read."""
    constants = result.module.main.all_constants
    return [c.type.kind for c in constants if c.type.shape == (8, 8)]


PRODUCTS = {"scan/body/product", "choice/then_branch/in_branch"}


def test_weights_are_stored_in_bodies(module: Module) -> None:
    """Where they are read, and not as floats that a loop is given."""
    result = quantize_weights(module, bits=8)
    assert converted(result) == PRODUCTS
    assert {node.function for node in result.nodes} == {"scan_body", "choice_then"}
    assert result.bytes_after < result.bytes_before
    assert matrices(result) == [ElemKind.I8]
    blocks = {
        f.name for f, node in result.module.main.all_nodes if isinstance(node, DequantizeBlocksNode)
    }
    assert blocks == {"scan_body", "choice_then"}
    nearly(result, module, 0.05)
    assert converted(inspect(result.module)) == PRODUCTS
    kept = quantize_weights(module, keep=("scan/body/product",))
    assert converted(kept) == {"choice/then_branch/in_branch"}


def test_products_in_bodies_find_their_ranges(module: Module) -> None:
    result = quantize_dynamic(module)
    assert converted(result) == PRODUCTS
    nodes = [node for _, node in result.module.main.all_nodes]
    assert sum(isinstance(node, DynamicQuantizeNode) for node in nodes) == 2
    assert matrices(result) == [ElemKind.I8]
    nearly(result, module, 0.05)


def test_bodies_become_halves(module: Module) -> None:
    result = halve(module, ElemKind.F16, keep=("scan/body/sum",))
    assert converted(result) >= PRODUCTS
    assert "scan/body/sum" not in converted(result)
    assert matrices(result) == [ElemKind.F16]
    nearly(result, module, 0.02)


PLACES = """
net (int64[4] at, int64[4] hidden, float[4] x, bool up) => (float[4] y) {
    place = Cast <to = 1> (at)
    lowest = Constant <value = float {-3.4e38}> ()
    number = Cast <to = 1> (hidden)
    mask = Mul (number, lowest)
    y = If (up) <
        then_branch = a () => (float[4] p) {
            tenth = Constant <value = float {0.1}> ()
            angle = Mul (place, tenth)
            sine = Sin (angle)
            p = Mul (sine, x)
        },
        else_branch = b () => (float[4] q) {
            masked = Add (x, mask)
            q = Softmax (masked)
        }
    >
}
"""


def test_positions_and_masks_stay_exact_in_bodies() -> None:
    """Where they are computed around them: a half has no 3001, and no infinity may come of the lowest f32."""
    module = glowpy.load(model_of(PLACES))
    result = halve(module, ElemKind.F16)
    x = np.array([1, 2, -1, 0.5], np.float32)
    places, hidden = np.array([3001, 4099, 5003, 7]), np.ones(4, np.int64)
    for up in (False, True):
        feeds = {"at": places, "hidden": hidden, "x": x, "up": np.array(up)}
        expected, halves = (
            glowpy.compile(m, "interpreter")(feeds)["y"] for m in (module, result.module)
        )
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(halves, expected, atol=0.01)


def test_profile_leaves_bodies_in_floats_and_says_so(module: Module) -> None:
    statistics = profile(module, [feed()])
    result = convert(module, statistics)
    reasons = {node.origin.split("'")[1]: node.reason for node in result.floats if node.function}
    assert reasons.keys() >= PRODUCTS
    reason = "it is in @scan_body, which a node calls, and profiles have none of its values"
    assert reasons["scan/body/product"] == reason
    with pytest.raises(UserError, match="stays in floats: it is in @scan_body"):
        convert(module, statistics, Options(assert_all=True))


def test_verbs_name_what_stays_in_floats(model: onnx.ModelProto, tmp_path: Path) -> None:
    path, samples, out = (
        str(tmp_path / "net.onnx"),
        str(tmp_path / "in.npz"),
        str(tmp_path / "p.yaml"),
    )
    onnx.save(model, path)
    arrays: dict[str, Any] = {name: array[np.newaxis] for name, array in feed().items()}
    np.savez(samples, **arrays)
    text = run_verb("profile", path, "--inputs", samples, "-o", out)
    assert "nodes in branches and loops have no profile, and stay in floats (%" in text
    figures = json.loads(run_verb("quantize", path, "--profile", out, "--json"))
    assert {node["function"] for node in figures["nodes"]} >= {"scan_body", "choice_then"}
    small = str(tmp_path / "small.onnx")
    text = run_verb("quantize", path, "--weight-only", "4", "-o", small)
    assert "2 of 2 nodes read stored integers" in text
    got = glowpy.InferenceSession(small).run(None, feed())
    assert got[0].shape == (8,)
