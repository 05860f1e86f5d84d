"""Parts of a value along a dimension, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from glowpy import compile
from glowpy.core.type import parse_type
from glowpy.graph.function import Module
from glowpy.graph.parts import part_along


@pytest.mark.parametrize(
    ("axis", "start", "count", "step"), [(0, 1, 1, 1), (1, 0, 3, 1), (-1, 1, 3, 2), (-2, 2, 3, -1)]
)
def test_a_part_has_the_elements_asked_for(axis: int, start: int, count: int, step: int) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("i32[2x4x6]"))
    part = part_along(f, "part", x, axis, start, count, step)
    f.create_save("save", part, module.create_placeholder("y", part.type))
    array = np.arange(48, dtype=np.int32).reshape(2, 4, 6)
    expected = array.take([start + step * index for index in range(count)], axis)
    np.testing.assert_array_equal(compile(module)({"x": array})["y"], expected)
