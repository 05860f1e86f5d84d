"""What threads learn at the same time is joined, and what one takes back is its own."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import ValueInfo
from glowpy.session.assumptions import Assumptions
from glowpy.session.facts import BOUNDS, Facts, changed, joined, reverted

BEFORE: Facts = {(BOUNDS, "n"): (1, 8, 4), (BOUNDS, "m"): (1, 8, 8), ("constant", "k"): "why"}
MINE = {**BEFORE, (BOUNDS, "n"): (1, 32, 30), ("grid", "m"): "2*m_2"}
THEIRS = {**BEFORE, (BOUNDS, "n"): (0, 16, 0), (BOUNDS, "m"): (3, 8, 8), ("met", "k"): None}


def test_bounds_of_both_admit_what_either_does() -> None:
    both = joined(THEIRS, changed(BEFORE, MINE))
    assert both == {
        (BOUNDS, "n"): (0, 32, 30),
        (BOUNDS, "m"): (3, 8, 8),
        ("constant", "k"): "why",
        ("grid", "m"): "2*m_2",
        ("met", "k"): None,
    }
    assert joined(BEFORE, changed(BEFORE, MINE)) == MINE


def test_what_is_gone_is_gone_unless_it_is_another_now() -> None:
    few = {fact: BEFORE[fact] for fact in BEFORE if fact[0] == BOUNDS}
    changes = changed(BEFORE, few)
    assert joined(BEFORE, changes) == few
    other = {**BEFORE, ("constant", "k"): "another reason"}
    assert joined(other, changes) == other


def test_changes_are_taken_back_but_not_those_of_others() -> None:
    changes = changed(BEFORE, MINE)
    assert reverted(MINE, changes) == BEFORE
    both = {**MINE, (BOUNDS, "n"): (0, 64, 0), ("met", "k"): None}
    assert reverted(both, changes) == {
        **BEFORE,
        (BOUNDS, "n"): (0, 64, 0),
        ("met", "k"): None,
    }


def test_changes_in_steps_are_taken_back_to_the_first() -> None:
    middle = {**BEFORE, (BOUNDS, "n"): (1, 16, 4)}
    steps = changed(middle, MINE, changed(BEFORE, middle))
    assert reverted(MINE, steps) == BEFORE


def test_assumptions_are_their_facts() -> None:
    infos = [ValueInfo("x", ElemKind.F32, ["n", "m"]), ValueInfo("y", ElemKind.F32, ["k", 2])]
    assumptions = Assumptions(infos)
    assumptions.know(["y"], {"y": (3, 2)})
    plan = assumptions.plan({"x": (4, 1), "y": (3, 2)})
    again = Assumptions(infos).with_facts(assumptions.facts)
    assert again.facts == assumptions.facts
    assert again.summary == assumptions.summary
    assert again.plan({"x": (4, 1), "y": (3, 2)}) == plan
    assumptions.plan({"x": (400, 5), "y": (3, 2)})
    assert again.facts != assumptions.facts
