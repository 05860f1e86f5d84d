"""State: inputs and outputs of a model that become variables, so that a run goes on where the one before it ended.

The cache of a decoder is an input and a longer output, the hidden state of a recurrence an input and an output of one
type. `keep_state` puts a variable in the place of such a pair: what reads the input reads the variable, and what saved
the output saves it there. The name of the input is the variable's.
"""

from __future__ import annotations

from glowpy.core.state_pairs import StatePairs, next_name
from glowpy.core.type import Type
from glowpy.graph.function import SAVED, Function
from glowpy.graph.node import Placeholder
from glowpy.graph.nodes_gen import SaveNode
from glowpy.support.errors import UserError
from glowpy.support.symbolic import UNBOUNDED, highest

__all__ = ["keep_others", "keep_state", "release_state"]


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


def keep_others(f: Function, pairs: StatePairs, named: StatePairs | None = None) -> None:
    """Makes these pairs the state of a function, in place of its own variables: those among them begin as they do.

    The outputs of its own variables are `named`, or as `release_state` says.
    """
    initial = {variable.original: variable.initial for variable in f.variables}
    release_state(f, named)
    keep_state(f, pairs)
    for variable in f.variables:
        f.module.begin(variable, initial.get(variable.original))


def release_state(f: Function, named: StatePairs | None = None) -> dict[str, str]:
    """Makes inputs and outputs of the variables of a function, for whoever knows no variables; returns these pairs.

    The output is `named`, or gets a name by which `recognized_pairs` finds the pair. That of a variable which no node
    saves is what it was: so it is in the next run what it was in this one.
    """
    pairs: dict[str, str] = {}
    taken = {placeholder.original for placeholder in f.module.placeholders}
    for variable in f.variables:
        placeholder = f.module.make_placeholder(variable)
        taken.add(placeholder.original)
        saves = [save for save in f.saves if _port(save) is placeholder]
        if not saves:
            saves = [f.create_save(placeholder.name, placeholder, placeholder)]
        for save in saves:
            name = (named or {}).get(placeholder.original, "")
            name = name if name and name not in taken else next_name(placeholder.original, taken)
            taken.add(name)
            output = f.module.create_placeholder(name, save.input.type, loc=placeholder.loc)
            save.set_input(SAVED, output.value)
            pairs[placeholder.original] = name
    return pairs


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
