"""Functions that networks of other sizes share: they are compiled once, and compute what code for one size does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend
from glowpy.backends.cpu.codegen import entry_name, generate_llvm
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.llvm.machine import CALLS_ONLY, Compiler, InvalidIRError, Machine, host_cpu, host_triple

Layer = Callable[[Function, NodeValue], NodeValue]


def max_pool(stride: int) -> Layer:
    def layer(f: Function, x: NodeValue) -> NodeValue:
        return f.create_max_pool("max", x, (3, 3), (stride,) * 2, (1,) * 4, (1, 1)).result

    return layer


def avg_pool(f: Function, x: NodeValue) -> NodeValue:
    return f.create_avg_pool("mean", x, (2, 2), (2, 2), (0,) * 4, (1, 1)).result


def normalization(f: Function, x: NodeValue) -> NodeValue:
    return f.create_local_response_normalization("lrn", x, 5, 1e-4, 0.75, 1.0).result


def softmax(f: Function, x: NodeValue) -> NodeValue:
    flat = f.create_reshape("flat", Type(ElemKind.F32, (1, x.type.count)), x).result
    return f.create_softmax("softmax", flat, 1).result


def scaled_part(f: Function, x: NodeValue) -> NodeValue:
    """Some channels, normalized over a batch, with a ReLU."""
    channels = x.type.extents[3] - 16
    type = Type(ElemKind.F32, (*x.type.shape[:3], channels))
    part = f.create_slice("part", type, x, (0,) * 4, (1,) * 4).result
    scale, zero = (
        f.module.create_constant(name, Tensor.splat(Type(ElemKind.F32, shape), value)).value
        for name, shape, value in (("scale", (channels,), 1.5), ("zero", type.shape, 0.0))
    )
    return f.create_max("y", f.create_mul("scaled", part, scale).result, zero).result


def network(layer: Layer, height: int, width: int, channels: int) -> Module:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, height, width, channels)))
    result = layer(f, x.value)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


LAYERS: list[tuple[Layer, int]] = [
    (max_pool(1), 80),
    (max_pool(2), 80),
    (avg_pool, 80),
    (normalization, 48),
    (softmax, 208),
    (scaled_part, 336),
]


@pytest.mark.parametrize(("layer", "channels"), LAYERS)
def test_what_differs_in_sizes_alone_is_compiled_once(
    layer: Layer, channels: int, cache_folder: Path
) -> None:
    """Of the second network, the entry point alone is compiled; both are as the interpreter computes them."""
    more = channels + 640 if layer in (softmax, scaled_part) else channels
    for index, sizes in enumerate(((36, 40, channels), (44, 52, more))):
        before = set(cache_folder.glob("code-*"))
        module = network(layer, *sizes)
        x = np.random.default_rng(index).normal(size=(1, *sizes)).astype(np.float32)
        result = glowpy.compile(module, CpuBackend())({"x": x})["y"]
        expected = glowpy.compile(module, glowpy.InterpreterBackend())({"x": x})["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)
        if index:
            assert len(set(cache_folder.glob("code-*")) - before) == 1


@pytest.mark.parametrize("channels", [5, 16, 17, 63, 64, 176, 336])
def test_every_number_of_channels_is_pooled(channels: int) -> None:
    """Parts of vectors, and as many vectors at a time as there may be."""
    for layer in (max_pool(1), max_pool(2), avg_pool):
        module = network(layer, 8, 12, channels)
        x = np.random.default_rng(channels).normal(size=(1, 8, 12, channels)).astype(np.float32)
        x[0, 2, 3, 0] = np.nan
        result = glowpy.compile(module, CpuBackend())({"x": x})["y"]
        expected = glowpy.compile(module, glowpy.InterpreterBackend())({"x": x})["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_a_pool_with_one_window_in_a_row_is_made_for_its_size() -> None:
    module, backend = network(avg_pool, 4, 2, 48), CpuBackend()
    program = compilation(module, backend).program
    options = CodeOptions(EntryOptions(bound=True), separate=True)
    texts = generate_llvm({entry_name(program): program}, backend.target, backend.kernels, options)
    (pool,) = (text for text in texts if "@libjit_avg_pool_f32(" in text)
    assert "llvm.assume" not in pool


def test_a_text_of_calls_needs_functions_of_others_or_is_refused() -> None:
    compiler = Compiler(Machine(host_triple(), host_cpu(), ""), [], [])
    caller = "define void @caller() {\n  call void @called()\n  ret void\n}\ndeclare void @called()"
    assert compiler.object_code(f'{CALLS_ONLY}{caller} "glowpy-external"')
    with pytest.raises(InvalidIRError, match="no library defines called"):
        compiler.object_code(f"{CALLS_ONLY}{caller}")
