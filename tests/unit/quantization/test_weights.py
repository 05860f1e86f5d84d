"""Weights of few bits, and networks that compute with them."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.quantization import quantize_weights
from glowpy.support.errors import UserError

WORDS, WIDTH = 40, 72


def language_model() -> tuple[glowpy.Module, Array]:
    """Gathers rows of a table, multiplies twice, and compares with the table; and the table."""
    rng = np.random.default_rng(3)
    module = glowpy.Module()
    f = module.create_function("main")
    table = rng.normal(size=(WORDS, WIDTH)).astype(np.float32)
    table[5, :32] = 0
    words = module.create_constant("words", table)
    ids = module.create_placeholder("ids", Type(ElemKind.I64, (3,)))
    x = f.create_gather("rows", words, ids, 0)
    weights = module.create_constant("w", rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 9)
    bias = module.create_constant("b", rng.normal(size=WIDTH).astype(np.float32))
    h = f.create_relu("relu", f.create_fully_connected("dense", x, weights, bias))
    turned = f.create_transpose("turned", words, (1, 0))
    y = f.create_mat_mul("head", h, turned).result
    f.create_save("save", y, module.create_placeholder("y", y.type))
    return module, table


IDS = np.array([3, 39, 0])


@pytest.mark.parametrize(
    ("bits", "symmetric", "error"),
    [(4, True, 0.2), (4, False, 0.2), (8, True, 0.012), (8, False, 0.012)],
)
def test_networks_compute_nearly_the_same(bits: int, symmetric: bool, error: float) -> None:
    module, _ = language_model()
    expected = glowpy.compile(module)({"ids": IDS})["y"]
    result = quantize_weights(module, bits=bits, block=64, symmetric=symmetric)
    assert [(node.kind, node.reason) for node in result.nodes] == [
        ("gather", ""), ("fully_connected", ""), ("mat_mul", ""),
    ]  # fmt: skip
    assert result.bytes_after < result.bytes_before / 2
    reference, answer = (
        glowpy.compile(result.module, backend)({"ids": IDS})["y"]
        for backend in ("interpreter", "cpu")
    )
    np.testing.assert_allclose(answer, reference, rtol=1e-4, atol=1e-4)
    distance = np.linalg.norm(answer - expected) / np.linalg.norm(expected)
    assert 0 < distance < error
    kernels = [i.SCHEMA.mnemonic for i in compilation(result.module).ir.instructions]
    assert kernels.count("cpu_block_matmul") == 2


def test_scales_have_the_least_error_of_what_is_tried() -> None:
    """Better than scales for which nothing is cut off; a block of zeros is stored exactly."""
    module, table = language_model()
    result = quantize_weights(module, bits=4, block=32, keep=("fully_connected", "mat_mul"))
    arrays = [constant.tensor.array for constant in result.module.constants]
    (integers,) = (a for a in arrays if a.dtype == np.int8 and a.shape == (WORDS, WIDTH))
    (scales,) = (a for a in arrays if a.dtype == np.float32 and a.shape == (WORDS, 3))
    assert integers.min() == -8
    assert integers.max() == 7
    blocks = np.pad(table, ((0, 0), (0, 24))).reshape(WORDS, 3, 32)
    whole = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = np.rint(blocks / np.where(whole == 0, 1, whole)) * whole
    steps = np.pad(integers, ((0, 0), (0, 24))).reshape(WORDS, 3, 32)
    own = steps * scales[..., np.newaxis]
    assert not own[5, 0].any()
    errors = [np.square(form - blocks).sum(-1) for form in (own, plain)]
    assert np.all(errors[0] <= errors[1] + 1e-5)
    assert errors[0].sum() < 0.95 * errors[1].sum()


def test_two_weights_of_4_bits_are_a_byte() -> None:
    """And there is an f32 scale and a zero for each block, of the two that a column of 64 rows has."""
    weights = np.random.default_rng(3).normal(size=(64, 10)).astype(np.float32)
    results = [quantize_weights(product(weights), bits=bits) for bits in (4, 8)]
    assert results[0].bytes_after == 64 * 10 // 2 + 2 * 10 * (4 + 1)
    assert results[1].bytes_after == 64 * 10 + 2 * 10 * (4 + 1)


def test_what_is_kept_stays_in_floats() -> None:
    module, _ = language_model()
    result = quantize_weights(module, keep=("dense", "gather"))
    assert [node.reason for node in result.floats] == [
        "'gather' is to be kept",
        "'dense' is to be kept",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 3}, "expected bits of 4, 8, got 3"),
        ({"block": 31}, "expected a block of 32, 64, 128, got 31"),
        ({"keep": ("nothing",)}, "expected a name or a kind of a node to keep, got 'nothing'"),
        ({"keep": ("Gemm",)}, "got 'Gemm'\nnote: the kinds are fully_connected, gather, mat_mul;"),
        ({"keep": "dense"}, "keep: expected a tuple of names, got 'dense'"),
    ],
)
def test_what_there_is_not_is_refused(arguments: dict[str, object], message: str) -> None:
    module, _ = language_model()
    with pytest.raises(UserError, match=message):
        quantize_weights(module, **arguments)  # type: ignore[arg-type]


def product(weights: Array) -> glowpy.Module:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, weights.shape[0])))
    y = f.create_mat_mul("product", x, module.create_constant("w", weights)).result
    f.create_save("save", y, module.create_placeholder("y", y.type))
    return module


@pytest.mark.parametrize("odd", [np.inf, np.nan])
def test_weights_that_are_not_finite_stay(odd: float) -> None:
    weights = np.ones((32, 3), np.float32)
    weights[7, 1] = odd
    (node,) = quantize_weights(product(weights)).nodes
    assert node.reason == "its constant has NaNs or infinities"


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [3e38, 1e-30])
def test_scales_of_the_largest_and_smallest_weights(
    size: float, bits: int, symmetric: bool
) -> None:
    """Squares of what they are wrong by are no numbers of f32."""
    weights = np.random.default_rng(4).uniform(-size, size, (32, 5)).astype(np.float32)
    weights[:2] = [[-size], [size]]
    module = quantize_weights(product(weights), bits=bits, symmetric=symmetric).module
    inputs = np.eye(2, 32, dtype=np.float32) / 4  # the first two rows
    got = glowpy.compile(module, "interpreter")({"x": inputs})["y"]
    np.testing.assert_allclose(got, weights[:2] / 4, rtol=0.31 if bits == 4 else 0.01)


def test_rows_for_a_batch_are_gathered_before_they_become_floats() -> None:
    table = np.random.default_rng(5).normal(size=(WORDS, WIDTH)).astype(np.float32)
    module = glowpy.Module()
    f = module.create_function("main")
    ids = module.create_placeholder("ids", Type(ElemKind.I64, (2, 3)))
    rows = f.create_gather("rows", module.create_constant("words", table), ids, 0).result
    f.create_save("save", rows, module.create_placeholder("y", rows.type))
    result = quantize_weights(module, bits=8).module
    gathers = [node for node in result.main.nodes if node.SCHEMA.mnemonic == "gather"]
    assert ElemKind.I8 in {node.result.type.kind for node in gathers}
    feeds = {"ids": np.array([[3, 39, 0], [7, 3, 1]])}
    for backend in ("interpreter", "cpu"):
        got = glowpy.compile(result, backend)(feeds)["y"]
        np.testing.assert_allclose(got, table[feeds["ids"]], atol=0.02)
