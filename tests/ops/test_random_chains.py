"""Random chains of element-wise operators on the CPU, several in each network, after products and without.

Machine code is made for a network at a time and takes longer than all else: one network has many chains.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.graph.printer import print_module
from glowpy.support.symbolic import static
from tests.unit.networks import check_on_cpu

_SHAPES: tuple[Shape, ...] = (
    *((), (1,), (5,), (1, 1), (3, 7), (1, 18), (6, 1), (2, 3, 5), (4, 1, 3), (2, 3, 2, 17)),
    *((1, 1, 1, 9), (1, 2, 1, 2, 1, 3)),
)
_KINDS = (ElemKind.F64, ElemKind.I32, ElemKind.I8, ElemKind.U16)


class Chains:
    """A function of `count` chains; each may use what earlier ones computed."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.rng = rng
        self.module = Module()
        self.f: Function = self.module.create_function("main")
        self.inputs: dict[str, Array] = {}
        self.values: list[NodeValue] = []
        self.empty = self.placeholder((0,))
        for _ in range(count):
            self._chain()

    def numbers(self, shape: Shape) -> Array:
        """Multiples of a half, of both signs."""
        generator = np.random.default_rng(self.rng.getrandbits(32))
        return np.asarray(generator.integers(-6, 7, static(shape)) / 2).astype(np.float32)

    def placeholder(self, shape: Shape) -> NodeValue:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = self.numbers(shape)
        return self.module.create_placeholder(name, Type(ElemKind.F32, shape)).value

    def constant(self, shape: Shape) -> NodeValue:
        return self.module.create_constant("c", self.numbers(shape)).value

    def known_or_not(self, shape: Shape) -> NodeValue:
        return self.rng.choice((self.placeholder, self.constant))(shape)

    def _chain(self) -> None:
        value = self.rng.choice(_HEADS)(self)
        for _ in range(self.rng.randint(2, 9)):
            value = self.rng.choice(_STEPS)(self, value)
            self.values.append(value)
            if self.rng.random() < 0.15:
                self._save(value)
        self._save(value)

    def _save(self, value: NodeValue) -> None:
        """To a placeholder of its own, or over an input."""
        inputs = [p for p in self.module.placeholders if p.type == value.type]
        free = [p for p in inputs if p not in self.f.outputs]
        name = f"out{len(self.module.placeholders)}"
        output = (
            self.rng.choice(free)
            if free and self.rng.random() < 0.2
            else self.module.create_placeholder(name, value.type)
        )
        self.f.create_save("save", value, output)

    def operand(self, shape: Shape) -> NodeValue:
        """Something that broadcasts to `shape`, or is computed in an earlier step."""
        known = [v for v in self.values[-12:] if _fits(v.type.shape, shape)]
        if known and self.rng.random() < 0.4:
            return self.rng.choice(known)
        form = tuple(size if self.rng.random() < 0.6 else 1 for size in shape)
        if self.rng.random() < 0.3:
            form = form[self.rng.randint(0, len(form)) :]
        if self.rng.random() < 0.15:
            return self.f.create_splat("splat", Type(ElemKind.F32, form), 1.5).result
        if self.rng.random() < 0.1:
            wide = tuple(size + 2 for size in form)
            starts, steps = (1,) * len(form), (1,) * len(form)
            part = Type(ElemKind.F32, form)
            return self.f.create_slice("part", part, self.known_or_not(wide), starts, steps).result
        return self.known_or_not(form)


def _fits(shape: Shape, other: Shape) -> bool:
    return len(shape) <= len(other) and all(
        size in (1, whole) for size, whole in zip(reversed(shape), reversed(other), strict=False)
    )


# What a chain begins with.


def _input(net: Chains) -> NodeValue:
    return net.placeholder(net.rng.choice(_SHAPES))


def _filled(net: Chains) -> NodeValue:
    """One number, which the optimizer cannot know: nothing, padded."""
    return net.f.create_pad("filled", net.empty, (net.rng.choice((1, 1, 5)), 0), 2.5).result


