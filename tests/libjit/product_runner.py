"""Calls the kernels that compute a range of units and hand their tiles to an epilogue.

What the kernel's caller has to know, how many units there are and which inner loops, comes from `work_of`, as it does
for the code generator. So a kernel that does not walk its units as Python thinks is found out here.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from glowpy.backends.cpu.insts_gen import INSTS
from glowpy.backends.cpu.strategy.walk import Box, boxes_of
from glowpy.backends.cpu.strategy.work import Work, work_of
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import InstSchema, Trait
from glowpy.core.strides import canonical_strides, span_of
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.ir import insts_gen
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Mutability, Value
from tests.libjit.kernel_cases import Attr

__all__ = [
    "REDUCTIONS",
    "Record",
    "Table",
    "boxes_of_case",
    "outcome",
    "partitions",
    "roughened",
    "work_of_case",
]

REDUCTIONS = ("reduce_add", "reduce_max", "reduce_min", "reduce_mul")
"""Their callers arrange the loops."""

_INSTS = {
    inst.SCHEMA.mnemonic: inst
    for inst in (*insts_gen.INSTS, *INSTS)
    if inst.SCHEMA.traits & {Trait.UNITS, Trait.EPILOGUE} or inst.SCHEMA.mnemonic in REDUCTIONS
}

Range = tuple[int, int]
"""Units from the first to before the last."""


class Loop(ctypes.Structure):
    """loop_t of kernel_driver.c."""

    _fields_ = [(name, ctypes.c_ssize_t) for name in ("pixels", "vectors", "calls", "faults")]


class Table(ctypes.Structure):
    """table_t of kernel_driver.c."""

    _fields_ = [
        ("tiles", ctypes.c_void_p * 9),  # the last is NULL: a finished tile would not be recorded
        ("patches", ctypes.c_void_p * 2),
        ("sizes", ctypes.c_ssize_t * 6),
        ("block", ctypes.c_ssize_t),
        ("kind", ctypes.c_ssize_t),
        ("words", ctypes.c_ssize_t),
        ("chained", ctypes.c_ssize_t),
        ("loops", Loop * 8),
    ]

    @classmethod
    def of(cls, work: Work, input: np.dtype[Any]) -> Table:
        """The table for an input of a kind."""
        kinds = {np.dtype(np.int8): -1, ElemKind.BF16.dtype: 3}
        table = cls(kind=kinds.get(input, input.itemsize))
        for loop, tile in zip(table.loops, work.tiles, strict=False):
            if tile is not None:
                table.block, loop.pixels, loop.vectors = tile.block, tile.pixels, tile.vectors
                table.chained = tile.kind == "chained"
                table.kind = 2 if tile.halves else table.kind
        table.words = work.tile_kind is ElemKind.I16
        for function in work.patches:
            table.sizes[:] = [*function.patch, *function.kernels, *(function.pool or (1, 1))]
        return table

    def wrong(self) -> str:
        """What is wrong with the calls of the loops; empty if each was called, with its sizes only."""
        for number, loop in enumerate(self.loops):
            if loop.faults:
                return f"inner loop {number} was called {loop.faults} times with other sizes"
            if loop.pixels and not loop.calls:
                return f"inner loop {number} is in the table, but nobody calls it"
        return ""


class Record(ctypes.Structure):
    """record_t of kernel_driver.c."""

    _fields_ = [
        ("seen", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("rows", ctypes.c_ssize_t),
        ("cols", ctypes.c_ssize_t),
        ("block", ctypes.c_ssize_t),
        ("size", ctypes.c_ssize_t),
        ("faults", ctypes.c_ssize_t),
    ]


def work_of_case(
    schema: InstSchema, attrs: Mapping[str, Attr], operands: Mapping[str, Array], lanes: int
) -> Work:
    """The work of an instruction on these operands."""
    return work_of(_inst(schema, attrs, operands), lanes)


def boxes_of_case(
    schema: InstSchema, attrs: Mapping[str, Attr], operands: Mapping[str, Array]
) -> list[Box]:
    """The shapes and strides that the kernel of an instruction is told."""
    return boxes_of(_inst(schema, attrs, operands))


def _inst(
    schema: InstSchema, attrs: Mapping[str, Attr], operands: Mapping[str, Array]
) -> Instruction:
    forms = tuple(_form(operands[operand.name]) for operand in schema.operands)
    return _inst_of_forms(schema.mnemonic, tuple(attrs.items()), forms)


@dataclass(frozen=True)
class _Form:
    """All that an instruction knows of an operand: its kind and dimensions, and where its elements are."""

    kind: ElemKind
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _form(array: Array) -> _Form:
    strides = tuple(step // array.itemsize for step in array.strides)
    return _Form(ElemKind.of(array.dtype), array.shape, strides)


@cache
def _inst_of_forms(
    mnemonic: str, attrs: tuple[tuple[str, Attr], ...], forms: tuple[_Form, ...]
) -> Instruction:
    f = IRFunction("main")
    return _INSTS[mnemonic]([_value(f, form) for form in forms], dict(attrs))


def _value(f: IRFunction, form: _Form) -> Value:
    """A value of a form."""
    memory = Type(form.kind, (span_of(form.shape, form.strides),))
    weight = f.create_weight(f.fresh_name("w"), memory, Mutability.MUTABLE)
    type = Type(form.kind, form.shape)
    strides = canonical_strides(form.shape, form.strides)
    return f.create_view("v", type, weight, 0, strides).value


def outcome(
    library: ctypes.CDLL,
    work: Work,
    input: np.dtype[Any],
    result: Array,
    ranges: Sequence[Range],
    call: Callable[[tuple[Any, ...]], None],
    *,
    has_units: bool = True,
) -> tuple[Array, str]:
    """Computes the ranges of units one after the other: what the epilogue was passed, and what is wrong with that.

    `call` calls the kernel with these last arguments, units among them where it `has_units`. `result`
    has the shape and the kind of what is passed, `input` is the kind of the input.
    """
    seen, times = np.zeros(result.shape, result.dtype), np.zeros(result.shape, np.int32)
    rows, cols, size = int(np.prod(result.shape[:-1])), result.shape[-1], result.itemsize
    record = Record(seen.ctypes.data, times.ctypes.data, rows, cols, work.block, size, 0)
    table = Table.of(work, input)
    library.test_tiles.restype = ctypes.c_void_p
    tiles = ctypes.c_void_p(library.test_tiles(ctypes.byref(table)))
    epilogue = ctypes.cast(library.test_epilogue, ctypes.c_void_p)
    for first, last in ranges:
        units = ctypes.c_ssize_t(first), ctypes.c_ssize_t(last)
        call((*(units if has_units else ()), tiles, epilogue, ctypes.byref(record)))
    if record.faults:
        return seen, f"{record.faults} calls of the epilogue are not of the form that is documented"
    if (times != 1).any():
        place = tuple(int(i) for i in np.argwhere(times != 1)[0])
        return seen, f"the epilogue was passed element {place} {times[place]} times"
    return seen, table.wrong()


def partitions(units: int) -> Iterator[tuple[str, list[Range]]]:
    """Ways to cut the units into ranges, which are computed in the order of the list; some ranges are empty."""
    single = [(unit, unit + 1) for unit in range(units)]
    yield "one by one", single
    yield "one by one in reverse", single[::-1]
    rng = random.Random(units)
    cuts = [0, *sorted(rng.randint(0, units) for _ in range(4)), units]
    ranges = list(pairwise(cuts))
    rng.shuffle(ranges)
    yield f"as {ranges}", ranges


def roughened(operands: Mapping[str, Array]) -> dict[str, Array]:
    """Other numbers whose sums are rounded, so that they tell in which order they were added; zeros stay zeros."""
    rng = np.random.default_rng(len(operands))
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(array * rng.uniform(0.5, 2, array.shape)).astype(array.dtype)
            for name, array in operands.items()
        }
