"""Where state begins: the shapes of variables before the first run, which follow from those of the inputs.

A model may call the dimensions of its state whatever it likes, or nothing. So it is imported with symbols for them:
what has to be equal, as the operators say, tells what they are. A variable grows along a dimension that a run leaves
as another, and begins with nothing there. One that nothing is said about is 1: it is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

from glowpy.core.extents import shape_at
from glowpy.core.state import StatePort
from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.importer.model import Model
from glowpy.importer.needs import ValueNeededError
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import UserError
from glowpy.support.identity import package_identity
from glowpy.support.names import UniqueNames
from glowpy.support.remedies import solutions
from glowpy.support.symbolic import (
    Dim,
    Expr,
    UndecidedError,
    at_extents,
    substituted,
    symbol,
    symbols_of,
)
from glowpy.support.text import symbol_name

__all__ = ["Shapes", "fresh_shapes"]

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_HIGH = 1 << 16
"""A bound for what is not known, as variables need one."""


def fresh_shapes(
    model: Model, pairs: StatePairs, given: Shapes, feeds: Mapping[str, Array]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """The shapes of the variables that hold nothing yet, and whether elements of inputs decide them.

    Args:
        model: The model that is run.
        pairs: The inputs that are variables, and the outputs that they are in the next run.
        given: The shapes of inputs, and of variables that hold something.
        feeds: The elements of inputs, if they have to be known.

    What was found out once is in the cache: the model is built for it.

    Raises UserError where a shape is not declared, or does not follow, and for inputs that contradict each other.
    """
    declared = _declared(model, pairs, given)
    if not symbols_of(dim for shape in declared.values() for dim in shape):
        return {name: shape_at(shape, {}) for name, shape in declared.items()}, False
    question = _Question(model, pairs, given, feeds)
    shapes, inputs = question.kept or (None, ())
    if shapes is None:
        shapes, inputs = _built(model, pairs, given, declared, feeds)
        question.keep(shapes, inputs)
    return shapes, bool(inputs)


@final
class _Question:
    """Question for the shapes that variables begin with, whose answers are in the cache.

    They depend on the elements of some inputs: which these are is an answer as well.
    """

    def __init__(
        self, model: Model, pairs: StatePairs, given: Shapes, feeds: Mapping[str, Array]
    ) -> None:
        declared = [
            (info.name, info.shape) for info in model.inputs
        ]  # perhaps others than the file's
        shapes = sorted((name, *shape) for name, shape in given.items())
        self._asked = package_identity(), model.digest, f"{[*pairs.items()]} {declared} {shapes}"
        self._feeds = feeds

    @property
    def kept(self) -> tuple[dict[str, tuple[int, ...]], Sequence[str]] | None:
        """The shapes, and the inputs whose elements decide about them; None if that is not in the cache."""
        inputs = self._read("inputs")
        shapes = None if inputs is None else self._read("shapes", *inputs)
        if inputs is None or shapes is None:
            return None
        return {name: tuple(shape) for name, shape in shapes.items()}, inputs

    def keep(self, shapes: Shapes, inputs: Sequence[str]) -> None:
        """Puts them into the cache."""
        write(self._key("shapes", *inputs), json.dumps(shapes).encode())
        write(self._key("inputs"), json.dumps(inputs).encode())

    def _read(self, what: str, *inputs: str) -> Any:
        payload = read(self._key(what, *inputs))
        return None if payload is None else json.loads(payload)

    def _key(self, what: str, *inputs: str) -> Key:
        arrays = [(name, self._feeds[name]) for name in inputs]
        elements = [(name, array.shape, array.tobytes().hex()) for name, array in arrays]
        return Key.of("state", *self._asked, what, f"{elements}")


def _built(
    model: Model,
    pairs: StatePairs,
    given: Shapes,
    declared: Mapping[str, Shape],
    feeds: Mapping[str, Array],
) -> tuple[dict[str, tuple[int, ...]], Sequence[str]]:
    """The shapes of variables, as the operators of the model say, and the inputs whose elements had to be known."""
    ports, guessed, values = _ports(model, pairs, given, declared, feeds)
    growing = symbols_of(dim for port in ports for dim in port.growing)
    extents = {
        name: 0 if name in growing else 1
        for name in symbols_of(dim for port in ports for dim in port.type.shape)
    }
    shapes = {}
    for port in (port for port in ports if port.name in declared):
        axes = zip(declared[port.name], port.type.shape, port.following.shape, strict=True)
        shape = []
        for axis, (known, dim, following) in enumerate(axes):
            grows = isinstance(known, Expr) and dim != following
            if not grows and guessed & symbols_of([known]).keys():
                raise UserError(
                    f"the state '{port.name}': no input says what it is along axis {axis} before the first run",
                    note="set_state says that",
                )
            shape.append(0 if grows else at_extents(dim, extents))
        shapes[port.name] = tuple(shape)
    return shapes, [*values]


def _declared(model: Model, pairs: StatePairs, given: Shapes) -> dict[str, Shape]:
    """The dimensions of variables that hold nothing: numbers where others say them, and else symbols."""
    inputs = {info.name: info for info in model.inputs}
    sizes: dict[str | tuple[str, int], Dim] = {
        dim: size
        for name, shape in given.items()
        for dim, size in zip(inputs[name].shape or (), shape, strict=False)
        if isinstance(dim, str)
    }
    names = UniqueNames()
    declared: dict[str, Shape] = {}
    for name in (name for name in pairs if name not in given):
        dims = inputs[name].shape
        if dims is None:
            raise UserError(
                f"'{name}' has no declared shape, expected what it is before the first run",
                note="set_state says that",
            )
        shape: list[Dim] = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, int):
                shape.append(dim)
                continue
            key = dim or (name, axis)
            if key not in sizes:
                free_name = names.take(symbol_name(dim or f"{name}_{axis}"))
                sizes[key] = symbol(free_name, 0, _HIGH)
            shape.append(sizes[key])
        declared[name] = tuple(shape)
    return declared


def _ports(
    model: Model,
    pairs: StatePairs,
    given: Shapes,
    declared: Mapping[str, Shape],
    feeds: Mapping[str, Array],
) -> tuple[tuple[StatePort, ...], set[str], Mapping[str, Array]]:
    """The variables, with what operators say of the symbols in their shapes; those that had to be taken for 0.

    And the inputs whose elements had to be known.
    """
    from glowpy.recipe import state_ports  # noqa: PLC0415 - the compiler

    values: dict[str, Array] = {}
    guessed: set[str] = set()
    meanings: dict[str, Dim] = {}
    while True:
        shapes = {
            name: tuple(substituted(dim, meanings) for dim in shape)
            for name, shape in declared.items()
        }
        try:
            module = model.build(shapes={**given, **shapes}, values=values, state=pairs)
        except ValueNeededError as error:
            needed = {name: feeds[name] for name in error.inputs if name in feeds}
            if needed.keys() <= values.keys():
                raise
            values |= needed
        except UndecidedError as error:
            name, meaning = _meaning(error)
            if name in meanings:
                raise  # of what the network finds
            if meaning is None:
                guessed.add(name)
            own = {name: 0 if meaning is None else meaning}
            meanings = {
                constants: substituted(dim, own) for constants, dim in meanings.items()
            } | own
        else:
            module.forget()
            return state_ports(module.main), guessed, values


def _meaning(error: UndecidedError) -> tuple[str, Dim | None]:
    """A symbol, and what it has to be; None if that does not follow."""
    question = error.question
    if question is not None and question.relation == "equal":
        return next(solutions(question.left - question.right), (error.symbols[0], None))
    return error.symbols[0], None
