"""Element-wise nodes after the shuffle of a product's result, which its epilogue takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from glowpy import Module, parse_type
from glowpy.backends.cpu.passes.raise_elementwise import RaiseElementwisePass
from glowpy.engine import evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import TransposeNode
from glowpy.graph.verifier import verify_module
from glowpy.passes import PassContext
from glowpy.support.symbolic import symbol
from tests.unit.networks import arrays_for, check_on_cpu

SYMBOLS = {"n": symbol("n", 1, 9)}

Build = Callable[[Function, NodeValue], NodeValue]


def scalar(f: Function, value: float, rank: int = 0) -> NodeValue:
    return f.module.create_constant("k", np.full((1,) * rank, value, np.float32)).value


def leaky(f: Function, x: NodeValue) -> NodeValue:
    """As it is lowered: three nodes, all of which read `x` or one another."""
    negative = f.create_lt("negative", x, scalar(f, 0.0))
    return f.create_select("leaky", negative, f.create_mul("less", x, scalar(f, 0.2, 1)), x).result


def twice(f: Function, x: NodeValue) -> NodeValue:
    return f.create_tanh("t", leaky(f, x)).result


def read_elsewhere(f: Function, x: NodeValue) -> NodeValue:
    f.create_save("also", x, f.module.create_placeholder("z", x.type))
    return leaky(f, x)


def by_channels(f: Function, x: NodeValue) -> NodeValue:
    slopes = np.linspace(0, 1, x.type.likely[-1], dtype=np.float32)
    return f.create_mul("scaled", x, f.module.create_constant("slopes", slopes)).result


def network(after: Build, *, input: str = "f32[2x3x5x4]", computed: bool = True) -> Module:
    """A DepthToSpace of a convolution, or of something else, and what comes after it."""
    module = Module()
    value = module.create_placeholder("x", parse_type(input, SYMBOLS)).value
    f = module.create_function("main")
    channels, rng = value.type.likely[-1], np.random.default_rng(3)
    if computed:
        filter = rng.standard_normal((3 * channels, 3, 3, channels)).astype(np.float32)
        bias = rng.standard_normal(3 * channels).astype(np.float32)
        lists = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
        value = f.create_convolution(
            "c",
            value,
            module.create_constant("w", filter),
            module.create_constant("b", bias),
            *lists,
        ).result
    n, h, w, c = value.type.shape
    parts = f.create_reshape("r", value.type.with_shape((n, h, w, c // 4, 2, 2)), value)
    moved = f.create_transpose("t", parts, (0, 1, 4, 2, 5, 3))
    shuffled = f.create_reshape("s", value.type.with_shape((n, h * 2, w * 2, c // 4)), moved)
    y = after(f, shuffled.result)
    f.create_save("save", y, module.create_placeholder("y", y.type))
    return module


def is_last(module: Module, reasons: list[str] | None = None) -> bool:
    """Whether nothing is computed after the shuffle."""
    explain = None if reasons is None else reasons.append
    RaiseElementwisePass().run(module.main, PassContext(evaluate, explain=explain))
    verify_module(module)
    (transpose,) = (node for node in module.main.nodes if isinstance(node, TransposeNode))
    (result,) = transpose.result.users
    return [user.SCHEMA.mnemonic for user in result.results[0].users] == ["save"]


@pytest.mark.parametrize(
    "module", [network(leaky), network(twice), network(leaky, input="f32[n x 3 x 5 x 4]")]
)
def test_all_of_them_come_before_the_shuffle(module: Module) -> None:
    assert is_last(module.clone())
    check_on_cpu(module, arrays_for(module.placeholders, 0, {"n": 3}))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (network(read_elsewhere), "other nodes read the shuffled product"),
        (network(by_channels), ""),
        (network(leaky, computed=False), ""),
    ],
)
def test_what_is_left_alone(module: Module, reason: str) -> None:
    reasons: list[str] = []
    assert not is_last(module.clone(), reasons)
    assert reason in "\n".join(reasons)
    check_on_cpu(module, arrays_for(module.placeholders, 0))
