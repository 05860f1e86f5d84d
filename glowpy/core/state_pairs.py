"""Pairs of inputs and outputs that are the state of a model, by their names, kinds and declared shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.support.errors import Diagnostic, UserError

__all__ = ["Declared", "StatePairs", "check_pairs", "next_name", "recognized_pairs"]

StatePairs = Mapping[str, str]
"""State of a model: for the name of an input, that of the output which is this input in the next run."""


@dataclass(frozen=True)
class Declared:
    """Type of an input or output as the model declares it.

    Attributes:
        kind: The kind of its elements.
        shape: Numbers, or names of dimensions that are open, None for one without a name; None if it is not known.
    """

    kind: ElemKind
    shape: Sequence[int | str | None] | None

    @staticmethod
    def of(type: Type) -> Declared:
        """Declares a type."""
        return Declared(type.kind, [d if isinstance(d, int) else str(d) for d in type.shape])

    def may_become(self, other: Declared) -> bool:
        """Whether a value may be one and the other in turn: they are of one kind, and fit where both have a number."""
        if self.kind is not other.kind:
            return False
        if self.shape is None or other.shape is None:
            return True
        pairs = zip(self.shape, other.shape, strict=False)
        numbers = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
        return len(self.shape) == len(other.shape) and all(a == b for a, b in numbers)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.kind.value}"
        dims = " x ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.kind.value}[{dims}]"


_SPELLINGS = (
    (r"past_key_values", "present"),
    (r"past_key_values", "present_key_values"),
    (r"past", "present"),
    (r"(?<![A-Za-z])in(?![A-Za-z])", "out"),
    (r"(?<![A-Za-z])prev(ious)?(?![A-Za-z])", "next"),
    (r"^initial_", "Y_"),
    (r"0$", "n"),
    (r"$", "n"),
    (r"$", "N"),
    (r"$", "_out"),
    (r"$", "_new"),
    (r"^", "new_"),
    (r"$", "_next"),
    (r"^", "next_"),
)
"""Patterns that turn the name of an input into that of its output, as exporters of models spell them."""


def recognized_pairs(
    inputs: Mapping[str, Declared], outputs: Mapping[str, Declared]
) -> dict[str, str]:
    """The pairs that look like state by their names, and whose types allow it."""
    pairs: dict[str, str] = {}
    for name, declared in inputs.items():
        names = dict.fromkeys(re.sub(old, new, name, count=1) for old, new in _SPELLINGS)
        for output in names:
            fits = output in outputs and declared.may_become(outputs[output])
            if output != name and fits and output not in pairs.values():
                pairs[name] = output
                break
    return pairs


def check_pairs(
    pairs: StatePairs, inputs: Mapping[str, Declared], outputs: Mapping[str, Declared]
) -> None:
    """Raises UserError that lists every name that is none, every output that is named twice, and types that differ."""
    if not isinstance(pairs, Mapping):
        raise UserError(
            f"state: expected a dict of inputs and their outputs, got {pairs!r}",
            note="{'past_key_0': 'present_key_0'}; a session, and --state, take 'auto' as well",
        )
    problems = [
        f"state: expected one of the {role} {', '.join(map(repr, ports)) or '(there are none)'}, got '{name}'"
        for role, ports, names in (
            ("inputs", inputs, pairs.keys()),
            ("outputs", outputs, pairs.values()),
        )
        for name in dict.fromkeys(names)
        if name not in ports
    ]
    problems += [
        f"state: '{name}' is the output of {count} inputs"
        for name, count in Counter(pairs.values()).items()
        if count > 1
    ]
    problems += [
        f"state: '{name}' is {inputs[name]}, which the output '{output}', {outputs[output]}, cannot become"
        for name, output in pairs.items()
        if name in inputs and output in outputs and not outputs[output].may_become(inputs[name])
    ]
    if problems:
        raise UserError.of(Diagnostic(problem) for problem in problems)


def next_name(name: str, taken: Collection[str]) -> str:
    """Returns a name for the output that is `name` in the next run, such that `recognized_pairs` finds the pair."""
    output = re.sub("past", "present", name, count=1)
    while output in taken:
        output += "_next"
    return output
