"""Chains after a product: every way in which an operand broadcasts, in the epilogue and in loops of their own.

The operands are placeholders, so that nothing folds them into weights. All chains of a test are one network,
because machine code is made for a network at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from tests.unit.networks import check_on_cpu


@dataclass
class Network:
    """A function under construction, with numbers of its own for every placeholder and constant, all of one kind."""

    module: Module
    f: Function
    inputs: dict[str, Array]
    kind: ElemKind

    @classmethod
    def empty(cls, kind: ElemKind = ElemKind.F32) -> Network:
        module = Module()
        return cls(module, module.create_function("main"), {}, kind)

    def numbers(self, *shape: int) -> Array:
        """Small multiples of a quarter, none of them zero: sums and differences are exact."""
        rng = np.random.default_rng([len(self.inputs), len(self.module.constants), *shape])
        return np.asarray((rng.integers(0, 31, shape) - 15.5) / 2).astype(self.kind.dtype)

    def input(self, *shape: int) -> NodeValue:
        name = f"in{len(self.inputs)}"
        value = self.module.create_placeholder(name, Type(self.kind, shape)).value
        self.inputs[name] = self.numbers(*shape)
        return value

    def constant(self, *shape: int) -> NodeValue:
        return self.module.create_constant("c", self.numbers(*shape)).value

    def output(self, value: NodeValue) -> None:
        name = f"out{len(self.module.placeholders)}"
        self.f.create_save("save", value, self.module.create_placeholder(name, value.type))

    def check(self) -> None:
        check_on_cpu(self.module, self.inputs)


Head = Callable[[Network], NodeValue]


def conv(image: tuple[int, ...], outputs: int, kernel: int = 1, group: int = 1) -> Head:
    def build(net: Network) -> NodeValue:
        filter = net.constant(outputs, kernel, kernel, image[-1] // group)
        pads = ((kernel - 1) // 2,) * 4
        lists = ((kernel, kernel), (1, 1), pads, (1, 1), group)
        x, bias = net.input(*image), net.constant(outputs)
        return net.f.create_convolution("conv", x, filter, bias, *lists).result

    return build


def matmul(rows: int, depth: int, columns: int) -> Head:
    def build(net: Network) -> NodeValue:
        return net.f.create_mat_mul(
            "product", net.input(rows, depth), net.constant(depth, columns)
        ).result

    return build


def computed_matmul(rows: int, depth: int, columns: int) -> Head:
    """No operand is known: the right side is packed while the network runs."""

    def build(net: Network) -> NodeValue:
        return net.f.create_mat_mul(
            "product", net.input(rows, depth), net.input(depth, columns)
        ).result

    return build


def dense(rows: int, depth: int, columns: int) -> Head:
    def build(net: Network) -> NodeValue:
        operands = (net.input(rows, depth), net.constant(depth, columns), net.constant(columns))
        return net.f.create_fully_connected("dense", *operands).result

    return build


def nothing(*shape: int) -> Head:
    """No product: the chain is a loop from its beginning."""
    return lambda net: net.input(*shape)


HEADS: dict[str, Head] = {
    "conv": conv((2, 3, 4, 3), 19, 3),
    "conv of one pixel": conv((1, 1, 1, 5), 19),
    "conv of one channel": conv((1, 3, 5, 2), 1),
    "conv of one element": conv((1, 1, 1, 2), 1),
    "one row of pixels": conv((1, 1, 7, 3), 33),
    "whole tiles": conv((1, 4, 8, 3), 32),
    "groups": conv((1, 3, 2, 4), 6, group=2),
    "depthwise": conv((1, 3, 4, 19), 19, 3, 19),
    "matmul": matmul(5, 3, 37),
    "one row": matmul(1, 4, 18),
    "one column": matmul(6, 4, 1),
    "square": matmul(4, 3, 4),
    "computed": computed_matmul(5, 3, 7),
    "dense": dense(3, 4, 21),
    "none": nothing(2, 3, 4, 5),
}


def streamed(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Operands that an epilogue takes: whole, one element, or one for each channel, at every rank."""
    channels, rank = shape[-1], len(shape)
    scalars = [(1,) * n for n in range(rank + 1)]
    vectors = [(1,) * n + (channels,) for n in range(rank)]
    return [shape, *scalars, *vectors]


def repeated(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Operands that repeat along some of the dimensions but the last, or along the last one."""
    every = np.array(np.meshgrid(*[(0, 1)] * len(shape))).reshape(len(shape), -1).T
    full = [tuple(np.where(mask, shape, 1).tolist()) for mask in every]
    short = [shape[n:] for n in range(1, len(shape))]
    seen = set(streamed(shape))
    return [form for form in dict.fromkeys([*full, *short]) if form not in seen]


def mixed(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """One of each in turns, so that epilogues end and loops begin in the middle of a chain."""
    pairs = zip(streamed(shape), repeated(shape), strict=False)
    return [form for pair in pairs for form in pair]


def chain(net: Network, value: NodeValue, forms: Sequence[tuple[int, ...]]) -> NodeValue:
    """Subtracts an operand of each form, and from it, in turns."""
    for number, form in enumerate(forms):
        other = net.input(*form)
        sides = (value, other) if number % 2 else (other, value)
        value = net.f.create_sub("sub", *sides).result
    return value


DOUBLES = ["conv", "depthwise", "computed"]
"""The heads that are tried in f64 as well: one for each kernel."""


@pytest.mark.parametrize(
    ("head", "kind"),
    [*((head, ElemKind.F32) for head in HEADS), *((head, ElemKind.F64) for head in DOUBLES)],
    ids=str,
)
def test_operands_of_every_form(head: str, kind: ElemKind) -> None:
    """Those that stream and those that do not, each alone or one after the other."""
    net = Network.empty(kind)
    build = HEADS[head]
    value = build(net)
    shape = value.type.extents
    net.output(chain(net, value, streamed(shape)))
    for forms in (repeated(shape), mixed(shape)):
        net.output(chain(net, build(net), forms))
    net.check()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        *((head, ElemKind.F32) for head in (*DOUBLES, "dense", "one column", "none")),
        *((head, ElemKind.F64) for head in DOUBLES),
    ],
    ids=str,
)
def test_results_of_other_kinds(head: str, kind: ElemKind) -> None:
    """A chain may end in another element kind, and what is in the middle of it may be needed as well."""
    net = Network.empty(kind)
    f, value = net.f, HEADS[head](net)
    net.output(value)
    below = f.create_lt("below", value, net.input(*value.type.extents[-1:])).result
    net.output(below)
    chosen = f.create_select("chosen", below, net.input(), value).result
    floats = {ElemKind.F32, ElemKind.F64} - {kind}
    for other in (*floats, ElemKind.I32, ElemKind.I8, ElemKind.BOOL):
        net.output(f.create_convert("converted", chosen.type.with_kind(other), chosen).result)
    net.output(f.create_select("flipped", f.create_not("above", below), chosen, value).result)
    net.check()


def test_chains_that_use_a_product_twice() -> None:
    """Two chains after one product, of which only one can be its epilogue; and a product of a product."""
    net = Network.empty()
    f, value = net.f, HEADS["dense"](net)
    left = f.create_sub("left", value, net.input(21)).result
    right = f.create_sub("right", net.input(3, 21), value).result
    net.output(f.create_mul("both", left, right).result)
    net.output(f.create_add("squares", f.create_mul("square", value, value), value).result)
    second = f.create_mat_mul("second", f.create_relu("relu", left), net.constant(21, 5)).result
    net.output(f.create_max("larger", second, f.create_neg("neg", second)).result)
    net.check()
