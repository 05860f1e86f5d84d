"""softmax(relu(x * W + b)), from two threads at once; and where its buffers lie."""

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from threading import Barrier
from weakref import ref

import numpy as np
import pytest

import glowpy
from glowpy import Instance, Module, parse_type
from glowpy.core.tensor import Array, address_of
from glowpy.engine import compilation
from glowpy.recipe import Stage

RNG = np.random.default_rng(7)
W = RNG.standard_normal((64, 256), np.float32) / 8
B = RNG.standard_normal(256, np.float32)


def network() -> Module:
    m = Module()
    x = m.create_placeholder("x", parse_type("f32[16x64]"))
    y = m.create_placeholder("y", parse_type("f32[16x256]"))
    f = m.create_function("main")
    product = f.create_mat_mul("product", x, m.create_constant("w", W))
    relu = f.create_relu("relu", f.create_add("sum", product, m.create_constant("b", B)))
    f.create_save("save", f.create_softmax("prob", relu, axis=1), y)
    return m


def expected(x: Array) -> Array:
    hidden = np.maximum(x.astype(np.float64) @ W + B, 0)
    powers = np.exp(hidden - hidden.max(axis=1, keepdims=True))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_runs_in_several_working_memories_by_turns(backend: str) -> None:
    """A run uses its own, and that of an instance is free once the instance is."""
    compiled = glowpy.compile(network(), backend)
    arenas = [np.zeros(compiled.arena_size + 64, np.uint8) for _ in range(3)]
    arenas = [arena[-address_of(arena) % 64 :][: compiled.arena_size] for arena in arenas]
    watched = ref(arenas[0])
    names = compiled.input_ports[0].placeholder, compiled.output_ports[0].placeholder
    x, y = RNG.standard_normal((16, 64), np.float32), np.zeros((16, 256), np.float32)
    for place in (0, 0, 1, 0, 2, 2, 0):
        before = [arena.copy() for arena in arenas]
        compiled.execute(dict(zip(names, (x, y), strict=True)), arenas[place], {})
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-6)
        others = [index for index in range(3) if index != place]
        assert all(np.array_equal(arenas[index], before[index]) for index in others)
        x = x[::-1].copy()
    arenas.clear()
    assert watched() is None


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_two_instances_in_two_threads(backend: str) -> None:
    compiled = glowpy.compile(network(), backend)
    inputs = [RNG.standard_normal((16, 64), np.float32) for _ in range(2)]
    alone = [compiled({"x": x})["y"] for x in inputs]
    barrier = Barrier(2)

    def run(instance: Instance, x: Array) -> list[Array]:
        instance["x"][...] = x
        results = []
        for _ in range(20):
            barrier.wait(timeout=60)
            instance.run()
            results.append(instance["y"].copy())
        return results

    instances = [compiled.instance() for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(run, instances, inputs))
    for x, single, results in zip(inputs, alone, together, strict=True):
        np.testing.assert_allclose(single, expected(x), rtol=1e-5, atol=1e-7)
        assert all(np.array_equal(result, single) for result in results)


def test_one_function_called_from_two_threads() -> None:
    compiled = glowpy.compile(network())
    inputs = [RNG.standard_normal((16, 64), np.float32) for _ in range(8)]
    alone = [compiled({"x": x})["y"] for x in inputs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda x: compiled({"x": x})["y"], inputs))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def deep_network() -> Module:
    """Products one after the other: no result can overwrite its input, but the input of that."""
    m = Module()
    x = m.create_placeholder("x", parse_type("f32[4x32]"))
    y = m.create_placeholder("y", parse_type("f32[4x32]"))
    f = m.create_function("main")
    value = x.value
    for index in range(5):
        w = m.create_constant(f"w{index}", RNG.standard_normal((32, 32), np.float32))
        value = f.create_relu(f"relu{index}", f.create_mat_mul(f"layer{index}", value, w)).result
    f.create_save("save", value, y)
    return m


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_buffers_share_memory(backend: str) -> None:
    stages = compilation(deep_network().main, backend)
    slots = stages.program.plan.activations.slots
    sharing = [
        (a.name, b.name) for a, b in combinations(slots, 2) if a.start < b.end and b.start < a.end
    ]
    assert sharing, stages.text(Stage.MEMORY)
    assert stages.program.plan.peak < sum(slot.size for slot in slots)
