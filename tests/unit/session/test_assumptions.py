"""What a session assumes of symbolic dimensions, and learns from the calls it gets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import ValueInfo
from glowpy.session.assumptions import Assumptions
from glowpy.session.shape_plan import ShapePlan
from glowpy.support.symbolic import UndecidedError, UnequalError, UnorderedError, least, symbol


def assumptions(**shapes: list[int | str | None] | None) -> Assumptions:
    return Assumptions([ValueInfo(name, ElemKind.F32, shape) for name, shape in shapes.items()])


def planned(assumed: Assumptions, **shapes: tuple[int, ...]) -> str:
    plan = assumed.plan(shapes)
    return ", ".join(" x ".join(map(str, shape)) for shape in plan.shapes.values())


def learn(
    assumed: Assumptions, error: UndecidedError, shapes: Mapping[str, tuple[int, ...]]
) -> bool:
    return assumed.learn(error.need, assumed.plan(shapes), shapes)


def test_an_extent_of_0_or_1_is_constant_until_it_varies() -> None:
    assumed = assumptions(x=["batch", 3, "past"])
    assert planned(assumed, x=(1, 3, 0)) == "1 x 3 x 0"
    assert planned(assumed, x=(1, 3, 1)) == "1 x 3 x past"
    assert planned(assumed, x=(2, 3, 0)) == "batch x 3 x past"
    plans = {assumed.plan({"x": (batch, 3, past)}) for batch in (2, 64) for past in (0, 1, 64)}
    assert len(plans) == 1
    assert assumed.plan({"x": (65, 3, 0)}) not in plans


def test_an_extent_that_is_1_again_is_constant_in_what_is_compiled_then() -> None:
    """As for words that follow a prompt; but not where it was empty before, and grows."""
    assumed = assumptions(x=["seq"], past=["past"])
    prompt = assumed.plan({"x": (37,), "past": (0,)})
    assert planned(assumed, x=(1,), past=(37,)) == "1, past"
    word = assumed.plan({"x": (1,), "past": (38,)})
    assert word.admits({"x": (1,), "past": (1,)})
    assert not word.admits({"x": (2,), "past": (38,)})
    assert prompt.admits({"x": (1,), "past": (0,)})
    assert (word.openness, prompt.openness) == (1, 1)
    assert planned(assumed, x=(2,), past=(1,)) == "seq, past"


def test_a_logarithmic_number_of_plans_serves_all_extents() -> None:
    assumed = assumptions(x=["seq"])
    assert len({assumed.plan({"x": (seq,)}) for seq in range(2, 5000)}) == 5
    assert len({assumed.plan({"x": (seq,)}) for seq in range(2, 5000)}) == 1


def test_first_bounds_together_allow_for_64_times_the_first_call() -> None:
    alone, several = assumptions(x=["a"]), assumptions(x=["a", "b", "c"])
    key = alone.plan({"x": (5,)})
    assert alone.plan({"x": (128,)}) == key
    assert alone.plan({"x": (129,)}) != key
    key = several.plan({"x": (5, 5, 5)})
    assert several.plan({"x": (32, 32, 32)}) == key
    assert several.plan({"x": (33, 5, 5)}) != key


def test_dimensions_that_must_be_equal_become_one() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (4,)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")).need, plan, shapes)
    assert planned(assumed, **shapes) in ("a, a", "b, b")


def test_dimensions_that_are_not_equal_in_another_call() -> None:
    """What is 1 may be repeated; else it is an error, of this call alone."""
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (4,)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")).need, plan, shapes)
    assert planned(assumed, x=(1,), y=(4,)) == "1, b"
    assert planned(assumed, x=(4,), y=(1,)) == "a, 1"
    assert planned(assumed, x=(3,), y=(2,)) == "3, 2"
    assert planned(assumed, **shapes) in ("a, a", "b, b")


def test_a_dimension_may_be_a_sum_of_others() -> None:
    assumed = assumptions(mask=["all"], x=["past", "seq"])
    shapes = {"mask": (9,), "x": (5, 4)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("past", 0) + symbol("seq"), symbol("all")).need, plan, shapes)
    assert planned(assumed, **shapes) == "past+seq, past x seq"


def test_what_differs_in_the_call_is_constant() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    shapes = {"x": (4,), "y": (3,)}
    plan = assumed.plan(shapes)
    assumed.learn(UnequalError(symbol("a"), symbol("b")).need, plan, shapes)
    assert planned(assumed, **shapes) == "4, 3"


def test_what_compiling_must_know_is_constant() -> None:
    assumed = assumptions(x=["a", "b"], s=["c"])
    shapes = {"x": (4, 5), "s": (2,)}
    plan = assumed.plan(shapes)
    assumed.learn(UndecidedError("channels", [symbol("b")]).need, plan, shapes)
    assumed.know(["s"], shapes)
    assert planned(assumed, **shapes) == "a x 5, 2"
    with pytest.warns(RuntimeWarning, match="code is compiled for each extent of '[bc]'"):
        assert planned(assumed, x=(6, 7), s=(3,)) == "a x 7, 3"


def test_dimensions_without_a_name_are_open_as_well() -> None:
    assumed = assumptions(x=[None, 2], y=None)
    assert planned(assumed, x=(4, 2), y=(5, 6)) == "x_0 x 2, y_0 x y_1"


def test_a_dimension_without_a_name_is_none_that_is_called_as_it_is_spelled() -> None:
    assumed = assumptions(x=[None], y=["x_0"])
    plan = assumed.plan({"x": (4,), "y": (5,)})
    assert plan.openness == 2
    assert plan.admits({"x": (6,), "y": (7,)})


def test_what_a_copy_learns_is_its_own() -> None:
    assumed = assumptions(x=["a"], y=["b"])
    assumed.plan({"x": (4,), "y": (8,)})
    before, other = assumed.summary, assumed.copy()
    a = symbol("a", 1, 64, 4)
    learn(other, UndecidedError("why", [a]), {"x": (4,), "y": (8,)})
    other.plan({"x": (4,), "y": (1000,)})
    assert other.summary["a"] == "constant: why"
    assert assumed.summary == before != other.summary


def test_a_call_whose_assumptions_are_forgotten_learns_nothing() -> None:
    """As where the call of another thread fails meanwhile."""
    assumed = assumptions(x=["a"])
    empty, plan = assumed.copy(), assumed.plan({"x": (4,)})
    empty.learn(UndecidedError("why", [symbol("a", 1, 64, 4)]).need, plan, {"x": (4,)})
    assert empty.summary == {}


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
    assert not assumed.learn(UndecidedError("what?", [symbol("x_0")]).need, plan, {"x": (4,)})


def test_what_a_plan_is_for() -> None:
    a, b = symbol("a", 1, 9), symbol("b", 0, 5)
    plan = ShapePlan({"x": (a, 3), "y": (a + b, b), "z": (2,)})
    assert plan.openness == 2
    good = {"x": (9, 3), "y": (9, 0), "z": (2,)}
    assert plan.admits(good)
    for name, shape in (
        ("x", (8, 3)),
        ("x", (9, 4)),
        ("x", (9, 3, 1)),
        ("y", (9, 1)),
        ("y", (15, 6)),
        ("z", (1,)),
    ):
        assert not plan.admits({**good, name: shape})
    assert not plan.admits({"x": (10, 3), "y": (10, 0), "z": (2,)})


def test_wider_bounds_replace_narrower_ones() -> None:
    def plan(*bounds: int) -> ShapePlan:
        return ShapePlan({"x": (symbol("a", *bounds), 3)})

    assert plan(1, 9).replaces(plan(1, 8))
    assert plan(0, 9).replaces(plan(1, 9))
    assert plan(1, 9, 5).replaces(plan(1, 9, 6))
    for other in (
        plan(1, 9),
        plan(0, 8),
        plan(1, 10),
        ShapePlan({"x": (4, 3)}),
        ShapePlan({"x": (4, 4)}),
    ):
        assert not plan(1, 9).replaces(other)


def test_a_constant_that_varies_is_warned_of_once() -> None:
    assumed = assumptions(x=["a"])
    plan = assumed.plan({"x": (4,)})
    assumed.learn(
        UndecidedError("expected constant channels", [symbol("a")]).need, plan, {"x": (4,)}
    )
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
    assert not assumed.learn(error.need, plan, shapes)
    assert assumed.learn(UndecidedError("what?", [symbol("a")]).need, plan, shapes)
    # What was planned before that was learned is not known to be needed.
    assert assumed.learn(error.need, plan, shapes)


def test_what_the_network_finds_is_not_learned() -> None:
    assumed = assumptions(x=["n"])
    planned(assumed, x=(4,))
    error = UnequalError(symbol("found", 0, 9), 4)
    assert not learn(assumed, error, {"x": (4,)})


def test_an_extent_is_bounded_by_a_number_that_it_has_to_be_at_most() -> None:
    """As positions that are looked up in a table: so many tokens at most."""
    assumed = assumptions(x=["a"])
    shapes = {"x": (40,)}
    plan = assumed.plan(shapes)
    own = symbol("a", *assumed._bounds["a"])
    assumed.learn(UnequalError(own, least(own, 50)).need, plan, shapes)
    assert assumed.summary == {"a": "1..50"}
    assert assumed.plan({"x": (50,)}).admits({"x": (1,)})


def test_a_bound_is_not_lowered_below_the_extent_of_the_call() -> None:
    assumed, shapes = assumptions(x=["a"]), {"x": (60,)}
    plan = assumed.plan(shapes)
    own = symbol("a", *assumed._bounds["a"])
    assumed.learn(UnequalError(own, least(own, 50)).need, plan, shapes)
    assert assumed.summary["a"].startswith("constant: ")


def test_which_of_several_is_the_least_is_taken_from_the_call() -> None:
    assumed = assumptions(x=["past", "seq"], mask=["all"])
    shapes = {"x": (5, 4), "mask": (9,)}
    past, seq, total = symbol("past", 0), symbol("seq"), symbol("all")
    learn(assumed, UnequalError(seq, total - least(past, total)), shapes)
    assert planned(assumed, **shapes) == "past x seq, past+seq"


def test_a_lower_bound_rises_until_a_comparison_is_known() -> None:
    assumed = assumptions(x=["h", "w"])
    shapes = {"x": (40, 2)}
    assumed.plan(shapes)
    h, w = symbol("h", 1, 256), symbol("w", 1, 16)
    learn(assumed, UnorderedError(h // 2 - 3, 0), shapes)
    assert assumed.summary["h"] == "6..512"
    assert planned(assumed, x=(6, 2)) == "h x w"
    learn(assumed, UnorderedError(w, 4), shapes)
    assert planned(assumed, **shapes) == "h x 2"


def test_a_dimension_may_be_a_multiple() -> None:
    assumed = assumptions(x=["h", "w"])
    shapes = {"x": (40, 30)}
    assumed.plan(shapes)
    h = symbol("h", 1, 256)
    learn(assumed, UnequalError(2 * (h // 2), h), shapes)
    assert planned(assumed, **shapes) == "2*h_2 x w"
    assert planned(assumed, x=(24, 7)) == "2*h_2 x w"
    assert planned(assumed, x=(25, 30)) == "25 x w"
    count = symbol("h_2", 1, 128)
    learn(assumed, UnequalError(count - 2 * (count // 2), 0), shapes)
    assert planned(assumed, **shapes) == "4*h_4 x w"
    assert planned(assumed, x=(42, 30)) == "42 x w"
    w = symbol("w", 1, 256)
    learn(assumed, UnequalError((w - 1) // 4 * 4 + 2, w), shapes)
    assert assumed.summary["w"] == "1..256, 4*w_4+2"
    assert planned(assumed, **shapes) == "4*h_4 x 4*w_4+2"
    learn(assumed, UnequalError(symbol("h_4", 1, 64), symbol("w_4", 0, 63) + 3), shapes)
    assert planned(assumed, **shapes) == "40 x 30"


def test_what_is_learned_with_one_word_holds_for_one_word() -> None:
    assumed = assumptions(x=["past", "seq"], mask=["all"])
    for past in (0, 1, 2):
        one = {"x": (past, 1), "mask": (past + 1,)}
        assumed.plan(one)
    learn(assumed, UnequalError(symbol("past", 0) + 1, symbol("all")), one)
    assert planned(assumed, **one) == "past x 1, past+1"
    several = {"x": (2, 4), "mask": (6,)}
    assert planned(assumed, **several) == "past x seq, all"
    learn(assumed, UnequalError(symbol("past", 0) + symbol("seq"), symbol("all")), several)
    assert planned(assumed, **several) == "past x seq, past+seq"
    assert planned(assumed, **one) == "past x 1, past+1"
    assert assumed.summary["all"] == "past+seq"


@pytest.mark.parametrize(("one", "other"), [("seq", "all"), ("all", "seq")])
def test_what_is_learned_with_nothing_cached_holds_for_nothing_cached(one: str, other: str) -> None:
    """A mask is as long as the prompt, and longer than the words that follow."""
    assumed = assumptions(x=["seq"], mask=["all"], cache=["past"])
    learn(
        assumed, UnequalError(symbol(one), symbol(other)), {"x": (5,), "mask": (5,), "cache": (0,)}
    )
    word: dict[str, tuple[int, ...]] = {"x": (1,), "mask": (6,), "cache": (5,)}
    assert planned(assumed, **word) == "1, all, past"
    assert assumed.summary["seq"] == "1..64"
    learn(assumed, UnequalError(symbol("all"), symbol("past", 0) + 1), word)
    assert planned(assumed, **word) == "1, past+1, past"
    assert assumed.summary["all"] == "1..64"
