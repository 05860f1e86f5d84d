"""Code that is to be small: what becomes of products, and the numbers that come out."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions, Module, UserError, parse_type
from glowpy.backends.cpu.insts_gen import CpuPlainConvInst, CpuPlainMatmulInst
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.engine import compilation

SMALL = CpuBackend(CpuOptions(optimize="size"))


def floats(kind: str, *shape: int) -> Array:
    array = np.random.default_rng(list(shape)).standard_normal(shape)
    return np.asarray(array * 0.4, ElemKind(kind).dtype)


def network(kind: str) -> Module:
    """Convolutions with pads and groups, over lines and volumes, pools, and products with both sides computed."""
    module = Module()
    x = module.create_placeholder("x", parse_type(f"{kind}[2x9x8x4]"))
    f = module.create_function("main")

    def constant(name: str, *shape: int) -> glowpy.Constant:
        return module.create_constant(name, floats(kind, *shape))

    lists = (3, 3), (1, 1), (1, 1, 2, 1), (1, 1)
    first = f.create_convolution("conv", x, constant("w", 6, 3, 3, 2), constant("b", 6), *lists, 2)
    pads, ones = (1, 0, 0, 1), (1, 1)
    depth = f.create_convolution(
        "deep", f.create_relu("relu", first), constant("dw", 6, 2, 3, 1), constant("db", 6),
        (2, 3), (2, 1), pads, (1, 2), 6,
    )  # fmt: skip
    pool = f.create_max_pool("max", depth, (2, 2), (2, 2), (0, 0, 0, 0), ones, False)
    mean = f.create_avg_pool("avg", pool, (2, 2), (1, 1), (1, 0, 1, 0), ones, False, False)
    rows = f.create_reshape("rows", mean.type.with_shape((2, mean.type.count // 12, 6)), mean)
    turned = f.create_transpose("turned", rows, (0, 2, 1))
    scores = f.create_mat_mul("scores", rows, turned)
    mixed = f.create_mat_mul("mixed", f.create_tanh("tanh", scores), rows)
    y = f.create_add("y", f.create_mat_mul("last", mixed, constant("p", 6, 5)), constant("c", 5))
    f.create_save("save", y, module.create_placeholder("out", y.result.type))
    return module


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_results_are_the_interpreters(kind: str) -> None:
    module, x = network(kind), floats(kind, 2, 9, 8, 4)
    program = compilation(module, SMALL).program
    classes = {type(inst) for inst in program.ir.instructions}
    assert {CpuPlainConvInst, CpuPlainMatmulInst} <= classes
    expected = glowpy.compile(module, "interpreter")({"x": x})["out"]
    for run in (
        glowpy.compile(module, SMALL),
        InterpreterBackend().function(program),
    ):
        np.testing.assert_allclose(run({"x": x})["out"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(axis: int, log: bool) -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[2x9x7]"))
    f = module.create_function("main")
    create = f.create_log_softmax if log else f.create_softmax
    y = create("y", x, axis)
    f.create_save("save", y, module.create_placeholder("out", y.result.type))
    elements = 20 * floats("f32", 2, 9, 7)
    elements[0, 0, 0] = -np.inf
    result = glowpy.compile(module, SMALL)({"x": elements})["out"]
    expected = glowpy.compile(module, "interpreter")({"x": elements})["out"]
    np.testing.assert_allclose(result, expected, rtol=3e-5, atol=1e-6 if log else 1e-30)


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1, 5), (1, 4, 6)])
def test_moves(shape: tuple[int, ...]) -> None:
    module = Module()
    x = module.create_placeholder("x", glowpy.Type(ElemKind.F32, shape))
    f = module.create_function("main")
    y = f.create_reshape(
        "flat", parse_type(f"f32[{np.prod(shape)}]"), f.create_transpose("t", x, (2, 0, 1))
    )
    f.create_save("save", y, module.create_placeholder("out", y.result.type))
    elements = floats("f32", *shape)
    result = glowpy.compile(module, SMALL)({"x": elements})["out"]
    np.testing.assert_array_equal(result, elements.transpose(2, 0, 1).reshape(-1))


def test_another_word() -> None:
    with pytest.raises(UserError, match="optimize: expected one of speed, size, got 'beauty'"):
        CpuBackend(CpuOptions(optimize="beauty"))  # type: ignore[arg-type]
