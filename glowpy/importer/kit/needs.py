"""Errors that say what an import has to know before it gets further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glowpy.graph.node import Node, NodeValue, Placeholder, Variable
from glowpy.graph.nodes_gen import ExtentsNode
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked, Need
from glowpy.support.symbolic import Dim, UndecidedError

__all__ = ["RoundsError", "ValueNeededError", "value_needed"]


class ValueNeededError(UserError):
    """An operator needs elements that are not known before the model runs: they depend on inputs of the graph.

    Attributes:
        inputs: The names of those inputs. Importing with their `values` gets further.
        counts: The names of extents that have no bound. Importing with something `supposed` of them gets further, too.
        asked: The facts that have to be known of extents that the network finds. The same holds for these.
    """

    def __init__(
        self,
        message: str,
        inputs: Sequence[str],
        *,
        counts: Sequence[str] = (),
        asked: Sequence[Asked] = (),
        loc: Loc | None = None,
        note: str = "",
    ) -> None:
        super().__init__(message, loc=loc or Loc(), note=note)
        self.inputs = tuple(inputs)
        self.counts = tuple(counts)
        self.asked = tuple(asked)

    @property
    def need(self) -> Need:
        """The need that stopped the import and raised this error."""
        why = self.diagnostics[0].message
        return Need(why, inputs=self.inputs, counts=self.counts, asked=self.asked)

    @classmethod
    def of_all(cls, errors: Sequence[ValueNeededError]) -> ValueNeededError:
        """One error for several."""
        merged = cls(
            str(errors[0]),
            list(dict.fromkeys(name for error in errors for name in error.inputs)),
            counts=[name for error in errors for name in error.counts],
            asked=[question for error in errors for question in error.asked],
        )
        merged.diagnostics = [d for error in errors for d in error.diagnostics]
        return merged


class RoundsError(UnsupportedError):
    """A loop whose rounds cannot be compiled as one: a session can run them one by one."""

    def __init__(self, message: str, *, loc: Loc | None = None, note: str = "") -> None:
        remedy = (
            "run the model with glowpy run, or in a session without state, which go round by round"
        )
        super().__init__(message, loc=loc or Loc(), note=f"{note}, or {remedy}" if note else remedy)


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
