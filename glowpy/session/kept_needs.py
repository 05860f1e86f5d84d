"""Kept needs: what compilations turned out to need, in the cache, so that nothing has to be built to ask again.

A network that cannot be compiled for what is known of it says what it needs, and a session learns that: dimensions that
have to be constant, elements, branches. Another session that asks for the same network gets the same error from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias, final

from glowpy.backend import Backend, CompileOptions
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.recall import maker_of
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked, Question, UndecidedError
from glowpy.support.symbolic import Dim, symbol, symbols_of
from glowpy.support.text import parse_dim

__all__ = ["NEEDS", "KeptNeed", "NeedError"]

NeedError: TypeAlias = RoundsError | UndecidedError | ValueNeededError
NEEDS = RoundsError, UndecidedError, ValueNeededError
"""Errors that say what a compilation needs."""

_Fields: TypeAlias = Mapping[str, Any]


@final
class KeptNeed:
    """The entry of what compiling one network needs."""

    def __init__(self, network: str, backend: Backend, options: CompileOptions) -> None:
        maker = maker_of(backend, options)
        self._key = Key.of("need", network, options.code_key, *maker) if maker else None
        self._known: NeedError | None = None

    def ask(self) -> None:
        """Raises what compiling has raised before; nothing if that is not known."""
        payload = None if self._key is None else read(self._key)
        if payload is not None:
            self._known = _error(json.loads(payload))
            raise self._known

    def keep(self, error: NeedError) -> None:
        """Puts what compiling has raised into the cache, unless it is from there, or has no form in texts."""
        if self._key is None or error is self._known:
            return
        payload = json.dumps(_fields(error))
        try:
            is_same = _is_same(_error(json.loads(payload)), error)
        except UserError:  # a dimension that does not read back
            return
        if is_same:
            write(self._key, payload.encode())


def _is_same(one: NeedError, other: NeedError) -> bool:
    if one.diagnostics != other.diagnostics:
        return False
    if isinstance(one, RoundsError) or isinstance(other, RoundsError):
        return isinstance(one, RoundsError) and isinstance(other, RoundsError)
    return one.need == other.need


def _fields(error: NeedError) -> _Fields:
    fields: dict[str, Any] = {"diagnostics": [asdict(one) for one in error.diagnostics]}
    if not isinstance(error, RoundsError):
        fields["asked"] = [(_question(one.question), one.found) for one in error.asked]
    if isinstance(error, ValueNeededError):
        fields |= {"inputs": error.inputs, "counts": error.counts}
    elif isinstance(error, UndecidedError):
        question = None if error.question is None else _question(error.question)
        fields |= {"symbols": error.symbols, "question": question}
    return fields


def _error(fields: _Fields) -> NeedError:
    diagnostics = [Diagnostic(**{**one, "loc": Loc(**one["loc"])}) for one in fields["diagnostics"]]
    message = diagnostics[0].message
    asked = [Asked(_asked(question), tuple(found)) for question, found in fields.get("asked", ())]
    error: NeedError
    if "inputs" in fields:
        error = ValueNeededError(message, fields["inputs"], counts=fields["counts"], asked=asked)
    elif "symbols" in fields:
        question = None if fields["question"] is None else _asked(fields["question"])
        error = UndecidedError(message, [], question, asked)
        error.symbols = tuple(fields["symbols"])
    else:
        error = RoundsError(message)
    error.diagnostics = diagnostics
    return error


def _question(question: Question) -> _Fields:
    """A question as text, with the bounds of its symbols."""
    sides = question.left, question.right
    symbols = [(one.name, one.low, one.high, one.likely) for one in symbols_of(sides).values()]
    return {"relation": question.relation, "sides": [str(side) for side in sides], "of": symbols}


def _asked(fields: _Fields) -> Question:
    symbols = {name: symbol(name, *bounds) for name, *bounds in fields["of"]}
    left, right = _dims(fields["sides"], symbols)
    return Question(fields["relation"], left, right)


def _dims(texts: Sequence[str], symbols: Mapping[str, Dim]) -> list[Dim]:
    return [parse_dim(text, symbols) for text in texts]
