"""Floats of at most 8 bits in ONNX: casts as its tables say, quantization to them and from them, and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, converted
from glowpy.engine import BACKENDS
from glowpy.importer.elements import elem_type_of
from tests.libjit.code_cases import FORMATS, Format, floats_to_encode
from tests.onnx.comparison import graph_model, info
from tests.onnx.test_narrow import stored_forms

FLOATS_8 = (ElemKind.F8E4M3FN, ElemKind.F8E4M3FNUZ, ElemKind.F8E5M2, ElemKind.F8E5M2FNUZ)
OPSET = min(28, onnx.defs.onnx_opset_version())
E8M0 = getattr(TensorProto, "FLOAT8E8M0", None)

NEWER = tuple(
    kind
    for kind, name in (
        (ElemKind.F4E2M1, "FLOAT4E2M1"),
        (ElemKind.F6E2M3, "FLOAT6E2M3"),
        (ElemKind.F6E3M2, "FLOAT6E3M2"),
    )
    if hasattr(TensorProto, name)
)
"""Those that the installed onnx has of few bits."""

newest = pytest.mark.skipif(E8M0 is None, reason="this onnx has no powers of two")


def cast_model(x: Array, casts: list[tuple[ElemKind, dict[str, Any]]]) -> onnx.ModelProto:
    """Casts of one input; output i is of the i-th."""
    nodes = [
        helper.make_node("Cast", ["x"], [f"y{i}"], to=elem_type_of(kind), **attributes)
        for i, (kind, attributes) in enumerate(casts)
    ]
    outputs = [
        helper.make_tensor_value_info(f"y{i}", elem_type_of(kind), x.shape)
        for i, (kind, _) in enumerate(casts)
    ]
    return graph_model(nodes, [info("x", x)], outputs, OPSET)


def run(model: onnx.ModelProto, backend: str, **feeds: Array) -> list[Array]:
    return glowpy.InferenceSession(model, backend=backend).run(None, feeds)


def assert_same_codes(got: Array, expected: Array, where: str = "") -> None:
    np.testing.assert_array_equal(got.view(np.uint8), expected.view(np.uint8), where)


def every(kind: ElemKind) -> Array:
    return np.arange(1 << kind.code_bits, dtype=np.uint8).view(kind.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_casts_saturate_unless_they_are_told_not_to(backend: str) -> None:
    x = np.concatenate([floats_to_encode(kind.value) for kind in FLOATS_8])
    casts = [(kind, {"saturate": saturate}) for kind in FLOATS_8 for saturate in (0, 1)]
    for got, (kind, attributes) in zip(run(cast_model(x, casts), backend, x=x), casts, strict=True):
        numbers, format = x, FORMATS[kind.value]
        if attributes["saturate"]:
            assert isinstance(format, Format)
            limit = np.float32(format.number(format.greatest))
            numbers = np.clip(x, -limit, limit)
        assert got.dtype == kind.dtype
        assert_same_codes(got, format.nearest(numbers), f"{kind} {attributes}")


@newest
@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_of_two_are_rounded_as_asked_for(backend: str) -> None:
    x = np.abs(floats_to_encode("f8e8m0"))
    x = x[(x >= 2.0**-126) | (x == 0) | np.isnan(x)]  # of the smallest, powers are no normal floats
    kind = ElemKind.F8E8M0
    modes = [(mode, saturate) for mode in ("up", "down", "nearest") for saturate in (0, 1)]
    casts = [(kind, {"round_mode": mode, "saturate": saturate}) for mode, saturate in modes]
    casts.append((kind, {}))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        fraction, exponent = np.frexp(wide)
        steps = {
            "down": exponent - 1,
            "up": exponent - (fraction == 0.5),
            "nearest": exponent - (fraction < 0.75),
        }
    for got, (mode, saturate) in zip(
        run(cast_model(x, casts), backend, x=x), [*modes, ("up", 1)], strict=True
    ):
        codes = np.where(wide > 2.0**127, 999, np.where(wide < 2.0**-127, -999, steps[mode] + 127))
        codes = (
            np.clip(codes, 0, 254)
            if saturate
            else np.where((codes < 0) | (codes > 254), 255, codes)
        )
        codes = np.where(np.isnan(x), 255, codes)
        assert_same_codes(got, codes.astype(np.uint8), f"{mode} {saturate}")


COMPUTED = [kind for kind in ElemKind if not kind.is_code]


@pytest.mark.parametrize("backend", BACKENDS)
def test_codes_become_any_kind(backend: str) -> None:
    """Each by way of f32, which holds them all."""
    kinds = [*FLOATS_8, *NEWER]
    for kind in kinds[:: 1 if backend == "interpreter" else 3]:
        x = every(kind)
        model = cast_model(x, [(to, {}) for to in COMPUTED])
        for got, to in zip(run(model, backend, x=x), COMPUTED, strict=True):
            expected = converted(x.astype(np.float32), to)
            if to is ElemKind.BF16:  # of which numpy does not know its NaN
                got, expected = got.astype(np.float32), expected.astype(np.float32)
            np.testing.assert_array_equal(got, expected, f"{kind} {to}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_kind_becomes_codes(backend: str) -> None:
    to = ElemKind.F8E4M3FN
    nodes, inputs, outputs, feeds = [], [], [], {}
    for kind in COMPUTED:
        low = -9 if kind.is_signed else 0
        x = np.arange(low, 120).astype(kind.dtype)
        feeds[kind.value] = x
        inputs.append(info(kind.value, x))
        nodes.append(
            helper.make_node("Cast", [kind.value], [f"y_{kind.value}"], to=elem_type_of(to))
        )
        outputs.append(helper.make_tensor_value_info(f"y_{kind.value}", elem_type_of(to), x.shape))
    results = run(graph_model(nodes, inputs, outputs, OPSET), backend, **feeds)
    for got, kind in zip(results, COMPUTED, strict=True):
        codes = FORMATS[to.value].nearest(feeds[kind.value].astype(np.float32))
        assert_same_codes(got, codes, str(kind))


# Quantization, against ONNX's reference.

RNG = np.random.default_rng(9)
X = (RNG.standard_normal((4, 6)) * 40).astype(np.float32)
AXIS = RNG.uniform(0.1, 2, 6).astype(np.float32)
BLOCKS = RNG.uniform(0.1, 2, (4, 3)).astype(np.float32)


def quantizations() -> Iterator[tuple[str, list[Array], dict[str, Any]]]:
    for kind in (*FLOATS_8, *NEWER):
        to = elem_type_of(kind)
        yield kind.value, [X, np.array(0.25, np.float32)], {"output_dtype": to}
    zero = np.zeros(6, ml_dtypes.float8_e5m2)
    yield "axis", [X, AXIS, zero], {"axis": 1}
    to = TensorProto.FLOAT8E4M3FN
    yield "blocks", [X, BLOCKS], {"axis": 1, "block_size": 2, "output_dtype": to}
    yield "overflow", [X * 99, AXIS], {"axis": 1, "output_dtype": to, "saturate": 0}
    yield "precision", [X, AXIS], {"output_dtype": to, "precision": TensorProto.FLOAT16}
    integers = {"output_dtype": TensorProto.INT8, "precision": TensorProto.BFLOAT16}
    yield "precision of integers", [X, AXIS], integers
    yield "halves", [X.astype(np.float16), AXIS.astype(np.float16)], {"output_dtype": to}


QUANTIZATIONS = list(quantizations())


def reference(op_type: str, inputs: list[Array], attributes: dict[str, Any]) -> tuple[Any, Array]:
    """A model of one node, and what ONNX's own implementation gives."""
    names = [f"i{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    infos = [info(name, array) for name, array in zip(names, inputs, strict=True)]
    untyped = graph_model([node], infos, [helper.make_empty_tensor_value_info("y")], OPSET)
    with np.errstate(all="ignore"):
        (y,) = ReferenceEvaluator(untyped).run(None, dict(zip(names, inputs, strict=True)))
    return graph_model([node], infos, [info("y", np.asarray(y))], OPSET), np.asarray(y)


def check(op_type: str, inputs: list[Array], attributes: dict[str, Any], backend: str) -> None:
    model, expected = reference(op_type, inputs, attributes)
    feeds = {f"i{index}": array for index, array in enumerate(inputs)}
    (got,) = run(model, backend, **feeds)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("title", "inputs", "attributes"), QUANTIZATIONS, ids=[title for title, *_ in QUANTIZATIONS]
)
def test_quantize(title: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    del title
    check("QuantizeLinear", inputs, attributes, "interpreter")


def dequantizations() -> Iterator[tuple[str, list[Array], dict[str, Any]]]:
    x = X.astype(ml_dtypes.float8_e4m3fn)
    yield "tensor", [x, np.array(0.5, np.float32)], {}
    yield "axis", [x, AXIS, np.zeros(6, x.dtype)], {"axis": 1}
    yield "blocks", [x, BLOCKS], {"axis": 1, "block_size": 2}
    yield "halves", [x, AXIS.astype(np.float16)], {"axis": 1}
    yield "another kind", [x, AXIS], {"axis": 1, "output_dtype": TensorProto.FLOAT16}
    if E8M0 is not None:
        codes = every(ElemKind.F4E2M1)
        pick = RNG.integers(0, 16, (4, 6))
        powers = np.array([[0.5, 1, 2]] * 4).astype(ml_dtypes.float8_e8m0fnu)
        stated = {"axis": 1, "block_size": 2, "output_dtype": TensorProto.FLOAT}
        yield "microscaling", [codes[pick], powers], stated


DEQUANTIZATIONS = list(dequantizations())


@pytest.mark.parametrize(
    ("title", "inputs", "attributes"), DEQUANTIZATIONS, ids=[title for title, *_ in DEQUANTIZATIONS]
)
def test_dequantize(title: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    del title
    check("DequantizeLinear", inputs, attributes, "interpreter")


@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_quantization_on_the_cpu(op_type: str) -> None:
    """Blocks are the most general form."""
    table = QUANTIZATIONS if op_type == "QuantizeLinear" else DEQUANTIZATIONS
    for title, inputs, attributes in table:
        if title in ("blocks", "microscaling", "precision", "precision of integers"):
            check(op_type, inputs, attributes, "cpu")


SOME = every(ElemKind.F8E5M2)[[0, 0x7C, 0xFC, 0x7D, 0x80, 0x40]]
MATRIX = (RNG.standard_normal((3, 2)) * 4).astype(ml_dtypes.float8_e4m3fn)
OTHERS: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("IsInf", [SOME], {"detect_negative": 0}),
    ("IsNaN", [SOME], {}),
    ("Identity", [SOME], {}),
    ("Reshape", [SOME, np.array([2, -1])], {}),
    ("Pad", [SOME, np.array([1, 2]), SOME[5:].reshape(())], {}),
    ("Pad", [SOME, np.array([1, 2])], {"mode": "edge"}),
    ("ConstantOfShape", [np.array([2, 3])], {"value": numpy_helper.from_array(SOME[5:])}),
    ("Constant", [], {"value": numpy_helper.from_array(SOME)}),
    ("CastLike", [np.ones(3, np.int64), SOME], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), OTHERS)
def test_other_operators(op_type: str, inputs: list[Array], attributes: dict[str, Any]) -> None:
    """Lists of integers are known."""
    names = [f"i{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    _, expected = reference(op_type, inputs, attributes)
    given = {n: x for n, x in zip(names, inputs, strict=True) if x.dtype != np.int64}
    known = {n: x for n, x in zip(names, inputs, strict=True) if x.dtype == np.int64}
    infos = [info(name, array) for name, array in given.items()]
    model = graph_model([node], infos, [info("y", expected)], OPSET, known)
    (got,) = run(model, "interpreter", **given)
    assert got.dtype == expected.dtype
    assert got.tobytes() == expected.tobytes()


def test_products_of_codes() -> None:
    """The numbers are multiplied in f32."""
    rhs, scale = np.ascontiguousarray(MATRIX.T), np.array(0.5, np.float32)
    zero = np.zeros((), MATRIX.dtype)
    inputs = [MATRIX, scale, zero, rhs, scale, zero, np.array(2, np.float32), zero]
    names = [f"i{index}" for index in range(len(inputs))]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    infos = [info(name, array) for name, array in zip(names, inputs, strict=True)]
    exact = MATRIX.astype(np.float32) @ rhs.astype(np.float32) / 8
    expected = np.clip(exact, -448, 448).astype(MATRIX.dtype)
    model = graph_model([node], infos, [info("y", expected)], OPSET)
    (got,) = run(model, "interpreter", **dict(zip(names, inputs, strict=True)))
    assert_same_codes(got, expected)


def test_powers_as_scales_need_a_kind_for_the_result() -> None:
    x, scale = every(ElemKind.F8E5M2)[:4], np.ones((), ml_dtypes.float8_e8m0fnu)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"])
    outputs = [info("y", np.zeros(4, np.float32))]
    model = graph_model([node], [info("x", x), info("s", scale)], outputs, OPSET)
    with pytest.raises(glowpy.UserError, match="'output_dtype' with a scale of f8e8m0"):
        glowpy.load(model)


def test_an_unknown_rounding_is_refused() -> None:
    x = np.ones(3, np.float32)
    model = cast_model(x, [(ElemKind.F8E8M0, {"round_mode": "sideways"})])
    with pytest.raises(glowpy.UserError, match="'round_mode': expected up, down or nearest, got"):
        glowpy.load(model)


@newest
@pytest.mark.parametrize("kind", [*NEWER, ElemKind.F8E4M3FNUZ], ids=lambda kind: kind.value)
def test_weights(kind: ElemKind, tmp_path: Any) -> None:
    """In every form in which files have them, of 4 bits two in a byte; large ones are read when they are needed."""
    codes = every(kind)
    weights = codes[RNG.integers(0, len(codes), (5, 7))]
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    x = np.zeros((5, 7), np.float32)
    for form in stored_forms(weights, tmp_path):
        model = graph_model([node], [], [info("y", x)], OPSET)
        model.graph.initializer.append(form)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        (got,) = glowpy.InferenceSession(tmp_path / "m.onnx", backend="interpreter").run(None, {})
        np.testing.assert_array_equal(got, weights.astype(np.float32))
    large = codes[RNG.integers(0, len(codes), (300, 301))]
    model = graph_model([node], [], [info("y", np.zeros((300, 301), np.float32))], OPSET)
    model.graph.initializer.append(numpy_helper.from_array(large, "w"))
    (got,) = run(model, "interpreter")
    np.testing.assert_array_equal(got, large.astype(np.float32))


def test_sessions_take_and_give_codes() -> None:
    x = every(ElemKind.F8E5M2)[:6].reshape(2, 3)
    node = helper.make_node("Transpose", ["x"], ["y"])
    session = glowpy.InferenceSession(
        graph_model([node], [info("x", x)], [info("y", x.T)], OPSET), backend="interpreter"
    )
    assert [port.type for port in (*session.get_inputs(), *session.get_outputs())] == [
        "tensor(float8e5m2)"
    ] * 2
    assert_same_codes(session.run(None, {"x": x})[0], np.ascontiguousarray(x.T))
    with pytest.raises(glowpy.UserError, match="'x': expected float8_e5m2, got uint8"):
        session.run(None, {"x": x.view(np.uint8)})
