"""Stored integers of 16 bits: their arithmetic against numpy that says the same in other words, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.node import Node, Operand
from glowpy.graph.nodes_gen import (
    AbsNode,
    CeilNode,
    ExpNode,
    GeluNode,
    HardSwishNode,
    HighByteNode,
    LeakyReluNode,
    LogNode,
    SigmoidNode,
    SinNode,
    SqrtNode,
    TanhNode,
)
from glowpy.quantization import quant_of_range
from glowpy.support.text import Attr
from tests.ops.harness import bound
from tests.ops.test_quantized_arithmetic import (
    F32,
    integers,
    numbers,
    quantized,
    rounded,
    run,
    shaped,
)

TESTED = (HighByteNode,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_upper_byte_is_rounded_down(backend: str) -> None:
    stored = np.arange(-32768, 32768).astype(np.int16)
    got = run(
        backend,
        lambda f, v: f.create_high_byte("h", parse_type("i8[65536]"), v[0]),
        (parse_type("i16[65536]"), stored),
    )
    assert got.tolist() == [number // 256 for number in stored.tolist()]


def _bytes(type: Type, stored: Array) -> list[Array]:
    """Steps above the offset, of both bytes or of the only one."""
    offset = shaped(type, parameters(type).offsets).astype(np.int64)
    wide = stored.astype(np.int64)
    if type.kind.size == 1:
        return [wide - offset]
    return [np.floor_divide(wide, 256) - np.floor_divide(offset, 256), wide % 256 - offset % 256]


def _joined(products: list[list[Array]], scales: Array) -> Array:
    """Exact sums of products of bytes, by those of the left side and of the right one, in f32: the largest first."""
    total: Array | None = None
    for i, row in enumerate(products):
        for j, sums in enumerate(row):
            assert np.abs(sums).max(initial=0) < 1 << 31
            factor = F32(256 ** (len(products) - 1 - i + len(row) - 1 - j))
            part = sums.astype(F32) * factor
            total = part if total is None else total + part
    assert total is not None
    return np.asarray(total * scales.astype(F32))


MATRICES = [
    ("i16[3x5](s=0.003,o=-7)", "i8[5x4](s=0.02,o=0)"),
    ("i16[2x3x37](s=0.003,o=-32768)", "i8[37x33](s=0.02,o=3)"),
    ("i16[1x300](s=0.003,o=256)", "u8[300x7](s=0.02,o=131)"),
    ("i16[17x6](s=0.003,o=5)", "i8[6x3](s=[0.02,0.5,0.001],o=[0,0,0],axis=1)"),
    ("i16[2x3x9](s=0.003,o=700)", "i16[2x9x5](s=0.01,o=-1)"),
    ("u8[4x9](s=0.003,o=7)", "i16[9x5](s=0.01,o=-300)"),
    ("i16[0x9](s=0.003,o=7)", "i8[9x5](s=0.01,o=0)"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("left", "right"), MATRICES)
@pytest.mark.parametrize("known", [True, False])
def test_matrix_products_are_sums_of_products_of_bytes(
    left: str, right: str, known: bool, backend: str
) -> None:
    lhs, rhs = parse_type(left), parse_type(right)
    a, b = integers(lhs, 1), integers(rhs, 2)
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", lhs)
    w: Operand = (
        module.create_constant("w", Tensor(rhs, b))
        if known
        else module.create_placeholder("w", rhs)
    )
    floats = [
        f.create_dequantize("d", Type(ElemKind.F32, type.shape), value)
        for type, value in ((lhs, x), (rhs, w))
    ]
    product = f.create_mat_mul("p", *floats)
    f.create_save("save", product, module.create_placeholder("y", product.type))
    got = glowpy.compile(f, bound(backend))({"x": a} if known else {"x": a, "w": b})["y"]
    scales = np.float64(0.003) * shaped(rhs, parameters(rhs).scales)
    expected = _joined([[p @ q for q in _bytes(rhs, b)] for p in _bytes(lhs, a)], scales)
    np.testing.assert_array_equal(got, expected)
    exact = (numbers(lhs, a).astype(float)) @ numbers(rhs, b).astype(float)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max(initial=1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("weights", "group"),
    [
        ("i8[6x3x3x4](s=0.02,o=0)", 1),
        ("i8[6x3x3x2](s=0.02,o=-3)", 2),
        ("i8[4x3x3x1](s=[0.02,0.5,0.001,0.1],o=[0,0,0,0],axis=0)", 4),
    ],
)
@pytest.mark.parametrize("offset", [0, -32768, 1000])
def test_convolution_is_a_sum_of_products_of_bytes(
    weights: str, group: int, offset: int, backend: str
) -> None:
    """Outside of the image is zero; the bias is added in f32, and what follows rounds once."""
    data, filter = parse_type(f"i16[2x5x6x4](s=0.003,o={offset})"), parse_type(weights)
    outputs, depth = filter.extents[0], filter.extents[-1]
    result = parse_type(f"i16[2x5x6x{outputs}](s=0.02,o=-512)")
    x, w = integers(data, 3), integers(filter, 4)
    bias = np.random.default_rng(5).normal(0, 50, outputs).astype(F32)

    module = glowpy.Module()
    f = module.create_function("main")
    node = f.create_convolution(
        "c",
        f.create_dequantize("xs", parse_type("f32[2x5x6x4]"), module.create_placeholder("x", data)),
        f.create_dequantize(
            "ws", Type(ElemKind.F32, filter.shape), module.create_constant("w", Tensor(filter, w))
        ),
        module.create_constant("b", bias), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), group,
    )  # fmt: skip
    stored = f.create_quantize("q", result, f.create_relu("r", node))
    f.create_save("save", stored, module.create_placeholder("y", result))
    got = glowpy.compile(f, bound(backend))({"x": x})["y"]

    products = []
    (taps,) = _bytes(filter, w)
    for part in _bytes(data, x):
        padded = np.pad(part, ((0, 0), (1, 1), (1, 1), (0, 0)))
        sums = np.zeros(result.extents, np.int64)
        for channel in range(outputs):
            first = channel // (outputs // group) * depth
            for i in range(3):
                for j in range(3):
                    window = padded[:, i : i + 5, j : j + 6, first : first + depth]
                    sums[..., channel] += window @ taps[channel, i, j]
        products.append([sums])
    scales = np.broadcast_to(np.float64(0.003) * np.array(parameters(filter).scales), outputs)
    floats = _joined(products, scales) + bias
    np.testing.assert_array_equal(got, np.maximum(rounded(result, floats / F32(0.02)), -512))


SMOOTH: list[tuple[type[Node], dict[str, Attr], str, float]] = [
    (TanhNode, {}, "(s=0.0001,o=0)", 0.6),
    (SigmoidNode, {}, "(s=0.0002,o=-256)", 0.6),
    (ExpNode, {}, "(s=0.0001,o=20000)", 0.6),
    (GeluNode, {"approximate": False}, "(s=0.0002,o=1024)", 0.6),
    (SinNode, {}, "(s=0.0002,o=100)", 0.6),
    (LeakyReluNode, {"alpha": 0.1}, "(s=0.0002,o=-512)", 0.6),
    (AbsNode, {}, "(s=0.0002,o=77)", 0.6),
    (HardSwishNode, {}, "(s=0.0002,o=0)", 14.0),
    (TanhNode, {}, "(s=0.0006,o=0)", 2.6),
]
"""The last number is by how many steps of the result a function may differ; half a step is rounding.

