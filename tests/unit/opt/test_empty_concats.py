"""Tensors without elements, several times in one concat: all lie at the same place."""

import numpy as np
import pytest

from glowpy.core.type import parse_type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.irgen import generate
from glowpy.opt.ir.view_insert import ViewInsertPass
from glowpy.passes import PassContext
from glowpy.schedule import schedule
from tests.unit.networks import execute, unoptimized


@pytest.mark.timeout(20)
def test_one_empty_tensor_twice_in_a_concat() -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[0x3]"))
    f = module.create_function("main")
    node = f.create_exp("e", x)
    both = f.create_concat("c", [node, node], 0)
    f.create_save("save", f.create_neg("n", both), module.create_placeholder("y", both.type))
    ir = generate(f, schedule(f))
    for _ in range(2):
        ViewInsertPass().run(ir, PassContext(evaluate))
    (result,) = execute(unoptimized(module), {"x": np.zeros((0, 3), np.float32)}).values()
    assert result.shape == (0, 3)
