"""Constants of few different elements take little memory, whatever their kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Module, NodeValue
from glowpy.core.tensor import Array, Tensor
from glowpy.engine import evaluate
from glowpy.graph.function import Function
from glowpy.opt.graph.narrow_constants import NarrowConstantsPass
from glowpy.passes import PassContext

KINDS = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8, np.int64]
REPEATED = {
    "all": (np.full((32, 64), 3), "1x1"),
    "rows": (np.tile(np.arange(64), (32, 1)), "1x64"),
    "columns": (np.tile(np.arange(32)[:, None], (1, 64)), "32x1"),
    "none": (np.arange(32 * 64).reshape(32, 64) % 7, "32x64"),
}


def added(f: Function, x: NodeValue, constant: NodeValue) -> NodeValue:
    return f.create_add("added", x, constant).result


def joined(f: Function, x: NodeValue, constant: NodeValue) -> NodeValue:
    return f.create_concat("joined", [x, constant], 0).result


def network(constant: Array, make: Callable[[Function, NodeValue, NodeValue], NodeValue]) -> Module:
    module = Module()
    f = module.create_function("main")
    tensor = Tensor.of(constant)
    x = module.create_placeholder("x", tensor.type.with_shape((32, 64)))
    result = make(f, x.value, module.create_constant("c", tensor).value)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


def read_constants(module: Module) -> list[str]:
    """The shapes of the constants that nodes read, after the pass."""
    f = module.clone().function("main")
    NarrowConstantsPass().run(f, PassContext(evaluate))
    read = [value.type for node in f.topological() for value in node.inputs if value.constant]
    return ["x".join(map(str, type.shape)) for type in read]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("form", REPEATED)
def test_results_are_the_same_and_constants_small(form: str, kind: type) -> None:
    numbers, shape = REPEATED[form]
    constant: Array = numbers.astype(kind)
    x: Array = np.random.default_rng(0).integers(0, 5, (32, 64)).astype(kind)
    for make, expected in ((added, x + constant), (joined, np.concatenate([x, constant]))):
        module = network(constant, make)
        assert read_constants(module) == [shape]
        (result,) = glowpy.compile(module, "interpreter")({"x": x}).values()
        assert result.tobytes() == expected.tobytes()


def test_zeros_of_both_signs_and_numbers_that_are_none_differ() -> None:
    zeros = np.zeros((32, 64), np.float32)
    signs = zeros.copy()
    signs[:, 5] = -0.0
    nans = np.full((32, 64), np.nan, np.float32)
    assert read_constants(network(signs, joined)) == ["1x64"]
    assert read_constants(network(nans, joined)) == ["1x1"]
    other = nans.view(np.uint32).copy()
    other[3, 4] ^= 1
    assert read_constants(network(other.view(np.float32), joined)) == ["32x64"]


def test_what_alone_has_the_extent_of_a_result_keeps_it() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Tensor.of(np.zeros((1, 64), np.float32)).type)
    c = module.create_constant("c", np.full((32, 64), 2, np.float32))
    result = f.create_mul("y", x, c).result
    f.create_save("save", result, module.create_placeholder("y", result.type))
    assert read_constants(module) == ["32x1"]


def test_little_constants_and_those_of_products_stay() -> None:
    def multiplied(f: Function, x: NodeValue, constant: NodeValue) -> NodeValue:
        return f.create_mat_mul("y", x, constant).result

    assert read_constants(network(np.full((64, 9), 1, np.float32), multiplied)) == ["64x9"]
    assert read_constants(network(np.full((1, 64), 1, np.float32), added)) == ["1x64"]


@pytest.mark.parametrize("make", [added, joined])
def test_bundles_hold_what_is_repeated_once(
    make: Callable[[Function, NodeValue, NodeValue], NodeValue], tmp_path: Path
) -> None:
    module = network(np.full((32, 64), 2, np.float32), make)
    glowpy.bundle(module, tmp_path / "b", BundleOptions(name="net"))
    assert (tmp_path / "b" / "net.weights.bin").stat().st_size <= 128


def test_an_output_that_is_constant_is_written_in_place() -> None:
    module = Module()
    f = module.create_function("main")
    c = module.create_constant("c", np.full((32, 64), 2, np.float32))
    f.create_save("save", c, module.create_placeholder("y", c.type))
    assert read_constants(module) == ["1x1"]
    for backend in ("interpreter", "cpu"):
        (result,) = glowpy.compile(module, backend)({}).values()
        np.testing.assert_array_equal(result, np.full((32, 64), 2, np.float32))
