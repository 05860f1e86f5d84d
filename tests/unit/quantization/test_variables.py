"""Networks with variables are profiled, over samples that go on from each other, and quantized."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.exporter import save
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.quantization import ByProfile, profile, quantize
from glowpy.quantization.fidelity import fidelities
from glowpy.support.errors import UserError

CELL = """module {
  placeholder %x : f32[2x4]
  placeholder %y : f32[2x4]
  variable %h : f32[2x4] = splat 0.5
  variable %still : f32[4] = [1.0, 0.75, 1.25, 1.0]
  variable %v : f32[4x4] = splat 0.25
  constant %w : f32[4x4] = [0.1, 0.2, 0.3, 0.4, 0.1, -0.2, 0.3, 0.4, 0.1, 0.2, -0.3, 0.4, 0.1, 0.2, 0.3, -0.4]
  function @main {
    %p = mat_mul(%x, %w) : f32[2x4]
    %q = mat_mul(%h, %v) : f32[2x4]
    %a = add(%p, %q) : f32[2x4]
    %s = mul(%a, %still) : f32[2x4]
    %t = tanh(%s) : f32[2x4]
    save(%t, %h)
    save(%s, %y)
  }
}
"""
CACHE = """module {
  symbol past 0..8
  placeholder %x : f32[1x4]
  placeholder %y : f32[1x4]
  variable %cache : f32[past x 4] in f32[12x4]
  constant %w : f32[4x4] = [0.1, 0.2, 0.3, 0.4, 0.1, -0.2, 0.3, 0.4, 0.1, 0.2, -0.3, 0.4, 0.1, 0.2, 0.3, -0.4]
  function @main {
    %k = mat_mul(%x, %w) : f32[1x4]
    %all = concat(%cache, %k) {axis=0} : f32[past+1 x 4]
    %turned = transpose(%all) {shuffle=[1,0]} : f32[4 x past+1]
    %scores = mat_mul(%x, %turned) : f32[1 x past+1]
    %mixed = mat_mul(%scores, %all) : f32[1x4]
    save(%all, %cache)
    save(%mixed, %y)
  }
}
"""


def samples(count: int, rows: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal((rows, 4)).astype(np.float32)} for _ in range(count)]


def outputs(module: Module, given: list[dict[str, Array]], backend: str) -> list[Array]:
    function = glowpy.compile(module, backend)
    state = function.state()
    return [function(sample, state=state)["y"] for sample in given]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(("text", "rows"), [(CELL, 2), (CACHE, 1)])
def test_networks_with_variables_are_quantized(text: str, rows: int, backend: str) -> None:
    module, given = parse_module(text), samples(8, rows)
    quantized = quantize(module, profile(module, given, steps=8, backend=backend))
    assert [v.type for v in quantized.variables] == [v.type for v in module.variables]
    assert any(
        node.result.type.kind.value == "i32" for node in quantized.main.nodes if node.results
    )
    expected, got = outputs(module, given, backend), outputs(quantized, given, backend)
    largest = max(np.abs(array).max() for array in expected)
    for array, reference in zip(got, expected, strict=True):
        np.testing.assert_allclose(array, reference, atol=0.08 * largest)


def test_variables_go_on_within_a_sequence() -> None:
    module, given = parse_module(CELL), samples(6, 2)
    apart, together = profile(module, given), profile(module, given, steps=6)
    assert (apart["h"].low, apart["h"].high) == (0.5, 0.5)
    assert together["h"].low < 0
    contents: list[Array] = [np.full((2, 4), 0.5, np.float32)]
    function = glowpy.compile(module, "interpreter")
    state = function.state()
    for sample in given[:-1]:
        function(sample, state=state)
        contents.append(state["h"].copy())
    assert together["h"].low == pytest.approx(min(array.min() for array in contents), rel=1e-5)
    assert together["h"].high == pytest.approx(max(array.max() for array in contents), rel=1e-5)
    assert profile(module, given, steps=6, start=together).text() == together.text()


def test_a_sequence_is_continued_where_others_ended() -> None:
    """What was run before is run again for what it leaves, and counts once."""
    module, given = parse_module(CELL), samples(5, 2)
    first = profile(module, given[:3], steps=5)
    both = profile(module, given, steps=5, start=first)
    assert both.text() == profile(module, given, steps=5).text()
    again = [given[0], given[0]]
    assert len(profile(module, again, steps=1).samples) == 1
    assert len(profile(module, again, steps=2).samples) == 2
    with pytest.raises(UserError, match="at least one step"):
        profile(module, given, steps=0)


def test_they_are_compared_value_by_value() -> None:
    """Each sample finds variables as before the first run, in floats as on integers."""
    module, given = parse_module(CELL), samples(8, 2)
    method = ByProfile(profile(module, given, steps=8, backend="interpreter"))
    fidelity = fidelities(module, method, given[:3])
    assert fidelity["h"].decibels > 40
    assert fidelity["v"].decibels > 40
    assert fidelity["output y"].decibels > 20


def test_commands_take_them(tmp_path: Path) -> None:
    model, folder = tmp_path / "net.glow", tmp_path / "samples"
    model.write_text(CELL)
    folder.mkdir()
    for index, sample in enumerate(samples(4, 2)):
        np.savez(folder / f"{index}.npz", **sample)  # type: ignore[arg-type]
    measured, written = str(tmp_path / "p.yaml"), str(tmp_path / "q.glow")
    said = ["--inputs", str(folder), "--steps", "4", "-o", measured]
    streams = io.StringIO(), io.StringIO()
    assert run(["profile", str(model), *said], *streams) == 0
    assert run(["quantize", str(model), "--profile", measured, "-o", written], *streams) == 0
    assert "variable %h : f32[2x4] = splat 0.5" in Path(written).read_text()


def test_a_quantized_network_with_variables_is_exported(tmp_path: Path) -> None:
    module, given = parse_module(CELL), samples(4, 2)
    quantized = quantize(module, profile(module, given, steps=4, backend="interpreter"))
    save(quantized, tmp_path / "q.onnx")
    session = glowpy.InferenceSession(tmp_path / "q.onnx", backend="interpreter", state="auto")
    expected = outputs(quantized, given, "interpreter")
    for sample, reference in zip(given, expected, strict=True):
        np.testing.assert_allclose(session.run(["y"], sample)[0], reference, atol=0.02)
