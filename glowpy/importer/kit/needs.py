"""Errors that say what an import has to know before it gets further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glowpy.graph.node import Node, NodeValue, Placeholder, Variable
from glowpy.graph.nodes_gen import ExtentsNode
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked
from glowpy.support.symbolic import Dim, UndecidedError

__all__ = ["value_needed"]


def value_needed(
    what: str,
    value: NodeValue,
    loc: Loc,
    origins: Mapping[Placeholder, NodeValue | None],
    asked: Sequence[Asked] = (),
) -> UserError:
    """The error that says that a value has to be known, with the inputs or the extents on which it depends.

    `origins` are those of the scope. What is `asked` about the value is enough to know of it.
    """
    sources, extents, changes = _sources(value, origins)
    if changes:
        return RoundsError(
            f"{what} must be known while compiling, but changes from round to round of a loop",
            loc=loc,
        )
    if not sources and extents:
        dims = ", ".join(map(str, extents))
        return UndecidedError(
            f"{what} must be constant, but depends on {dims}", extents, asked=asked
        )
    names = ", ".join(f"'{name}'" for name in sources)
    first = sources[0] if sources else "INPUT"
    return ValueNeededError(
        f"{what} must be known while compiling, but depends on the input {names}",
        sources,
        asked=asked,
        loc=loc,
        note="run the model with glowpy run or glowpy.InferenceSession, "
        f"or give elements: --value {first}=..., glowpy.load(values={{'{first}': array}})",
    )


def _sources(
    value: NodeValue, origins: Mapping[Placeholder, NodeValue | None]
) -> tuple[list[str], list[Dim], bool]:
    """The names of the placeholders a value depends on, in the order of the module, extents, and whether on a round."""
    seen: dict[Node, None] = {}
    placeholders: set[Placeholder] = set()
    work = [value]
    changes = False
    while work:
        producer = work.pop().producer
        if isinstance(producer, Variable):
            changes = True
        elif isinstance(producer, Placeholder) and producer in origins:
            outer = origins[producer]
            changes |= outer is None
            work += [outer] if outer is not None else []
        elif isinstance(producer, Placeholder):
            placeholders.add(producer)
        elif isinstance(producer, Node) and producer not in seen:
            seen[producer] = None
            work.extend(producer.inputs)
    names = [p.original for p in sorted(placeholders, key=lambda p: p.name)]
    extents = [node for node in seen if isinstance(node, ExtentsNode)]
    return names, list(dict.fromkeys(dim for node in extents for dim in node.values)), changes
