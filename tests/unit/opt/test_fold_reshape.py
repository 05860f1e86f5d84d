"""Constants are reshaped at once, but a large one that others use as it is takes no more memory."""

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import ReshapeNode
from glowpy.opt.graph.fold_reshape import FoldReshapePass
from glowpy.passes import PassContext


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("count", [1024, 1026])
def test_a_large_constant_is_reshaped_only_for_its_only_user(count: int, shared: bool) -> None:
    module = Module()
    f = module.create_function("main")
    constant = module.create_constant("c", np.arange(count, dtype=np.float32))
    wide = Type(ElemKind.F32, (2, count // 2))
    f.create_save(
        "s", f.create_reshape("r", wide, constant), module.create_placeholder("out", wide)
    )
    if shared:
        f.create_save("s", constant, module.create_placeholder("same", constant.type))
    changed = FoldReshapePass().run(f, PassContext(evaluate))
    assert changed == (count == 1024 or not shared)
    saved = f.saves[0].input
    assert (saved.constant is not None) == changed
    assert isinstance(saved.node, ReshapeNode) != changed
    if saved.constant is not None:
        np.testing.assert_array_equal(saved.constant.array, np.arange(count).reshape(2, count // 2))
