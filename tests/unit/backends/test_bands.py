"""Depthwise convolutions that are computed in bands of rows, each right after what it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from glowpy import CpuBackend, CpuOptions, Module, compile
from glowpy.backends.cpu.insts_gen import CpuDepthwiseConvInst
from glowpy.backends.cpu.passes.band_depthwise import BandDepthwisePass
from glowpy.backends.cpu.passes.split_pools import SplitPoolsPass
from glowpy.backends.cpu.strategy.bands import Window, bands
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation, evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode, SliceNode
from glowpy.graph.verifier import verify_module
from glowpy.llvm.machine import host_features
from glowpy.passes import PassContext
from tests.unit.networks import arrays_for, execute, same_numbers, unoptimized

VARIANT = CpuBackend(CpuOptions(cpu="x86-64-v2")).target.variant
MACHINE = VARIANT.machine

Activation = Callable[[Function, NodeValue], NodeValue]


def silu(f: Function, x: NodeValue) -> NodeValue:
    return f.create_mul("m", x, f.create_sigmoid("s", x)).result


def hard_swish(f: Function, x: NodeValue) -> NodeValue:
    three = f.create_splat("three", x.type, 3.0)
    gate = f.create_clip("gate", f.create_add("sum", x, three), 0.0, 6.0)
    return f.create_mul("product", x, gate).result


def bounded(f: Function, x: NodeValue) -> NodeValue:
    return f.create_clip("relu6", x, 0.0, 6.0).result


def nothing(f: Function, x: NodeValue) -> NodeValue:
    return x


def network(
    input: str = "f32[1x24x9x3]",
    wide: int = 8,
    kernels: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    dilation: tuple[int, int] = (1, 1),
    *,
    first: Activation = silu,
    second: Activation = bounded,
    residual: bool = False,
    read_twice: bool = False,
    computed: bool = False,
) -> Module:
    """An image of a type is widened to so many channels, and meets a depthwise convolution."""
    module, rng = Module(), np.random.default_rng(0)
    x = module.create_placeholder("x", parse_type(input))
    f = module.create_function("main")
    kind, depth = x.type.kind, x.type.extents[-1]

    def constant(*shape: int) -> NodeValue:
        array = rng.integers(-2, 3, shape).astype(kind.dtype)
        return module.create_constant("w", array).value

    square = (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1
    w = f.create_convolution("w", x, constant(wide, 1, 1, depth), constant(wide), *square)
    y = first(f, w.result)
    filter = constant(wide, *kernels, 1)
    if computed:
        filter = module.create_placeholder("filter", filter.type).value
    d = f.create_convolution("d", y, filter, constant(wide), kernels, strides, pads, dilation, wide)
    z = second(f, d.result)
    if residual:
        z = f.create_add("r", module.create_placeholder("other", z.type), z).result
    f.create_save("save", z, module.create_placeholder("y", z.type))
    if read_twice:
        f.create_save("too", y, module.create_placeholder("z", y.type))
    return module


def cut(module: Module, cache: int = 3000) -> int:
    """How many bands there are where a second-level cache has so many bytes."""
    machines = (
        replace(MACHINE, second_cache=cache),
        replace(VARIANT.double_machine, second_cache=cache),
    )
    variant = replace(VARIANT, machine=machines[0], double_machine=machines[1])
    changed = BandDepthwisePass(variant).run(module.main, PassContext(evaluate))
    verify_module(module)
    count = sum(isinstance(n, ConvolutionNode) and n.group > 1 for n in module.main.nodes)
    assert changed == (count > 1)
    return count


@pytest.mark.parametrize("reach", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_bands_read_what_the_whole_reads(reach: int, stride: int) -> None:
    for size in (20, 33):
        for before, after in ((0, 0), (reach // 2, reach // 2), (0, 1), (reach + 3, 0)):
            rows = (size + before + after - reach) // stride + 1
            window = Window(size, reach, stride, before)
            parts = bands(window, rows, 100, replace(MACHINE, second_cache=950))
            if reach - stride > 4 // stride * stride / 2 or before >= reach:
                assert not parts
                continue
            if not parts:  # the last band would read padding alone
                assert (rows - 1) * stride - before >= size
                continue
            assert [part.first for part in parts] == [0, *(part.last for part in parts)][:-1]
            assert parts[-1].last == rows
            for part in parts:
                read = range(
                    part.first * stride - before, (part.last - 1) * stride - before + reach
                )
                assert part.low - part.above == read.start
                assert part.high + part.below == read.stop
                assert 0 <= part.low < part.high <= size


def test_very_large_images_have_few_bands() -> None:
    parts = bands(Window(4096, 3, 1, 1), 4096, 100_000, replace(MACHINE, second_cache=1_000_000))
    assert len(parts) == 128
    assert {part.last - part.first for part in parts} == {32}


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (network(), 5),
        (network(strides=(2, 2)), 6),
        (network(strides=(2, 1), first=hard_swish, second=silu), 6),
        (network(strides=(3, 3), pads=(0, 1, 2, 1), first=bounded, second=hard_swish), 8),
        (network(kernels=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2)), 1),  # three rows of four kept
        (network(kernels=(2, 2), strides=(3, 3), pads=(0, 0, 0, 0)), 8),  # rows that nothing reads
        (network(kernels=(1, 1), strides=(4, 4), pads=(0, 0, 4, 0)), 1),  # padding alone
        (network(kernels=(2, 3), dilation=(2, 1), first=nothing, second=nothing), 5),
        (network(kernels=(1, 3), pads=(0, 1, 0, 1)), 5),
        (network("f32[2x24x5x3]", strides=(2, 2), residual=True), 6),
        (network("f64[1x24x5x3]", strides=(2, 2), residual=True), 6),
        (network("f32[1x12x9x3]"), 1),  # stays in the cache anyway
        (network("f32[1x24x99x3]"), 1),  # not even one row does
        (network(read_twice=True), 1),
        (network(computed=True), 1),
        (network("bf16[1x24x9x3]"), 1),  # is computed in f32, before which nothing is cut
    ],
)
def test_what_is_cut_and_that_it_computes_the_same(module: Module, count: int) -> None:
    before = unoptimized(module)
    inputs = arrays_for(module.placeholders, 1)
    assert cut(module) == count
    same_numbers(execute(unoptimized(module), inputs), execute(before, inputs))


def test_rows_are_computed_once() -> None:
    module = network(strides=(2, 2))
    cut(module)
    products = [n for n in module.main.nodes if isinstance(n, ConvolutionNode) and n.group == 1]
    assert sum(n.type.extents[1] for n in products) == 24
    sources = [n for n in module.main.nodes if isinstance(n, SliceNode) and n.type.shape[-1] == 3]
    assert [n.starts[1] for n in sources] == [0, *np.cumsum([n.type.extents[1] for n in sources])][
        :-1
    ]


def test_nodes_between_two_pairs_are_cut_once() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 24, 9, 8)))
    w, v, b = (
        module.create_constant("c", np.ones(shape, np.float32))
        for shape in ((8, 1, 1, 8), (8, 3, 3, 1), (8,))
    )
    square = (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1
    deep = (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 8
    first = f.create_convolution("d", f.create_convolution("w", x, w, b, *square), v, b, *deep)
    other = f.create_convolution("o", x, w, b, *square)
    total = f.create_add("sum", first, other)
    second = f.create_convolution("e", total, v, b, *deep)
    f.create_save("save", second, module.create_placeholder("y", second.result.type))
    inputs, before = arrays_for(module.placeholders, 1), unoptimized(module)
    assert cut(module) == 6
    same_numbers(execute(unoptimized(module), inputs), execute(before, inputs))


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_machine_code(cpu: str) -> None:
    backend = CpuBackend(CpuOptions(cpu=cpu))
    bytes = backend.target.variant.machine.second_cache * 9 // 4
    width = bytes // (4 * 40 * 52)
    module = network(f"f32[1x40x{width}x3]", 52, strides=(2, 2))
    stages = compilation(module, backend)
    program = stages.program
    parts = [i for i in program.ir.instructions if isinstance(i, CpuDepthwiseConvInst)]
    assert len(parts) > 2
    assert program.plan.peak < bytes
    if not backend.target.variant.requires <= host_features():
        return
    inputs = arrays_for(module.placeholders, 2)
    outputs = [
        compile(module, CpuBackend(CpuOptions(cpu=cpu, threads=threads)))({"x": inputs["x"]})
        for threads in (1, 2, 3)
    ]
    same_numbers(outputs[0], execute(unoptimized(module), inputs))
    assert all(one["y"].tobytes() == outputs[0]["y"].tobytes() for one in outputs)


def test_small_code_is_not_cut() -> None:
    small, fast = (
        {step.name for step in CpuBackend(CpuOptions(optimize=way)).post_lowering()}
        for way in ("size", "speed")
    )
    assert fast - small == {BandDepthwisePass.name, SplitPoolsPass.name}