def _matmul(net: Chains) -> NodeValue:
    rows, depth, columns = (net.rng.choice((1, 2, 5, 19)) for _ in range(3))
    lhs, rhs = net.placeholder((rows, depth)), net.known_or_not((depth, columns))
    return net.f.create_mat_mul("product", lhs, rhs).result


def _convolution(net: Chains) -> NodeValue:
    group, kernel = net.rng.choice((1, 1, 3)), net.rng.choice((1, 3))
    inputs, outputs = 3, net.rng.choice((3, 18))
    height, width = (net.rng.choice((1, 3, 6)) for _ in range(2))
    x = net.placeholder((net.rng.randint(1, 2), height, width, inputs))
    filter = net.known_or_not((outputs, kernel, kernel, inputs // group))
    pads, strides = (kernel // 2,) * 4, (1, net.rng.randint(1, 2))
    lists = ((kernel, kernel), strides, pads, (1, 1), group)
    return net.f.create_convolution("conv", x, filter, net.known_or_not((outputs,)), *lists).result


def _sum(net: Chains) -> NodeValue:
    return net.f.create_reduce_add(
        "sum", net.placeholder((3, 6, 5)), (net.rng.randrange(3),)
    ).result


_HEADS: tuple[Callable[[Chains], NodeValue], ...] = (
    *(_input, _input, _input, _filled, _matmul, _convolution, _sum),
)


# One step after the other.


def _unary(net: Chains, x: NodeValue) -> NodeValue:
    f = net.f
    creates: tuple[Callable[[str, NodeValue], object], ...] = (
        *(f.create_neg, f.create_abs, f.create_relu, f.create_floor, f.create_sign),
    )
    net.rng.choice(creates)("unary", x)
    return f.nodes[-1].result


def _binary(net: Chains, x: NodeValue) -> NodeValue:
    sides = [x, net.operand(x.type.shape)]
    net.rng.shuffle(sides)
    creates = (net.f.create_add, net.f.create_sub, net.f.create_max, net.f.create_min)
    return net.rng.choice(creates)("binary", *sides).result


def _scaled(net: Chains, x: NodeValue) -> NodeValue:
    product = net.f.create_mul("scaled", net.operand(x.type.shape), x)
    return net.f.create_clip("limited", product, -20.0, 20.0).result


def _grown(net: Chains, x: NodeValue) -> NodeValue:
    """With an operand of another shape: the value itself is repeated."""
    known = [v for v in net.values if _fits(x.type.shape, v.type.shape)]
    if not known:
        return _unary(net, x)
    return net.f.create_sub("grown", x, net.rng.choice(known)).result


def _chosen(net: Chains, x: NodeValue) -> NodeValue:
    lhs, rhs = net.operand(x.type.shape), net.operand(x.type.shape)
    below = net.f.create_lt("below", x, lhs)
    return net.f.create_select("chosen", below, rhs, x).result


def _converted(net: Chains, x: NodeValue) -> NodeValue:
    there = net.f.create_convert("there", x.type.with_kind(net.rng.choice(_KINDS)), x)
    return net.f.create_convert("back", x.type, net.f.create_add("twice", there, there)).result


def _joined(net: Chains, x: NodeValue) -> NodeValue:
    """A concat, of which a part goes on: results are written into and read from larger buffers."""
    if not x.type.rank:
        return _unary(net, x)
    axis = net.rng.randrange(x.type.rank)
    whole = net.f.create_concat("joined", [net.placeholder(x.type.shape), x], axis).result
    start = net.rng.randint(0, x.type.extents[axis])
    starts = tuple(start if own == axis else 0 for own in range(x.type.rank))
    return net.f.create_slice("part", x.type, whole, starts, (1,) * x.type.rank).result


_STEPS: tuple[Callable[[Chains, NodeValue], NodeValue], ...] = (
    *(_unary, _unary, _binary, _binary, _binary, _binary, _scaled, _scaled),
    *(_grown, _chosen, _converted, _joined),
)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A try takes a second, and shrinking hundreds of them.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.randoms(use_true_random=False))
def test_chains_compute_what_the_interpreter_does(rng: random.Random) -> None:
    net = Chains(rng, 8)
    note(print_module(net.module))
    check_on_cpu(net.module, net.inputs)
