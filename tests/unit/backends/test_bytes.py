"""Products of 8-bit integers as the CPU backend's own nodes: code, interpreter and plain loops give the same sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.nodes_gen import (
    create_cpu_conv,
    create_cpu_depthwise_conv,
    create_cpu_matmul,
    create_cpu_pack_matrix,
    create_cpu_plain_conv,
    create_cpu_plain_matmul,
)
from glowpy.backends.cpu.packing import (
    dot_of,
    pack_depthwise_filter,
    pack_filter,
    pack_matrix,
    packed_shape,
    unpack_filter,
    unpack_matrix,
)
from glowpy.backends.cpu.variant import VARIANTS
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Operand, Placeholder
from glowpy.support.errors import UserError
from tests.libjit.product_cases import Conv, convolve

KINDS = ("i8", "u8")
LANES = glowpy.CpuBackend().target.variant.byte_machine.lanes
CONV = Conv((6, 7), 8, 2 * LANES + 6, (3, 3), (2, 1), (1, 1, 0, 2), group=2, batch=2)
DEEP = Conv((6, 7), LANES + 5, LANES + 5, (3, 3), pads=(1, 1, 1, 1), group=LANES + 5)
OUTSIDE = 7

Build = Callable[[Function, Placeholder], Any]


def run_both(x: Array, build: Build) -> Array:
    """The result of a network of one node, which the backend and the interpreter agree about."""
    module = Module()
    f = module.create_function("main")
    value = build(f, module.create_placeholder("x", Type(ElemKind.of(x.dtype), x.shape)))
    value = value if isinstance(value, NodeValue) else value.result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    stages = compilation(module, "cpu")
    result = stages.backend.function(stages.program)({"x": x})["y"]
    meaning = InterpreterBackend().function(stages.program)({"x": x})["y"]
    np.testing.assert_array_equal(result, meaning)
    return np.asarray(result)


def integers(kind: str, *shape: int) -> Array:
    low, high = ElemKind(kind).limits
    generator = np.random.default_rng(list(shape))
    return generator.integers(low, high + 1, shape).astype(ElemKind(kind).dtype)


def sums(*shape: int) -> Type:
    return Type(ElemKind.I32, shape)


@pytest.mark.parametrize("kind", KINDS)
def test_a_convolution_sees_its_zeros_around_the_image(kind: str) -> None:
    x, weights, bias = CONV.arrays(kind)
    expected = convolve(CONV, x, weights, bias, OUTSIDE)

    def build(f: Function, x: Placeholder) -> Any:
        packed = pack_filter(weights, CONV.group, LANES, 4)
        constants = [
            f.module.create_constant(name, array)
            for name, array in {
                "w": packed, "b": bias, "z": np.full(4, OUTSIDE, x.type.kind.dtype)
            }.items()
        ]  # fmt: skip
        return create_cpu_conv(
            f, "conv", sums(*expected.shape), x, *constants,
            kernels=CONV.kernels, strides=CONV.strides, pads=CONV.pads, dilation=(1, 1), group=2,
            tile_pixels=3, tile_vectors=1, line=3, slab=2, fetch=0,
        )  # fmt: skip

    np.testing.assert_array_equal(run_both(x, build), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plain", [False, True])
def test_a_depthwise_convolution_sees_what_is_outside(kind: str, plain: bool) -> None:
    x, weights, bias = DEEP.arrays(kind)
    expected = convolve(DEEP, x, weights, bias, OUTSIDE)
    lists: dict[str, Any] = {
        "kernels": (3, 3),
        "strides": (1, 1),
        "pads": DEEP.pads,
        "dilation": (1, 1),
    }

    def build(f: Function, x: Placeholder) -> Any:
        type, constant = sums(*expected.shape), f.module.create_constant
        if plain:
            return create_cpu_plain_conv(
                f, "conv", type, x, constant("w", weights), constant("b", bias),
                **lists, group=DEEP.group, outside=OUTSIDE,
            )  # fmt: skip
        return create_cpu_depthwise_conv(
            f, "conv", type, x, constant("w", pack_depthwise_filter(weights)), constant("b", bias),
            **lists, outside=OUTSIDE, tile_pixels=4, slab=2, vectors=1, single_edges=False,
        )  # fmt: skip

    np.testing.assert_array_equal(run_both(x, build), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "computed", "plain"])
def test_a_product(kind: str, form: str) -> None:
    """The right side is packed by us, by the network, or not at all."""
    lhs, rhs = integers(kind, 5, 20), integers("i8", 20, LANES + 3)
    expected = lhs.astype(np.int32) @ rhs.astype(np.int32)

    def build(f: Function, x: Placeholder) -> Any:
        constant = f.module.create_constant
        type = sums(*expected.shape)
        if form == "plain":
            return create_cpu_plain_matmul(f, "product", type, x, constant("w", rhs.T.copy()))
        right: Operand = constant("w", pack_matrix(rhs, LANES, 4))
        if form == "computed":
            packed = Type(ElemKind.I8, packed_shape(rhs.shape, LANES, 4))
            right = create_cpu_pack_matrix(f, "pack", packed, constant("w_plain", rhs), block=LANES)
        return create_cpu_matmul(
            f, "product", type, x, right, tile_pixels=3, tile_vectors=2, slab=1, fetch=0
        )

    np.testing.assert_array_equal(run_both(lhs, build), expected)


def test_quantized_operands_are_what_is_stored() -> None:
    lhs, rhs = integers("u8", 3, 4), integers("i8", 4, 2)

    def build(f: Function, x: Placeholder) -> Any:
        type = parse_type("i32[3x2](s=0.5,o=0)")
        quantized = Tensor(parse_type("i8[2x4](s=0.25,o=3)"), rhs.T.copy())
        weights = f.module.create_constant("w", quantized)
        return create_cpu_plain_matmul(f, "product", type, x, weights)

    expected = lhs.astype(np.int32) @ rhs.astype(np.int32)
    np.testing.assert_array_equal(run_both(lhs, build), expected)


def test_packing_is_undone() -> None:
    matrix = integers("i8", 3, 7, 10)
    padded = np.pad(matrix, ((0, 0), (0, 1), (0, 0)))
    np.testing.assert_array_equal(unpack_matrix(pack_matrix(matrix, 4, 4), 10, 4), padded)
    filter = integers("i8", 6, 2, 3, 5)
    padded = np.pad(filter, ((0, 0),) * 3 + ((0, 3),))
    np.testing.assert_array_equal(unpack_filter(pack_filter(filter, 2, 4, 4), 6, 4), padded)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"x": "u8[3x6]"}, "expected a depth that is a multiple of 4, got 6"),
        ({"w": "i8[1x2x18]"}, "expected a rhs packed in blocks"),
        ({"w": "u8[1x2x16]"}, "expected rhs of i8 for an input of u8, got u8[1x2x16]"),
        ({"y": "u8[3x2]"}, "expected result of i32 for an input of u8, got u8[3x2]"),
    ],
)
def test_what_there_is_no_kernel_for_is_refused(types: Mapping[str, str], message: str) -> None:
    chosen = {"x": "u8[3x8]", "w": "i8[1x2x16]", "y": "i32[3x2]", **types}
    module = Module()
    f = module.create_function("main")
    x, w = (module.create_placeholder(name, parse_type(chosen[name])) for name in "xw")
    product = create_cpu_matmul(
        f, "product", parse_type(chosen["y"]), x, w,
        tile_pixels=1, tile_vectors=1, slab=1, fetch=0,
    )  # fmt: skip
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    with pytest.raises(UserError) as raised:
        compilation(module, "cpu").program  # noqa: B018
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("packed", "block", "message"),
    [
        ("i8[1x2x32]", 8, "expected a result of i8[1, 5, 32], got i8[1x2x32]"),
        ("u8[1x5x32]", 8, "expected a result of i8[1, 5, 32], got u8[1x5x32]"),
        ("i8[1x5x32]", 0, "expected a block of at least 1 column, got 0"),
    ],
)
def test_what_cannot_be_packed_so_is_refused(packed: str, block: int, message: str) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("i8[20x3]"))
    pack = create_cpu_pack_matrix(f, "pack", parse_type(packed), x, block=block)
    f.create_save("save", pack, module.create_placeholder("y", pack.result.type))
    with pytest.raises(UserError) as raised:
        compilation(module, "cpu").program  # noqa: B018
    assert message in str(raised.value)


def test_every_variant_sums_words() -> None:
    for variant in VARIANTS:
        machine = variant.byte_machine
        assert machine.dot == dot_of(ElemKind.I8) == 4
        assert machine.lanes == variant.machine.lanes
        assert machine.parts in (1, 2, 4)
        assert variant.activations is None or machine.parts == 1
