"""Rounding without floating point: where it takes the place of floats, and that it gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module
from glowpy.backends.cpu.passes.round_in_integers import RoundInIntegersPass
from glowpy.core.tensor import Array
from glowpy.engine import compilation, evaluate
from glowpy.graph.nodes_gen import SubtractOffsetNode, UncontractedMulNode
from glowpy.graph.parser import parse_module
from glowpy.passes import PassContext


def model(x: str, y: str, lines: str, more: str = "") -> Module:
    """A function with constants of two channels: ratios, and offsets of the result."""
    return parse_module(f"""module {{
  placeholder %x : {x}
  placeholder %y : {y}
{more}  constant %ratio : f32[2] = [0.0123, 1.5]
  constant %offset : f32[2] = [0.0, 7.0]
  function @main {{
    {lines.strip()}
    save(%q, %y)
  }}
}}
""")


def integers(low: int, high: int, dtype: str) -> Array:
    rng = np.random.default_rng(1)
    edges = np.array([low, high, 0, 1, low // 2, high // 2, 61, 20], np.int64)
    other = rng.integers(low, high, 492) >> rng.integers(0, 24, 492)  # of every size
    return np.concatenate([edges, other]).astype(dtype).reshape(250, 2)


CASES = {
    "sums": (
        "i32[250x2]", "u8[250x2]",
        "%z = splat() {value=0.0} : i32[]\n%s = subtract_offset(%x, %z) : f32[250x2]\n"
        "%p = uncontracted_mul(%ratio, %s) : f32[250x2]\n%q = saturate(%p, %offset) : u8[250x2]",
        integers(-(1 << 31), (1 << 31) - 1, "i4"),
    ),
    "small sums": (
        "i32[250x2]", "i16[250x2]",
        "%z = splat() {value=3.0} : i32[]\n%s = subtract_offset(%x, %z) : f32[250x2]\n"
        "%p = uncontracted_mul(%s, %ratio) : f32[250x2]\n%q = saturate(%p, %offset) : i16[250x2]",
        integers(-4000000, 4000000, "i4"),
    ),
    "stored integers": (
        "u8[250x2]", "i8[250x2]",
        "%z = splat() {value=120.0} : u8[]\n%s = subtract_offset(%x, %z) : f32[250x2]\n"
        "%p = uncontracted_mul(%s, %ratio) : f32[250x2]\n%q = saturate(%p, %offset) : i8[250x2]",
        integers(0, 255, "u1"),
    ),
    "sums of the same scale": (
        "i32[250x2]", "u16[250x2]",
        "%z = splat() {value=0.0} : i32[]\n%s = subtract_offset(%x, %z) : f32[250x2]\n"
        "%q = saturate(%s, %offset) : u16[250x2]",
        integers(-(1 << 31), (1 << 31) - 1, "i4"),
    ),
    "stored integers of the same scale": (
        "i16[250x2]", "u8[250x2]",
        "%z = splat() {value=-9.0} : i16[]\n%s = subtract_offset(%x, %z) : f32[250x2]\n"
        "%q = saturate(%s, %offset) : u8[250x2]",
        integers(-(1 << 15), (1 << 15) - 1, "i2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_floats(name: str) -> None:
    x, y, lines, elements = CASES[name]
    expected = glowpy.compile(model(x, y, lines), "interpreter")({"x": elements})["y"]
    module = model(x, y, lines)
    assert RoundInIntegersPass().run(module.main, PassContext(evaluate))
    left = [
        node
        for node in module.main.topological()
        if isinstance(node, UncontractedMulNode | SubtractOffsetNode)
    ]
    assert not [node for node in left if node.result.users]
    result = glowpy.compile(module, "interpreter")({"x": elements})["y"]
    np.testing.assert_array_equal(result, expected)
    assert len(np.unique(expected)) > 20


@pytest.mark.parametrize(
    ("lines", "y", "more", "reason"),
    [
        ("%q = saturate(%x, %offset) : u8[250x2]", "u8[250x2]", "", "more than integers times a number"),
        (
            "%z = splat() {value=0.0} : i32[]\n%s = subtract_offset(%i, %z) : f32[250x2]\n"
            "%p = uncontracted_mul(%s, %x) : f32[250x2]\n%q = saturate(%p, %offset) : u8[250x2]",
            "u8[250x2]", "  placeholder %i : i32[250x2]\n", "the scale or the offset is computed",
        ),
        (
            "%z = splat() {value=0.0} : i32[]\n%s = subtract_offset(%i, %z) : f32[250x2]\n"
            "%p = uncontracted_mul(%s, %ratio) : f32[250x2]\n%q = saturate(%p, %offset) : i32[250x2]",
            "i32[250x2]", "  placeholder %i : i32[250x2]\n", "the result is i32",
        ),
    ],
)  # fmt: skip
def test_what_stays_in_floats(lines: str, y: str, more: str, reason: str) -> None:
    reasons: list[str] = []
    module = model("f32[250x2]", y, lines, more)
    assert not RoundInIntegersPass().run(module.main, PassContext(evaluate, explain=reasons.append))
    assert any(reason in text for text in reasons)


@pytest.mark.parametrize(("target", "floats"), [("cortex-m0", False), ("cortex-m4", True)])
def test_where_there_is_no_floating_point(target: str, floats: bool) -> None:
    x, y, lines, _ = CASES["sums"]
    text = compilation(model(x, y, lines), CpuBackend(CpuOptions(target))).text("lowered")
    assert ("= uncontracted_mul(" in text) is floats
    assert ("= scale_rounded(" in text) is not floats
