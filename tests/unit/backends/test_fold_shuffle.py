"""Where shuffled channels are read from where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from glowpy import Module, parse_type
from glowpy.backends.cpu.passes.fold_shuffle import FoldShufflePass
from glowpy.engine import evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import TransposeNode
from glowpy.passes import PassContext
from glowpy.support.symbolic import symbol
from tests.unit.networks import arrays_for, check_on_cpu

SYMBOLS = {name: symbol(name, 1, 9) for name in "nw"}


def convolution(
    f: Function,
    x: NodeValue,
    outputs: int,
    kernel: int = 1,
    group: int = 1,
    *,
    computed: bool = False,
) -> NodeValue:
    """With as many pixels, and channels that differ."""
    rng = np.random.default_rng([outputs, kernel, group])
    shape = (outputs, kernel, kernel, x.type.likely[-1] // group)
    weights = rng.standard_normal(shape).astype(np.float32)
    filter = f.module.create_constant("w", weights)
    bias = f.module.create_constant("b", rng.standard_normal(outputs).astype(np.float32))
    lists = ((kernel, kernel), (1, 1), (kernel // 2,) * 4, (1, 1), group)
    return f.create_convolution(
        "c", x, f.create_exp("computed", filter) if computed else filter, bias, *lists
    ).result


def shuffled(f: Function, x: NodeValue, rows: int) -> NodeValue:
    """`rows` times some channels, transposed."""
    *pixels, channels = x.type.shape
    parts = f.create_reshape("r", x.type.with_shape((*pixels, rows, channels // rows)), x)
    axes = range(len(pixels))
    moved = f.create_transpose("t", parts, (*axes, len(pixels) + 1, len(pixels)))
    return f.create_reshape("s", x.type, moved).result


def network(
    channels: int, rows: int, group: int, *, input: str = "f32[2x3x5x12]", before: int = 0,
    kernel: int = 1, depthwise: bool = True, computed: bool = False, twice: bool = False,
    inverted: bool = False,
) -> Module:  # fmt: skip
    """Two convolutions with a shuffle between, after which each channel has a filter of its own."""
    module = Module()
    x = module.create_placeholder("x", parse_type(input, SYMBOLS))
    f = module.create_function("main")
    y = convolution(f, x.value, channels, 1, before or rows)
    y = (f.create_reciprocal("r", y) if inverted else f.create_relu("relu", y)).result
    between = y = shuffled(f, y, rows)
    if depthwise:
        y = f.create_tanh("tanh", convolution(f, y, channels, 3, channels)).result
    y = convolution(f, y, 2 * group, kernel, group, computed=computed)
    f.create_save("save", y, module.create_placeholder("y", y.type))
    if twice:
        f.create_save("save", between, module.create_placeholder("z", between.type))
    return module


def transposes(module: Module, reasons: list[str] | None = None) -> int:
    """How many are left."""
    ctx = PassContext(evaluate, explain=None if reasons is None else reasons.append)
    FoldShufflePass().run(module.main, ctx)
    return sum(isinstance(node, TransposeNode) for node in module.main.nodes)


@pytest.mark.parametrize(
    "module",
    [
        network(16, 2, 2),
        network(48, 4, 4, before=2),
        network(24, 3, 2),
        network(24, 2, 3, depthwise=False),
        network(76, 4, 4),  # 19 channels of a row for 4 groups, 5 places for each
        network(76, 4, 4, before=1, depthwise=False),
        network(76, 4, 4, inverted=True),  # no place may have a zero
        network(24, 4, 1, kernel=3),
        network(24, 4, 1, depthwise=False),
        network(48, 4, 4, input="f32[n x 3 x w x 12]"),
    ],
)
def test_channels_are_read_where_they_lie(module: Module) -> None:
    assert transposes(module.clone()) == 0
    check_on_cpu(module, arrays_for(module.placeholders, 0, {"n": 3, "w": 7}))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network(16, 2, 2, computed=True), "the filter is computed"),
        (network(16, 2, 2, kernel=3), "a group reads several pixels"),
        (network(36, 4, 4), "a group has few channels in some places"),
        (
            network(76, 4, 4, input="f32[1x2x2x19]", before=19),
            "nothing can lie between the channels",
        ),
        (network(16, 2, 2, twice=True), ""),
        (network(16, 2, 16), "a group has few channels in some places"),
    ],
)
def test_what_is_left_alone(module: Module, reason: str) -> None:
    reasons: list[str] = []
    assert transposes(module.clone(), reasons) == 1
    assert reason in "\n".join(reasons)
