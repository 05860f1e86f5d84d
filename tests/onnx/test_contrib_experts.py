"""Mixtures of experts, with weights of floats and of few bits, against onnxruntime and against plain numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.contrib_cases import Case

RNG = np.random.default_rng(20)
GATED: dict[str, Any] = {
    "swiglu_fusion": 1,
    "activation_alpha": 1.7,
    "activation_beta": 1.0,
    "swiglu_limit": 0.5,
}


def numbers(*shape: int, dtype: type = np.float32) -> Array:
    array: Array = (RNG.standard_normal(shape) / 3).astype(dtype)
    return array


def trimmed(op_type: str, inputs: list[Array | None], title: str, attributes: Any) -> Case:
    """A case without what is left out at the end; all but what changes from run to run is known."""
    while inputs[-1] is None:
        inputs.pop()
    known = [i for i, array in enumerate(inputs) if i not in (0, 1, 14) and array is not None]
    first = inputs[0]
    assert first is not None
    kinds = (helper.np_dtype_to_tensor_dtype(first.dtype),)
    return Case(op_type, inputs, attributes, title, kinds, known)


def moe(
    title: str = "", tokens: int = 6, experts: int = 4, biases: bool = True,
    dtype: type = np.float32, **attributes: Any,
) -> Case:  # fmt: skip
    width, inner = 16, 24
    fused = inner * (2 if attributes.get("activation_type") == "swiglu" else 1)
    inputs = [
        numbers(tokens, width, dtype=dtype),
        numbers(tokens, experts, dtype=dtype) * dtype(3),
        numbers(experts, fused, width, dtype=dtype),
        numbers(experts, fused, dtype=dtype) if biases else None,
        numbers(experts, width, inner, dtype=dtype),
        numbers(experts, width, dtype=dtype) if biases else None,
    ]
    return trimmed("MoE", inputs, title, {"k": 2, **attributes})


def qmoe(
    title: str, bits: int = 4, block: int = 0, zeros: bool = False, weights: bool = False,
    **attributes: Any,
) -> Case:  # fmt: skip
    tokens, width, inner, experts, each = 6, 64, 128, 4, 8 // bits
    fused = inner * (2 if attributes.get("activation_type") == "swiglu" else 1)

    def stored(*shape: int) -> Array:
        return RNG.integers(0, 256, shape, np.uint8)

    def layer(rows: int, columns: int) -> tuple[Array, Array, Array, Array | None]:
        steps = (experts, rows, columns // block) if block else (experts, rows)
        offsets = (*steps[:-1], steps[-1] // each)
        return (
            stored(experts, rows, columns // each),
            np.abs(numbers(*steps)) / 8,
            numbers(experts, rows),
            stored(*offsets) if zeros else None,
        )

    *first, first_zeros = layer(fused, width)
    *second, second_zeros = layer(width, inner)
    inputs = [
        *(numbers(tokens, width), 3 * numbers(tokens, experts), *first, *second, None, None, None),
        *(first_zeros, second_zeros, None, np.abs(numbers(tokens, experts)) if weights else None),
    ]
    known = {"k": 2, "expert_weight_bits": bits, **attributes}
    return trimmed("QMoE", inputs, title, known | ({"block_size": block} if block else {}))


CASES = [
    moe("relu"),
    moe("gelu without biases", activation_type="gelu", biases=False),
    moe("silu, normalized", activation_type="silu", normalize_routing_weights=1),
    moe("identity, one expert", activation_type="identity", k=1),
    moe("gated", activation_type="swiglu", **GATED),
    moe("one token", tokens=1),
    moe("all experts", experts=3, k=3),
    qmoe("4 bits"),
    qmoe("8 bits, gated", bits=8, activation_type="swiglu", **GATED),
    qmoe("2 bits", bits=2),
    qmoe("zero points", zeros=True, activation_type="silu"),
    qmoe("blocks", block=32),
    qmoe("blocks with zero points", block=16, zeros=True),
    qmoe("weights of their own", weights=True),
    qmoe("weights of their own, normalized", weights=True, normalize_routing_weights=1),
]


@pytest.mark.parametrize("node", CASES, ids=str)
def test_experts(node: Case) -> None:
    expected = node.expected()
    replace(node, atol=2e-6 * float(np.abs(expected[0]).max())).check("interpreter", expected)


@pytest.mark.parametrize("node", [CASES[0], CASES[4], CASES[8], CASES[12]], ids=str)
def test_experts_on_cpu(node: Case) -> None:
    expected = node.expected()
    replace(node, atol=1e-5 * float(np.abs(expected[0]).max())).check("cpu", expected)


def test_halves() -> None:
    node = moe("f16", dtype=np.float16)
    exact = moe("f32")
    exact = replace(exact, inputs=[a if a is None else a.astype(np.float32) for a in node.inputs])
    (wanted,), (got,) = (
        case.expected()
        if case is exact
        else glowpy.InferenceSession(case.model()).run(None, case.feeds)
        for case in (exact, node)
    )
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_bits_of_each_layer() -> None:
    """A layer's own bits hold in place of those of all: onnxruntime has no kernel for the CPU that reads them."""
    node = qmoe("8 bits", bits=8)
    own: dict[str, Any] = {f"fc{layer}_expert_weight_bits": 8 for layer in (1, 2)}
    others = node.attributes | {"expert_weight_bits": 4, "accuracy_level": 1} | own
    first, second = (
        glowpy.InferenceSession(case.model(), backend="interpreter").run(None, case.feeds)[0]
        for case in (node, replace(node, attributes=others))
    )
    np.testing.assert_array_equal(first, second)


