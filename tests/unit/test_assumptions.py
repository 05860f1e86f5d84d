"""What a session assumes of symbolic dimensions, and learns from the calls it gets."""

from __future__ import annotations

import pytest

from glowpy.assumptions import Assumptions
from glowpy.core.elemkind import ElemKind
from glowpy.importer import ValueInfo
from glowpy.support.symbolic import UndecidedError, UnequalError, least, symbol


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
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")), plan, shapes)
    assert planned(assumed, **shapes) in ("a, a", "b, b")


def test_a_dimension_may_be_a_sum_of_others() -> None:
    assumed = assumptions(mask=["all"], x=["past", "seq"])
    shapes = {"mask": (9,), "x": (5, 4)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("past", 0) + symbol("seq"), symbol("all")), plan, shapes)
    assert planned(assumed, **shapes) == "past+seq, past x seq"


def test_what_differs_in_the_call_is_constant() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (3,)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")), plan, shapes)
    assert planned(assumed, **shapes) == "4, 3"


def test_what_compiling_must_know_is_constant() -> None:
    assumed = assumptions(x=["a", "b"], s=["c"])
    shapes = {"x": (4, 5), "s": (2,)}
    plan = assumed.plan(shapes)
    assumed.learn(UndecidedError("channels", [symbol("b")]), plan, shapes)
    assumed.know(["s"], shapes)
    assert planned(assumed, **shapes) == "a x 5, 2"
    with pytest.warns(RuntimeWarning, match="code is compiled for each extent of '[bc]'"):
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
    assumed = Assumptions([ValueInfo("x", ElemKind.F32, ["a"])], fixed=True)
    plan = assumed.plan({"x": (4,)})
    assert plan.shapes == {"x": (4,)}
    assert assumed.plan({"x": (5,)}) != plan
    assert assumed.admits(plan)


def test_plans_that_no_call_has_any_more() -> None:
    assumed = assumptions(x=["a", "b"])
    one, small = assumed.plan({"x": (1, 5)}), assumed.plan({"x": (3, 5)})
    assert (assumed.admits(one), assumed.admits(small)) == (False, True)
    large = assumed.plan({"x": (3, 5000)})
    assert (assumed.admits(small), assumed.admits(large)) == (False, True)
    assumed.learn(UndecidedError("channels", [symbol("b")]), large, {"x": (3, 5000)})
    plans = [assumed.plan({"x": (3, 5000)})]
    with pytest.warns(RuntimeWarning):
        plans.append(assumed.plan({"x": (3, 6)}))
    assert (assumed.admits(large), *map(assumed.admits, plans)) == (False, True, True)


def test_a_constant_that_varies_is_warned_of_once() -> None:
    assumed = assumptions(x=["a"])
    plan = assumed.plan({"x": (4,)})
    assumed.learn(UndecidedError("expected constant channels", [symbol("a")]), plan, {"x": (4,)})
    assumed.plan({"x": (4,)})
    message = "code is compiled for each extent of 'a', now 5: expected constant channels"
    with pytest.warns(RuntimeWarning, match=message):
        assumed.plan({"x": (5,)})
    assumed.plan({"x": (6,)})  # a second warning would be an error
    assert assumed.summary == {"a": "constant: expected constant channels"}


def test_what_inputs_do_not_say_cannot_be_learned() -> None:
    assumed, shapes = assumptions(x=["a"]), {"x": (4,)}
    error = UndecidedError("what?", [symbol("other")])
    plan = assumed.plan(shapes)
    with pytest.raises(UndecidedError, match="what"):
        assumed.learn(error, plan, shapes)
    assumed.learn(UndecidedError("what?", [symbol("a")]), plan, shapes)
    assumed.learn(error, plan, shapes)  # planned before that was learned: not known to be needed


def test_an_extent_is_bounded_by_a_number_that_it_has_to_be_at_most() -> None:
    """As positions that are looked up in a table: so many tokens at most."""
    assumed = assumptions(x=["a"])
    shapes = {"x": (40,)}
    plan = assumed.plan(shapes)
    own = symbol("a", *assumed._bounds["a"])
    assumed.learn(UnequalError(own, least(own, 50)), plan, shapes)
    assert assumed.summary == {"a": "1..50"}
    assert assumed.admits(assumed.plan({"x": (50,)}))


def test_a_bound_is_not_lowered_below_the_extent_of_the_call() -> None:
    assumed, shapes = assumptions(x=["a"]), {"x": (60,)}
    plan = assumed.plan(shapes)
    own = symbol("a", *assumed._bounds["a"])
    assumed.learn(UnequalError(own, least(own, 50)), plan, shapes)
    assert assumed.summary["a"].startswith("constant: ")
