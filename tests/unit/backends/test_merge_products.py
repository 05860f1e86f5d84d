"""Products of one left side become one, and compute what they did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.insts_gen import CpuMatmulInst
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.graph.node import NodeValue
from glowpy.support.symbolic import Dim, symbol
from tests.unit.backends.test_packed import floats


def network(
    rows: Dim, columns: Sequence[int], biases: Sequence[bool], *, after: str = ""
) -> Module:
    """Products of an input, some with a bias, whose rows are added up after one more step."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, rows, 24)))
    for number, (size, has_bias) in enumerate(zip(columns, biases, strict=True)):
        weights = module.create_constant("w", floats(24, size) + number)
        value: NodeValue = f.create_mat_mul("p", x, weights).result
        if has_bias:
            bias = module.create_constant("b", floats(size) + number)
            value = f.create_add("d", bias, value).result
        if after:
            value = getattr(f, f"create_{after}")("after", value).result
        total = f.create_reduce_max("m", value, (1,))
        f.create_save("save", total, module.create_placeholder(f"y{number}", total.result.type))
    return module


def products(module: Module) -> int:
    ir = compilation(module, CpuBackend()).program.ir
    return sum(isinstance(inst, CpuMatmulInst) for inst in ir.instructions)


def results(module: Module, x: Array) -> None:
    """The CPU backend computes what the interpreter does, to the same bits on any number of threads."""
    expected = glowpy.compile(module, "interpreter")({"x": x})
    alike = None
    for threads in (1, 2, 3, 7):
        result = glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))({"x": x})
        for name, array in expected.items():
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=1e-5)
        bits = [array.tobytes() for array in result.values()]
        alike = alike or bits
        assert bits == alike


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("biases", [(True, True, True), (False, True, False), (False,) * 3])
def test_products_of_one_left_side_are_one(rows: int, biases: tuple[bool, ...]) -> None:
    module = network(rows, (16, 5, 33), biases)
    assert products(module) == 1
    results(module, floats(1, rows, 24))


def test_an_open_number_of_rows() -> None:
    module = network(symbol("n", 1, 9), (16, 32), (True, False))
    assert products(module) == 1
    for rows in (1, 4, 9):
        results(module, floats(1, rows, 24))


def test_weights_are_there_once() -> None:
    program = compilation(network(7, (16, 16, 16), (False,) * 3), CpuBackend()).program
    (weights,) = [one for one in program.ir.weights.values() if one.is_constant]
    assert weights.type.count == 24 * 48


def test_what_has_an_epilogue_stays() -> None:
    assert products(network(7, (16, 16), (True, False), after="relu")) == 2


def test_many_rows_stay() -> None:
    assert products(network(513, (16, 16), (True, False))) == 2


def test_weights_that_others_read_stay() -> None:
    module = network(7, (24, 24), (False, False))
    f = module.main
    first = next(node for node in f.nodes if node.name == "p")
    again = f.create_mat_mul("again", f.create_exp("e", module.placeholders[0]), first.inputs[1])
    f.create_save("save", again, module.create_placeholder("z", again.result.type))
    assert products(module) == 3


def test_small_code_has_all_products() -> None:
    module = network(7, (16, 16), (False, False))
    ir = compilation(module, CpuBackend(CpuOptions(optimize="size"))).program.ir
    assert sum(inst.SCHEMA.mnemonic == "cpu_plain_matmul" for inst in ir.instructions) == 2
