"""Quantized arithmetic against numpy that says the same in other words, bit for bit, on every backend."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import BACKENDS, compilation
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    NODES,
    AbsNode,
    AddNode,
    BatchNormalizationNode,
    ClipNode,
    DequantizeNode,
    DivNode,
    ExpNode,
    GeluNode,
    HardSwishNode,
    LeakyReluNode,
    LookupTableNode,
    MulNode,
    NegNode,
    PReluNode,
    QuantizeNode,
    ReluNode,
    RescaleNode,
    SaturateNode,
    SigmoidNode,
    StorageCastNode,
    SubNode,
    SubtractOffsetNode,
    TanhNode,
)
from glowpy.support.text import Attr
from tests.ops.harness import bound
from tests.unit.samples import attrs_of

TESTED = (
    QuantizeNode,
    DequantizeNode,
    RescaleNode,
    LookupTableNode,
    StorageCastNode,
    SubtractOffsetNode,
    SaturateNode,
)

KINDS = ("i8", "u8", "i16")
SPECIAL = [0.0, -0.0, math.inf, -math.inf, 1e30, -1e30, 0.25, 0.75, -0.25, 1e-40, 12.75]
F32 = np.float32


def integers(type: Type, seed: int = 0) -> Array:
    """Random stored integers, with both limits and the offset among them."""
    rng = np.random.default_rng(seed)
    low, high = type.kind.limits
    array = rng.integers(max(low, -40000), min(high, 40000), type.extents, endpoint=True)
    flat = array.reshape(-1)
    flat[: min(2, flat.size)] = (low, high)[: min(2, flat.size)]
    return array.astype(type.kind.dtype)


def shaped(type: Type, values: Sequence[float]) -> Array:
    axis = parameters(type).axis
    array = np.array(values)
    return (
        array if axis is None else array.reshape([-1 if i == axis else 1 for i in range(type.rank)])
    )


def steps(type: Type, stored: Array) -> Array:
    offsets = shaped(type, parameters(type).offsets).astype(np.int64)
    return (stored.astype(np.int64) - offsets).astype(F32)


def numbers(type: Type, stored: Array) -> Array:
    return steps(type, stored) * shaped(type, parameters(type).scales).astype(F32)


def quotient(scale: Array, other: float) -> Array:
    """A ratio as it is defined: of scales in f32, in f32."""
    return scale.astype(F32) / F32(other)


def rounded(type: Type, steps: Array) -> Array:
    """Steps as stored integers. What is no number is the lowest."""
    low, high = type.kind.limits
    total = np.rint(steps.astype(np.float64)) + shaped(type, parameters(type).offsets)
    return np.clip(np.where(np.isnan(total), low, total), low, high).astype(type.kind.dtype)


def quantized(type: Type, numbers: Array) -> Array:
    """Computed numbers in `type`: by the reciprocal of its scale, rounded to f32."""
    reciprocals = (1 / shaped(type, parameters(type).scales)).astype(F32)
    return rounded(type, numbers.astype(F32) * reciprocals)


def run(
    backend: str, build: Callable[[Function, list[NodeValue]], Node], *inputs: tuple[Type, Array]
) -> Array:
    module = glowpy.Module()
    f = module.create_function("main")
    values = [module.create_placeholder(f"x{i}", type).value for i, (type, _) in enumerate(inputs)]
    result = build(f, values)
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    feeds = {f"x{i}": array for i, (_, array) in enumerate(inputs)}
    return np.asarray(glowpy.compile(f, bound(backend))(feeds)["y"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [*KINDS, "i32"])
def test_quantize_divides_and_rounds_halves_to_even(kind: str, backend: str) -> None:
    type = parse_type(f"{kind}[3x19](s=0.5,o=0)" if kind == "i32" else f"{kind}[3x19](s=0.5,o=7)")
    data = np.random.default_rng(1).normal(0, 60, type.extents).astype(F32)
    data.reshape(-1)[: len(SPECIAL)] = SPECIAL
    data[2, 3] = math.nan
    got = run(
        backend,
        lambda f, v: f.create_quantize("q", type, v[0]),
        (Type(ElemKind.F32, type.shape), data),
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, rounded(type, data / F32(0.5)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shape", "axis"), [("3x4", 0), ("2x3x5", 1), ("4x3", 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_channels_have_their_own_parameters(kind: str, shape: str, axis: int, backend: str) -> None:
    type = parse_type(f"{kind}[{shape}](s=[0.1,3.0,0.007],o=[1,0,5],axis={axis})")
    data = np.random.default_rng(2).normal(0, 3, type.extents).astype(F32)
    floats = Type(ElemKind.F32, type.shape)
    stored = run(backend, lambda f, v: f.create_quantize("q", type, v[0]), (floats, data))
    np.testing.assert_array_equal(
        stored, rounded(type, data / shaped(type, parameters(type).scales).astype(F32))
    )
    back = run(backend, lambda f, v: f.create_dequantize("d", floats, v[0]), (type, stored))
    np.testing.assert_array_equal(back, numbers(type, stored))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("i8[5x13](s=0.1,o=-4)", "i8[5x13](s=0.03,o=9)"),
        ("i8[5x13](s=0.1,o=-4)", "u8[5x13](s=0.1,o=124)"),
        ("u8[5x13](s=0.3,o=200)", "i16[5x13](s=0.001,o=0)"),
        ("i16[5x13](s=0.3,o=5)", "u8[5x13](s=7.0,o=3)"),
        ("i32[5x13](s=0.001,o=0)", "i8[5x13](s=0.9,o=1)"),
        ("i32[5x3](s=[0.001,0.1,0.02],o=[0,0,0],axis=1)", "u8[5x3](s=0.9,o=1)"),
        ("i32[5x13](s=1e-60,o=0)", "i8[5x13](s=1e-58,o=1)"),
    ],
)
def test_rescale_multiplies_by_one_ratio(source: str, target: str, backend: str) -> None:
    old, new = parse_type(source), parse_type(target)
    stored = integers(old)
    got = run(backend, lambda f, v: f.create_rescale("r", new, v[0]), (old, stored))
    scale, other = shaped(old, parameters(old).scales), parameters(new).scales[0]
    ratio = quotient(scale, other) if other > 1e-30 else F32(scale / other)
    np.testing.assert_array_equal(got, rounded(new, steps(old, stored) * ratio))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [*KINDS, "i32"])
def test_storage_cast_changes_no_bit(kind: str, backend: str) -> None:
    """Through what moves the integers, too."""
    old, new = parse_type(f"{kind}[3x4](s=0.1,o=0)"), parse_type(f"{kind}[3x4](s=0.7,o=0)")
    stored = integers(old)

    def build(f: Function, v: list[NodeValue]) -> Node:
        named = f.create_storage_cast("a", new, v[0])
        flat = f.create_reshape("b", parse_type(f"{kind}[12](s=0.7,o=0)"), named)
        return f.create_storage_cast("c", parse_type(f"{kind}[12]"), flat)

    np.testing.assert_array_equal(run(backend, build, (old, stored)), stored.reshape(12))


BINARY: list[tuple[type[Node], Callable[[Array, Array], Array]]] = [
    (AddNode, np.add),
    (SubNode, np.subtract),
    (MulNode, np.multiply),
    (DivNode, np.divide),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "types",
    [
        ("u8[3x1x17](s=0.037,o=99)", "i8[4x17](s=0.11,o=-7)", "u8[3x4x17](s=0.05,o=131)"),
        ("i16[3x1x17](s=0.0037,o=99)", "i16[4x17](s=0.0011,o=-7)", "i16[3x4x17](s=0.005,o=1031)"),
    ],
    ids=["bytes", "wide"],
)
@pytest.mark.parametrize(("cls", "function"), BINARY, ids=[cls.__name__ for cls, _ in BINARY])
def test_binary_operators_compute_on_numbers(
    cls: type[Node],
    function: Callable[[Array, Array], Array],
    types: tuple[str, str, str],
    backend: str,
) -> None:
    left, right, result = map(parse_type, types)
    a, b = integers(left, 3), integers(right, 4)
    got = run(backend, lambda f, v: f.create(cls, "n", v, {}, result), (left, a), (right, b))
    with np.errstate(all="ignore"):
        expected = quantized(result, function(numbers(left, a), numbers(right, b)))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e-39, 3e-45])
def test_scales_without_a_reciprocal(scale: float, backend: str) -> None:
    """Results are divided by them; ratios beyond f32 are its largest number, and 0 stays 0."""
    tiny, large = parse_type(f"u8[4](s={F32(scale)},o=3)"), parse_type("u8[4](s=0.5,o=7)")
    stored = np.array([3, 4, 255, 0], np.uint8)
    total = run(
        backend, lambda f, v: f.create_add("n", *v, result_type=tiny), *[(tiny, stored)] * 2
    )
    np.testing.assert_array_equal(total, [3, 5, 255, 0])
    steps = np.array([7, 8, 255, 0], np.uint8)
    moved = run(backend, lambda f, v: f.create_rescale("n", tiny, v[0]), (large, steps))
    np.testing.assert_array_equal(moved, [3, 255, 255, 0])
    mean = tiny.with_shape((1,))
    got = run(
        backend,
        lambda f, v: f.create_reduce_mean("n", v[0], (0,), result_type=mean),
        (large, stored * 0 + 7),
    )
    np.testing.assert_array_equal(got, [3])


@pytest.mark.parametrize("cls", [AddNode, SubNode])
def test_sums_are_rounded_apart_from_products(cls: type[Node]) -> None:
    """On AArch64, where LLVM asks the sum alone whether both may be one step."""
    types = [parse_type("u8[64](s=0.037,o=99)"), parse_type("i8[64](s=0.11,o=-7)")]
    module = glowpy.Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, type) for name, type in zip("xy", types, strict=True))
    node = f.create(cls, "n", [x.value, y.value], {}, types[0])
    f.create_save("save", node, module.create_placeholder("z", types[0]))
    assembly = compilation(module, glowpy.CpuBackend(glowpy.CpuOptions("rpi4"))).text("asm")
    assert "fmul" in assembly
    assert not re.search(r"\tfml[as]|\tfn?m(add|sub)", assembly)


def _gelu(x: Array) -> Array:
    return np.array(
        [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(float).reshape(-1)]
    ).reshape(x.shape)


UNARY: list[tuple[type[Node], dict[str, Attr], Callable[[Array], Array]]] = [
    (ReluNode, {}, lambda x: np.maximum(x, 0)),
    (ClipNode, {"min": -0.7, "max": 1.3}, lambda x: np.clip(x, F32(-0.7), F32(1.3))),
    (NegNode, {}, np.negative),
    (AbsNode, {}, np.abs),
    (TanhNode, {}, lambda x: np.tanh(x.astype(float))),
    (SigmoidNode, {}, lambda x: 1 / (1 + np.exp(-x.astype(float)))),
    (ExpNode, {}, lambda x: np.exp(x.astype(float))),
    (GeluNode, {"approximate": False}, _gelu),
    (LeakyReluNode, {"alpha": 0.1}, lambda x: np.where(x < 0, x * 0.1, x)),
    (HardSwishNode, {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
]
EXACT = (ReluNode, ClipNode, NegNode, AbsNode)


@pytest.mark.parametrize("kind", ["i8", "u8"])
@pytest.mark.parametrize(
    ("cls", "attrs", "function"), UNARY, ids=[cls.__name__ for cls, *_ in UNARY]
)
def test_unary_operators_compute_on_numbers(
    cls: type[Node], attrs: dict[str, Attr], function: Callable[[Array], Array], kind: str
) -> None:
    """All 256 integers. Tables hold what the interpreter computes in f32: a step beside another one at most."""
    offset = {"i8": -9, "u8": 119}[kind]
    source = parse_type(f"{kind}[256](s=0.031,o={offset})")
    result = parse_type("u8[256](s=0.0211,o=33)")
    stored = np.arange(256).astype(np.uint8).view(source.kind.dtype)
    outputs = [
        run(backend, lambda f, v: f.create(cls, "n", v, attrs, result), (source, stored))
        for backend in BACKENDS
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    expected = quantized(result, function(numbers(source, stored)))
    difference = np.abs(outputs[0].astype(int) - expected.astype(int))
    assert difference.max() <= (0 if cls in EXACT else 1)
    assert (difference > 0).sum() <= 2
    assert len(set(outputs[0].tolist())) > 5


@pytest.mark.parametrize("result", ["i16[2x128](s=0.0001,o=-7)", "i32[2x128](s=1e-07,o=0)",
    "u8[2x128](s=[0.005,0.01],o=[3,9],axis=0)"])  # fmt: skip
def test_functions_of_bytes_have_results_of_every_type(result: str) -> None:
    source, type = parse_type("u8[2x128](s=0.031,o=119)"), parse_type(result)
    stored = np.arange(256).astype(np.uint8).reshape(2, 128)
    outputs = [
        run(backend, lambda f, v: f.create_sigmoid("n", v[0], result_type=type), (source, stored))
        for backend in BACKENDS
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    expected = 1 / (1 + np.exp(-numbers(source, stored).astype(float)))
    step = shaped(type, parameters(type).scales)
    difference = np.abs(numbers(type, outputs[0]) - expected)
    assert (difference <= np.maximum(0.51 * step, 1e-6)).all()


OTHERS = [
    cls
    for cls in NODES
    if cls.SCHEMA.quant is Quantized.NUMBERS
    and Trait.ELEMENTWISE in cls.SCHEMA.traits
    and cls not in {row[0] for row in (*BINARY, *UNARY)} | {PReluNode}
]


@pytest.mark.parametrize("cls", OTHERS, ids=lambda cls: str(cls.__name__))
def test_every_other_function_is_that_of_the_numbers(cls: type[Node]) -> None:
    """Its float form is compared with other references elsewhere."""
    source, result = parse_type("u8[256](s=0.031,o=119)"), parse_type("i8[256](s=0.05,o=3)")
    stored, attrs = np.arange(256).astype(np.uint8), attrs_of(cls.SCHEMA.attrs)
    floats = numbers(source, stored)
    got = run("interpreter", lambda f, v: f.create(cls, "n", v, attrs, result), (source, stored))
    plain = run(
        "interpreter", lambda f, v: f.create(cls, "n", v, attrs), (parse_type("f32[256]"), floats)
    )
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, quantized(result, plain))


def normalization(
    f: Function, x: NodeValue, axis: int, vectors: Sequence[Operand], result: Type
) -> Node:
    """With scale, bias, mean and variance."""
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": 1e-3}
    return f.create(BatchNormalizationNode, "n", [x, *vectors], attrs, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shape", "axis"), [("2x3x5x7", 3), ("3x4x2", 1), ("5", 0), ("0x3", 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_normalization_is_a_product_and_a_sum(
    kind: str, shape: str, axis: int, backend: str
) -> None:
    source, result = (
        parse_type(f"{kind}[{shape}](s=0.03,o=9)"),
        parse_type(f"{kind}[{shape}](s=0.05,o=3)"),
    )
    rng = np.random.default_rng(9)
    channels = source.extents[axis]
    scale, bias, mean = (rng.normal(0, 2, channels).astype(F32) for _ in range(3))
    variance = rng.uniform(0, 3, channels).astype(F32)
    stored, vectors = integers(source, 8), (scale, bias, mean, variance)
    got = run(
        backend,
        lambda f, v: normalization(
            f, v[0], axis, [f.module.create_constant("c", a) for a in vectors], result
        ),
        (source, stored),
    )
    row = tuple(-1 if i == axis else 1 for i in range(source.rank))
    factor = scale.astype(float) / np.sqrt(variance.astype(float) + 1e-3)
    shift = (bias - mean * factor) / parameters(result).scales[0]
    ratio = parameters(source).scales[0] * factor / parameters(result).scales[0]
    sums = steps(source, stored) * ratio.astype(F32).reshape(row) + shift.astype(F32).reshape(row)
    np.testing.assert_array_equal(got, rounded(result, sums))


def test_computed_statistics_have_no_integers() -> None:
    type, vector = parse_type("u8[4x2](s=0.1,o=0)"), parse_type("f32[2]")
    with pytest.raises(glowpy.UserError, match=r"batch_normalization: .* known statistics"):
        run(
            "interpreter",
            lambda f, v: normalization(f, v[0], 1, [v[1]] * 4, type),
            (type, integers(type)),
            (vector, np.ones(2, F32)),
        )


def product(
    kind: str, kernels: tuple[int, int], group: int, weights: str
) -> tuple[Function, Array, Array]:
    """A convolution with a bias, of stored integers, and what it should give, from sums in Python's integers."""
    data = parse_type(f"{kind}[2x5x6x4](s=0.03,o={11 if kind == 'u8' else -11})")
    result = parse_type("u8[2x5x6x6](s=0.7,o=100)")
    scales = [0.01, 0.05, 0.02, 0.03, 0.04, 0.015]
    filter_shape = f"6x{kernels[0]}x{kernels[1]}x{4 // group}"
    filter_type = parse_type(
        f"i8[{filter_shape}](s={scales},o={[0] * 6},axis=0)".replace(" ", "")
        if weights == "channels"
        else f"i8[{filter_shape}](s=0.02,o={0 if weights == 'whole' else 5})"
    )
    filter = integers(filter_type, 5)
    own = np.float64(0.03) * np.array(scales if weights == "channels" else [0.02] * 6)
    bias = np.random.default_rng(6).integers(-9000, 9000, 6)
    channels = weights == "channels"
    bias_type = parse_type(
        f"i32[6](s={own.tolist()},o={[0] * 6},axis=0)".replace(" ", "")
        if channels
        else f"i32[6](s={own[0]!r},o=0)".replace("np.float64(", "").replace("),", ",")
    )
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", data)
    pads = (kernels[0] // 2, kernels[1] // 2) * 2
    node = f.create_convolution(
        "c", x, module.create_constant("w", Tensor(filter_type, filter)),
        module.create_constant("b", Tensor(bias_type, bias.astype(np.int32))),
        kernels, (1, 1), pads, (1, 1), group, result_type=result,
    )  # fmt: skip
    f.create_save("save", node, module.create_placeholder("y", result))
    stored = integers(data, 7)
    centred = np.pad(
        stored.astype(np.int64) - parameters(data).offsets[0],
        ((0, 0), (pads[0],) * 2, (pads[1],) * 2, (0, 0)),
    )
    sums = np.zeros((2, 5, 6, 6), np.int64) + bias
    depth, out = 4 // group, 6 // group
    lifted = filter.astype(np.int64) - parameters(filter_type).offsets[0]
    for g in range(group):
        for h in range(kernels[0]):
            for w in range(kernels[1]):
                window = centred[:, h : h + 5, w : w + 6, g * depth : (g + 1) * depth]
                sums[..., g * out : (g + 1) * out] += (
                    window @ lifted[g * out : (g + 1) * out, h, w].T
                )
    ratio = quotient(own, 0.7)
    return f, stored, rounded(result, sums.astype(F32) * ratio)


@pytest.mark.parametrize("weights", ["whole", "channels", "offset"])
@pytest.mark.parametrize(("kernels", "group"), [((1, 1), 1), ((3, 3), 1), ((3, 1), 2)])
@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_convolution_is_an_exact_sum(
    backend: str, kind: str, kernels: tuple[int, int], group: int, weights: str
) -> None:
    f, stored, expected = product(kind, kernels, group, weights)
    got = glowpy.compile(f, bound(backend))({"x": stored})["y"]
    np.testing.assert_array_equal(got, expected)


PRODUCTS = [
    ("u8[7x13](s=0.1,o=140)", "i8[13x5](s=[0.1,0.2,0.3,0.4,0.5],o=[0,0,0,0,0],axis=1)"),
    ("i8[2x1x3x65](s=0.1,o=-20)", "i8[4x65x9](s=0.02,o=0)"),
    ("u8[1x300](s=0.1,o=0)", "u8[300x33](s=0.02,o=121)"),
    ("i8[3x4](s=0.1,o=127)", "u8[4x1](s=[0.7],o=[9],axis=1)"),
]


@pytest.mark.parametrize("known", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize(("left", "right"), PRODUCTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_matrix_product_is_an_exact_sum(backend: str, left: str, right: str, known: bool) -> None:
    """Of the right side, whether it is known or computed."""
    lhs, rhs = parse_type(left), parse_type(right)
    a, b = integers(lhs, 11), integers(rhs, 12)
    offsets = shaped(rhs, parameters(rhs).offsets).astype(np.int64)
    sums = (a.astype(np.int64) - parameters(lhs).offsets[0]) @ (b.astype(np.int64) - offsets)
    shape = "x".join(map(str, sums.shape))
    result = parse_type(f"u8[{shape}](s=2.5,o=117)")

    def build(f: Function, v: list[NodeValue]) -> Node:
        weights = f.module.create_constant("w", Tensor(rhs, b)) if known else v[1]
        return f.create_mat_mul("p", v[0], weights, result_type=result)

    inputs = [(lhs, a)] if known else [(lhs, a), (rhs, b)]
    scales = np.float64(0.1) * np.array(parameters(rhs).scales)
    ratio = quotient(scales, 2.5)
    expected = rounded(result, sums.astype(F32) * ratio)
    np.testing.assert_array_equal(run(backend, build, *inputs), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_fully_connected_layer_adds_its_bias_to_the_sum(backend: str) -> None:
    lhs, rhs = parse_type("u8[3x9](s=0.1,o=7)"), parse_type("i8[9x4](s=0.2,o=0)")
    bias, result = parse_type(f"i32[4](s={0.1 * 0.2!r},o=0)"), parse_type("i8[3x4](s=4.0,o=-3)")
    a, w = integers(lhs, 13), integers(rhs, 14)
    b = np.array([1 << 20, -(1 << 20), 3, 0], np.int32)
    got = run(
        backend,
        lambda f, v: f.create_fully_connected(
            "y",
            v[0],
            f.module.create_constant("w", Tensor(rhs, w)),
            f.module.create_constant("b", Tensor(bias, b)),
            result_type=result,
        ),
        (lhs, a),
    )
    sums = (a.astype(np.int64) - 7) @ w.astype(np.int64) + b
    expected = rounded(result, sums.astype(F32) * F32(np.float64(0.1) * 0.2 / 4.0))
    np.testing.assert_array_equal(got, expected)
