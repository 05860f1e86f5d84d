"""Networks with symbolic extents: compiled once, they mean the same as numpy, and on both backends, at any extents."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of, shape_at
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Operand, Placeholder, value_of
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.unit.networks import SymbolicNetwork, arrays_for, execute, same_numbers, unoptimized

SYMBOLS = {"b": symbol("b", 1, 4), "seq": symbol("seq", 1, 64), "past": symbol("past", 0, 100)}
EXTENTS = [(1, 1, 0), (4, 64, 100), (2, 7, 1), (3, 13, 5), (1, 31, 64), (2, 12, 16)]

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((48, 100)).astype(np.float32)
FILTER = RNG.standard_normal((20, 3, 3, 8)).astype(np.float32)
BIAS = np.arange(20, dtype=np.float32)

Network = Callable[[Function, Mapping[str, Placeholder]], Operand]


def _windows(x: Array, stride: int, fill: float) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return views[:, ::stride, ::stride]


def _convolved(x: Array, stride: int) -> Array:
    return np.asarray(np.einsum("nhwcij,oijc->nhwo", _windows(x, stride, 0), FILTER) + BIAS)


def _attended(q: Array, k: Array, v: Array) -> Array:
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(np.float64), k)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    chances = powers / powers.sum(-1, keepdims=True)
    sums = np.einsum("bhqk,bhkd->bqhd", chances, v)
    return np.asarray(sums.reshape(*sums.shape[:2], -1))


def _product(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    product = f.create_mat_mul("product", p["x"], f.module.create_constant("w", WEIGHTS))
    return f.create_relu("relu", product)


def _convolution(stride: int) -> Network:
    def build(f: Function, p: Mapping[str, Placeholder]) -> Operand:
        weights, bias = f.module.create_constant("w", FILTER), f.module.create_constant("b", BIAS)
        return f.create_convolution(
            "conv", p["x"], weights, bias, (3, 3), (stride, stride), (1, 1, 1, 1), (1, 1), 1
        )

    return build


def _attention(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    keys = f.create_transpose("keys", p["k"], (0, 1, 3, 2))
    chances = f.create_softmax("chances", f.create_mat_mul("scores", p["q"], keys), 3)
    sums = f.create_mat_mul("sums", chances, p["v"])
    rows = f.create_transpose("rows", sums, (0, 2, 1, 3))
    return f.create_reshape("joined", parse_type("f32[b x seq x 64]", SYMBOLS), rows)


def _row(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    keys = f.create_transpose("keys", p["k"], (0, 2, 1))
    scores = f.create_mat_mul("scores", p["q"], keys)
    return f.create_mat_mul("sums", f.create_relu("relu", scores), p["k"])


def _pool(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    return f.create_max_pool("pool", p["x"], (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False)


def _mean(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    return f.create_reduce_mean("mean", p["x"], (1,))


CODES, ZEROS = (
    RNG.integers(-8, 8, (48, 100)).astype(np.int8),
    RNG.integers(-3, 3, (3, 100)).astype(np.int8),
)
SCALES = RNG.uniform(0.01, 0.1, (3, 100)).astype(np.float32)


def _in_blocks(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    """Weights of 4 bits, and rows of 8 bits that are computed, as those of a table that were looked up."""
    w, scale, zero = (f.module.create_constant("w", array) for array in (CODES, SCALES, ZEROS))
    product = f.create_mat_mul(
        "product", p["x"], f.create_dequantize_blocks("w", w, scale, zero, 0, 16, 4)
    )
    shape = p["x"].type.shape
    scales = f.create_slice(
        "scales", p["x"].type.with_shape((*shape[:-1], 3)), p["x"], (0, 0, 0), (1, 1, 1)
    )
    codes, zeros = (
        f.create_convert("codes", value.type.with_kind(ElemKind.I8), value)
        for value in (value_of(p["x"]), value_of(scales))
    )
    rows = f.create_dequantize_blocks("rows", codes, scales, zeros, 2, 16, 8)
    return f.create_concat("both", [product, rows], 2)


def _unblocked(x: Array) -> Array:
    places = np.arange(48) // 16
    weights = (CODES - ZEROS[places].astype(np.float32)) * SCALES[places]
    codes = x.astype(np.int8).astype(np.float32)
    return np.concatenate([x @ weights, (codes - codes[..., places]) * x[..., places]], -1)


IMAGE = {"x": "f32[b x seq x past+8 x 8]"}
CASES: dict[str, tuple[Network, dict[str, str], Callable[..., Array]]] = {
    "product": (_product, {"x": "f32[b x seq x 48]"}, lambda x: np.maximum(x @ WEIGHTS, 0)),
    "convolution": (_convolution(1), IMAGE, lambda x: _convolved(x, 1)),
    "strided convolution": (_convolution(2), IMAGE, lambda x: _convolved(x, 2)),
    "attention": (
        _attention,
        {
            "q": "f32[b x 4 x seq x 16]",
            "k": "f32[b x 4 x past+seq x 16]",
            "v": "f32[b x 4 x past+seq x 16]",
        },
        _attended,
    ),
    "blocks": (_in_blocks, {"x": "f32[b x seq x 48]"}, _unblocked),
    "row": (
        _row,
        {"q": "f32[b x 1 x 16]", "k": "f32[b x seq x 16]"},
        lambda q, k: np.maximum(q @ k.transpose(0, 2, 1), 0).astype(np.float64) @ k,
    ),
    "pool": (_pool, IMAGE, lambda x: _windows(x, 2, -np.inf).max((-1, -2))),
    "mean": (_mean, IMAGE, lambda x: x.mean(1, keepdims=True, dtype=np.float64)),
}


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_one_compilation_serves_all_extents(case: str, backend: str) -> None:
    build, types, reference = CASES[case]
    module = Module()
    inputs = {
        name: module.create_placeholder(name, parse_type(text, SYMBOLS))
        for name, text in types.items()
    }
    f = module.create_function("main")
    result = value_of(build(f, inputs))
    f.create_save("save", result, module.create_placeholder("y", result.type))
    compiled = glowpy.compile(module, backend, CompileOptions(verify_each=True))
    for numbers in EXTENTS:
        extents = dict(zip(SYMBOLS, numbers, strict=True))
        arrays = {
            name: RNG.standard_normal(shape_at(p.type.shape, extents)).astype(np.float32)
            for name, p in inputs.items()
        }
        expected = reference(**arrays)
        actual = compiled(arrays)["y"]
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4, err_msg=str(extents))


def test_a_product_has_any_number_of_rows() -> None:
    """There are tiles for whatever is left of them."""
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[1 x seq x 48]", SYMBOLS))
    f = module.create_function("main")
    result = value_of(_product(f, {"x": x}))
    f.create_save("save", result, module.create_placeholder("y", result.type))
    compiled = glowpy.compile(module)
    rows = RNG.standard_normal((1, 64, 48)).astype(np.float32)
    expected = np.maximum(rows @ WEIGHTS, 0)
    for count in range(1, 65):
        actual = compiled({"x": rows[:, :count]})["y"]
        np.testing.assert_allclose(actual, expected[:, :count], rtol=1e-4, atol=1e-4)


def test_extents_outside_their_bounds_are_refused() -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[seq x 2]", SYMBOLS))
    y = module.create_placeholder("y", parse_type("f32[seq x 2]", SYMBOLS))
    f = module.create_function("main")
    f.create_save("save", f.create_add("sum", x, y), module.create_placeholder("out", x.type))
    compiled = glowpy.compile(module)
    ones = np.ones((65, 2), np.float32)
    with pytest.raises(UserError, match=r"expected 'seq' in 1\.\.64, got 65"):
        compiled({"x": ones, "y": ones})
    with pytest.raises(UserError, match=r"expected 'seq' in 1\.\.64, got 0"):
        compiled({"x": ones[:0], "y": ones[:0]})
    with pytest.raises(UserError, match=r"'y': expected the shape \[seq x 2\], got \[4 x 2\]"):
        compiled({"x": ones[:3], "y": ones[:4]})
    with pytest.raises(UserError, match="expected the extent of 'seq'"):
        compiled.instance()
    instance = compiled.instance(seq=3)
    instance["x"][...] = 1
    instance["y"][...] = 2
    instance.run()
    np.testing.assert_array_equal(instance["out"], np.full((3, 2), 3))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_symbol_with_two_ranges_is_refused(backend: str) -> None:
    """More rows than there was memory for were taken, as the other input allowed for them."""
    module = Module()
    f = module.create_function("main")
    for name, high in (("x", 64), ("y", 2)):
        port = module.create_placeholder(
            name, parse_type("f32[n x 4]", {"n": symbol("n", 1, high)})
        )
        f.create_save(
            "save", f.create_exp("e", port), module.create_placeholder(f"{name}2", port.type)
        )
    with pytest.raises(UserError, match=r"expected one range for 'n', got 1\.\.64 and 1\.\.2"):
        glowpy.compile(module, backend)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_an_input_that_nothing_reads_may_say_what_symbols_are(backend: str) -> None:
    square = parse_type("f32[past*past]", {"past": symbol("past", 1, 9)})

    def module(*others: str) -> Module:
        m = Module()
        for name in others:
            m.create_placeholder(name, parse_type("f32[2*past]", {"past": symbol("past", 1, 9)}))
        f, x = m.create_function("main"), m.create_placeholder("x", square)
        f.create_save("save", f.create_relu("relu", x), m.create_placeholder("y", square))
        return m

    with pytest.raises(UserError, match="no input's shape says what 'past' is"):
        glowpy.compile(module(), backend)
    ones = np.ones(9, np.float32)
    outputs = glowpy.compile(module("only"), backend)({"only": ones[:6], "x": ones})
    np.testing.assert_array_equal(outputs["y"], ones)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_networks_agree_at_random_extents(rng: random.Random) -> None:
    """The CPU's optimized code, and the interpreter on the network as it stands."""
    module = SymbolicNetwork(rng).module
    reference = unoptimized(module)
    compiled = glowpy.compile(module, "cpu", CompileOptions(verify_each=True, cache=False))
    for extents in (
        {"m": 1, "n": 0},
        {"m": 5, "n": 4},
        {"m": rng.randint(1, 5), "n": rng.randint(0, 4)},
    ):
        inputs = arrays_for(module.placeholders, 3, extents)
        expected = execute(reference, inputs)
        same_numbers(compiled({name: inputs[name] for name in compiled.inputs}), expected)
        assert (
            extents_of({"in_0": (module.placeholders[0].type.shape, inputs["in_0"].shape)})
            == extents
        )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", ["n x m", "n x m x 32", "2 x n x m", "n x 64"])
def test_loops_that_are_cut_into_units_may_have_nothing_to_do(shape: str, threads: int) -> None:
    symbols = {name: symbol(name, 0, 5000) for name in "nm"}
    type = parse_type(f"f32[{shape}]", symbols)
    module = Module()
    f, x = module.create_function("main"), module.create_placeholder("x", type)
    y = module.create_placeholder("y", type)
    turned = f.create_transpose("turned", f.create_exp("exp", x), tuple(reversed(range(type.rank))))
    z = module.create_placeholder("z", turned.result.type)
    f.create_save("save", f.create_relu("relu", x), y)
    f.create_save("save_turned", turned, z)
    function = glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))
    for n, m in [(0, 8), (8, 0), (0, 0), (1, 1), (700, 3), (3, 700)]:
        ones = np.ones(shape_at(type.shape, {"n": n, "m": m}), np.float32)
        outputs = function({"x": ones})
        np.testing.assert_array_equal(outputs["y"], ones)
        assert outputs["z"].shape == ones.T.shape
