"""All rules for nodes that a session computes itself: importing the families fills the table."""

from __future__ import annotations

from glowpy.session.host import containers, control, labels, strings
from glowpy.session.host.node import RULES, Rule

__all__ = ["FAMILIES", "rule_of", "ruled"]

FAMILIES = (containers, control, labels, strings)
"""The modules with rules."""


def rule_of(domain: str, op_type: str, opset: int) -> Rule | None:
    """The rule for an operator at an opset, or None."""
    versions = RULES.get((domain, op_type), {})
    covering = [since for since in versions if since <= opset]
    return versions[max(covering)] if covering else None


def ruled() -> dict[tuple[str, str], list[int]]:
    """Every operator with a rule, (domain, operator) to the opsets at which a rule begins."""
    return {key: sorted(versions) for key, versions in sorted(RULES.items())}
