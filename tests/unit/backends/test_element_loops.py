"""Loops over elements on the CPU: chains in place, one-element memory, splats, and operands that are repeated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.support.symbolic import symbol
from tests.unit.networks import arrays_for, check_on_cpu

Step = Callable[[Function, NodeValue], NodeValue]


def check(module: Module) -> None:
    check_on_cpu(module, arrays_for(module.placeholders, 5))


def placeholder(f: Function, type: Type) -> NodeValue:
    """A placeholder with a name of its own."""
    return f.module.create_placeholder(f"in{len(f.module.placeholders)}", type).value


def output(f: Function, value: NodeValue) -> None:
    """Saves a value to a placeholder with a name of its own."""
    name = f"out{len(f.module.placeholders)}"
    f.create_save("save", value, f.module.create_placeholder(name, value.type))


STEPS: tuple[Step, ...] = (
    lambda f, x: f.create_abs("abs", x).result,
    lambda f, x: f.create_neg("neg", x).result,
    lambda f, x: f.create_exp("exp", x).result,
    lambda f, x: f.create_sqrt("sqrt", x).result,
    lambda f, x: f.create_add("add", x, x).result,
)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 67)], ids=str)
def test_chains_in_place(shape: tuple[int, ...]) -> None:
    """Buffers are shared: all steps of a chain work on the memory of its result, or of a buffer."""
    module = Module()
    f = module.create_function("main")
    x = placeholder(f, Type(ElemKind.F32, shape))
    for first in range(len(STEPS)):
        value = x
        for number in range(7):
            value = STEPS[(first + number * 2) % len(STEPS)](f, value)
        output(f, value)  # over the result
        inner = f.create_softmax("barrier", value, 0).result if shape else value
        for number in range(5):
            inner = STEPS[(first + number) % len(STEPS)](f, inner)
        output(f, f.create_add("sum", f.create_neg("neg", inner), x).result)
    check(module)


class Splats:
    """A function in which memory is filled with one number: by padding what has no elements.

    The optimizer knows the elements of a splat, but not of these.
    """

    def __init__(self) -> None:
        self.module = Module()
        self.f = self.module.create_function("main")
        self.empty = self.input("f32[0]")

    def input(self, type: str) -> NodeValue:
        return placeholder(self.f, parse_type(type))

    def splat(self, number: float, size: int = 1) -> NodeValue:
        return self.f.create_pad("splat", self.empty, (size, 0), number).result


def test_one_element_that_a_kernel_reads() -> None:
    net = Splats()
    f, one = net.f, net.splat(3)
    output(f, f.create_broadcast("wide", parse_type("f32[5]"), one).result)
    other = net.splat(4)
    output(f, f.create_reduce_add("sum", other, (0,)).result)
    output(f, f.create_add("both", net.input("f32[3]"), other).result)
    output(f, f.create_concat("pair", [net.splat(5), net.input("f32[1]")], 0).result)
    output(f, net.splat(6))
    check(net.module)


def test_one_element_that_loops_read() -> None:
    net = Splats()
    f, three, four = net.f, net.splat(3), net.splat(4)
    wide = f.create_mul("scaled", net.input("f32[2x5]"), three).result
    output(f, f.create_sub("moved", four, wide).result)
    output(f, f.create_neg("alone", net.splat(-7)).result)
    output(f, f.create_sub("difference", three, four).result)
    output(f, f.create_add("many", net.splat(5, 6), net.splat(-2)).result)
    check(net.module)


def test_one_element_that_is_written_again() -> None:
    """In place, between a splat and a loop of another shape that reads the last value."""
    net = Splats()
    f = net.f
    value = f.create_add("first", net.splat(3), net.input("f32[1]")).result
    output(f, f.create_mul("read", net.input("f32[4]"), value).result)
    again = f.create_neg("second", f.create_exp("third", net.splat(-1))).result
    twice = f.create_sub("between", net.input("f32[3]"), again).result
    output(f, f.create_mul("product", twice, f.create_add("last", again, again)).result)
    check(net.module)


def test_one_element_of_every_kind() -> None:
    """Constants become literals in the code, computed elements are loaded."""
    module = Module()
    f = module.create_function("main")
    for kind in (ElemKind.F32, ElemKind.F64, ElemKind.I8, ElemKind.U16, ElemKind.I64, ElemKind.U64):
        largest = float(np.float32(3e38)) if kind.is_float else np.iinfo(kind.dtype.name).max
        for number in (largest, 0, -largest if kind.is_signed else 1):
            x = placeholder(f, Type(kind, (3,)))
            constant = module.create_constant("c", np.array(number, kind.dtype)).value
            output(f, f.create_max("max", x, constant).result)
            one = placeholder(f, Type(kind, (1, 1)))
            output(f, f.create_min("min", f.create_min("inner", one, constant), x).result)
    flags = placeholder(f, parse_type("bool[5]"))
    for truth in (False, True):
        output(f, f.create_xor("xor", flags, module.create_constant("c", np.array(truth))).result)
    check(module)


def test_special_literals() -> None:
    """Not a number, infinities, both zeros, numbers without an exact decimal form."""
    module = Module()
    f = module.create_function("main")
    x = placeholder(f, parse_type("f32[3]"))
    for number in (np.nan, np.inf, -np.inf, 0.1, np.float32(1e-45), np.float32(1.17e-38)):
        for dtype in (np.float32, np.float64):
            wide = f.create_convert("wide", x.type.with_kind(ElemKind.of(np.dtype(dtype))), x)
            constant = module.create_constant("c", np.array(number, dtype))
            output(f, f.create_select("chosen", f.create_le("le", x, x), constant, wide).result)
    zeros = [module.create_constant("zero", np.array(zero, np.float32)) for zero in (0.0, -0.0)]
    for zero in zeros:
        output(f, f.create_div("sign", f.create_add("one", x, x), zero).result)
    check(module)


@pytest.mark.parametrize("width", [5, 12, 24])
def test_vectors_are_made_of_neighbours(width: int) -> None:
    """Not of elements of many short rows, which lie apart."""
    backend = CpuBackend()
    for shape in ((width,), (700, 1)):
        module = Module()
        f = module.create_function("main")
        rows, other = (placeholder(f, Type(ElemKind.F32, part)) for part in ((700, width), shape))
        output(f, f.create_mul("mul", rows, other).result)
        assert "scatter" not in backend.emit(compilation(module, backend).program, "llvm")
        check(module)


def _chain(f: Function, x: NodeValue, other: NodeValue) -> NodeValue:
    value = f.create_add("add", x, other).result
    for _ in range(6):
        value = f.create_tanh("tanh", f.create_exp("exp", value)).result
    return value


@pytest.mark.parametrize("rows", ["n", "3"])
@pytest.mark.parametrize(
    "compute", [lambda f, x, y: f.create_add("add", x, y).result, _chain], ids=["add", "chain"]
)
def test_code_does_not_grow_with_the_length_of_rows(
    rows: str, compute: Callable[[Function, NodeValue, NodeValue], NodeValue]
) -> None:
    """LLVM takes more than linear time for loops that are unrolled; a position embedding took it 15 seconds."""

    def instructions(width: int) -> int:
        module = Module()
        f, symbols = module.create_function("main"), {"n": symbol("n", 1, 64, 2)}
        x = placeholder(f, parse_type(f"f32[{rows} x {width}]", symbols))
        output(f, compute(f, x, placeholder(f, Type(ElemKind.F32, (1, width)))))
        backend = CpuBackend()
        return backend.emit(compilation(module, backend).program, "asm").count("\n\t")

    few = instructions(64)
    assert all(instructions(width) < 2 * few + 100 for width in (256, 4096, 100_000))
