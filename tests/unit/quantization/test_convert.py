"""Conversion: which nodes become integer, and of which types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest

import glowpy
from glowpy import quantization
from glowpy.backend import Operation
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import NODES
from glowpy.quantization import MinMax, Options, Percentile, Profile, Schema, Statistics

SHAPE = (2, 6, 6, 4)
NODE_CLASSES = {cls.SCHEMA.mnemonic: cls for cls in NODES}


def conv(f: Function, name: str, input: Operand, channels: tuple[int, int], size: int) -> Operand:
    rng = np.random.default_rng(len(name))
    weights = rng.normal(0, 0.4, (channels[1], size, size, channels[0])).astype(np.float32)
    bias = rng.normal(0, 0.4, channels[1]).astype(np.float32)
    return f.create_convolution(
        name, input, f.module.create_constant(f"{name}_w", weights),
        f.module.create_constant(f"{name}_b", bias),
        (size, size), (1, 1), (size // 2,) * 4, (1, 1), 1,
    )  # fmt: skip


def saved(f: Function, result: Operand) -> glowpy.Module:
    value = value_of(result)
    f.create_save("save", value, f.module.create_placeholder("y", value.type))
    return f.module


def started(shape: tuple[int, ...] = SHAPE) -> tuple[Function, NodeValue]:
    module = glowpy.Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, shape))
    return module.create_function("main"), x.value


@cache
def network() -> glowpy.Module:
    """Everything that joins an island: activations, pools, moves, a residual sum, a concatenation."""
    f, x = started()
    first = f.create_relu("relu", conv(f, "first", x, (4, 8), 3))
    pool = f.create_max_pool("pool", first, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1))
    wave = f.create_sigmoid("wave", conv(f, "second", pool, (8, 8), 3))
    total = f.create_add("total", conv(f, "third", wave, (8, 8), 1), pool)
    limited = f.create_clip("limited", total, 0.0, 3.0)
    both = f.create_concat(
        "both", [limited, f.create_relu("other", conv(f, "fourth", wave, (8, 4), 1))], 3
    )
    mean = f.create_avg_pool("mean", both, (3, 3), (3, 3), (0, 0, 0, 0), (1, 1), False, False)
    flat = f.create_reshape("flat", Type(ElemKind.F32, (2, 12)), mean)
    rng = np.random.default_rng(1)
    weights = f.module.create_constant("w", rng.normal(size=(12, 5)).astype(np.float32))
    bias = f.module.create_constant("b", rng.normal(size=5).astype(np.float32))
    return saved(f, f.create_fully_connected("dense", flat, weights, bias))


def samples(shape: tuple[int, ...] = SHAPE, count: int = 6) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


@cache
def profiled() -> Profile:
    return quantization.profile(network(), samples(), backend="interpreter")


def run(module: glowpy.Module, sample: dict[str, Array], backend: str = "interpreter") -> Array:
    return glowpy.compile(module, backend)(sample)["y"]


def kinds(module: glowpy.Module) -> Counter[str]:
    return Counter(node.SCHEMA.mnemonic for node in module.main.nodes)


def profile_of(module: glowpy.Module) -> Profile:
    (x,) = module.main.parameters
    return quantization.profile(module, samples(x.type.extents), backend="interpreter")


def floats_of(module: glowpy.Module, options: Options | None = None) -> dict[str, str]:
    """What stays in floats, and why."""
    result = quantization.convert(module, profile_of(module), options)
    return {node.name: node.reason for node in result.floats}


# ---------------------------------------------------------------------------------------------- islands


def test_nothing_stays_in_floats() -> None:
    result = quantization.convert(network(), profiled(), Options(assert_all=True))
    assert not result.floats
    counts = kinds(result.module)
    assert counts["quantize"] == counts["dequantize"] == 1
    assert "relu" not in counts
    assert "clip" not in counts
    computing = [
        node
        for node in result.module.main.nodes
        if node.results and node.result.type.kind.is_float and node.SCHEMA.mnemonic != "dequantize"
    ]
    assert not computing


def test_gives_nearly_what_floats_give_and_all_backends_the_same() -> None:
    module = quantization.quantize(network(), profiled())
    sample = samples()[0]
    expected, got = run(network(), sample), run(module, sample)
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()
    assert got.tobytes() == run(module, sample, "cpu").tobytes()


def test_sums_are_rounded_once() -> None:
    """The residual sum takes the product's sums, and a concatenation's parts have its scale from the beginning."""
    f = quantization.quantize(network(), profiled()).main
    total = next(node for node in f.nodes if node.SCHEMA.mnemonic == "add")
    assert {value.type.kind for value in total.inputs} == {ElemKind.I32, ElemKind.U8}
    both = next(node for node in f.nodes if node.SCHEMA.mnemonic == "concat")
    sources = [value.node for value in both.inputs if value.node is not None]
    assert all(
        node.inputs[0].type.kind is ElemKind.I32 or node.SCHEMA.mnemonic in ("max", "min")
        for node in sources
    )


def test_the_model_is_not_changed() -> None:
    before = str(network())
    quantization.quantize(network(), profiled())
    assert str(network()) == before


def test_what_is_converted_is_converted() -> None:
    """A quantized network has nothing that another profile could choose types for."""
    once = quantization.convert(network(), profiled())
    f = quantization.optimized(once.module)
    assert str(f.module) == str(once.module)


def test_counts_bytes() -> None:
    result = quantization.convert(network(), profiled())
    weights = 4 * 8 * 9 + 8 * 8 * 9 + 8 * 8 + 8 * 4 + 12 * 5
    biases = 8 + 8 + 8 + 4 + 5
    assert result.bytes_before == 4 * (weights + biases)
    extra = result.bytes_after - (weights + 4 * biases)
    assert 0 <= extra <= 8  # limits of the clip and the like


# -------------------------------------------------------------------------------------------- what stays


def test_operators_without_integers_are_islands_of_floats() -> None:
    f, x = started((2, 8))
    rng = np.random.default_rng(0)
    weights = [
        f.module.create_constant(n, rng.normal(size=(8, 8)).astype(np.float32)) for n in "uv"
    ]
    base = f.create_mat_mul("base", x, weights[0])
    exponent = f.create_mat_mul("exponent", x, weights[1])
    odd = f.create_pow("odd", f.create_abs("size", base), exponent)
    module = saved(f, f.create_mat_mul("last", odd, weights[1]))
    assert floats_of(module) == {
        "size": "only floats are computed from it",
        "odd": "there is no pow of integers",
    }


def gelu(f: Function, x: Operand) -> Operand:
    """As files spell it."""
    half, one, root = (
        f.create_splat(name, Type(ElemKind.F32, ()), number)
        for name, number in (("half", 0.5), ("one", 1.0), ("root", 2**0.5))
    )
    part = f.create_add("part", f.create_erf("erf", f.create_div("scaled", x, root)), one)
    return f.create_mul("gelu", f.create_mul("whole", x, part), half)


def swish(f: Function, x: Operand) -> Operand:
    return f.create_mul("swish", x, f.create_sigmoid("likely", x))


def chosen(f: Function, x: Operand) -> Operand:
    """With a condition, and with an operator that has no form on integers."""
    zero = f.create_splat("zero", Type(ElemKind.F32, ()), 0.0)
    power = f.create_pow("power", x, f.create_splat("two", Type(ElemKind.F32, ()), 2.0))
    return f.create_select("chosen", f.create_lt("negative", x, zero), f.create_tanh("t", x), power)


@pytest.mark.parametrize("function", [gelu, swish, chosen])
def test_a_function_of_several_nodes_becomes_one_table(
    function: Callable[[Function, Operand], Operand],
) -> None:
    f, x = started((4, 8))
    rng = np.random.default_rng(0)
    u, v = (f.module.create_constant(n, rng.normal(size=(8, 8)).astype(np.float32)) for n in "uv")
    bent = function(f, f.create_mat_mul("first", x, u))
    module = saved(f, f.create_mat_mul("second", bent, v))
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    assert kinds(result.module) == {
        "quantize": 1,
        "mat_mul": 2,
        "rescale": 1,
        "lookup_table": 1,
        "dequantize": 1,
        "save": 1,
    }
    sample = samples((4, 8))[0]
    expected, got = run(module, sample), run(result.module, sample)
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()
    assert got.tobytes() == run(result.module, sample, "cpu").tobytes()


def test_a_part_of_a_function_that_is_kept_is_no_part_of_a_table() -> None:
    f, x = started((4, 8))
    rng = np.random.default_rng(0)
    u, v = (f.module.create_constant(n, rng.normal(size=(8, 8)).astype(np.float32)) for n in "uv")
    module = saved(f, f.create_mat_mul("second", swish(f, f.create_mat_mul("first", x, u)), v))
    reasons = floats_of(module, Options(keep=("sigmoid",)))
    assert reasons == {
        "likely": "'sigmoid' is to be kept",
        "swish": "no matrix product or convolution is beside it",
    }


def test_additions_away_from_products_stay() -> None:
    f, x = started((2, 8))
    shifted = f.create_add("shifted", x, f.create_splat("one", Type(ElemKind.F32, ()), 1.0))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    product = f.create_mat_mul("product", shifted, f.module.create_constant("w", weights))
    module = saved(f, product)
    assert floats_of(module) == {"shifted": "no matrix product or convolution is beside it"}


def test_moves_and_tables_before_a_product_are_integer() -> None:
    f, x = started((2, 8))
    turned = f.create_transpose("turned", f.create_tanh("bent", x), (1, 0))
    weights = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    module = saved(f, f.create_mat_mul("product", turned, f.module.create_constant("w", weights)))
    assert floats_of(module) == {}
    assert kinds(quantization.quantize(module, profile_of(module)))["tanh"] == 1


def test_a_layer_norm_stays_and_what_it_reads_is_not_rounded() -> None:
    f, x = started((4, 8))
    rng = np.random.default_rng(0)
    u, v = (f.module.create_constant(n, rng.normal(size=(8, 8)).astype(np.float32)) for n in "uv")
    total = f.create_add("residual", f.create_mat_mul("first", x, u), x)
    mean = f.create_reduce_mean("mean", total, (1,))
    apart = f.create_sub("apart", total, mean)
    spread = f.create_reduce_mean("spread", f.create_mul("square", apart, apart), (1,))
    norm = f.create_mul(
        "norm", apart, f.create_reciprocal("inverse", f.create_sqrt("root", spread))
    )
    module = saved(f, f.create_mat_mul("second", norm, v))
    reasons = floats_of(module)
    below = "only floats are computed from it"
    assert reasons == {
        **dict.fromkeys(("residual", "mean", "apart", "square", "spread"), below),
        **dict.fromkeys(("root", "inverse"), "8 bits are too few for its operand near 0"),
        "norm": "no matrix product or convolution is beside it",
    }
    quantized = quantization.quantize(module, profile_of(module))
    assert kinds(quantized)["quantize"] == 2
    assert kinds(quantized)["rescale"] == 0
    for options in (Options(norms=True), Options(activations=ElemKind.I16)):
        assert floats_of(module, options) == {}
        integer = quantization.quantize(module, profile_of(module), options)
        assert kinds(integer)["layer_normalization"] == 1
        sample = samples((4, 8))[0]
        expected, got = run(module, sample), run(integer, sample)
        assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max()
        assert got.tobytes() == run(integer, sample, "cpu").tobytes()


def test_what_leaves_the_network_is_rounded_only_after_arithmetic() -> None:
    """A reshape after the last product would round it for nothing; it is in no list, because it computes nothing."""
    f, x = started((2, 8))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    product = f.create_mat_mul("product", x, f.module.create_constant("w", weights))
    module = saved(f, f.create_reshape("flat", Type(ElemKind.F32, (16,)), product))
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    assert [node.name for node in result.nodes] == ["product"]
    counts = kinds(result.module)
    assert (counts["quantize"], counts["rescale"]) == (1, 0)
    f, x = started()
    wave = f.create_sigmoid(
        "wave", conv(f, "conv", x, (4, 2), 3)
    )  # arithmetic, for which rounding pays
    module = saved(f, f.create_transpose("turned", wave, (0, 3, 1, 2)))
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    assert kinds(result.module)["sigmoid"] == 1


def test_the_largest_of_integers_is_found() -> None:
    f, x = started((2, 8))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    hidden = f.create_relu(
        "hidden", f.create_mat_mul("product", x, f.module.create_constant("w", weights))
    )
    place = f.create_arg_max("place", hidden, 1, False)
    module = saved(f, place)
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    assert kinds(result.module)["dequantize"] == 0
    sample = samples((2, 8))[0]
    assert np.array_equal(run(result.module, sample), run(module, sample))


def test_operands_of_several_scales_are_compared() -> None:
    f, x = started((2, 8))
    rng = np.random.default_rng(0)
    u, v, w = (
        f.module.create_constant(n, rng.normal(size=(8, 8)).astype(np.float32)) for n in "uvw"
    )
    larger = f.create_max("larger", f.create_mat_mul("a", x, u), f.create_mat_mul("b", x, v))
    limit = f.create_splat("limit", Type(ElemKind.F32, (1, 1)), 0.7)
    module = saved(f, f.create_mat_mul("c", f.create_min("smaller", larger, limit), w))
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    assert kinds(result.module)["max"] == kinds(result.module)["min"] == 1
    sample = samples((2, 8))[0]
    expected = run(module, sample)
    assert np.abs(run(result.module, sample) - expected).max() < 0.03 * np.abs(expected).max()


def test_a_sum_between_products_is_one_of_integers() -> None:
    f, x = started()
    total = f.create_reduce_add("total", conv(f, "first", x, (4, 8), 3), (1, 2))
    module = saved(f, conv(f, "second", total, (8, 4), 1))
    profile = profile_of(module)
    result = quantization.convert(module, profile, Options(assert_all=True))
    assert any(n.SCHEMA.mnemonic == "reduce_add" and n.type.quant for n in result.module.main.nodes)
    sample = samples()[0]
    expected, got = run(module, sample), run(result.module, sample)
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()
    assert run(result.module, sample, "cpu").tobytes() == got.tobytes()


def test_division_by_what_might_become_zero_stays() -> None:
    f, x = started((2, 8))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    product = f.create_mat_mul("product", x, f.module.create_constant("w", weights))
    divisor = f.module.create_constant("d", np.geomspace(1e-6, 10, 8).astype(np.float32))
    module = saved(f, f.create_relu("r", f.create_div("ratio", product, divisor)))
    assert floats_of(module)["ratio"] == "its divisor might be rounded to 0"


def test_long_sums_and_computed_biases_stay() -> None:
    f, x = started((1, 40_000))
    ones = f.module.create_constant("w", np.full((40_000, 1), 0.01, np.float32))
    assert floats_of(saved(f, f.create_mat_mul("long", x, ones))) == {
        "long": "40000 products could overflow"
    }
    f, x = started((2, 2))
    eye = f.module.create_constant("w", np.eye(2, dtype=np.float32))
    bias = f.create_reshape(
        "bias",
        Type(ElemKind.F32, (2,)),
        f.create_slice("part", Type(ElemKind.F32, (1, 2)), x, (0, 0), (1, 1)),
    )
    assert floats_of(saved(f, f.create_fully_connected("dense", x, eye, bias)))["dense"] == (
        "the bias is computed"
    )


def test_other_kinds_of_floats_stay() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F64, (2, 2)))
    eye = module.create_constant("w", np.eye(2))
    saved(f, f.create_mat_mul("product", x, eye))
    profile = quantization.profile(module, [{"x": np.eye(2)}], backend="interpreter")
    (node,) = quantization.convert(module, profile).nodes
    assert node.reason == "it computes with f64"


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ([np.inf, 1], "%x had NaNs or infinities"),
        ([np.nan, 1], "%x had NaNs or infinities"),
        ([np.nan, np.nan], "%x never had a finite element"),
    ],
)
def test_values_that_are_no_numbers_stay(odd: list[float], reason: str) -> None:
    f, x = started((1, 2))
    eye = f.module.create_constant("w", np.eye(2, dtype=np.float32))
    module = saved(f, f.create_mat_mul("product", x, eye))
    sample = {"x": np.array([odd], np.float32)}
    profile = quantization.profile(module, [sample], backend="interpreter")
    known = profile.values["product"]
    finite = replace(known, statistics=Statistics.of(np.ones(2, np.float32)))
    profile = replace(profile, values={**profile.values, "product": finite})
    (node,) = quantization.convert(module, profile).nodes
    assert node.reason == reason


def test_a_constant_value_is_quantized() -> None:
    f, x = started((1, 2))
    eye = f.module.create_constant("w", np.eye(2, dtype=np.float32))
    module = saved(f, f.create_mat_mul("product", x, eye))
    for number in (0.0, 3.0, -2.0):
        sample = {"x": np.full((1, 2), number, np.float32)}
        profile = quantization.profile(module, [sample], backend="interpreter")
        got = run(quantization.quantize(module, profile), sample)
        np.testing.assert_allclose(got, sample["x"], rtol=1e-6)


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("activations", [ElemKind.U8, ElemKind.I8])
@pytest.mark.parametrize("schema", list(Schema))
def test_schemas(schema: Schema, activations: ElemKind) -> None:
    options = Options(schema=schema, activations=activations)
    f = quantization.quantize(network(), profiled(), options).main
    stored = [node.type for node in f.nodes if node.results and node.type.kind is activations]
    assert stored
    quants = [type.quant for type in stored if type.quant is not None]
    assert len(quants) == len(stored)
    offsets = {quant.offsets[0] for quant in quants}
    middle = 128 if activations is ElemKind.U8 else 0
    lowest = activations.limits[0]
    expected = {middle} if schema in (Schema.SYMMETRIC, Schema.POWER_OF_TWO) else {middle, lowest}
    assert offsets <= expected if schema is not Schema.ASYMMETRIC else len(offsets) > 2
    if schema is Schema.POWER_OF_TWO:
        scales = {
            s for node in f.nodes for v in node.inputs if v.type.quant for s in v.type.quant.scales
        }
        assert all(np.log2(scale) == np.rint(np.log2(scale)) for scale in scales)


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights(per_channel: bool) -> None:
    module = quantization.quantize(network(), profiled(), Options(per_channel=per_channel))
    weights = [c.type for c in module.constants if c.type.kind is ElemKind.I8]
    assert len(weights) == 5
    axes = {type.quant.axis for type in weights if type.quant is not None}
    assert axes == ({0, 1} if per_channel else {None})
    assert all(not any(type.quant.offsets) for type in weights if type.quant is not None)


@pytest.mark.parametrize("bias", [ElemKind.I8, ElemKind.I16, ElemKind.I32, ElemKind.F32])
def test_biases(bias: ElemKind) -> None:
    """A bias that is rounded to few steps differs by at most half of one; one in floats does not differ."""
    f, x = started((1, 4))
    eye = f.module.create_constant("w", np.eye(4, dtype=np.float32))
    numbers = np.array([0.7, -0.3137, 0.0021, 1e-5], np.float32)
    vector = f.module.create_constant("b", numbers)
    module = saved(f, f.create_fully_connected("dense", x, eye, vector))
    profile = quantization.profile(module, samples((1, 4)), backend="interpreter")
    result = quantization.convert(module, profile, Options(bias=bias))
    assert not result.floats
    nothing = {"x": np.zeros((1, 4), np.float32)}
    error = np.abs(run(result.module, nothing)[0] - numbers)
    if bias is ElemKind.F32:
        assert not error.any()
        return
    steps = {ElemKind.I8: 127, ElemKind.I16: 32767, ElemKind.I32: 1 << 20}[bias]
    scale = profile["x"].size / 255 / 127
    assert (error <= 0.51 * (0.7 / steps + scale)).all()
    assert error.any()
    if bias is ElemKind.I8:
        assert error[3] == pytest.approx(1e-5)


def test_a_tiny_scale_leaves_room_for_the_bias() -> None:
    """The steps of the weights become larger where i32 could not hold the bias."""
    f, x = started((1, 2))
    tiny = f.module.create_constant("w", np.full((2, 2), 1e-9, np.float32))
    bias = f.module.create_constant("b", np.array([5.0, -7.0], np.float32))
    module = saved(f, f.create_fully_connected("dense", x, tiny, bias))
    got = run(quantization.quantize(module, profile_of(module)), samples((1, 2))[0])
    assert got[0].tolist() == pytest.approx([5, -7], rel=1e-6)


def test_calibration_of_all_and_of_one() -> None:
    def scale(options: Options, name: str) -> float:
        f = quantization.quantize(network(), profiled(), options).main
        quant = next(node for node in f.nodes if node.name == name).type.quant
        assert quant is not None
        return quant.scales[0]

    plain, narrow = Options(calibration=MinMax()), Options(calibration=Percentile(80))
    one = Options(calibrations={"relu": Percentile(80)})
    for name in ("x_quantized", "relu_quantized"):
        assert scale(narrow, name) < scale(plain, name)
    assert scale(one, "x_quantized") == scale(plain, "x_quantized")
    assert scale(one, "relu_quantized") == scale(narrow, "relu_quantized")


@pytest.mark.parametrize(
    ("kind", "scale", "offset"),
    [("sigmoid", 1 / 255, 0), ("softmax", 1 / 255, 0), ("tanh", 2 / 255, 127)],
)
def test_what_is_bounded_has_its_bounds_for_a_range(kind: str, scale: float, offset: int) -> None:
    """Whatever the profile saw, unless the value is calibrated by itself."""
    f, x = started()
    first = f.create_mul(
        "small", conv(f, "first", x, (4, 8), 3), f.create_splat("c", x.type.with_shape((8,)), 0.01)
    )
    attrs = {"axis": 3} if kind == "softmax" else {}
    bounded = f.create(NODE_CLASSES[kind], "bounded", [first.result], attrs)
    module = saved(f, conv(f, "second", bounded, (8, 4), 1))
    profile = profile_of(module)
    types = quantization.convert(module, profile).types
    quant = types["bounded"].quant
    assert quant is not None
    assert quant.scales[0] == pytest.approx(scale, rel=1e-6)
    assert quant.offsets == (offset,)
    percentile = Options(calibration=Percentile(50))
    assert quantization.convert(module, profile, percentile).types["bounded"].quant == quant
    own = Options(calibrations={"bounded": MinMax()})
    narrow = quantization.convert(module, profile, own).types["bounded"].quant
    assert narrow is not None
    assert narrow.scales[0] < 0.9 * scale


def test_keeps_names_and_kinds() -> None:
    options = Options(keep=("third", "sigmoid"), skip_first=True, skip_last=True)
    result = quantization.convert(network(), profiled(), options)
    reasons = {node.name: node.reason for node in result.floats}
    assert reasons["third"] == "'third' is to be kept"
    assert reasons["wave"] == "'sigmoid' is to be kept"
    assert reasons["first"] == "the first layer is to be kept"
    assert reasons["dense"] == "the last layer is to be kept"
    assert reasons["relu"] == "no matrix product or convolution is beside it"
    integer = {node.name for node in result.nodes if not node.reason}
    assert {"second", "fourth", "pool"} <= integer
    expected = run(network(), samples()[0])
    assert np.abs(run(result.module, samples()[0]) - expected).max() < 0.03 * np.abs(expected).max()


# ----------------------------------------------------------------------------------------------- backend


class WithoutTables(InterpreterBackend):  # type: ignore[misc]
    """A backend that cannot look anything up."""

    name: ClassVar[str] = "poor"

    def unsupported(self, operation: Operation) -> str:
        return (
            "no tables" if operation.mnemonic == "lookup_table" else super().unsupported(operation)
        )


def test_what_a_backend_cannot_run_stays() -> None:
    result = quantization.convert(network(), profiled(), Options(backend=WithoutTables()))
    reasons = {node.name: node.reason for node in result.floats}
    assert reasons == {"wave": "the poor backend: no tables"}
    glowpy.compile(result.module, WithoutTables())
