"""The processor as a device, which loads images that a compiler made."""

from __future__ import annotations

import numpy as np

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.jit import JitFunction
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.runtime.host_memory import HOST

X = np.arange(64, dtype=np.float32).reshape(1, 64)


def product(seed: int) -> JitFunction:
    """A network with a large constant, compiled without the cache."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 64)))
    weights = np.random.default_rng(seed).standard_normal((64, 512)).astype(np.float32)
    f = module.create_function("main")
    node = f.create_mat_mul("product", x, module.create_constant("w", weights))
    f.create_save("save", node, module.create_placeholder("y", node.result.type))
    compiled = glowpy.compile(f, CpuBackend(), glowpy.CompileOptions(cache=False))
    assert isinstance(compiled, JitFunction)
    return compiled


def test_another_device_loads_the_bytes_of_an_image() -> None:
    compiled = product(1)
    device = CpuBackend().device
    image = device.parse(compiled.image.payload())
    assert image.digests
    loaded = device.load(image, use_cache=False)
    assert loaded is not None
    assert loaded.memory is HOST
    assert loaded.signature == compiled.signature
    np.testing.assert_array_equal(loaded({"x": X})["y"], compiled({"x": X})["y"])


def test_an_image_whose_constants_are_nowhere_is_not_loaded() -> None:
    compiled = product(2)
    device = CpuBackend().device
    image = device.parse(compiled.image.payload())
    del compiled
    assert device.load(image, use_cache=False) is None
