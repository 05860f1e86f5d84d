"""Stacking: a run of element-wise instructions becomes one loop (the paper's operator stacking, section 5.2).

Each member is a call of its scalar kernel, whose symbol the backend says; intermediate values stay in registers, and a
result is stored only if something after the run reads it. A backend may run the members in loops of its own:
`emit_members` writes one element of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.writer import Body, literal, register_type

__all__ = ["StackContext", "emit_members", "emit_stack"]

Number = float | int


@dataclass(frozen=True)
class StackContext:
    """What is known about the whole program.

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
    head: Value | None,
) -> None:
    """One element of every member: loads what comes from outside, calls the scalar kernels, stores what is needed.

    `index` gives the element of an operand for the current position. The result of a product in
    front (`head`) is in memory.
    """
    results: list[tuple[Value, str]] = []
    loaded: dict[tuple[str, str], str] = {}

    def read(value: Value) -> str:
        for known, register in reversed(results):
            if known.same_memory(value):
                return register
        kind = value.type.kind
        number = context.immediates.get(value.base)
        if number is not None and value.type.count == 1 and head is not value:
            return literal(kind, number)
        place = (pointer(value), index(value))
        if place not in loaded:
            loaded[place] = body.load(kind, *place)
        return loaded[place]

    stores: list[tuple[Value, str]] = []
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


def emit_stack(body: Body, members: Sequence[Instruction], context: StackContext) -> None:
    """The loop nest of a run of element-wise instructions; dimensions that all operands treat alike are one."""
    shape = members[0].operands[0].value.type.shape
    operands = [ref.value for inst in members for ref in inst.operands]
    groups = _collapse(shape, [value.type.shape for value in operands])
    counts = [math.prod(shape[axis] for axis in group) for group in groups]

    def inner(indices: list[str]) -> None:
        known: dict[Shape, str] = {}

        def index(value: Value) -> str:
            strides = _strides(value.type.shape, shape, groups)
            if strides not in known:
                known[strides] = _linear(body, indices, strides)
            return known[strides]

        emit_members(body, members, context, index, body.pointer, None)

    body.nest(counts, inner)


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _collapse(shape: Shape, operands: Sequence[Shape]) -> list[list[int]]:
    """The dimensions of `shape` in groups that every operand either has in full or repeats in full.

    Dimensions of length 1 are left out.
    """
    groups: list[list[int]] = []
    previous: tuple[bool, ...] = ()
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        repeats = tuple(_padded(operand, len(shape))[axis] == 1 for operand in operands)
        if groups and repeats == previous:
            groups[-1].append(axis)
        else:
            groups.append([axis])
        previous = repeats
    return groups


def _strides(operand: Shape, shape: Shape, groups: Sequence[Sequence[int]]) -> Shape:
    """How far the operand moves, in elements, for one step of each group's loop; 0 where it is repeated."""
    padded = _padded(operand, len(shape))
    strides = []
    for group in groups:
        repeated = padded[group[-1]] == 1
        strides.append(0 if repeated else math.prod(padded[group[-1] + 1 :]))
    return tuple(strides)


def _linear(body: Body, indices: Sequence[str], strides: Sequence[int]) -> str:
    """The sum of indices times strides."""
    total = ""
    for index, stride in zip(indices, strides, strict=True):
        if stride == 0:
            continue
        term = (
            index if stride == 1 else body.let(f"mul nuw nsw {body.module.dim} {index}, {stride}")
        )
        total = term if not total else body.let(f"add nuw nsw {body.module.dim} {total}, {term}")
    return total or "0"
