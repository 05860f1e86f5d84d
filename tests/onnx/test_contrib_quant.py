"""Operators on stored integers of onnxruntime's own domain, one by one: within a step of what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.contrib_cases import Case, f32, i32
from tests.onnx.test_quantized_models import floats_left

RNG = np.random.default_rng(5)
U8, I8, F = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT


def stored(kind: int, *shape: int) -> Array:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def parameters(kind: int, scale: Any, zero: Any) -> tuple[Array, Array]:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return np.array(scale, np.float32), np.array(zero, dtype)


def quantized(op_type: str, *inputs: Array | None, kind: int = U8, **attributes: Any) -> Case:
    """A node whose scales and zero points are known, as they are in files."""
    data = [i for i, array in enumerate(inputs) if array is not None and array.ndim > 1]
    known = [i for i, array in enumerate(inputs) if array is not None and i not in data]
    return Case(op_type, inputs, attributes, outputs=(kind,), known=known, rtol=0, atol=1)


def cases(kind: int) -> Iterator[Case]:
    shift = 0 if kind == U8 else -128
    a, b, c = (parameters(kind, s, z + shift) for s, z in ((0.03, 120), (0.11, 9), (0.07, 90)))
    x, y, image = stored(kind, 2, 3, 17), stored(kind, 3, 17), stored(kind, 2, 5, 6, 7)
    yield quantized("QLinearAdd", x, *a, y, *b, *c)
    yield quantized("QLinearMul", x, *a, y, *b, *c)
    yield quantized("QLinearSigmoid", x, *a, *parameters(kind, 1 / 256, shift))
    yield quantized("QLinearLeakyRelu", x, *a, *c, alpha=0.2)
    soft = parameters(kind, 1 / 256, shift)
    yield quantized("QLinearSoftmax", x, *a, *soft, opset=13, axis=1)
    yield quantized("QLinearSoftmax", x, *a, *soft, opset=13)
    yield quantized("QLinearSoftmax", x, *a, *soft, opset=12, axis=1)
    for last in (0, 1):
        yield quantized("QLinearGlobalAveragePool", image, *a, *c, channels_last=last)
        pool: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        for pads in (0, 1):
            attributes = {**pool, "channels_last": last, "count_include_pad": pads}
            yield quantized("QLinearAveragePool", image, *a, *c, **attributes)
            larger = {"kernel_shape": [9, 3], "strides": [9, 2], "count_include_pad": pads}
            for ceil in (0, 1):
                attributes = {**larger, "channels_last": last, "ceil_mode": ceil}
                yield quantized("QLinearAveragePool", image, *a, *c, **attributes)
    yield quantized("QLinearConcat", *c, x, *a, stored(kind, 2, 5, 17), *b, axis=1)
    condition = RNG.integers(0, 2, (3, 17)).astype(bool)
    yield quantized("QLinearWhere", condition, x, *a, y, *b, *c)


def same(node: Case, kind: int) -> Case:
    return replace(node, outputs=(kind,), title=f"{node.attributes} {['u8', 'i8'][kind == I8]}")


ARITHMETIC = [same(node, kind) for kind in (U8, I8) for node in cases(kind)]


@pytest.mark.parametrize("node", ARITHMETIC, ids=str)
def test_arithmetic(node: Case) -> None:
    left = [name for name in floats_left(glowpy.load(node.model()).main) if name != "reshape"]
    assert left == []
    expected = node.expected()
    node.check("interpreter", expected)
    assert len(np.unique(expected[0])) > 5


@pytest.mark.parametrize("node", {n.op_type: n for n in ARITHMETIC}.values(), ids=str)
def test_arithmetic_on_cpu(node: Case) -> None:
    """The bits of the interpreter."""
    reference, result = (
        glowpy.InferenceSession(node.model(), backend=backend).run(None, node.feeds)[0]
        for backend in ("interpreter", "cpu")
    )
    np.testing.assert_array_equal(result, reference)


def optional(node: Case, *indices: int) -> Case:
    """The node without some of its zero points."""
    inputs = [None if i in indices else array for i, array in enumerate(node.inputs)]
    return replace(node, inputs=inputs, known=[i for i in node.known if i not in indices])


def test_zero_points_may_be_left_out() -> None:
    """They are 0 then."""
    zero, one = np.array(0, np.uint8), np.array(0.03, np.float32)
    x = stored(U8, 2, 17)
    node = quantized("QLinearAdd", x, one, zero, x, one, zero, one * 3, zero)
    optional(node, 2, 5, 7).check("interpreter", node.expected())


def test_mean() -> None:
    """onnxruntime has no kernel for it."""
    image, a, c = stored(U8, 2, 5, 6, 7), parameters(U8, 0.11, 131), parameters(U8, 0.07, 90)
    node = quantized("QLinearReduceMean", image, *a, *c, axes=[2, -1], keepdims=0)
    mean = (image.astype(np.float64) - a[1]).mean((2, 3)) * a[0]
    node.check("interpreter", [np.clip(np.rint(mean / c[0]) + c[1], 0, 255).astype(np.uint8)])


def products() -> Iterator[Case]:
    for kind, weights in ((U8, I8), (U8, U8), (I8, I8)):
        a, y = parameters(kind, 0.03, 7), parameters(kind, 0.9, 90 if kind == U8 else -9)
        b = parameters(weights, 0.02, 3)
        x, w = stored(kind, 4, 9), stored(weights, 9, 5)
        columns = parameters(weights, RNG.uniform(0.01, 0.05, 5), np.zeros(5))
        bias = RNG.integers(-59999, 59999, 5).astype(np.int32)
        title = f"{kind} {weights}"
        yield replace(quantized("QGemm", x, *a, w, *b, bias, *y, kind=kind), title=title)
        turned = quantized("QGemm", x, *a, w.T.copy(), *columns, bias, *y, kind=kind, transB=1)
        yield replace(turned, title=f"{title} by column")
        floats = quantized("QGemm", x, *a, w, *b, None, kind=F)
        yield replace(floats, title=f"{title} to floats", rtol=1e-5, atol=1e-4)
        halved = quantized("QGemm", x, *a, w, *b, bias, *y, kind=kind, alpha=0.5)
        yield replace(halved, title=f"{title} halved")
    image, filter = stored(U8, 1, 6, 7, 3), stored(I8, 4, 3, 3, 3)
    conv = [image, *parameters(U8, 0.05, 120), filter, *parameters(I8, 0.02, 0)]
    bias = RNG.integers(-999, 999, 4).astype(np.int32)
    yield quantized(
        "QLinearConv", *conv, *parameters(U8, 0.9, 99), bias, channels_last=1, pads=[1, 1, 1, 1]
    )


PRODUCTS = list(products())


@pytest.mark.parametrize("node", PRODUCTS, ids=str)
def test_product(node: Case) -> None:
    left = floats_left(glowpy.load(node.model()).main)
    assert left == [] or "halved" in node.title
    expected = node.expected()
    node.check("interpreter", expected)
    assert len(np.unique(expected[0])) > 5


def dynamic() -> Iterator[Case]:
    """Products whose result is in floats."""
    for kind in (I8, U8):
        b, c = parameters(kind, 0.02, 3), parameters(kind, RNG.uniform(0.01, 0.05, 5), np.arange(5))
        x, w, bias = f32(2, 4, 9), stored(kind, 9, 5), f32(5)
        yield Case("DynamicQuantizeMatMul", [x, w, *b, bias], known=[1, 2, 3, 4])
        yield Case("DynamicQuantizeMatMul", [x, w, c[0], None, bias], known=[1, 2, 4])
        yield Case("DynamicQuantizeMatMul", [x, w, *c], known=[1, 2, 3])
        a = parameters(U8, 0.03, 120)
        q = stored(U8, 2, 4, 9)
        yield Case("MatMulIntegerToFloat", [q, w, a[0], b[0], a[1], b[1], bias], known=[1, 3, 5])
        yield Case("MatMulIntegerToFloat", [q, w, a[0], c[0], a[1], c[1]], known=[1, 2, 3, 4, 5])
        yield Case("MatMulIntegerToFloat", [q, w, a[0], b[0]], known=[1, 2, 3])


DYNAMIC = [replace(node, rtol=1e-4, atol=1e-4, title=str(i)) for i, node in enumerate(dynamic())]


@pytest.mark.parametrize("node", DYNAMIC, ids=str)
def test_product_with_a_range_of_run_time(node: Case) -> None:
    node.check("interpreter", node.expected())


ATTENTION: list[Any] = [
    stored(U8, 2, 5, 12), stored(I8, 12, 24), f32(24), np.array(0.02, np.float32), np.array(0.01, np.float32),
    i32(5, 3), np.array(120, np.uint8), np.array(0, np.int8),
]  # fmt: skip
ATTENDED = [
    Case("QAttention", ATTENTION, {"num_heads": 2}, known=[1, 2, 4, 7]),
    Case(
        "QAttention",
        [*ATTENTION[:5], None, *ATTENTION[6:], f32(2, 2, 2, 3, 4)],
        {"num_heads": 2, "unidirectional": 1},
        outputs=(F, F),
        known=[1, 2, 4, 7],
        title="past",
    ),
]


@pytest.mark.parametrize("node", ATTENDED, ids=str)
def test_attention(node: Case) -> None:
    node = replace(node, rtol=1e-3, atol=1e-3)
    node.check("interpreter", node.expected())


def test_embedding() -> None:
    words = i32([3, 0, 8, 1, 4], [2, 2, 7, 0, 5])
    tables = [stored(U8, *shape) for shape in ((9, 8), (12, 8), (2, 8), (8,), (8,))]
    scales = [np.array(0.01 * (i + 1), np.float32) for i in range(5)]
    zeros = [np.array(120 + i, np.uint8) for i in range(5)]
    node = Case(
        "QEmbedLayerNormalization",
        [words, i32([0, 0, 1, 1, 1], [1, 0, 0, 0, 0]), *tables, i32([1] * 5, [1] * 5), *scales, *zeros],
        outputs=(F, TensorProto.INT32),
        known=range(2, 7),
        rtol=1e-4,
        atol=1e-4,
    )  # fmt: skip
    node.check("interpreter", node.expected())


def test_conversions() -> None:
    x = f32(3, 4)
    for kind in (U8, I8, TensorProto.INT16, TensorProto.UINT16):
        step = parameters(kind, [0.02, 0.03, 0.05], [3, 5, 0])
        node = replace(quantized("QuantizeLinear", x, *step, kind=kind, axis=0), atol=0)
        node.check("interpreter", node.expected())
        back = quantized("DequantizeLinear", stored(kind, 3, 4), *step, kind=F, axis=0)
        replace(back, atol=0).check("interpreter", back.expected())


def test_pool_of_channels_that_are_last() -> None:
    node = quantized("NhwcMaxPool", stored(U8, 1, 6, 7, 3), kernel_shape=[2, 3], pads=[0, 1, 0, 1])
    replace(node, atol=0).check("interpreter", node.expected())


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (quantized("QLinearConcat", *parameters(U8, 1, 0), stored(U8, 2, 2), axis=0), "three inputs"),
        (replace(ARITHMETIC[4], attributes={"opset": 0}), "an opset of at least 1"),
        (optional(PRODUCTS[0], 8), "both scale and zero point"),
        (replace(ATTENDED[0], attributes={"num_heads": 2, "do_rotary": 1}), "do_rotary 1 is not"),
        (
            Case("QAttention", [ATTENTION[0][0], *ATTENTION[1:]], {"num_heads": 2}),
            "expected [batch, length, width] and weights",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refused(node: Case, message: str) -> None:
    assert message in node.error()
