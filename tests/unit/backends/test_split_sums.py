"""Long sums of exact products are computed in parts, which round less."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuMatmulInst
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.support.symbolic import Dim, symbol

EXACT = CpuBackend(CpuOptions(exact=True, threads=2))


def positive(*shape: int) -> Array:
    """Numbers whose sums grow: all between 0 and 1."""
    return np.random.default_rng(shape).uniform(size=shape).astype(np.float32)


def product(depth: int, rows: Dim = 3, kind: ElemKind = ElemKind.F32) -> Module:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(kind, (rows, depth)))
    weights = module.create_constant("w", positive(depth, 7).astype(kind.dtype))
    result = f.create_mat_mul("p", x, weights)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


def convolution(depth: int, group: int = 1) -> Module:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 4, 5, depth * group)))
    filter = module.create_constant("w", positive(6 * group, 3, 3, depth))
    bias = module.create_constant("b", positive(6 * group))
    ones = (1, 1)
    result = f.create_convolution("c", x, filter, bias, (3, 3), ones, (1, 1, 1, 1), ones, group)
    f.create_save("save", result, module.create_placeholder("y", result.type))
    return module


def parts(module: Module, backend: CpuBackend = EXACT) -> int:
    instructions = compilation(module, backend).program.ir.instructions
    return sum(isinstance(inst, CpuConvInst | CpuMatmulInst) for inst in instructions)


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (product(1024), 1),
        (product(1025), 2),
        (product(25_088), 25),
        (product(3000, kind=ElemKind.F64), 1),
        (convolution(112), 1),
        (convolution(113), 2),
        (convolution(512), 5),
        (convolution(120, group=2), 1),
    ],
)
def test_parts_have_about_as_many_products_as_allowed(module: Module, count: int) -> None:
    assert parts(module) == count
    assert parts(module, CpuBackend()) == 1


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (product(20_000), (3, 20_000)),
        (product(5000, symbol("n", 1, 9)), (4, 5000)),
        (convolution(2000), (2, 4, 5, 2000)),
    ],
)
def test_parts_round_less(module: Module, shape: tuple[int, ...]) -> None:
    x = positive(*shape)
    expected = exactly(module, x)
    plain, exact = (
        np.abs(glowpy.compile(module, backend)({"x": x})["y"] - expected).max() / expected.max()
        for backend in (CpuBackend(CpuOptions(cpu="x86-64-v2")), EXACT)
    )
    assert exact < 1e-6
    assert exact < plain / 2


def exactly(module: Module, x: Array) -> Array:
    """In f64, by hand."""
    weights, *bias = (constant.tensor.array.astype(np.float64) for constant in module.constants)
    if not bias:
        return np.asarray(x @ weights)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.asarray(np.einsum("nhwcij,oijc->nhwo", windows, weights) + bias[0])
