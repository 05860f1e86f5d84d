"""Concats of channels and slices of them whose users take strides: nothing is copied, on either backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import backend_of, compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.ir.insts_gen import CopyInst, ExtractTensorInst, InsertTensorInst, ViewInst
from tests.unit.networks import arrays_for, check_on_cpu

Build = Callable[[Function, NodeValue], NodeValue]

SAME = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
"""A window that keeps the size of the image."""


def scaled(f: Function, x: NodeValue, seed: int) -> NodeValue:
    """A normalisation of each channel, and a relu."""
    rng = np.random.default_rng(seed)
    numbers = [rng.uniform(0.5, 1.5, x.type.extents[-1]).astype(np.float32) for _ in range(2)]
    scale, shift = (f.module.create_constant("c", array) for array in numbers)
    return f.create_relu("r", f.create_add("a", f.create_mul("m", x, scale), shift)).result


def joined(f: Function, *parts: NodeValue) -> NodeValue:
    return f.create_concat("c", parts, 3).result


def fires(f: Function, x: NodeValue) -> NodeValue:
    """As squeezenet and inception: branches of one image, side by side."""
    for number in range(2):
        pooled = f.create_max_pool("p", x, *SAME).result
        mean = f.create_avg_pool("q", x, *SAME, False, True).result
        x = joined(f, scaled(f, x, number), pooled, f.create_softmax("s", mean, 3).result)
    return x


def layers(f: Function, x: NodeValue) -> NodeValue:
    """As densenet: every layer reads all that there is, and adds a few channels."""
    x = f.create_max_pool("p", x, *SAME).result
    for number in range(4):
        mean = f.create_avg_pool("q", scaled(f, x, number), *SAME, False, True).result
        x = joined(f, x, f.create_reduce_max("r", mean, (3,)).result)
    return f.create_exp("e", x).result


def shuffled(f: Function, x: NodeValue) -> NodeValue:
    """As shufflenet: halves of the channels are read where they are, and transposed into a list of both."""
    halves = [
        f.create_slice("h", Type(ElemKind.F32, (1, 5, 5, 3)), x, (0, 0, 0, 3 * i), (1,) * 4).result
        for i in range(2)
    ]
    left = f.create_transpose("t", f.create_exp("e", halves[0]), (0, 2, 1, 3)).result
    return joined(f, left, f.create_reduce_add("r", halves[1], (3,)).result, scaled(f, x, 3))


@pytest.mark.parametrize("build", [fires, layers, shuffled], ids=lambda build: build.__name__)
def test_nothing_is_copied(build: Build) -> None:
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 5, 5, 6)))
    f = module.create_function("main")
    result = build(f, x.value)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    for backend in ("interpreter", "cpu"):
        instructions = compilation(module, backend_of(backend)).program.ir.instructions
        copies = (InsertTensorInst, ExtractTensorInst, CopyInst)
        assert not [inst for inst in instructions if isinstance(inst, copies)]
        assert any(isinstance(inst, ViewInst) and inst.strides for inst in instructions)
    check_on_cpu(module, arrays_for(module.placeholders, 5))


def test_products_read_slices_where_they_are() -> None:
    """Some rows, columns and channels of images: pixels in one loop, in one of each image, and in one of each row."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 9, 10, 12))).value
    f = module.create_function("main")
    parts = {
        "channels": ((0, 0, 0, 3), (2, 9, 10, 5)),
        "rows": ((0, 2, 0, 0), (2, 5, 10, 12)),
        "columns": ((0, 0, 1, 4), (2, 9, 7, 8)),
        "one": ((1, 4, 0, 2), (1, 1, 10, 10)),
    }
    rng, results = np.random.default_rng(0), []
    for name, (offsets, shape) in parts.items():
        part = f.create_slice(name, Type(ElemKind.F32, shape), x, offsets, (1,) * 4).result
        channels = shape[3]
        for kernel, group in ((1, 1), (3, 1), (3, channels)):
            outputs = channels if group > 1 else 17
            numbers = rng.integers(-8, 9, (outputs, kernel, kernel, channels // group)) / 4
            filter = module.create_constant("w", numbers.astype(np.float32))
            bias = module.create_constant("b", np.arange(outputs, dtype=np.float32))
            pads = ((kernel - 1) // 2,) * 4
            lists = ((kernel, kernel), (1, 1), pads, (1, 1), group)
            result = f.create_convolution(name, part, filter, bias, *lists).result
            results.append(result)
        weights = module.create_constant("m", rng.standard_normal((channels, 5)).astype(np.float32))
        product = f.create_mat_mul(name, part, weights).result
        results.append(product)
    for number, result in enumerate(results):
        f.create_save("save", result, module.create_placeholder(f"y{number}", result.type))
    instructions = compilation(module, backend_of("cpu")).program.ir.instructions
    assert not [inst for inst in instructions if isinstance(inst, ExtractTensorInst | CopyInst)]
    check_on_cpu(module, arrays_for(module.placeholders, 5))


@pytest.mark.parametrize("channels", [16, 24])
def test_pools_fetch_ahead_between_other_channels(channels: int) -> None:
    """The next row of windows, where prefetchers of processors do not see it coming; of whole pixels they do."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 8, 8, channels))).value
    f = module.create_function("main")
    part = f.create_slice("part", Type(ElemKind.F32, (1, 8, 8, 16)), x, (0,) * 4, (1,) * 4).result
    pooled = f.create_max_pool("p", part, (2, 2), (2, 2), (0,) * 4, (1, 1)).result
    f.create_save("save", pooled, module.create_placeholder("y", pooled.type))
    check_on_cpu(module, arrays_for(module.placeholders, 5))
    backend = CpuBackend(CpuOptions("x86_64-linux-gnu"))
    code = backend.emit(compilation(module, backend).program, "asm")
    assert ("prefetch" in code) == (channels > 16)
