"""What is measured before a network is quantized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import glowpy
from glowpy.core.type import Type
from glowpy.quantization import AtRunTime, Method, Options, WeightsOnly
from glowpy.quantization.estimate import Estimate, LayerEstimate, _from_end_to_end, _layer, estimate
from tests.unit.quantization.digits import cnn, mlp


def test_measures_layers_and_the_whole() -> None:
    sample = {"x": np.random.default_rng(0).random((1, 8, 8, 1), np.float32)}
    result = estimate(cnn(), sample, Options(skip_first=True))
    assert [layer.name for layer in result.layers] == ["conv0", "conv1", "dense2"]
    first, second, last = result.layers
    assert (first.integers, first.reason) == (None, "the first layer is to be kept")
    for layer in (second, last):
        assert layer.integers is not None
        assert 0 < layer.integers < 1
        assert layer.reason == ""
    assert (second.kind, second.result) == ("convolution", "f32[1x4x4x16]")
    assert 0 < result.floats < 1
    assert 0 < result.integers < 1
    assert 0.2 < result.bytes_after / result.bytes_before < 0.4


def test_a_layer_alone_is_integer_from_end_to_end() -> None:
    """What is timed is the product and one rescale: no conversion of floats."""
    module = cnn()
    (node,) = (node for node in module.main.nodes if node.name == "conv1")
    f = _layer(node)
    assert [p.name for p in f.parameters] == ["input0"]
    known = glowpy.quantization.profile(f, [{"input0": np.ones((1, 4, 4, 8), np.float32)}])
    type = Type(glowpy.ElemKind.U8, (1, 4, 4, 16), glowpy.parse_type("u8[1](s=0.5,o=3)").quant)
    g = _from_end_to_end(glowpy.quantization.quantize(f, known).main, type)
    assert sorted(node.SCHEMA.mnemonic for node in g.nodes) == ["convolution", "rescale", "save"]
    assert [p.type.kind.value for p in (*g.parameters, *g.outputs)] == ["u8", "u8"]
    glowpy.compile(g)({p.original: np.zeros(p.type.extents, np.uint8) for p in g.parameters})


@pytest.mark.parametrize("way", [AtRunTime(("dense0",)), WeightsOnly(("dense0",), bits=8)])
def test_measures_what_needs_no_profile(way: Method) -> None:
    result = estimate(mlp(), {"x": np.zeros((1, 8, 8, 1), np.float32)}, way)
    first, second = result.layers
    assert (first.integers, first.reason) == (None, "'dense0' is to be kept")
    assert second.integers is not None
    assert 0 < second.integers < 1
    assert result.bytes_after < result.bytes_before


LAYER = LayerEstimate("conv", "convolution", "", "f32[1]", 1.0, 0.5, "")
WHOLE = Estimate((LAYER,), 1.0, 0.5, 100, 25)


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (WHOLE, "integers are faster on this machine: 0.50 of the time in floats, 0.25 of the"),
        (replace(WHOLE, integers=1.02), "integers are as fast as floats on this machine, and only"),
        (replace(WHOLE, integers=1.5), "integers are slower on this machine: 1.50 of the time"),
        (replace(WHOLE, layers=(replace(LAYER, integers=None),)), "no layer becomes integer"),
    ],
)
def test_verdict(result: Estimate, verdict: str) -> None:
    assert result.verdict.startswith(verdict)


def test_equal_layers_are_measured_once() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    type = glowpy.parse_type("f32[4x16]")
    value = module.create_placeholder("x", type).value
    for index in range(3):
        weights = module.create_constant("w", np.full((16, 16), index + 1, np.float32))
        value = f.create_relu("relu", f.create_mat_mul("product", value, weights)).result
    f.create_save("save", value, module.create_placeholder("y", type))
    layers = estimate(module, {"x": np.ones((4, 16), np.float32)}).layers
    assert len(layers) == 3
    assert len({(layer.floats, layer.integers) for layer in layers}) == 1


def test_a_product_of_two_inputs() -> None:
    """As attention has it: neither side is a weight."""
    module = glowpy.Module()
    f = module.create_function("main")
    type = glowpy.parse_type("f32[16x16]")
    lhs, rhs = (module.create_placeholder(name, type) for name in "ab")
    f.create_save(
        "save", f.create_mat_mul("product", lhs, rhs), module.create_placeholder("y", type)
    )
    ones = np.ones((16, 16), np.float32)
    (layer,) = estimate(module, {"a": ones, "b": ones}).layers
    assert layer.integers is not None
    assert layer.integers > 0
