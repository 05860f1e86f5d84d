"""All rules for nodes that a session computes itself: importing the families fills the table."""

from __future__ import annotations

from glowpy.session.host import containers, control, generation, labels, strings
from glowpy.session.host.node import RULES, Rule

__all__ = ["FAMILIES", "rule_of", "ruled"]

FAMILIES = (containers, control, generation, labels, strings)
"""The modules with rules."""


def rule_of(operator: str) -> Rule:
    """The rule of an operator, which has one: readers know which have."""
    return RULES[operator]


def ruled() -> list[str]:
    """Every operator with a rule."""
    return sorted(RULES)
