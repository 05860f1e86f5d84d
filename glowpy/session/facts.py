"""Facts: what a session has learned, one by one, so that threads can join, or take back, what each of them has.

Threads learn from different calls at the same time. One that takes back what it has learned, or comes with what it has
learned aside, leaves what others have learned meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeAlias

__all__ = [
    "BOUNDS",
    "Changes",
    "Facts",
    "changed",
    "in_table",
    "joined",
    "meaning_facts",
    "meanings_of",
    "reverted",
]

Fact: TypeAlias = tuple[Hashable, ...]
"""The name of a fact: which table it is in, and what it is about."""
Facts: TypeAlias = dict[Fact, Any]
Changes: TypeAlias = dict[Fact, tuple[Any, Any]]
"""The old and the new values of facts; `_ABSENT` stands for none."""

BOUNDS: Final = "bounds"
"""The first word in names of facts that are the least and the greatest extent, and perhaps more: two are joined."""

_ABSENT: Final = object()


def changed(before: Facts, after: Facts, earlier: Changes | None = None) -> Changes:
    """The differences of facts, after `earlier` changes by the same call."""
    changes = dict(earlier or {})
    for fact in {**before, **after}:
        old, new = before.get(fact, _ABSENT), after.get(fact, _ABSENT)
        if old != new:
            changes[fact] = changes.get(fact, (old, old))[0], new
    return changes


def reverted(facts: Facts, changes: Changes) -> Facts:
    """The facts without changes, but for those that somebody else has changed since."""
    result = dict(facts)
    for fact, (old, new) in changes.items():
        if result.get(fact, _ABSENT) == new:
            _set(result, fact, old)
    return result


def joined(facts: Facts, changes: Changes) -> Facts:
    """The facts with changes: bounds that somebody else has changed as well admit what either does."""
    result = dict(facts)
    for fact, (old, new) in changes.items():
        other = result.get(fact, _ABSENT)
        if fact[0] == BOUNDS and not any(one is _ABSENT for one in (new, other)) and other != old:
            new = (min(new[0], other[0]), max(new[1], other[1]), *new[2:])
        if new is not _ABSENT or other == old:
            _set(result, fact, new)
    return result


def in_table(facts: Facts, *words: Hashable) -> dict[str, Any]:
    """The facts whose names begin with these words, and have one more."""
    count = len(words)
    return {
        str(fact[count]): value
        for fact, value in facts.items()
        if len(fact) == count + 1 and fact[:count] == words
    }


def meaning_facts(word: str, meanings: Mapping[str, Mapping[Any, Any]]) -> Facts:
    """Facts of what extents are equal to, by their names and by what was constant then."""
    return {(word, name, few): dim for name, dims in meanings.items() for few, dim in dims.items()}


def meanings_of(word: str, facts: Facts) -> dict[str, dict[Any, Any]]:
    """The same as tables again."""
    meanings: dict[str, dict[Any, Any]] = {}
    for fact, dim in facts.items():
        if fact[0] == word:
            meanings.setdefault(str(fact[1]), {})[fact[2]] = dim
    return meanings


def _set(facts: Facts, fact: Fact, value: Any) -> None:
    if value is _ABSENT:
        facts.pop(fact, None)
    else:
        facts[fact] = value
