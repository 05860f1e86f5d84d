"""Moves on the CPU: what is inserted, extracted, broadcast and transposed, as loops over open and constant extents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.codegen import generate_llvm
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.llvm.code_options import CodeOptions
from glowpy.support.symbolic import symbol
from tests.unit.networks import arrays_for, check_on_cpu
from tests.unit.test_effort import weight

Build = Callable[[int, Function, str], None]
"""Adds about so many nodes to a function, whose tensors have so many rows."""


def _input(f: Function, text: str) -> NodeValue:
    type = parse_type(text, {"n": symbol("n", 1, 64, 2)})
    return f.module.create_placeholder(f"x{len(f.module.placeholders)}", type).value


def _output(f: Function, value: NodeValue) -> None:
    place = f.module.create_placeholder(f"y{len(f.module.placeholders)}", value.type)
    f.create_save("save", value, place)


def _columns(n: int, f: Function, rows: str) -> None:
    inputs = [_input(f, f"f32[{rows} x 1]") for _ in range(n)]
    _output(f, f.create_concat("c", inputs, 1).result)


def _tables(n: int, f: Function, rows: str) -> None:
    tables = [weight(f, 10, 4) for _ in range(n)]
    found = [f.create_gather("g", table, _input(f, f"i64[{rows}]"), 0).result for table in tables]
    _output(f, f.create_concat("c", found, 1).result)


def _slices(n: int, f: Function, rows: str) -> None:
    whole = _input(f, f"f32[{rows} x {2 * n}]")
    size = whole.type.with_shape((whole.type.shape[0], 2))
    for number in range(n):
        _output(f, f.create_slice("s", size, whole, (0, 2 * number), (1, 1)).result)


def _stacked(n: int, f: Function, rows: str) -> None:
    """The same few functions again and again, on too little to be worth a call."""
    value = _input(f, "f32[4]")
    for number in range(n * 4):
        create = (f.create_exp, f.create_neg, f.create_tanh)[number % 3]
        value = create("e", value).result
    _output(f, value)


@pytest.mark.parametrize("rows", ["n", "3"])
@pytest.mark.parametrize("build", [_columns, _tables, _slices], ids=lambda build: build.__name__)
def test_equal_parts_share_their_code(build: Build, rows: str) -> None:
    """250 inputs of a concat, each with a function of its own, took LLVM 19 seconds."""

    def functions(n: int) -> int:
        return len(_texts(n, build, rows))

    assert functions(40) == functions(80) <= 4


def _texts(n: int, build: Build, rows: str) -> list[str]:
    """A module for the entry point, and one for each function of its own."""
    module, backend = Module(), CpuBackend()
    build(n, module.create_function("main"), rows)
    program = compilation(module, backend).program
    options = CodeOptions(separate=True)
    return generate_llvm({"net": program}, backend.target, backend.kernels, options)


@pytest.mark.parametrize("build", [_columns, _slices, _stacked], ids=lambda build: build.__name__)
def test_no_function_holds_more_than_some_runs(build: Build) -> None:
    """LLVM takes more than linear time for one."""
    texts = _texts(300, build, "3")
    kernels = [text.count("call float @libjit") + text.count(" = load i32") for text in texts]
    assert max(kernels) <= 256


@pytest.mark.parametrize(
    "kind", [ElemKind.F32, ElemKind.U8, ElemKind.F16, ElemKind.I64, ElemKind.BOOL]
)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_moves_of_every_width(kind: ElemKind, rows: int) -> None:
    """Rows that stay rows, single columns, repeated elements, steps; with threads' worth of elements and without."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(kind, (rows, 6, 70))).value
    y = module.create_placeholder("y", Type(kind, (rows, 6, 1))).value
    wide = f.create_concat("wide", [x, y, x], 2).result
    _output(f, f.create_transpose("heads", wide, (1, 0, 2)).result)
    _output(f, f.create_transpose("turned", wide, (2, 0, 1)).result)
    _output(
        f, f.create_slice("part", x.type.with_shape((rows, 3, 23)), x, (0, 0, 1), (1, 2, 3)).result
    )
    _output(f, f.create_broadcast("many", x.type.with_shape((rows, 6, 300)), y).result)
    back = f.create_slice("back", x.type.with_shape((rows, 6, 70)), x, (0, 5, 69), (1, -1, -1))
    _output(f, back.result)
    check_on_cpu(module, arrays_for(module.placeholders, 3))


def test_bits_that_are_no_numbers_are_moved() -> None:
    """Signalling NaNs, which arithmetic would quieten."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (3, 5))).value
    out = module.create_placeholder("y", Type(ElemKind.F32, (5, 4)))
    padded = f.create_concat("c", [x, weight(f, 1, 5)], 0).result
    f.create_save("save", f.create_transpose("t", padded, (1, 0)).result, out)
    bits = (0x7F800001 + np.arange(15, dtype=np.uint32)).reshape(3, 5)
    result = compilation(module, CpuBackend()).compiled({"x": bits.view(np.float32)})["y"]
    assert np.array_equal(result[:, :3].view(np.uint32), bits.T)
