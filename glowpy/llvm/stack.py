"""Stacking: a run of element-wise instructions becomes one loop (the paper's operator stacking, section 5.2).

Each member is a call of its scalar kernel, whose symbol the backend says; intermediate values stay in registers, and a
result is stored only if something after the run reads it. A backend may run the members in loops of its own:
`emit_members` writes one element of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd

from glowpy.core.strides import strides_of
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.element_types import literal, register_type
from glowpy.llvm.writer import Body
from glowpy.support.symbolic import Dim, Expr, ceil_div, highest, lowest, product

__all__ = [
    "StackContext",
    "element_steps",
    "emit_loops",
    "emit_members",
    "emit_nest",
    "emit_stack",
    "linear",
    "merged_axes",
]

Number = float | int

_UNIT_ELEMENTS = 1 << 14
"""The fewest elements of a unit of work: fewer take no longer than to hand them to a thread."""

_VECTOR_ELEMENTS = 64
"""The number of elements that LLVM computes in one iteration at most: four vectors of the largest."""

_INTERLEAVED = 4
"""The number of neighbours that LLVM loads at most as parts of vectors along the loop around them."""


@dataclass(frozen=True)
class StackContext:
    """Facts about the whole program.

    Attributes:
        symbol: The kernel of an instruction; of an element-wise one, the function of one element.
        immediates: The value of every one-element memory that never changes, by its base.
        needed: Whether a result must be stored, for (instruction, its result).
    """

    symbol: Callable[[Instruction], str]
    immediates: Mapping[Value, Number]
    needed: Callable[[Instruction], bool]


def _call(body: Body, symbol: str, inst: Instruction, arguments: Sequence[str]) -> str:
    result = register_type(inst.operands[0].value.type.kind)
    types = [register_type(ref.value.type.kind) for ref in inst.operands[1:]]
    body.module.declare(symbol, result, types)
    passed = ", ".join(
        f"{type} {argument}" for type, argument in zip(types, arguments, strict=True)
    )
    return body.let(f"call {result} @{symbol}({passed})")


def emit_members(
    body: Body,
    members: Sequence[Instruction],
    context: StackContext,
    index: Callable[[Value], str],
    pointer: Callable[[Value], str],
    head: tuple[Instruction, str] | None,
) -> None:
    """One element of every member: loads what comes from outside, calls the scalar kernels, stores what is needed.

    `index` gives the element of an operand for the current position. `head` is a product in front, with the
    register that holds the element of its result.
    """
    results: list[tuple[Value, str]] = []
    stores: list[tuple[Value, str]] = []
    if head is not None:
        results.append((head[0].operands[0].value, head[1]))
        stores += results if context.needed(head[0]) else ()
    loaded: dict[tuple[str, str], str] = {}

    def read(value: Value) -> str:
        for known, register in reversed(results):
            if known.same_memory(value):
                return register
        kind = value.type.kind
        number = context.immediates.get(value.base)
        if number is not None and value.type.count == 1:
            return literal(kind, number)
        place = (pointer(value), index(value))
        if place not in loaded:
            loaded[place] = body.load(kind, *place)
        return loaded[place]

    for inst in members:
        body.at(inst)
        result = inst.operands[0].value
        register = _call(
            body, context.symbol(inst), inst, [read(ref.value) for ref in inst.operands[1:]]
        )
        results.append((result, register))
        stores = [(value, old) for value, old in stores if not value.same_memory(result)]
        if context.needed(inst):
            stores.append((result, register))
    for value, register in stores:
        body.store(value.type.kind, register, pointer(value), index(value))


def emit_stack(
    body: Body, members: Sequence[Instruction], shape: Shape, context: StackContext
) -> None:
    """The loop nest of a run of element-wise instructions over `shape`."""
    operands = dict.fromkeys(ref.value for inst in members for ref in inst.operands)
    steps = {value: element_steps(value, shape) for value in operands}

    def inner(index: Callable[[Shape], str]) -> None:
        emit_members(body, members, context, lambda value: index(steps[value]), body.pointer, None)

    emit_loops(body, shape, tuple(steps.values()), inner)


def element_steps(value: Value, shape: Shape) -> Shape:
    """How far apart in memory neighbours along each dimension of `shape` find their elements; 0 where it repeats.

    A value of another shape has its elements taken in order.
    """
    if value.is_contiguous and value.type.count == product(shape):
        return strides_of(shape)
    axes = zip(value.type.shape, value.strides, strict=True)
    steps = tuple(0 if size == 1 else stride for size, stride in axes)
    return (0,) * (len(shape) - len(steps)) + steps[max(len(steps) - len(shape), 0) :]


def emit_loops(
    body: Body,
    shape: Shape,
    steps: Sequence[Shape],
    inner: Callable[[Callable[[Shape], str]], None],
) -> None:
    """The loop nest over the elements of `shape`, as few loops as `steps` allow.

    Each of `steps` says how far something moves, in elements, along every dimension; `inner` is given a function that
    says where one of them is. Units of work are rounds of the outermost loop.
    """
    axes, counts = merged_axes(shape, steps)
    place, unroll = _placed(body, axes, inner), _is_unrolled(axes, counts, steps)
    rounds = _unit_rounds(counts)
    if not counts or highest(counts[0]) <= rounds:
        body.nest(counts, place, unroll=unroll)
    elif len(counts) == 1 and counts[0] % rounds == 0:
        with _split_loop(body, counts[0] // rounds, 1) as unit:
            first = body.let(f"mul nuw nsw {body.module.dim} {unit}, {body.size(rounds, 'units')}")
            with body.loop(rounds) as index:
                place([body.let(f"add nuw nsw {body.module.dim} {first}, {index}")])
    else:
        with _split_loop(body, counts[0], rounds) as outer:
            body.nest(counts[1:], lambda indices: place([outer, *indices]), unroll=unroll)


def emit_nest(
    body: Body,
    shape: Shape,
    steps: Sequence[Shape],
    inner: Callable[[Callable[[Shape], str]], None],
) -> None:
    """Writes the loop nest where a caller has units of its own."""
    axes, counts = merged_axes(shape, steps)
    body.nest(counts, _placed(body, axes, inner), unroll=_is_unrolled(axes, counts, steps))


def _placed(
    body: Body, axes: Sequence[int], inner: Callable[[Callable[[Shape], str]], None]
) -> Callable[[list[str]], None]:
    """Places the code of `inner` at the indices of the loops over some axes."""

    def place(indices: list[str]) -> None:
        indices_of: dict[Shape, str] = {}

        def index(step: Shape) -> str:
            moves = tuple(step[axis] for axis in axes)
            if moves not in indices_of:
                indices_of[moves] = linear(body, indices, moves)
            return indices_of[moves]

        inner(index)

    return place


def _is_unrolled(axes: Sequence[int], counts: Sequence[Dim], steps: Sequence[Shape]) -> bool:
    """Whether LLVM may unroll the innermost loop before it makes vectors.

    Then it makes vectors of the loop around it, whose elements lie apart.
    """
    together = bool(axes) and all(step[axes[-1]] in (0, 1) for step in steps)
    return len(counts) < 2 or not together or highest(counts[-1]) <= _INTERLEAVED


@contextmanager
def _split_loop(body: Body, count: Dim, rounds: int) -> Iterator[str]:
    """The loop over those of `count` rounds that a call computes, where a unit has `rounds`; yields the index."""
    first, last = body.split(count, rounds)
    length = body.let(f"sub nuw nsw {body.module.dim} {last}, {first}")
    with body.loop(length, may_be_none=lowest(count) < 1) as index:
        yield body.let(f"add nuw nsw {body.module.dim} {first}, {index}")


def _unit_rounds(counts: Sequence[Dim]) -> int:
    """How many rounds of the outermost loop are a unit.

    Those of a single loop are a whole number of vectors, and all units are equal, if possible: LLVM then writes no loop
    for the rest.
    """
    fewest = ceil_div(_UNIT_ELEMENTS, max(highest(product(counts[1:])), 1))
    if len(counts) == 1:
        divisor = _known_divisor(counts[0])
        for rounds in range(fewest, 4 * fewest, _VECTOR_ELEMENTS):
            if divisor % rounds == 0:
                return rounds
    return fewest


def _known_divisor(count: Dim) -> int:
    """The largest number that divides a count whatever the extents, as far as its factors tell."""
    return gcd(*(factor for _, factor in count.terms)) if isinstance(count, Expr) else count


def merged_axes(shape: Shape, steps: Sequence[Shape]) -> tuple[list[int], list[Dim]]:
    """The innermost dimension of every loop over `shape`, and how often the loop runs.

    Dimensions become one loop where all move on from the end of the inner one; those of length 1 are left out.
    """
    axes: list[int] = []
    counts: list[Dim] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if axes and all(step[axes[-1]] == size * step[axis] for step in steps):
            axes[-1] = axis
            counts[-1] *= size
        else:
            axes.append(axis)
            counts.append(size)
    return axes, counts


def linear(body: Body, indices: Sequence[str], strides: Sequence[Dim]) -> str:
    """The sum of indices times strides."""
    total = ""
    for index, stride in zip(indices, strides, strict=True):
        if stride == 0:
            continue
        term = (
            index
            if stride == 1
            else body.let(f"mul nuw nsw {body.module.dim} {index}, {body.size(stride, 'step')}")
        )
        total = term if not total else body.let(f"add nuw nsw {body.module.dim} {total}, {term}")
    return total or "0"
