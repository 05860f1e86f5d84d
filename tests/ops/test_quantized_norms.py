"""Layer norms of stored integers against sums in Python's integers, bit for bit, and nodes that are one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import LayerNormalizationNode
from glowpy.opt.layer_norm import layer_norm_of
from glowpy.support.text import Attr
from tests.ops.harness import bound
from tests.ops.test_quantized_arithmetic import F32, integers, numbers, rounded, run

TESTED = (LayerNormalizationNode,)

AXES = [
    ("3x17", (1,)),
    ("2x3x4x5", (2, 3)),
    ("4x1", (1,)),
    ("3x5x2", (1,)),
    ("0x4", (1,)),
    ("2x769", (1,)),
]


def expected_norm(
    source: Type,
    result: Type,
    stored: Array,
    vectors: tuple[Array, Array],
    axes: tuple[int, ...],
    centred: bool,
) -> Array:
    """Sums of any size, then f32 as ADR 20 has it."""
    count, scale = math.prod(source.extents[axis] for axis in axes), parameters(source).scales[0]
    whole = stored.astype(object)
    if centred:
        sums = whole.sum(axes, keepdims=True)
        apart = count * whole - sums
        variance = count * (whole * whole).sum(axes, keepdims=True) - sums * sums
        epsilon, gain = 1e-3 * (count / scale) ** 2, 1.0
    else:
        apart = whole - parameters(source).offsets[0]
        variance = (apart * apart).sum(axes, keepdims=True)
        epsilon, gain = 1e-3 * count / scale**2, math.sqrt(count)
    root = np.sqrt(np.asarray(variance, np.int64).astype(F32) + F32(epsilon))
    standard = np.asarray(apart, np.int64).astype(F32) * (F32(1) / root)
    step = parameters(result).scales[0]
    factor, shift = (np.asarray(vector, np.float64) / step for vector in vectors)
    return rounded(result, standard * (gain * factor).astype(F32) + shift.astype(F32))


def norm(
    f: Function, x: Operand, vectors: tuple[Array, Array], attrs: dict[str, Attr], result: Type
) -> Node:
    constants = [f.module.create_constant("c", vector) for vector in vectors]
    return f.create(LayerNormalizationNode, "n", [x, *constants], attrs, result)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("shape", "axes"), AXES)
@pytest.mark.parametrize("kind", ["u8", "i8", "i16"])
def test_layer_norms_are_of_exact_sums(
    kind: str, shape: str, axes: tuple[int, ...], centred: bool, backend: str
) -> None:
    source, result = (
        parse_type(f"{kind}[{shape}](s=0.03,o=9)"),
        parse_type(f"{kind}[{shape}](s=0.05,o=3)"),
    )
    rng = np.random.default_rng(4)
    vectors = (
        rng.normal(1, 0.5, source.extents[-1]).astype(F32),
        rng.normal(0, 1, source.extents[-1]).astype(F32),
    )
    stored = integers(source, 5)
    if stored.shape[0] > 2:
        stored[-1] = parse_type(f"{kind}[]").kind.limits[0]  # all equal: no variance
    attrs: dict[str, Attr] = {"axes": axes, "epsilon": 1e-3, "centred": centred}
    got = run(backend, lambda f, v: norm(f, v[0], vectors, attrs, result), (source, stored))
    np.testing.assert_array_equal(
        got, expected_norm(source, result, stored, vectors, axes, centred)
    )


def test_layer_norms_are_rounded_to_several_scales() -> None:
    """Each row to its own, as if all were rounded to that."""
    source, scales = parse_type("u8[3x17](s=0.03,o=9)"), (0.05, 0.02, 0.1)
    stored, vectors = integers(source, 6), (np.full(17, 1.5, F32), np.full(17, 0.3, F32))
    attrs: dict[str, Attr] = {"axes": (1,), "epsilon": 1e-3, "centred": True}

    def rounded_to(result: str) -> Array:
        type = parse_type(result)
        return run(
            "interpreter", lambda f, v: norm(f, v[0], vectors, attrs, type), (source, stored)
        )

    rows = rounded_to("i8[3x17](s=[0.05,0.02,0.1],o=[3,3,3],axis=0)")
    for row, scale in enumerate(scales):
        np.testing.assert_array_equal(rows[row], rounded_to(f"i8[3x17](s={scale},o=3)")[row])


@pytest.mark.parametrize("kind", ["u8", "i16"])
@pytest.mark.parametrize("centred", [True, False])
def test_the_longest_norms_do_not_overflow(kind: str, centred: bool) -> None:
    """Half of the elements lowest, half highest."""
    source, result = (parse_type(f"{kind}[1x32768](s=0.03,o={o})") for o in (9, 40))
    low, high = source.kind.limits
    stored = np.where(np.arange(32768) % 2, low, high).astype(source.kind.dtype)[None]
    vectors = (np.ones(32768, F32), np.zeros(32768, F32))
    attrs: dict[str, Attr] = {"axes": (1,), "epsilon": 1e-3, "centred": centred}
    got = run("cpu", lambda f, v: norm(f, v[0], vectors, attrs, result), (source, stored))
    expected = expected_norm(source, result, stored, vectors, (1,), centred)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", ["1x32769", "2x0"])
def test_other_layer_norms_are_refused(shape: str) -> None:
    type = parse_type(f"u8[{shape}](s=0.1,o=0)")
    attrs: dict[str, Attr] = {"axes": (1,), "epsilon": 0.0, "centred": True}
    vectors = (np.ones((), F32), np.zeros((), F32))
    with pytest.raises(
        glowpy.UserError, match="layer_normalization: expected at most 32768 integers"
    ):
        run("interpreter", lambda f, v: norm(f, v[0], vectors, attrs, type), (type, integers(type)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("shape", "axes"), AXES)
def test_layer_norms_of_floats(
    shape: str, axes: tuple[int, ...], centred: bool, backend: str
) -> None:
    type = parse_type(f"f32[{shape}]")
    rng = np.random.default_rng(6)
    x = rng.normal(2, 3, type.extents).astype(F32)
    vectors = (
        rng.normal(size=type.extents[-1]).astype(F32),
        rng.normal(size=type.extents[-1]).astype(F32),
    )
    attrs: dict[str, Attr] = {"axes": axes, "epsilon": 1e-3, "centred": centred}
    got = run(backend, lambda f, v: norm(f, v[0], vectors, attrs, type), (type, x))
    wide = x.astype(float)
    apart = wide - wide.mean(axes, keepdims=True) if centred else wide
    standard = apart / np.sqrt((apart**2).mean(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(got, standard * vectors[0] + vectors[1], rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------- nodes that are one

Parts = Callable[[Function, NodeValue], Node]


def spelled(*, divided: bool, centred: bool, factors: bool, swapped: bool = False) -> Parts:
    """A layer norm as files spell it."""

    def build(f: Function, x: NodeValue) -> Node:
        mean = f.create_reduce_mean("mean", x, (1,))
        apart = f.create_sub("apart", x, mean).result if centred else x
        square = f.create_reduce_mean("variance", f.create_mul("square", apart, apart), (1,))
        epsilon = f.create_splat("epsilon", Type(ElemKind.F32, ()), 1e-3)
        root = f.create_sqrt("root", f.create_add("raised", square, epsilon))
        if divided:
            result: Node = f.create_div("standard", apart, root)
        else:
            pair: list[Operand] = [apart, f.create_reciprocal("inverse", root)]
            result = f.create_mul("standard", *(reversed(pair) if swapped else pair))
        if factors:
            scale = f.module.create_constant("scale", np.arange(1, 9, dtype=F32))
            bias = f.module.create_constant("bias", np.arange(8, dtype=F32))
            result = f.create_add("shifted", f.create_mul("scaled", result, scale), bias)
        return result

    return build


FORMS = [
    spelled(divided=False, centred=True, factors=True),
    spelled(divided=True, centred=True, factors=True),
    spelled(divided=False, centred=False, factors=True, swapped=True),
    spelled(divided=False, centred=True, factors=False),
]


@pytest.mark.parametrize("build", FORMS)
def test_parts_between_integers_are_one_node(build: Parts) -> None:
    source, result = parse_type("u8[4x8](s=0.03,o=9)"), parse_type("u8[4x8](s=0.05,o=128)")
    stored = integers(source, 3)

    def whole(f: Function, v: list[NodeValue]) -> Node:
        return f.create_quantize(
            "q", result, build(f, f.create_dequantize("d", floats, v[0]).result)
        )

    floats = Type(ElemKind.F32, source.shape)
    module = glowpy.Module()
    f = module.create_function("main")
    node = whole(f, [module.create_placeholder("x", source).value])
    f.create_save("save", node, module.create_placeholder("y", result))
    compiled = glowpy.compile(f, bound("interpreter"))
    got = compiled({"x": stored})["y"]
    plain = run("interpreter", lambda f, v: build(f, v[0]), (floats, numbers(source, stored)))
    exact = np.clip(np.rint(plain / 0.05) + 128, 0, 255)
    assert np.abs(got - exact).max() <= 1
    assert got.tobytes() == glowpy.compile(f, bound("cpu"))({"x": stored})["y"].tobytes()
    optimized = quantization.optimized(module)
    assert [n.SCHEMA.mnemonic for n in optimized.nodes if n.results] == ["layer_normalization"]


def test_what_else_is_no_layer_norm() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[4x8]")).value
    root = FORMS[0](f, x)
    found = layer_norm_of(root)
    assert found is not None
    assert (found.operand, found.axes, found.centred) == (x, (1,), True)
    assert len(found.nodes) == 10
    assert layer_norm_of(found.nodes[3]) is None
    f.create_save("save", found.nodes[-2], module.create_placeholder("y", x.type))  # read elsewhere
    assert layer_norm_of(root) is None
    other = f.create_reduce_mean("other", x, (0,))
    apart = f.create_sub("apart", x, other)
    square = f.create_reduce_mean("v", f.create_mul("s", apart, apart), (1,))
    epsilon = f.create_splat("e", Type(ElemKind.F32, ()), 1e-3)
    odd = f.create_div("odd", apart, f.create_sqrt("r", f.create_add("a", square, epsilon)))
    found = layer_norm_of(odd)  # by another mean: that is part of the operand
    assert found is not None
    assert (found.operand, found.centred) == (apart.result, False)
