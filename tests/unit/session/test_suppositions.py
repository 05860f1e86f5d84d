"""What a session supposes of extents that elements decide."""

from __future__ import annotations

import pytest

from glowpy.session.suppositions import Suppositions, is_limit, void
from glowpy.support.errors import UserError
from glowpy.support.questions import Asked
from glowpy.support.symbolic import (
    UNBOUNDED,
    Dim,
    UndecidedError,
    UnequalError,
    UnorderedError,
    symbol,
)

BATCH, COUNT, OTHER = symbol("batch", 1, 8), symbol("count", 0, 64), symbol("other", 0, 64)
NOTHING: frozenset[tuple[str, int]] = frozenset()


def asked(error: UndecidedError, *found: str) -> Asked:
    (one,) = error.asked_of(found)
    return one


def test_limits_grow_with_what_is_found() -> None:
    found = Suppositions()
    assert found.limit(["count"], ["ids"])
    assert not found.limit(["count"], ["ids"])
    assert found.summary == {"count": "0..512"}
    found.exceed({"count": 600})
    assert found.summary == {"count": f"0..{16 * 1024}"}
    found.exceed({"count": 16 * 1024 + 1})
    assert found.summary == {"count": f"0..{16 * 32 * 1024}"}
    with pytest.raises(UserError, match="expected an extent 'count' of at most"):
        found.exceed({"count": 1 << 40})


def test_many_limits_are_lower() -> None:
    found = Suppositions()
    found.limit([f"count_{index}" for index in range(6)], ["ids"])
    assert set(found.summary.values()) == {"0..8"}


def test_what_has_to_be_equal_is_supposed_to_be() -> None:
    found = Suppositions()
    question = asked(UnequalError(COUNT, 2 * BATCH), "count")
    assert found.suppose(question, NOTHING, {"batch": 3}, ["ids"])
    assert not found.suppose(question, NOTHING, {"batch": 3}, ["ids"])
    assert found.dims(NOTHING, {"batch": BATCH}) == {"count": 2 * BATCH}
    assert found.dims(NOTHING, {"batch": 1}) == {"count": 2}
    assert found.inputs == {"count": ("ids",)}


def test_what_is_supposed_with_one_word_holds_for_one_word() -> None:
    found = Suppositions()
    few = frozenset({("batch", 1)})
    found.suppose(asked(UnequalError(COUNT, 2), "count"), few, {"batch": 1}, [])
    assert found.dims(NOTHING, {"batch": BATCH}) == {}
    assert found.dims(few, {"batch": 1}) == {"count": 2}


def test_what_an_operator_needs_is_supposed_to_be_there() -> None:
    found = Suppositions()
    found.limit(["count"], [])
    assert found.suppose(asked(UnorderedError(COUNT - 3, 0), "count"), NOTHING, {}, [])
    assert found.summary == {"count": "3..512"}


def test_what_is_supposed_is_within_the_bounds_that_are_known() -> None:
    """A network of 6 numbers finds no more than 6."""
    count, found = symbol("count", 0, 6), Suppositions()
    assert found.suppose(asked(UnorderedError(count, 2), "count"), NOTHING, {}, [])
    assert found.dims(NOTHING, {}) == {"count": symbol("count", 2)}
    assert not found.suppose(asked(UnorderedError(count, 8 * OTHER), "count"), NOTHING, {}, [])


def test_a_limit_is_above_what_is_supposed_to_be_there() -> None:
    found = Suppositions()
    found.suppose(asked(UnorderedError(symbol("count", 0), 60), "count"), NOTHING, {}, [])
    found.limit(["count", *(f"other_{index}" for index in range(6))], [])
    assert found.summary["count"] == "60..240"
    again = asked(UnorderedError(symbol("count", 0), 50), "count")
    assert found.suppose(again, NOTHING, {}, [])
    assert found.summary["count"] == "60..240"
    assert not found.suppose(
        asked(UnorderedError(symbol("other_0", 0), 50), "other_0"), NOTHING, {}, []
    )


def test_nothing_is_supposed_of_what_is_not_known() -> None:
    found = Suppositions()
    assert not found.suppose(asked(UnequalError(COUNT, OTHER), "count"), NOTHING, {}, [])
    assert not UndecidedError("", [COUNT]).asked_of(["count"])
    assert found.dims(NOTHING, {}) == {}


def test_a_run_is_void_that_has_found_anything_else() -> None:
    supposed: dict[str, Dim] = {"count": symbol("count", 1, 9), "other": 2 * BATCH}
    assert is_limit("count", supposed["count"])
    assert not is_limit("other", supposed["other"])
    assert not void(supposed, {"count": 9, "other": 6}, {"batch": 3})
    assert void(supposed, {"count": 10, "other": 7}, {"batch": 3}) == {"count": 10, "other": 7}
    assert void(supposed, {"count": 0}, {"batch": 3}) == {"count": 0}


def test_what_a_copy_supposes_is_its_own() -> None:
    found = Suppositions()
    found.suppose(asked(UnequalError(COUNT, 4), "count"), NOTHING, {}, [])
    other = found.copy()
    other.limit(["other"], [])
    other.suppose(asked(UnequalError(COUNT, 5), "count"), frozenset({("batch", 1)}), {}, [])
    assert found.dims(NOTHING, {}) == {"count": 4}
    assert found.summary == {"count": "4"}
    assert UNBOUNDED > 512
