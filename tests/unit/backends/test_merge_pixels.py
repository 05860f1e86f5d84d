"""Where neighbouring pixels of a convolution's result become channels of one."""

from __future__ import annotations

import numpy as np
import pytest

from glowpy import CpuBackend, CpuOptions, InterpreterBackend, Module, compile, parse_type
from glowpy.backends.cpu.passes.merge_pixels import MergePixelsPass
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.passes import PassContext


def network(
    input: str,
    outputs: int,
    kernels: tuple[int, ...],
    *,
    strides: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    dilation: tuple[int, ...] = (),
    group: int = 1,
    computed: bool = False,
) -> Module:
    """One convolution of an input of a type."""
    module = Module()
    rank = len(kernels)
    x = module.create_placeholder("x", parse_type(input))
    shape = (outputs, *kernels, x.type.extents[-1] // group)
    weights = np.random.default_rng(0).standard_normal(shape).astype(x.type.kind.dtype)
    filter = (
        module.create_placeholder("w", Type(x.type.kind, shape))
        if computed
        else module.create_constant("w", weights)
    )
    f = module.create_function("main")
    bias = module.create_constant("b", np.arange(outputs).astype(x.type.kind.dtype))
    c = f.create_convolution(
        "c", x, filter, bias, kernels, strides or (1,) * rank, pads or (0,) * (2 * rank),
        dilation or (1,) * rank, group,
    )  # fmt: skip
    f.create_save("save", c, module.create_placeholder("y", c.type))
    return module


def pixels(module: Module, cpu: str = "x86-64-v4", reasons: list[str] | None = None) -> int:
    """How many become one."""
    variant = CpuBackend(CpuOptions(cpu)).target.variant
    (before,) = (n for n in module.main.nodes if isinstance(n, ConvolutionNode))
    ctx = PassContext(evaluate, explain=None if reasons is None else reasons.append)
    MergePixelsPass(variant).run(module.main, ctx)
    (after,) = (n for n in module.main.nodes if isinstance(n, ConvolutionNode))
    return after.type.extents[-1] // before.type.extents[-1]


@pytest.mark.parametrize(
    ("module", "wide", "narrow"),
    [
        (network("f32[1x8x60x32]", 3, (9, 9), pads=(4, 4, 4, 4)), 5, 1),
        (network("f32[1x8x64x32]", 1, (5, 5), pads=(2, 2, 2, 2)), 16, 4),
        (network("f32[1x8x62x32]", 3, (9, 9), pads=(4, 4, 4, 4)), 2, 1),  # of a row of 62
        (network("f32[1x8x61x32]", 3, (9, 9), pads=(4, 4, 4, 4)), 1, 1),  # a prime number
        (network("f32[1x8x64x32]", 9, (3, 3), pads=(1, 1, 1, 1)), 1, 1),  # more than half a vector
        (network("f32[1x8x64x32]", 4, (1, 1)), 1, 1),  # nothing in common
        (network("f32[1x9x65x32]", 1, (3, 3), strides=(2, 2)), 16, 4),
        (network("f32[1x9x65x32]", 1, (3, 3), strides=(3, 3), pads=(0, 0, 0, 1)), 1, 1),
        (network("f64[1x8x64x32]", 4, (3, 3), pads=(1, 1, 1, 1)), 2, 1),
    ],
)
def test_the_width_of_vectors_and_of_rows_decide(module: Module, wide: int, narrow: int) -> None:
    text = [pixels(module.clone(), cpu) for cpu in ("x86-64-v4", "x86-64-v2")]
    assert text == [wide, narrow]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network("f32[1x8x8x4]", 1, (3, 3), computed=True), "the filter is computed"),
        (network("f32[1x8x61x4]", 1, (2, 3), strides=(1, 3)), "few taps in common"),
    ],
)
def test_reasons(module: Module, reason: str) -> None:
    reasons: list[str] = []
    assert pixels(module, reasons=reasons) == 1
    assert reason in "\n".join(map(str, reasons))


@pytest.mark.parametrize(
    "module",
    [
        network("f32[1x8x8x4]", 2, (3, 3), group=2),
        network("f32[1x8x9x4]", 2, (3, 2), dilation=(1, 2)),
        network("i32[1x8x8x4]", 2, (3, 3)),
    ],
)
def test_what_is_left_alone(module: Module) -> None:
    assert pixels(module) == 1


@pytest.mark.parametrize(
    "module",
    [
        network("f32[2x5x12x3]", 3, (3, 4), strides=(2, 1), pads=(1, 2, 0, 1)),
        network("f32[1x7x16x5]", 1, (3, 3), strides=(1, 2), pads=(1, 1, 1, 1), dilation=(2, 1)),
        network("f32[2x24x3]", 2, (5,), pads=(2, 2)),
        network("f32[1x3x4x8x2]", 2, (2, 2, 3), pads=(1, 0, 1, 0, 1, 1)),
        network("f16[1x4x8x3]", 4, (3, 3), pads=(1, 1, 1, 1)),
    ],
)
def test_numbers(module: Module) -> None:
    x = next(iter(module.main.nodes)).inputs[0]
    assert pixels(module.clone()) > 1
    data = np.random.default_rng(1).standard_normal(x.type.extents).astype(x.type.kind.dtype)
    got, expected = (
        compile(module.clone(), backend)({"x": data})["y"].astype(np.float64)
        for backend in (CpuBackend(), InterpreterBackend())
    )
    np.testing.assert_allclose(got, expected, atol=2e-2 if data.dtype == np.float16 else 1e-5)
