"""Attention of the CPU backend: which patterns become one instruction, and that it computes what they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backend import Operation
from glowpy.backends.cpu.insts_gen import CpuAttentionInst
from glowpy.backends.cpu.strategy.attention import FEW_QUERIES, choose_attention
from glowpy.backends.cpu.variant import VARIANTS, variant_named
from glowpy.backends.cpu.verify import mismatch
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, NodeValue
from glowpy.ir.insts_gen import MulInst
from glowpy.llvm.variant import LIBJIT_FOLDER
from glowpy.measuring.peaks import Peaks
from glowpy.measuring.roofline import efforts
from glowpy.support.symbolic import Dim, static, symbol
from tests.unit.backends.lowered_text import edited

Step = Callable[[Function, Any], Any]


def floats(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(list(shape)).standard_normal(shape), np.float32)


def scaled(f: Function, x: Any, number: float = 0.25) -> Node:
    return f.create_mul("scaled", x, f.module.create_constant("c", np.full(1, number, np.float32)))


def added(f: Function, x: Any, shape: Shape = (1, 1, 1, 9), number: float = -np.inf) -> Node:
    mask = np.where(floats(*shape) > 0.8, np.float32(number), floats(*shape))  # type: ignore[arg-type]
    return f.create_add("added", x, f.module.create_constant("m", mask))


def chosen(f: Function, x: Any, shape: Shape = (1, 1, 20, 9), *, keeps: bool = False) -> Node:
    condition = f.module.create_constant("b", floats(*shape) > 0)  # type: ignore[arg-type]
    splat = f.create_splat(
        "lowest", f.module.create_constant("l", np.zeros(1, np.float32)).type, -1e4
    )
    fill = f.create_broadcast("fill", x.result.type, splat) if len(shape) < 4 else splat
    operands = (x, fill) if keeps else (fill, x)
    return f.create_select("chosen", condition, *operands)


def network(
    *steps: Step,
    q: str | Type = "f32[2x6x20x8]",
    shared: int = 6,
    keys: Dim = 9,
    width: int = 5,
    after: Step | None = None,
) -> Module:
    """Attention as exporters write it, with `steps` before softmax, and one `after` it; shared heads are repeated."""
    module = Module()
    f = module.create_function("main")
    query = module.create_placeholder("q", parse_type(q) if isinstance(q, str) else q)
    batch, heads, _, depth = query.type.shape
    kv = [
        module.create_placeholder(name, Type(ElemKind.F32, (batch, keys, shared, size)))
        for name, size in (("k", depth), ("v", width))
    ]
    k, v = (f.create_transpose(one.name, one, (0, 2, 1, 3)).result for one in kv)
    if shared != heads:
        k, v = (_repeated(f, one, heads) for one in (k, v))
    scores: Any = f.create_mat_mul("s", query, f.create_transpose("kt", k, (0, 1, 3, 2)))
    for step in steps:
        scores = step(f, scores)
    weights: Any = f.create_softmax("p", scores, scores.result.type.rank - 1)
    if after is not None:
        weights = after(f, weights)
    result = f.create_mat_mul("o", weights, v)
    turned = f.create_transpose("turned", result, (0, 2, 1, 3))
    f.create_save("save", turned, module.create_placeholder("y", turned.result.type))
    return module


def _repeated(f: Function, x: NodeValue, heads: Any) -> NodeValue:
    batch, shared, rows, columns = x.type.shape
    whole = f.create_reshape("five", x.type.with_shape((batch, shared, 1, rows, columns)), x)
    many = x.type.with_shape((batch, shared, heads // shared, rows, columns))
    repeated = f.create_broadcast("many", many, whole)
    return f.create_reshape(
        "heads", x.type.with_shape((batch, heads, rows, columns)), repeated
    ).result


def attentions(module: Module) -> list[CpuAttentionInst]:
    program = compilation(module, "cpu").program
    return [inst for inst in program.ir.instructions if isinstance(inst, CpuAttentionInst)]


def check(module: Module, **extents: int) -> None:
    """Both backends, this processor and others of its family, agree, with the same bits on any number of threads."""
    program = compilation(module, "cpu").program
    assert any(isinstance(inst, CpuAttentionInst) for inst in program.ir.instructions)
    types = {p.name: p.type for p in module.placeholders if p.name != "y"}
    shapes = {
        name: [extents.get(str(size), size) for size in type.shape] for name, type in types.items()
    }
    inputs = {name: floats(*static(shape)) for name, shape in shapes.items()}
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    backends = [CpuBackend(CpuOptions(threads=threads)) for threads in (1, 2, 3, 7)]
    results = [glowpy.compile(module, backend)(inputs)["y"] for backend in backends]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=2e-6)
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()
    by_rules = glowpy.InterpreterBackend().function(program)(inputs)["y"]
    np.testing.assert_allclose(results[0], by_rules, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (scaled, added),
        (added, lambda f, x: added(f, x, (2, 6, 20, 9))),
        (scaled, lambda f, x: added(f, x, (20, 9), -1e9)),
        (lambda f, x: added(f, x, (20, 1)),),
        (scaled, chosen),
        (lambda f, x: chosen(f, x, (2, 1, 1, 9), keeps=True),),
    ],
)
def test_scales_and_masks(steps: tuple[Step, ...]) -> None:
    check(network(*steps))


@pytest.mark.parametrize("queries", [3, 20])
def test_scores_that_differ_by_billions(queries: int) -> None:
    """The largest one less itself is 0, however large it is: not what its product with the scale was rounded by."""
    module = network(lambda f, x: scaled(f, x, 0.3), q=f"f32[2x6x{queries}x8]", keys=40)
    inputs = {
        "q": 1e5 * floats(2, 6, queries, 8),
        "k": 1e5 * floats(2, 40, 6, 8),
        "v": floats(2, 40, 6, 5),
    }
    expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    for variant in ("", "x86-64-v3", "x86-64-v2"):
        result = glowpy.compile(module, CpuBackend(CpuOptions(cpu=variant)))(inputs)["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)


def triangle(f: Function, x: Any, diagonal: int = 0, number: float = -np.inf) -> Node:
    rows, columns = np.indices(x.result.type.extents[-2:])
    seen = columns <= rows + diagonal
    mask = np.where(seen, np.float32(0), np.float32(number))
    return f.create_add("triangle", x, f.module.create_constant("t", mask))


def chosen_triangle(f: Function, x: Any, number: float = -np.inf) -> Node:
    rows, columns = np.indices((1, 1, *x.result.type.extents[-2:]))[2:]
    condition = f.module.create_constant("t", columns <= rows)
    fill = f.module.create_constant("n", np.full(1, number, np.float32))
    return f.create_select("triangle", condition, x, fill)


def hides_first(f: Function, x: Any) -> Node:
    mask = np.zeros(x.result.type.extents[-1], np.float32)
    mask[0] = -np.inf
    return f.create_add("hidden", x, f.module.create_constant("h", mask))


@pytest.mark.parametrize(
    ("steps", "causal"),
    [
        ((scaled, triangle), True),
        ((lambda f, x: triangle(f, x, 3, -3e38),), True),
        ((added, lambda f, x: triangle(f, x, 3)), True),
        (
            (hides_first, lambda f, x: triangle(f, x, 0, -3e38)),
            False,
        ),  # the first sees what comes later
        ((lambda f, x: triangle(f, x, 0, -1e4),), False),  # far from hiding what scores well
        ((lambda f, x: triangle(f, x, -1),), False),  # the first sees nothing
        ((chosen_triangle,), True),
        ((lambda f, x: chosen_triangle(f, x, np.nan),), False),  # all of a row become NaN
        ((lambda f, x: chosen_triangle(f, x, np.nan), triangle), False),  # and stay so
        (
            (triangle, lambda f, x: chosen(f, x, (1, 1, 150, 150))),
            False,
        ),  # what is hidden comes back
        ((lambda f, x: added(f, x, (150, 150)),), False),
    ],
)
def test_masks_that_hide_what_comes_later(steps: tuple[Step, ...], causal: bool) -> None:
    module = network(*steps, q="f32[1x2x150x8]", shared=2, keys=150 if added not in steps else 9)
    (inst,) = attentions(module)
    assert inst.causal == causal
    check(module)


@pytest.mark.parametrize(
    ("q", "shared", "keys", "width"),
    [
        ("f32[1x1x1x1]", 1, 1, 1),
        ("f32[1x8x1x64]", 2, 300, 64),
        ("f32[2x4x3x16]", 4, 33, 16),
        ("f32[1x2x77x24]", 2, 77, 40),
        ("f32[1x2x300x16]", 1, 150, 32),
    ],
)
def test_shapes(q: str, shared: int, keys: int, width: int) -> None:
    check(network(scaled, q=q, shared=shared, keys=keys, width=width))


def test_what_is_scaled_before_its_heads_are_transposed() -> None:
    """As where queries and keys are multiplied by the root of the scale, and turned by their positions before."""
    module = Module()
    f = module.create_function("main")
    q, k, v = (module.create_placeholder(name, parse_type("f32[2x20x6x8]")) for name in "qkv")
    query = f.create_transpose("qt", scaled(f, q), (0, 2, 1, 3))
    key = f.create_transpose("kt", scaled(f, k, 2.0), (0, 2, 3, 1))
    weights = f.create_softmax("p", f.create_mat_mul("s", query, key), 3)
    result = f.create_mat_mul("o", weights, f.create_transpose("vt", v, (0, 2, 1, 3)))
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    (inst,) = attentions(module)
    assert inst.scale == 0.5
    assert not any(
        isinstance(inst, MulInst) for inst in compilation(module, "cpu").program.ir.instructions
    )
    check(module)


@pytest.mark.parametrize("kind", [ElemKind.F16, ElemKind.BF16])
@pytest.mark.parametrize("is_softmax_wide", [False, True])
def test_halves_are_fused_in_f32(kind: ElemKind, is_softmax_wide: bool) -> None:
    """Scores and weights are not rounded, unless the code is to be exact; many exporters widen softmax alone."""
    module = Module()
    f = module.create_function("main")
    type = Type(kind, (2, 3, 20, 8))
    q, k, v = (module.create_placeholder(name, type) for name in "qkv")
    mask = module.create_constant("mask", floats(20, 20).astype(kind.dtype))
    number = module.create_constant("number", np.full(1, 0.25, kind.dtype))
    scores: Any = f.create_mat_mul("s", q, f.create_transpose("kt", k, (0, 1, 3, 2)))
    scores = f.create_add("masked", f.create_mul("scaled", scores, number), mask)
    if is_softmax_wide:
        scores = f.create_convert("wide", scores.result.type.with_kind(ElemKind.F32), scores)
    weights: Any = f.create_softmax("p", scores, 3)
    if is_softmax_wide:
        weights = f.create_convert("narrow", weights.result.type.with_kind(kind), weights)
    result = f.create_mat_mul("o", weights, v)
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    assert len(attentions(module)) == 1
    exact = compilation(module, CpuBackend(CpuOptions(exact=True))).program.ir
    assert not any(isinstance(inst, CpuAttentionInst) for inst in exact.instructions)
    inputs = {name: floats(2, 3, 20, 8).astype(kind.dtype) for name in "qkv"}
    actual, expected = (
        np.asarray(glowpy.compile(module, name)(inputs)["y"], np.float32)
        for name in ("cpu", "interpreter")
    )
    bound = 0.03 if kind is ElemKind.BF16 else 0.004
    np.testing.assert_allclose(actual, expected, rtol=bound, atol=bound)


def hides_all(f: Function, x: Any) -> Node:
    """Of the first five queries."""
    mask = np.where(np.arange(x.result.type.extents[2]) < 5, np.float32(-np.inf), np.float32(0))
    return f.create_add("a", x, f.module.create_constant("all", mask[:, np.newaxis]))


def test_a_row_that_sees_no_key_is_nan() -> None:
    module = network(hides_all)
    inputs = {p.name: floats(*p.type.extents) for p in module.placeholders if p.name != "y"}
    lines = glowpy.compile(module, "cpu")(inputs)["y"]
    assert np.isnan(lines[:, :5]).all()
    assert np.isfinite(lines[:, 5:]).all()


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFFFFFFF])
def test_every_nan_stays_one(bits: int) -> None:
    """Its last bits are no part of a number: memory that is filled with ones is NaN as well."""
    module = network(scaled)
    inputs = {p.name: floats(*p.type.extents) for p in module.placeholders if p.name != "y"}
    inputs["q"].view(np.uint32)[0, 0, 3, 2] = bits
    lines = glowpy.compile(module, "cpu")(inputs)["y"]
    assert np.isnan(lines[0, 3, 0]).all()
    assert np.isfinite(lines[0, 4, 0]).all()


def without_nan(f: Function, x: Any) -> Node:
    zero = f.module.create_constant("zero", np.zeros(1, np.float32))
    return f.create_select("safe", f.create_is_nan("test", x), zero, x)


def without_first(f: Function, x: Any) -> Node:
    """As ONNX defines Attention: weights of queries that a mask hides all from are 0."""
    zero = f.module.create_constant("zero", np.zeros(1, np.float32))
    test = f.module.create_constant("first", np.arange(x.result.type.extents[2])[:, np.newaxis] < 5)
    return f.create_select("safe", test, zero, x)


@pytest.mark.parametrize("after", [without_nan, without_first])
@pytest.mark.parametrize("queries", [20, 3])
def test_a_row_that_sees_no_key_is_zero(after: Step, queries: int) -> None:
    check(network(scaled, hides_all, q=f"f32[2x6x{queries}x8]", after=after))


@pytest.mark.parametrize("queries", [20, 3])
def test_a_row_that_is_nan_is_zero_times_the_values(queries: int) -> None:
    module = network(hides_all, after=without_nan, q=f"f32[1x2x{queries}x8]", shared=2)
    inputs = {p.name: floats(*p.type.extents) for p in module.placeholders if p.name != "y"}
    inputs["q"][0, 0, 2, 1], inputs["q"][0, 1, -1, 1] = np.nan, np.inf
    inputs["v"][0, 3, 1, 0] = -np.inf
    with np.errstate(invalid="ignore"):
        expected = glowpy.compile(module, "interpreter")(inputs)["y"]
    result = glowpy.compile(module, "cpu")(inputs)["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)
    assert np.isnan(expected).any()
    assert (expected == 0).any()


def capped(f: Function, x: Any) -> Node:
    cap = f.module.create_constant("cap", np.full(1, 3, np.float32))
    return f.create_mul("capped", f.create_tanh("tanh", f.create_div("low", x, cap)), cap)


def test_scores_that_are_capped() -> None:
    module = network(scaled, capped, added)
    (inst,) = attentions(module)
    assert (inst.softcap, inst.scale) == (3.0, 0.25)
    check(module)
    check(network(capped, q="f32[2x6x2x8]"))
    check(network(lambda f, x: f.create_tanh("t", x)))


@pytest.mark.parametrize(
    ("steps", "chooses"),
    [
        ((chosen, added), (True, False)),
        ((added, chosen), (False, True)),
        ((chosen, lambda f, x: chosen(f, x, (2, 1, 1, 9), keeps=True)), (True, True)),
    ],
)
def test_masks_that_choose_beside_others(
    steps: tuple[Step, ...], chooses: tuple[bool, bool]
) -> None:
    module = network(*steps)
    (inst,) = attentions(module)
    assert (inst.bias_chooses, inst.mask_chooses) == chooses
    check(module)


def test_open_extents() -> None:
    queries, keys = symbol("n", 1, 512), symbol("m", 1, 512)
    q = Type(ElemKind.F32, (1, 2, queries, 8))
    module = network(scaled, q=q, shared=1, keys=keys)
    check(module, n=50, m=21)
    check(module, n=1, m=200)


def test_without_keys_results_are_zero() -> None:
    queries, keys = symbol("n", 1, 512), symbol("m", 0, 512)
    module = network(scaled, q=Type(ElemKind.F32, (1, 2, queries, 8)), shared=1, keys=keys)
    check(module, n=50, m=0)
    check(module, n=1, m=0)


@pytest.mark.parametrize(
    "steps",
    [
        (added, scaled),
        (added, capped),
        (capped, capped),
        (added, added, added),
        (lambda f, x: f.create_exp("e", x),),
    ],
)
def test_what_is_left_alone(steps: tuple[Step, ...]) -> None:
    assert not attentions(network(*steps))


def test_what_was_decided_is_explained() -> None:
    stages = compilation(network(scaled), "cpu")
    text = stages.text("strategy")
    assert text.startswith("%o = cpu_attention: heads 12, queries 20, keys 9, depth 8, width 5\n")
    assert len(re.findall(r"^  \*  \d+x\d+ .* \+0\.0 %  \w+$", text, re.M)) == 1
    assert "(overridden)" not in text
    module = edited(stages, {r"(cpu_attention.*\bblock=)\d+": r"\g<1>4"})
    assert "block=4, " in (text := compilation(module, "cpu").text("strategy"))
    assert "(overridden)" in text


def test_few_queries_have_no_tiles() -> None:
    """Each is computed alone, as dot products with rows of keys; only the block of keys is a decision then."""
    text = compilation(network(scaled, q="f32[2x6x4x8]", width=70), "cpu").text("strategy")
    name, decided, units = text.splitlines()
    assert name == "%o = cpu_attention: heads 12, queries 4, keys 9, depth 8, width 70"
    assert decided == "  block=9"
    assert re.match(r"  \d+ units, inner loops: dot 1x1", units)
    kernel = (LIBJIT_FOLDER / "src" / "dot_attention.c").read_text(encoding="utf-8")
    assert f"#define FEW_QUERIES {FEW_QUERIES}\n" in kernel


def test_scores_are_never_all_in_memory() -> None:
    plan = compilation(
        network(scaled, q="f32[1x2x2000x16]", shared=2, keys=2000, width=16), "cpu"
    ).program.plan
    assert plan.activations.size < 4 * 2 * 2000 * 2000 / 10


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_tiles_fit_into_registers(variant: Any) -> None:
    machine = variant.machine_for(ElemKind.F32)
    for heads, queries, keys in (
        (1, 1, 1),
        (12, 128, 128),
        (8, 1, 4096),
        (6, 1500, 1500),
        (64, 49, 49),
    ):
        chosen = choose_attention(heads, queries, keys, 64, 64, machine)
        vectors = chosen.group // machine.lanes
        assert chosen.rows % chosen.group == 0 == chosen.group % chosen.tile_rows
        assert 1 <= chosen.units <= 15
        most = max(machine.vector_registers, 2 * vectors + 2)
        assert max(chosen.tile_keys, chosen.tile_rows) * vectors + vectors < most


def test_groups_of_another_processor_are_refused() -> None:
    program = compilation(network(scaled), CpuBackend(CpuOptions(cpu="x86-64-v3"))).program
    (inst,) = (inst for inst in program.ir.instructions if isinstance(inst, CpuAttentionInst))
    operation = Operation.of_inst(inst)
    assert mismatch(operation, variant_named("x86_64_v3")) == ""
    for group in (12, 72):
        other = replace(operation, attrs={**operation.attrs, "group": group})
        assert "expected a multiple of 8 queries" in mismatch(other, variant_named("x86_64_v3"))


def test_both_products_count_as_work() -> None:
    program = compilation(network(scaled), "cpu").program
    assert sum(effort.macs for effort in efforts(program, {})) == 2 * 6 * 20 * 9 * (8 + 5)


def test_the_roof_counts_a_weight_of_every_score() -> None:
    program = compilation(network(scaled), "cpu").program
    (effort,) = [one for one in efforts(program, {}) if one.macs]
    assert effort.between == 2 * 6 * 20 * 9 * 9
    peaks = Peaks(1, 1e9, ((1, 1e12), (2, 1e12)), ((1, 1e12), (2, 1e12)))
    computing = effort.computing(peaks)
    assert computing == pytest.approx(2 * (effort.macs + effort.between) / 1e9)
