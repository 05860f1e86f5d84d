"""Values that need only constants, computed while compiling."""

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.printer import print_module
from glowpy.support.errors import InternalError

F32 = Type(ElemKind.F32, (2, 3))
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_values_come_back_in_order_and_nothing_changes() -> None:
    module = Module()
    f = module.create_function("main")
    a, b = module.create_constant("a", ROWS), module.create_constant("b", ROWS[1])
    total = f.create_add("total", a, b)
    flat = f.create_reshape("flat", Type(ElemKind.F32, (6,)), total)
    part = f.create_slice("part", Type(ElemKind.F32, (2,)), flat, (1,), (2,))
    joined = f.create_concat("joined", [flat, part, flat], 0)
    before = print_module(module)
    values = [joined.result, a.value, flat.result, joined.result]
    arrays = [tensor.array for tensor in evaluate(values)]
    expected = (ROWS + ROWS[1]).reshape(6)
    np.testing.assert_array_equal(arrays[0], [*expected, *expected[1:5:2], *expected])
    np.testing.assert_array_equal(arrays[1], ROWS)
    np.testing.assert_array_equal(arrays[2], expected)
    np.testing.assert_array_equal(arrays[3], arrays[0])
    assert print_module(module) == before
    np.testing.assert_array_equal(a.array, ROWS)


def test_every_result_of_a_node_and_elements_in_any_order_in_memory() -> None:
    module = Module()
    f = module.create_function("main")
    image = module.create_constant("x", ROWS.reshape(1, 2, 3, 1))
    pool = f.create_max_pool_with_argmax("p", image, (2, 3), (1, 1), (0,) * 4, (1, 1), False)
    turned = module.create_constant("turned", ROWS.T)
    flat = f.create_reshape("flat", Type(ElemKind.F32, (6,)), turned)
    splat = module.create_constant("splat", Tensor.splat(F32, 2.0))
    power = f.create_mul("power", splat, f.create_reshape("back", F32, flat))
    largest, at, product = evaluate([*pool.results, power.result])
    assert (largest.array.item(), at.array.item()) == (5.0, 5)
    np.testing.assert_array_equal(product.array, 2 * ROWS.T.reshape(2, 3))


def test_what_is_lowered_is_computed_as_well() -> None:
    module = Module()
    f = module.create_function("main")
    a = module.create_constant("a", ROWS - 2)
    relu = f.create_relu("relu", f.create_neg("neg", a))
    before = print_module(module)
    relued, negated, known = evaluate([relu.result, relu.inputs[0], a.value])
    np.testing.assert_array_equal(relued.array, np.maximum(2 - ROWS, 0))
    np.testing.assert_array_equal(negated.array, 2 - ROWS)
    np.testing.assert_array_equal(known.array, ROWS - 2)
    assert print_module(module) == before


def test_predicates_do_not_count() -> None:
    module = Module()
    f = module.create_function("main")
    a = module.create_constant("a", ROWS)
    asked = module.create_placeholder("asked", Type(ElemKind.BOOL, (2, 3)))
    node = f.predicated(f.create_neg("neg", a), asked)
    np.testing.assert_array_equal(evaluate([node.result])[0].array, -ROWS)


def test_placeholders_are_unknown() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", F32)
    for value in (x.value, f.create_neg("n", x).result, f.create_relu("r", x).result):
        with pytest.raises(InternalError, match="expected a constant to evaluate, got %x"):
            evaluate([value])


def test_a_long_chain_and_a_wide_node_are_no_deep_recursion() -> None:
    module = Module()
    f = module.create_function("main")
    value = module.create_constant("a", np.ones(1, np.float32)).value
    parts = []
    for _ in range(3000):
        value = f.create_neg("neg", value).result
        parts.append(value)
    wide = f.create_concat("wide", parts, 0)
    np.testing.assert_array_equal(evaluate([wide.result])[0].array, np.tile([-1.0, 1.0], 1500))
