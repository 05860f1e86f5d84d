"""What kernels are told to walk: the loops of reductions, with open extents at which a dimension is one or none."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import glowpy
from glowpy import CompileOptions
from glowpy.backends.cpu.strategy.walk import Box, boxes_of
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.ir.insts_gen import ReduceAddInst
from glowpy.ir.value import Value
from glowpy.support.symbolic import symbol

ROWS, WIDTH = symbol("R", 0, 40), symbol("W", 0, 40)


def boxes(shape: Shape, *axes: int) -> list[Box]:
    result = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    values = [Value("v", Type(ElemKind.F32, one)) for one in (result, shape)]
    return boxes_of(ReduceAddInst(values, {"axes": axes}))


def test_loops_of_a_reduction_are_as_few_as_extents_allow() -> None:
    assert boxes((1, ROWS, WIDTH, 16), 1, 2) == [
        Box((ROWS * WIDTH, 16), (0, 1)),
        Box((ROWS * WIDTH, 16), (16, 1)),
    ]
    assert boxes((2, ROWS, 3), 1) == [
        Box((2, ROWS, 3), (3, 0, 1)),
        Box((2, ROWS, 3), (3 * ROWS, 3, 1)),
    ]
    assert boxes((1, 1), 0) == [Box((), ()), Box((), ())]


def test_a_plane_is_reduced_rows_or_a_reduced_row() -> None:
    """The last two loops: the innermost, and before it a reduced one if that is kept."""
    assert boxes((2, 3, 4, 5), 0, 1)[1] == Box((6, 20), (20, 1))
    assert boxes((2, 3, 4, 5), 0)[1] == Box((2, 60), (60, 1))
    assert boxes((4, 2, 3, 5), 1, 3)[0] == Box((4, 2, 3, 5), (3, 0, 1, 0))
    assert boxes((2, 3, 4, 5), 0, 2)[0] == Box((2, 3, 4, 5), (0, 5, 0, 1))
    assert boxes((6, 2, 5, 4), 0, 2)[0] == Box((6, 2, 5, 4), (0, 4, 0, 1))


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_open_extents_may_be_one_or_none(axes: tuple[int, ...]) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 17]>
    net (float[A, 3, B] x) => (float[C, D, E] most, float[F, G, H] norm) {{
      most = ReduceMax<axes=[{",".join(map(str, axes))}]>(x)
      norm = ReduceL1<axes=[{",".join(map(str, axes))}]>(x)
    }}"""
    dims = {name: symbol(name, 0, 200) for name in "AB"}
    module = glowpy.load(onnx.parser.parse_model(text), dims=dims)
    compiled = glowpy.compile(module, "cpu", CompileOptions(sanitize=True))
    rng = np.random.default_rng(0)
    for extents in ((1, 1), (1, 5), (5, 1), (200, 1), (1, 200), (70, 33), (0, 4), (4, 0)):
        x = rng.standard_normal((extents[0], 3, extents[1])).astype(np.float32)
        got = compiled({"x": x})
        expected = np.abs(x).sum(axes, keepdims=True)
        np.testing.assert_allclose(got["norm"], expected, 1e-5, 1e-5, err_msg=str(extents))
        if x.size:
            np.testing.assert_array_equal(got["most"], x.max(axes, keepdims=True))
