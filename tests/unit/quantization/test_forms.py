"""Conversion to forms that not every network has: of 16 bits, of batch normalizations, of chains of concatenations."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import BatchNormalizationNode
from glowpy.quantization import Options
from glowpy.support.text import Attr
from tests.unit.quantization.test_convert import (
    conv,
    floats_of,
    kinds,
    network,
    profile_of,
    profiled,
    run,
    samples,
    saved,
    started,
)


def dense_block(layers: int) -> glowpy.Module:
    """Each layer normalizes all that is there, and adds four channels."""
    f, x = started()
    rng = np.random.default_rng(3)
    value: Operand = f.create_relu("begin", conv(f, "stem", x, (4, 8), 1))
    for layer in range(layers):
        channels = 8 + 4 * layer
        vectors = [
            f.module.create_constant(
                f"{part}{layer}", rng.uniform(0.1, 0.2, channels).astype(np.float32)
            )
            for part in ("scale", "bias", "mean", "variance")
        ]
        normal = f.create(
            BatchNormalizationNode,
            f"normal{layer}",
            [value, *vectors],
            {"axis": 3, "epsilon": 1e-2},
        )
        more = conv(f, f"conv{layer}", f.create_relu(f"relu{layer}", normal), (channels, 4), 3)
        pooled = f.create_max_pool(f"pool{layer}", more, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
        value = f.create_concat(f"concat{layer}", [value, pooled], 3)
    return saved(f, conv(f, "last", value, (8 + 4 * layers, 2), 1))


def test_a_chain_of_concatenations_has_one_scale() -> None:
    """What is there already is not rounded again, and batch normalizations round once, with what limits them."""
    module = dense_block(3)
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    f = result.module.main
    rescaled = [node for node in f.nodes if node.SCHEMA.mnemonic == "rescale"]
    twice = [node.name for node in rescaled if node.inputs[0].type.kind is not ElemKind.I32]
    assert twice == ["concat0_quantized"]  # it begins with a range of less than half
    assert len({node.type.quant for node in f.nodes if node.SCHEMA.mnemonic == "concat"}) == 1
    sample = samples()[0]
    expected, got = run(module, sample), run(result.module, sample)
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()
    assert got.tobytes() == run(result.module, sample, "cpu").tobytes()


@pytest.mark.parametrize("high", [np.inf, 1.5])
def test_limits_of_a_concatenation_are_those_of_its_parts(high: float) -> None:
    """Sums are rounded once, to the type after the limit."""
    f, x = started()
    both = f.create_concat(
        "both", [conv(f, "one", x, (4, 8), 1), conv(f, "other", x, (4, 4), 3)], 3
    )
    limited = (
        f.create_relu("limit", both) if high == np.inf else f.create_clip("limit", both, -0.5, high)
    )
    module = saved(f, conv(f, "last", limited, (12, 2), 1))
    result = quantization.convert(module, profile_of(module), Options(assert_all=True))
    rescales = [n for n in result.module.main.nodes if n.SCHEMA.mnemonic == "rescale"]
    assert [node.inputs[0].type.kind for node in rescales] == [ElemKind.I32] * 2
    sample = samples()[0]
    expected, got = run(module, sample), run(result.module, sample)
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()
    assert got.tobytes() == run(result.module, sample, "cpu").tobytes()


def test_sixteen_bits_are_nearly_floats() -> None:
    """What they differ by is the rounding of weights. The same bits on all backends."""
    options = Options(activations=ElemKind.I16, assert_all=True)
    module = quantization.quantize(network(), profiled(), options)
    sample = samples()[0]
    expected, got = run(network(), sample), run(module, sample)
    narrow = run(quantization.quantize(network(), profiled()), sample)
    assert np.abs(got - expected).max() < 0.01 * np.abs(expected).max()
    assert np.abs(got - expected).mean() < np.abs(narrow - expected).mean()
    assert got.tobytes() == run(module, sample, "cpu").tobytes()
    types = [node.type for node in module.main.nodes if node.results and node.type.quant]
    assert {type.kind for type in types if not type.kind.is_float} == {ElemKind.I16}
    assert not any(type.quant.offsets[0] % 256 for type in types if type.quant)


def test_functions_that_jump_stay() -> None:
    f, x = started((2, 8))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    w = f.module.create_constant("w", weights)
    whole = f.create_floor("whole", f.create_mat_mul("first", x, w))
    module = saved(f, f.create_mat_mul("second", whole, w))
    assert floats_of(module) == {}
    reasons = floats_of(module, Options(activations=ElemKind.I16))
    assert reasons == {"whole": "no parabolas follow its jumps"}


def test_constants_that_are_no_numbers_stay() -> None:
    """A mask of minus infinities."""
    f, x = started((2, 8))
    weights = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    w = f.module.create_constant("w", weights)
    mask = f.module.create_constant("mask", np.where(np.eye(2, 8), -np.inf, 0).astype(np.float32))
    masked = f.create_max("masked", f.create_mat_mul("first", x, w), mask)
    module = saved(f, f.create_mat_mul("second", masked, w))
    assert floats_of(module) == {"masked": "its constant has NaNs or infinities"}


def test_an_instance_norm_is_a_layer_norm() -> None:
    """Over the dimensions of the image, with a factor for each channel; reshapes of its deviation come with it."""
    f, x = started()
    first = conv(f, "first", x, (4, 8), 3)
    mean = f.create_reduce_mean("mean", first, (1, 2))
    apart = f.create_sub("apart", first, mean)
    variance = f.create_reduce_mean("variance", f.create_mul("square", apart, apart), (1, 2))
    flat = f.create_reshape("flat", Type(ElemKind.F32, (2, 8, 1, 1)), variance)
    epsilon = f.create_splat("epsilon", Type(ElemKind.F32, ()), 1e-5)
    root = f.create_sqrt("root", f.create_add("raised", flat, epsilon))
    inverse = f.create_reshape("back", mean.type, f.create_reciprocal("inverse", root))
    scale = f.module.create_constant("scale", np.linspace(0.5, 2, 8).astype(np.float32))
    normal = f.create_mul("scaled", f.create_mul("standard", apart, inverse), scale)
    module = saved(f, conv(f, "last", normal, (8, 2), 1))
    options = Options(activations=ElemKind.I16, assert_all=True)
    result = quantization.quantize(module, profile_of(module), options)
    assert kinds(result)["layer_normalization"] == 1
    sample = samples()[0]
    expected, got = run(module, sample), run(result, sample)
    assert np.abs(got - expected).max() < 0.02 * np.abs(expected).max()
    assert got.tobytes() == run(result, sample, "cpu").tobytes()


def every_form() -> glowpy.Module:
    """A table, a layer norm, a batch normalization, softmax, and a sum of a product and what is there, on 16 bits."""
    f, x = started((1, 6, 6, 4))
    first = conv(f, "first", x, (4, 8), 3)
    value = f.create_add(
        "residual", conv(f, "second", f.create_sigmoid("wave", first), (8, 8), 1), first
    )
    factors = f.module.create_constant("factors", np.linspace(0.5, 1.5, 8).astype(np.float32))
    mean = f.create_reduce_mean("mean", value, (3,))
    apart = f.create_sub("apart", value, mean)
    variance = f.create_reduce_mean("variance", f.create_mul("square", apart, apart), (3,))
    root = f.create_sqrt("root", variance)
    normal = f.create_mul("scaled", f.create_div("standard", apart, root), factors)
    attrs: dict[str, Attr] = {"axis": 3, "epsilon": 1e-3}
    batch = f.create(BatchNormalizationNode, "batch", [normal, *[factors] * 4], attrs)
    likely = f.create_softmax(
        "likely", conv(f, "third", f.create_relu("relu", batch), (8, 8), 1), 3
    )
    module = saved(f, conv(f, "last", likely, (8, 2), 1))
    options = Options(activations=ElemKind.I16, assert_all=True)
    return quantization.quantize(module, profile_of(module), options)


def test_every_form_has_the_same_bits() -> None:
    module, sample = every_form(), samples((1, 6, 6, 4))[0]
    assert {"sigmoid", "layer_normalization", "batch_normalization", "softmax"} <= set(
        kinds(module)
    )
    assert run(module, sample).tobytes() == run(module, sample, "cpu").tobytes()
