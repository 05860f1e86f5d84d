"""Which phases of transposed convolutions become channels, on which processors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from glowpy import CpuBackend, CpuOptions, Module, parse_type
from glowpy.backends.cpu.passes.merge_phases import MergePhasesPass
from glowpy.engine import compilation, evaluate
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import TransposedConvolutionNode
from glowpy.ir.printer import print_irfunction
from glowpy.passes import PassContext


def network(
    channels: int,
    outputs: int,
    kernel: int,
    stride: int,
    *,
    group: int = 1,
    computed: bool = False,
    kind: str = "f32",
    begin: int = 0,
    concat: bool = False,
) -> Module:
    """Images of 8x8 made larger."""
    module = Module()
    shape = (outputs, kernel, kernel, channels // group)
    size = 7 * stride + kernel - 2 * begin
    x = module.create_placeholder("x", parse_type(f"{kind}[1x8x8x{channels}]"))
    y = module.create_placeholder("y", parse_type(f"{kind}[1x{size}x{size}x{outputs}]"))
    dtype = x.type.kind.dtype
    filter = (
        module.create_placeholder("w", x.type.with_shape(shape))
        if computed
        else module.create_constant("w", np.arange(np.prod(shape)).reshape(shape).astype(dtype))
    )
    f = module.create_function("main")
    t: NodeValue = f.create_transposed_convolution(
        "t", y.type, x, filter, module.create_constant("b", np.zeros(outputs, dtype)),
        (kernel, kernel), (stride, stride), (begin, begin), (1, 1), group,
    ).result  # fmt: skip
    if concat:  # with an output of its own
        other = f.create_neg("other", t)
        t = f.create_concat("c", [t, other], 3).result
        y = module.create_placeholder("z", t.type)
    f.create_save("save", f.create_neg("n", t), y)
    return module


def strides(module: Module, cpu: str, reasons: list[str] | None = None) -> tuple[int, ...]:
    """Of what the pass makes of the network."""
    variant = CpuBackend(CpuOptions(cpu)).target.variant
    ctx = PassContext(evaluate, explain=None if reasons is None else reasons.append)
    MergePhasesPass(variant).run(module.main, ctx)
    (node,) = (n for n in module.main.nodes if isinstance(n, TransposedConvolutionNode))
    return node.strides


@pytest.mark.parametrize(
    ("sizes", "wide", "narrow"),
    [
        ((56, 1, 9, 3), (1, 1), (3, 1)),  # 81 taps of 1 channel become 9 of 9, or 27 of 3
        ((64, 3, 4, 2), (1, 1), (1, 1)),  # 16 of 3 become 4 of 12
        ((64, 32, 2, 2), (2, 1), (2, 1)),  # the same work in half as many products
        ((64, 32, 3, 2), (2, 2), (2, 2)),  # 2 taps of a phase would be 3
    ],
)
def test_the_width_of_vectors_decides(
    sizes: tuple[int, int, int, int], wide: tuple[int, int], narrow: tuple[int, int]
) -> None:
    assert strides(network(*sizes), "x86-64-v4") == wide
    assert strides(network(*sizes), "x86-64-v2") == narrow
    assert strides(network(*sizes, kind="f16"), "x86-64-v4") == wide


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network(4, 1, 4, 2, computed=True), "the filter is computed"),
        (network(4, 4, 4, 2, group=4), "the channels of a group lie together"),
        (network(64, 32, 4, 2, begin=1), "the phases fill vectors"),
    ],
)
def test_reasons(module: Module, reason: str) -> None:
    reasons: list[str] = []
    assert strides(module, "x86-64-v4", reasons) == (2, 2)
    assert reason in "\n".join(map(str, reasons))


def test_phases_are_counted_from_where_their_windows_are_alike() -> None:
    module = network(64, 3, 4, 2, begin=1)
    assert strides(module, "x86-64-v4") == (1, 1)
    (node,) = (n for n in module.main.nodes if isinstance(n, TransposedConvolutionNode))
    assert node.kernels == (2, 2)


def test_integers_are_left_alone() -> None:
    assert strides(network(4, 1, 4, 2, kind="i32"), "x86-64-v4") == (2, 2)


@pytest.mark.parametrize("concat", [False, True])
def test_nothing_is_copied(concat: bool) -> None:
    """Two products write every other row of the result; four where it is some channels of a concat."""
    module = network(64, 32, 2, 2, concat=concat)
    text = print_irfunction(compilation(module, CpuBackend(CpuOptions("x86-64-v4"))).program.ir)
    names = re.findall(r"^    (?!dealloc)(\w+) @", text, re.MULTILINE)
    assert names == ["cpu_conv"] * (4 if concat else 2) + ["neg"] * (2 if concat else 1)


def test_small_code_has_no_vectors_to_fill() -> None:
    small, fast = (
        CpuBackend(CpuOptions("cortex-m7", optimize=way)).pipeline(()) for way in ("size", "speed")
    )
    assert small == ()
    assert [step.name for step in fast] == [
        "fold-shuffle",
        "raise-elementwise",
        "merge-phases",
        "merge-pixels",
    ]
