"""What a network that is quantized already computes on integers."""

from __future__ import annotations

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
    assert all(node.reason for node in result.nodes)