def test_any_number_of_tokens() -> None:
    """A sequence of each of two batches, which is open; the router sees one token after the other."""
    node = moe()
    model = node.model()
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param = "N"
    dims.insert(0, type(dims[0])(dim_value=1))
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "N"
    session = glowpy.InferenceSession(model)
    for tokens in (1, 5, 9):
        feeds = {"in0": numbers(1, tokens, 16), "in1": numbers(tokens, 4)}
        same = replace(node, inputs=[feeds["in0"], feeds["in1"], *node.inputs[2:]])
        np.testing.assert_allclose(
            session.run(None, feeds)[0], same.expected()[0], rtol=1e-4, atol=1e-5
        )


def test_equal_chances_choose_the_last_expert() -> None:
    node = moe(experts=4, k=1)
    node = replace(node, inputs=[node.inputs[0], np.zeros((6, 4), np.float32), *node.inputs[2:]])
    node.check("interpreter", node.expected())


@pytest.mark.parametrize(("bits", "zeros"), [(8, True), (2, False)])
def test_blocks_that_onnxruntime_rounds(bits: int, zeros: bool) -> None:
    """It quantizes activations for these: what is exact is computed here."""
    node = qmoe("", bits=bits, block=32, zeros=zeros)
    x, router, *rest = node.inputs
    assert x is not None
    assert router is not None

    def matrices(codes: Any, scales: Any, offsets: Any) -> Array:
        def apart(packed: Array) -> Array:
            shifts = np.arange(0, 8, bits, dtype=np.uint8)
            numbers = (packed[..., None] >> shifts) & ((1 << bits) - 1)
            return numbers.reshape(*packed.shape[:-1], -1).astype(np.float64)

        zero = np.full(scales.shape, 1 << (bits - 1)) if offsets is None else apart(offsets)
        wide = [np.repeat(array, 32, 2) for array in (scales.astype(np.float64), zero)]
        matrix: Array = (apart(codes) - wide[1]) * wide[0]
        return matrix

    offsets = rest[9:11] if zeros else [None, None]
    first, second = matrices(rest[0], rest[1], offsets[0]), matrices(rest[3], rest[4], offsets[1])
    expected = np.zeros(x.shape)
    for token, logits in enumerate(router):
        chosen = np.argsort(-logits)[:2]
        chances = np.exp(logits[chosen]) / np.exp(logits[chosen]).sum()
        for expert, chance in zip(chosen, chances, strict=True):
            inner = np.maximum(first[expert] @ x[token] + rest[2][expert], 0)  # type: ignore[index]
            expected[token] += chance * (second[expert] @ inner + rest[5][expert])  # type: ignore[index]
    (got,) = glowpy.InferenceSession(node.model(), backend="interpreter").run(None, node.feeds)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


REFUSED = [
    (moe(activation_type="swiglu"), "swiglu_fusion 0 is not supported"),
    (moe(activation_type="tanh"), "activation_type 'tanh' is not supported"),
    (moe(use_sparse_mixer=1), "use_sparse_mixer 1, which is for GPUs"),
    (moe(k=9), "expected k from 1 to 4, got 9"),
    (qmoe("", quant_type="fp4"), "quant_type 'fp4', which is for GPUs"),
    (qmoe("", weights_prepacked=1), "weights_prepacked 1, which is for GPUs"),
    (qmoe("", block=8), "4 bits in blocks of 8 is not supported"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_experts_are_refused(node: Case, message: str) -> None:
    assert message in node.error()
