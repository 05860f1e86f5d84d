"""What a network that is quantized already computes on integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import parse_type, quantization
from glowpy.quantization import Options, quantize_weights
from tests.unit.quantization import test_convert
from tests.unit.quantization.digits import mlp


def test_counts_what_is_on_integers() -> None:
    module = quantization.quantize(test_convert.network(), test_convert.profiled())
    result = quantization.inspect(module)
    assert not result.floats
    assert {"convolution", "sigmoid", "add", "avg_pool"} <= {node.kind for node in result.nodes}
    half = quantization.quantize(
        test_convert.network(), test_convert.profiled(), Options(keep=("total",))
    )
    reasons = {node.kind: node.reason for node in quantization.inspect(half).floats}
    assert reasons["add"]
    assert "convolution" not in reasons


def test_nodes_with_several_results_stay_in_floats() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("u8[1x4x4x2](s=0.5,o=3)"))
    numbers = f.create_dequantize("numbers", parse_type("f32[1x4x4x2]"), x)
    window = ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
    node = f.create_max_pool_with_argmax("pool", numbers, *window)
    for name, result in zip("yz", node.results, strict=True):
        f.create_save("save", result, module.create_placeholder(name, result.type))
    (outcome,) = quantization.inspect(module).nodes
    assert (outcome.name, outcome.reason) == ("pool", "its result is not quantized")


def test_sizes_are_those_of_the_numbers() -> None:
    """Biases and scales take as much in both; blocks of integers have scales that floats have not."""
    stored = quantize_weights(mlp(), bits=8, block=32)
    result = quantization.inspect(stored.module)
    assert (result.bytes_before, result.bytes_after) == (stored.bytes_before, stored.bytes_after)
    assert result.bytes_before == 4 * (64 * 48 + 48 + 48 * 10 + 10)


def networks_of_an_encoder() -> dict[str, quantization.Conversion]:
    """A layer norm and a product, quantized in several ways."""
    f, x = test_convert.started((4, 8))
    rng = np.random.default_rng(0)
    ones, zeros, weights, more = (
        f.module.create_constant("c", rng.normal(size=shape).astype(np.float32))
        for shape in ((8,), (8,), (8, 8), (8, 8))
    )
    first = f.create_mat_mul("first", x, weights)
    norm = f.create_layer_normalization("norm", first, ones, zeros, (1,), 1e-5, centred=True)
    module = test_convert.saved(f, f.create_mat_mul("second", norm, more))
    profile = test_convert.profile_of(module)
    return {
        "static": quantization.convert(module, profile, Options(norms=True)),
        "dynamic": quantization.quantize_dynamic(module),
        "weights": quantization.quantize_weights(module, bits=8, block=32),
        "some weights": quantization.quantize_weights(module, bits=4, block=32, keep=("first",)),
    }


@pytest.mark.parametrize("form", ["glow", "onnx"])
def test_counts_what_the_model_had_in_floats(form: str, tmp_path: Path) -> None:
    """No conversion counts, nor what finds a range at run time or multiplies by it."""
    for name, conversion in networks_of_an_encoder().items():
        module = conversion.module
        if form == "onnx":
            glowpy.save(module, tmp_path / "net.onnx")
            module = glowpy.load(tmp_path / "net.onnx")
        result = quantization.inspect(module)
        outcomes = {node.kind: node.reason for node in result.nodes}
        if name == "static":
            assert outcomes == {"mat_mul": "", "layer_normalization": ""}
        elif name == "dynamic":
            assert not outcomes.pop("mat_mul")
            assert all(outcomes.values())
            assert (
                not {"reduce_max", "div", "saturate", "convert", "storage_cast"} & outcomes.keys()
            )
        else:
            kept = "its weights are floats" if name == "some weights" else ""
            assert [node.reason for node in result.nodes] == [kept, ""]
        assert result.weights_only == conversion.weights_only == ("weights" in name)


def test_weights_alone_are_stored_beside_integers() -> None:
    """A product of integers, and one of floats that reads stored weights."""
    f, x = test_convert.started((4, 8))
    rng = np.random.default_rng(0)
    weights = f.module.create_constant("w", rng.integers(-9, 9, (8, 8)).astype(np.int8))
    numbers = parse_type("f32[8x8]")
    typed = f.create_storage_cast("typed", parse_type("i8[8x8](s=0.5,o=0)"), weights)
    known = f.create_dequantize("known", numbers, typed)
    product = f.create_mat_mul("product", f.create_exp("exp", x), known)
    rounded = f.create_quantize("rounded", parse_type("u8[4x8](s=0.5,o=3)"), product)
    steps = f.create_dequantize("steps", parse_type("f32[4x8]"), rounded)
    module = test_convert.saved(f, f.create_mat_mul("exact", steps, known))
    reasons = {node.name: node.reason for node in quantization.inspect(module).nodes}
    assert reasons.pop("exp")
    assert sorted(reasons.values()) == ["", "only its weights are quantized"]