A hard swish bends within a parabola, and a tanh of a range of 40 is steep for its steps.
"""


@pytest.mark.parametrize(("cls", "attrs", "quant", "steps"), SMOOTH)
def test_functions_are_parabolas(
    cls: type[Node], attrs: dict[str, Attr], quant: str, steps: float
) -> None:
    """All 65,536 integers; the same bits on all backends."""
    source = parse_type(f"i16[65536]{quant}")
    stored = np.arange(-32768, 32768).astype(np.int16)
    plain = run(
        "interpreter",
        lambda f, v: f.create(cls, "n", v, attrs),
        (parse_type("f32[65536]"), numbers(source, stored)),
    )
    result = Type(ElemKind.I16, (65536,), quant_of_range(plain.min(), plain.max(), ElemKind.I16))
    outputs = [
        run(backend, lambda f, v: f.create(cls, "n", v, attrs, result), (source, stored))
        for backend in BACKENDS
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    scale, offset = parameters(result).scales[0], parameters(result).offsets[0]
    assert np.abs(outputs[0].astype(float) - offset - plain.astype(float) / scale).max() <= steps


@pytest.mark.parametrize("cls", [LogNode, SqrtNode, CeilNode])
def test_what_jumps_has_no_parabolas(cls: type[Node]) -> None:
    """One clear error with the place, where the node is lowered."""
    type = parse_type("i16[4](s=0.1,o=0)")
    with pytest.raises(
        glowpy.UserError, match="expected one operand of 8 bits, or of 16"
    ) as caught:
        run("interpreter", lambda f, v: f.create(cls, "n", v, {}, type), (type, integers(type)))
    assert caught.value.diagnostics[0].loc is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("shape", "axis"), [("3x17", 1), ("5x2x3", 1), ("2x5000", 1), ("1x1", 0)])
def test_softmax_divides_by_exact_sums(shape: str, axis: int, backend: str) -> None:
    source, result = (
        parse_type(f"i16[{shape}](s=0.0004,o=9)"),
        parse_type(f"i16[{shape}](s=1.6e-5,o=-32768)"),
    )
    stored = integers(source, 6)
    got = run(
        backend,
        lambda f, v: f.create_softmax("s", v[0], axis, result_type=result),
        (source, stored),
    )
    below = stored.max(axis, keepdims=True).astype(np.int64) - stored
    scale = parameters(source).scales[0]
    high = (2.0**30 * np.exp(-scale * 256 * (below // 256))).astype(F32)
    powers = high * np.exp(-scale * (below % 256)).astype(F32)
    sums = np.rint(powers.astype(float)).astype(np.int64).sum(axis, keepdims=True)
    np.testing.assert_array_equal(got, quantized(result, powers / sums.astype(F32)))
    exact = np.exp(-scale * below) / np.exp(-scale * below).sum(axis, keepdims=True)
    assert np.abs((got + 32768.0) * 1.6e-5 - exact).max() < 0.6 * 1.6e-5 + 2e-7


@pytest.mark.parametrize("backend", BACKENDS)
def test_means_are_exact_sums(backend: str) -> None:
    source, result = (
        parse_type("i16[2x3x5x7](s=0.003,o=-32768)"),
        parse_type("i16[2x1x1x7](s=0.004,o=-20000)"),
    )
    stored = integers(source, 8)
    got = run(
        backend,
        lambda f, v: f.create_reduce_mean("m", v[0], (1, 2), result_type=result),
        (source, stored),
    )
    steps = (stored.astype(np.int64) + 32768).sum((1, 2), keepdims=True).astype(F32)
    ratio = F32(np.float64(0.003) / (np.float64(0.004) * 15))
    np.testing.assert_array_equal(got, rounded(result, steps * ratio))
    assert math.isclose(numbers(result, got).mean(), numbers(source, stored).mean(), rel_tol=0.1)
