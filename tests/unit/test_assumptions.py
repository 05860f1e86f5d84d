"""What a session assumes of symbolic dimensions, and learns from the calls it gets."""

from __future__ import annotations

import pytest

from glowpy.assumptions import Assumptions
from glowpy.core.elemkind import ElemKind
from glowpy.importer import ValueInfo
from glowpy.support.symbolic import UndecidedError, UnequalError, symbol


def assumptions(**shapes: list[int | str | None] | None) -> Assumptions:
    return Assumptions([ValueInfo(name, ElemKind.F32, shape) for name, shape in shapes.items()])


def planned(assumed: Assumptions, **shapes: tuple[int, ...]) -> str:
    plan = assumed.plan(shapes)
    return ", ".join(" x ".join(map(str, shape)) for shape in plan.shapes.values())


def test_an_extent_of_0_or_1_is_constant_until_it_varies() -> None:
    assumed = assumptions(x=["batch", 3, "past"])
    assert planned(assumed, x=(1, 3, 0)) == "1 x 3 x 0"
    assert planned(assumed, x=(1, 3, 1)) == "1 x 3 x past"
    assert planned(assumed, x=(2, 3, 0)) == "batch x 3 x past"
    keys = {
        assumed.plan({"x": (batch, 3, past)}).key for batch in (1, 2, 64) for past in (0, 1, 64)
    }
    assert len(keys) == 1
    assert assumed.plan({"x": (65, 3, 0)}).key not in keys


def test_a_logarithmic_number_of_plans_serves_all_extents() -> None:
    assumed = assumptions(x=["seq"])
    assert len({assumed.plan({"x": (seq,)}).key for seq in range(2, 5000)}) == 5
    assert len({assumed.plan({"x": (seq,)}).key for seq in range(2, 5000)}) == 1


def test_first_bounds_together_allow_for_64_times_the_first_call() -> None:
    alone, several = assumptions(x=["a"]), assumptions(x=["a", "b", "c"])
    key = alone.plan({"x": (5,)}).key
    assert alone.plan({"x": (128,)}).key == key
    assert alone.plan({"x": (129,)}).key != key
    key = several.plan({"x": (5, 5, 5)}).key
    assert several.plan({"x": (32, 32, 32)}).key == key
    assert several.plan({"x": (33, 5, 5)}).key != key


def test_dimensions_that_must_be_equal_become_one() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (4,)}
    assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")), shapes)
    assert planned(assumed, **shapes) in ("a, a", "b, b")


def test_a_dimension_may_be_a_sum_of_others() -> None:
    assumed = assumptions(mask=["all"], x=["past", "seq"])
    shapes = {"mask": (9,), "x": (5, 4)}
    assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("past", 0) + symbol("seq"), symbol("all")), shapes)
    assert planned(assumed, **shapes) == "past+seq, past x seq"


def test_what_differs_in_the_call_is_constant() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (3,)}
    assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")), shapes)
    assert planned(assumed, **shapes) == "4, 3"


def test_what_compiling_must_know_is_constant() -> None:
    assumed = assumptions(x=["a", "b"], s=["c"])
    shapes = {"x": (4, 5), "s": (2,)}
    assumed.plan(shapes)
    assumed.learn(UndecidedError("channels", [symbol("b")]), shapes)
    assumed.know(["s"], shapes)
    assert planned(assumed, **shapes) == "a x 5, 2"
    assert planned(assumed, x=(6, 7), s=(3,)) == "a x 7, 3"


def test_dimensions_without_a_name_are_open_as_well() -> None:
    assumed = assumptions(x=[None, 2], y=None)
    assert planned(assumed, x=(4, 2), y=(5, 6)) == "x_0 x 2, y_0 x y_1"


@pytest.mark.parametrize("name", ["a b", "x", "3", "past + seq", "min", "dim.0", "true"])
def test_any_name_of_a_model_becomes_a_symbol(name: str) -> None:
    (text,) = planned(assumptions(v=[name]), v=(4,)).split()
    assert text.isidentifier()
    assert text not in ("x", "min", "true")


def test_nothing_is_left_open_where_all_is_fixed() -> None:
    assumed = assumptions(x=["a"])
    assert assumptions(x=["a"]).is_open
    assumed.fix()
    assert not assumed.is_open
    plan = assumed.plan({"x": (4,)})
    assert (plan.shapes, plan.is_open) == ({"x": (4,)}, False)
