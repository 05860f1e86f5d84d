"""State: inputs and outputs of a model that become variables, so that a run goes on where the one before it ended.

The cache of a decoder is an input and a longer output, the hidden state of a recurrence an input and an output of one
type. `keep_state` puts a variable in the place of such a pair: what reads the input reads the variable, and what saved
the output saves it there. The name of the input is the variable's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import SAVED, Function
from glowpy.graph.node import Placeholder
from glowpy.graph.nodes_gen import SaveNode
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.symbolic import UNBOUNDED, highest

__all__ = [
    "Declared",
    "StatePairs",
    "check_pairs",
    "keep_state",
    "next_name",
    "recognized_pairs",
    "release_state",
]

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


def keep_state(f: Function, pairs: StatePairs) -> None:
    """Replaces each input and the output that becomes it in the next run by a variable; `check_pairs` has allowed them.

    The memory of a variable has room for what the bounds of symbols allow.

    Raises UserError for a pair of other kinds or ranks, a symbol without a bound, and an input that is an output, too.
    """
    placeholders = {placeholder.original: placeholder for placeholder in f.parameters}
    saves = {port.original: save for save in f.saves if (port := _port(save)) is not None}
    for name, output in pairs.items():
        placeholder, save = placeholders[name], saves[output]
        target = _port(save)
        others = [n for n, i in placeholder.value.uses if isinstance(n, SaveNode) and i == SAVED]
        if any(other is not save for other in others):
            raise UserError(f"state: '{name}' is an output as well", loc=placeholder.loc)
        memory = _memory(name, placeholder.type, output, save.input.type)
        variable = f.module.make_variable(placeholder, memory)
        if target is not None and target is not placeholder:
            save.set_input(SAVED, variable.value)
            f.module.erase(target)


def release_state(f: Function) -> None:
    """Makes inputs and outputs of the variables of a function, for whoever knows no variables.

    The output gets a name by which `recognized_pairs` finds the pair.
    """
    taken = {placeholder.original for placeholder in f.module.placeholders}
    for variable in f.variables:
        placeholder = f.module.make_placeholder(variable)
        taken.add(placeholder.original)
        for save in [save for save in f.saves if _port(save) is placeholder]:
            name = next_name(placeholder.original, taken)
            taken.add(name)
            output = f.module.create_placeholder(name, save.input.type, loc=placeholder.loc)
            save.set_input(SAVED, output.value)


def next_name(name: str, taken: Collection[str]) -> str:
    """Returns a name for the output that is `name` in the next run, such that `recognized_pairs` finds the pair."""
    output = re.sub("past", "present", name, count=1)
    while output in taken:
        output += "_next"
    return output


def _port(save: SaveNode) -> Placeholder | None:
    target = save.output.producer
    return target if isinstance(target, Placeholder) else None


def _memory(name: str, type: Type, output: str, following: Type) -> Type:
    """A static type with room for both."""
    same = (type.kind, type.quant, type.rank)
    if same != (following.kind, following.quant, following.rank):
        raise UserError(
            f"state: '{name}' is {type}, which the output '{output}', {following}, cannot become"
        )
    room = [max(highest(a), highest(b)) for a, b in zip(type.shape, following.shape, strict=True)]
    if UNBOUNDED in room or max(room, default=0) > UNBOUNDED:
        raise UserError(
            f"state: '{name}' is {type}, expected a bound for every dimension",
            note="give the symbols a range, as --shape NAME=0..1024 does",
        )
    return type.with_shape(room)
