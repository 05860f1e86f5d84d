"""Quantized networks with symbolic extents: compiled once, they have the bits of code for each of the extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import type_at
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type, parse_type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Operand, Placeholder, value_of
from glowpy.support.symbolic import symbol
from tests.ops.harness import bound

SYMBOLS = {"b": symbol("b", 1, 3), "seq": symbol("seq", 1, 40)}
EXTENTS = [{"b": 1, "seq": 1}, {"b": 3, "seq": 40}, {"b": 2, "seq": 13}, {"b": 1, "seq": 6}]

Network = Callable[[Function, Mapping[str, Placeholder]], Operand]


def weights(f: Function, name: str, type: str) -> Operand:
    parsed = parse_type(type)
    low, high = parsed.kind.limits
    rng = np.random.default_rng(len(type))
    array = rng.integers(max(-100, low), min(101, high), parsed.extents).astype(parsed.kind.dtype)
    return f.module.create_constant(name, Tensor(parsed, array))


def result(shape: Shape, text: str = "(s=0.5,o=7)") -> Type:
    return Type(ElemKind.U8, shape, parse_type(f"u8[1]{text}").quant)


def _product(right: str) -> Network:
    def build(f: Function, p: Mapping[str, Placeholder]) -> Operand:
        shape = (*p["x"].type.shape[:-1], 20)
        w = weights(f, "w", right)
        return f.create_mat_mul("product", p["x"], w, result_type=result(shape, "(s=9,o=128)"))

    return build


def _attention(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    """Both sides are computed, and the second product is over a symbolic depth."""
    q, k, v = p["q"], p["k"], p["v"]
    seq = q.type.shape[1]
    keys = f.create_transpose("keys", k, (0, 2, 1))
    type = result((q.type.shape[0], seq, seq), "(s=0.2,o=100)")
    scores = f.create_mat_mul("scores", q, keys, result_type=type)
    chances = f.create_softmax(
        "chances", scores, 2, result_type=result(type.shape, "(s=0.004,o=3)")
    )
    return f.create_mat_mul("sums", chances, v, result_type=result(q.type.shape, "(s=0.01,o=150)"))


def _convolution(filter: str, group: int = 1, stride: int = 1) -> Network:
    def build(f: Function, p: Mapping[str, Placeholder]) -> Operand:
        outputs = parse_type(filter).extents[0]
        images, height, width, _ = p["x"].type.shape
        shape = (images, -(-height // stride), -(-width // stride), outputs)
        bias = weights(f, "bias", f"i32[{outputs}](s=0.0002,o=0)")
        return f.create_convolution(
            "conv", p["x"], weights(f, "w", filter), bias, (3, 3), (stride, stride), (1, 1, 1, 1), (1, 1), group,
            result_type=result(shape, "(s=0.05,o=120)"),
        )  # fmt: skip

    return build


def _line(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    images, length, _ = p["x"].type.shape
    bias, w = weights(f, "bias", "i32[8](s=0.0002,o=0)"), weights(f, "w", "i8[8x3x6](s=0.02,o=2)")
    return f.create_convolution(
        "conv", p["x"], w, bias, (3,), (1,), (1, 1), (1,), 1, result_type=result((images, length, 8), "(s=0.05,o=120)")
    )  # fmt: skip


def _volume(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    bias, w = (
        weights(f, "bias", "i32[4](s=0.0002,o=0)"),
        weights(f, "w", "i8[4x2x1x1x4](s=0.02,o=0)"),
    )
    images, planes, height, width, _ = p["x"].type.shape
    return f.create_convolution(
        "conv", p["x"], w, bias, (2, 1, 1), (1, 1, 1), (1, 0, 0, 0, 0, 0), (1, 1, 1), 1,
        result_type=result((images, planes, height, width, 4), "(s=0.05,o=120)"),
    )  # fmt: skip


def _mean(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    type = result((p["x"].type.shape[0], 1, 1, 8), "(s=0.008,o=7)")
    return f.create_reduce_mean("mean", p["x"], (1, 2), result_type=type)


def _pool(f: Function, p: Mapping[str, Placeholder]) -> Operand:
    images, height, width, channels = p["x"].type.shape
    type = result((images, height, width - 1, channels), "(s=0.008,o=7)")
    return f.create_avg_pool("pool", p["x"], (1, 2), (1, 1), (0, 0, 0, 0), (1, 1), result_type=type)


MATRIX = {"x": "u8[b x seq x 30](s=0.1,o=130)"}
IMAGES = {"x": "u8[b x seq x seq+3 x 8](s=0.01,o=12)"}
CASES: dict[str, tuple[Network, dict[str, str]]] = {
    "product": (_product("i8[30x20](s=0.02,o=0)"), MATRIX),
    "product with offsets": (_product("u8[30x20](s=0.02,o=131)"), MATRIX),
    "attention": (
        _attention,
        {
            "q": "u8[b x seq x 10](s=0.01,o=120)",
            "k": "i8[b x seq x 10](s=0.01,o=3)",
            "v": "u8[b x seq x 10](s=0.01,o=120)",
        },
    ),
    "convolution": (_convolution("i8[20x3x3x8](s=0.02,o=0)"), IMAGES),
    "strided convolution": (_convolution("i8[20x3x3x8](s=0.02,o=4)", stride=2), IMAGES),
    "groups": (_convolution("i8[8x3x3x2](s=0.02,o=4)", 4), IMAGES),
    "depthwise": (_convolution("i8[8x3x3x1](s=0.02,o=0)", 8), IMAGES),
    "line": (_line, {"x": "u8[b x seq x 6](s=0.01,o=12)"}),
    "volume": (_volume, {"x": "u8[b x seq x 3 x 2 x 4](s=0.01,o=12)"}),
    "mean": (_mean, IMAGES),
    "pool": (_pool, IMAGES),
}


def network(case: str, extents: Mapping[str, int] | None = None) -> Module:
    build, types = CASES[case]
    module = Module()
    inputs = {}
    for name, text in types.items():
        type = parse_type(text, SYMBOLS)
        inputs[name] = module.create_placeholder(
            name, type if extents is None else type_at(type, extents)
        )
    f = module.create_function("main")
    value = value_of(build(f, inputs))
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_one_compilation_has_the_bits_of_all(case: str, backend: str) -> None:
    compiled = glowpy.compile(network(case), bound(backend), CompileOptions(verify_each=True))
    rng, met = np.random.default_rng(1), set()
    for extents in EXTENTS:
        static = glowpy.compile(network(case, extents), "interpreter")
        arrays = {
            name: rng.integers(0, 120, type.extents).astype(type.kind.dtype)
            for name, type in static.inputs.items()
        }
        expected, actual = static(arrays)["y"], compiled(arrays)["y"]
        np.testing.assert_array_equal(actual, expected, err_msg=str(extents))
        met |= set(expected.reshape(-1).tolist())
    assert len(met) > 8
