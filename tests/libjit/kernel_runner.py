"""Calls kernels of a compiled library on guarded memory; a program, because a wrong kernel ends the process.

    python -m tests.libjit.kernel_runner LIBRARY [JOB...]     prints {job: {"calls": n, "failures": [...]}}

Each job (a kernel of KERNELS, the scalar kernels of a mnemonic, the functions of bundle.c) runs in a process forked for
it, which says before each call what it is about to do: that is what is reported when it dies.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import signal
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from glowpy.backends.cpu.insts_gen import INSTS as CPU_INSTS
from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.backends.cpu.strategy.work import Work
from glowpy.core.schema import Access, InstSchema, Layout, Trait
from glowpy.core.tensor import Array
from glowpy.ir.insts_gen import INSTS
from glowpy.llvm.scalars_gen import SCALARS
from glowpy.support.symbolic import static
from tests.libjit import (
    attention_cases,
    block_cases,
    kernel_cases,
    norm_cases,
    product_cases,
    recurrent_cases,
    row_cases,
    scalar_cases,
    winograd_cases,
)
from tests.libjit.guarded import Edge, GuardedArea
from tests.libjit.kernel_cases import Attr, Case, Maker
from tests.libjit.product_runner import (
    REDUCTIONS,
    boxes_of_case,
    outcome,
    partitions,
    roughened,
    work_of_case,
)

_MAKERS = {
    **kernel_cases.MAKERS,
    **product_cases.MAKERS,
    **block_cases.MAKERS,
    **recurrent_cases.MAKERS,
    **attention_cases.MAKERS,
    **norm_cases.MAKERS,
    **winograd_cases.MAKERS,
}
SCHEMAS: dict[str, InstSchema] = {
    inst.SCHEMA.mnemonic: inst.SCHEMA for inst in (*INSTS, *CPU_INSTS)
}

_CANARIES = {Edge.BEGIN: 0xFF, Edge.END: 0x5A}
"""What a buffer holds that must be written; the two differ, so that an element left out is never right twice."""
_AREA_BYTES = 1 << 22
_MOST_OPERANDS = 11
_GUARD_BYTES = 64
_DOING = struct.Struct("II")
"""What a process has in memory of what it does: the calls so far, and how long the title of the last is."""
_LONGEST_TITLE = 4000
_GAP = 0xA5
"""What lies between the elements of a strided operand."""

Checks = Iterator[tuple[str, Callable[[], str]]]
"""What is about to be called, and the call, which returns what is wrong, or an empty text."""


def cases_of(mnemonic: str) -> Maker:
    """What makes the cases of a kernel: its own, or those of the operator's row. Raises KeyError without either."""
    return _MAKERS.get(mnemonic) or row_cases.maker_of(mnemonic)


class Ints(ctypes.Structure):
    """ints_t of libjit.h."""

    _fields_ = [("size", ctypes.c_ssize_t), ("at", ctypes.c_ssize_t * 16)]

    @classmethod
    @cache
    def of(cls, numbers: tuple[int, ...]) -> Ints:
        # Nobody may look at what follows the numbers.
        rest = [-(1 << 40)] * (16 - len(numbers))
        return cls(len(numbers), (ctypes.c_ssize_t * 16)(*numbers, *rest))


class Caller:
    """Calls kernels of one library as the ABI in libjit/README.md has it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._areas = [GuardedArea(_AREA_BYTES) for _ in range(_MOST_OPERANDS)]

    def lanes(self, size: int) -> int:
        """How many elements of so many bytes a vector has."""
        return int(self.library.test_lanes(ctypes.c_ssize_t(size)))

    def checks(self, mnemonic: str, only: str = "") -> Checks:
        """Every case of a kernel: at either edge; strided, in place, or in several parts, where it can be.

        Of one kind only, if that is given.
        """
        schema = SCHEMAS[mnemonic]
        spec = KERNELS[mnemonic]
        choices = itertools.product(*(known for _, known in spec.kinds))
        for suffixes, symbol in zip(choices, spec.symbols(), strict=True):
            if only not in ("", suffixes[0]):
                continue
            with np.errstate(all="ignore"):
                lanes = self.lanes(8 if suffixes[0] in ("f64", "x64") else 4)
                cases = list(cases_of(mnemonic)(suffixes, lanes))
            for case, edge in itertools.product(cases, Edge):
                title = f"{symbol} {case} {edge.value}"
                if Trait.EPILOGUE in schema.traits:
                    yield title, partial(self._product, symbol, schema, case, edge)
                    continue
                yield title, partial(self._plain, symbol, schema, case, edge)
                if Trait.INPLACE in schema.traits:
                    yield (
                        f"{title} in place",
                        partial(self._plain, symbol, schema, case, edge, in_place=True),
                    )
            if Trait.EPILOGUE in schema.traits:
                yield from self._product_checks(symbol, schema, cases)
            elif any(operand.layout is not Layout.DENSE for operand in schema.operands):
                for number, case in enumerate(cases):
                    edge = list(Edge)[number % 2]
                    check = partial(self._plain, symbol, schema, case, edge, strided=True)
                    yield f"{symbol} {case} {edge.value}, strided", check
                    if Trait.INPLACE in schema.traits:
                        yield (
                            f"{symbol} {case} {edge.value}, strided, in place",
                            partial(check, in_place=True),
                        )

    def _product_checks(self, symbol: str, schema: InstSchema, cases: list[Case]) -> Checks:
        """In parts, where there are units, and strided: the result may be, but it is the epilogue that stores it."""
        for number, case in enumerate(cases):
            if Trait.UNITS in schema.traits:
                yield f"{symbol} {case} in parts", partial(self._in_parts, symbol, schema, case)
            edge = list(Edge)[number % 2]
            check = partial(self._product, symbol, schema, case, edge, strided=True)
            yield f"{symbol} {case} {edge.value}, strided", check

    def _plain(
        self,
        symbol: str,
        schema: InstSchema,
        case: Case,
        edge: Edge,
        *,
        in_place: bool = False,
        strided: bool = False,
    ) -> str:
        placed, pointers = self._place(schema, case, edge, in_place=in_place, strided=strided)
        if Trait.UNITS in schema.traits:
            (units,) = static([self._work(schema, case, placed).units])
            for first, last in ((units // 2, units), (0, units // 2)):
                ends = ctypes.c_ssize_t(first), ctypes.c_ssize_t(last)
                self._call(symbol, schema, case, placed, pointers, ends)
        else:
            self._call(symbol, schema, case, placed, pointers)
        for operand in schema.operands:
            if (
                operand.layout is not Layout.DENSE
                and strided
                and _written_gaps(placed[operand.name])
            ):
                return f"something was written between the elements of {operand.name}"
        return self._judge(schema, case, placed, in_place=in_place)

    def _product(
        self, symbol: str, schema: InstSchema, case: Case, edge: Edge, *, strided: bool = False
    ) -> str:
        """All units at once. Only the epilogue may store the result."""
        placed, pointers = self._place(schema, case, edge, strided=strided)
        before = placed["result"].tobytes()
        work = self._work(schema, case, placed)
        (units,) = static([work.units])
        call = partial(self._call, symbol, schema, case, placed, pointers)
        seen, wrong = outcome(
            self.library, work, _input(schema, placed), placed["result"], [(0, units)], call,
            has_units=Trait.UNITS in schema.traits,
        )  # fmt: skip
        if wrong:
            return wrong
        if placed["result"].tobytes() != before:
            return "the kernel stored to the result, which is the epilogue's"
        return self._judge(schema, case, {**placed, "result": seen})

    def _work(self, schema: InstSchema, case: Case, placed: dict[str, Array]) -> Work:
        lanes = self.lanes(placed["result"].itemsize)
        return work_of_case(schema, case.attrs, placed, lanes)

    def _in_parts(self, symbol: str, schema: InstSchema, case: Case) -> str:
        """Units may be computed by anybody in any order: the bits are the same."""
        case = replace(case, operands=roughened(case.operands))
        placed, pointers = self._place(schema, case, Edge.END)
        work = self._work(schema, case, placed)
        (units,) = static([work.units])
        run = partial(
            outcome,
            self.library,
            work,
            _input(schema, placed),
            placed["result"],
            call=partial(self._call, symbol, schema, case, placed, pointers),
        )
        expected, wrong = run([(0, units)])
        for title, ranges in partitions(units):
            seen, wrong_in_parts = run(ranges)
            wrong = wrong or wrong_in_parts
            if not wrong and seen.tobytes() != expected.tobytes():
                wrong = "the bits are others"
            if wrong:
                return f"{units} units {title}: {wrong}"
        return ""

    def _place(
        self,
        schema: InstSchema,
        case: Case,
        edge: Edge,
        *,
        in_place: bool = False,
        strided: bool = False,
    ) -> tuple[dict[str, Array], list[int]]:
        """The operands in guarded memory, by name, and their addresses in the order of the ABI."""
        placed: dict[str, Array] = {}
        pointers = []
        for area, operand in zip(self._areas[: len(schema.operands)], schema.operands, strict=True):
            if operand.access.reads:
                content = case.operands[operand.name]
            else:
                like = case.expected.get(operand.name)
                like = case.operands[operand.name] if like is None else like
                raw = np.full(like.nbytes, _CANARIES[edge], np.uint8)
                content = raw.view(like.dtype).reshape(like.shape)
            if strided and operand.layout is not Layout.DENSE:
                steps = _steps(content, edge, operand.layout)
                memory, pointer = area.place(_spread(content, steps), edge)
                window = _window(memory, content, steps)
                window[...] = content
                placed[operand.name] = window
            else:
                placed[operand.name], pointer = area.place(content, edge)
            pointers.append(pointer)
        if in_place:
            placed["result"][...] = case.operands["input"]
            placed["input"] = placed["result"]
            pointers[1] = pointers[0]
        return placed, pointers

    def _call(
        self,
        symbol: str,
        schema: InstSchema,
        case: Case,
        placed: dict[str, Array],
        pointers: list[int],
        last: tuple[Any, ...] = (),
    ) -> None:
        numbers = _told(schema, case, placed)
        attrs = [_argument(case.attrs[spec.name], spec.kind) for spec in schema.attrs]
        kernel = getattr(self.library, symbol)
        kernel.restype = None
        kernel(
            *(ctypes.c_void_p(pointer) for pointer in pointers),
            *(ctypes.byref(Ints.of(some)) for some in numbers),
            *attrs,
            *last,
        )

    def _judge(
        self, schema: InstSchema, case: Case, placed: dict[str, Array], *, in_place: bool = False
    ) -> str:
        for operand in schema.operands:
            name = operand.name
            if operand.access in (Access.OUT, Access.INOUT):
                wrong = _difference(placed[name], case.expected[name], case.rtol, case.atol)
                if wrong:
                    return f"{name}: {wrong}"
            elif in_place or operand.access is not Access.IN:
                continue
            elif placed[name].tobytes() != case.operands[name].tobytes():
                return f"{name}, which is only to be read, was written"
        return ""


def _told(schema: InstSchema, case: Case, placed: dict[str, Array]) -> list[tuple[int, ...]]:
    """The shapes and strides that a kernel is told; of some, with the dimensions merged that are one loop."""
    if Trait.EPILOGUE in schema.traits or schema.mnemonic in REDUCTIONS:
        boxes = [
            (static(box.shape), static(box.strides))
            for box in boxes_of_case(schema, case.attrs, placed)
        ]
    else:
        arrays = [placed[operand.name] for operand in schema.operands]
        boxes = [
            (array.shape, tuple(step // array.itemsize for step in array.strides))
            for array in arrays
        ]
    strided = [operand.layout is not Layout.DENSE for operand in schema.operands]
    return [
        *(shape for shape, _ in boxes),
        *(strides for (_, strides), has in zip(boxes, strided, strict=True) if has),
    ]


def _input(schema: InstSchema, placed: dict[str, Array]) -> np.dtype[Any]:
    """The kind that inner loops are named by: of what is read first."""
    return placed[schema.operands[1].name].dtype


def _steps(content: Array, edge: Edge, layout: Layout) -> list[int]:
    """The strides of some channels of a larger image, or of an array with gaps in every dimension that may have them.

    Dimensions lie in memory in the order in which they do in `content`.
    """
    steps = [0] * content.ndim
    step = 1 if edge is Edge.BEGIN or layout is Layout.ROWS else 2
    inner_first = sorted(range(content.ndim), key=lambda axis: (content.strides[axis], -axis))
    for number, axis in enumerate(inner_first):
        steps[axis] = step
        more = 3 * (number == 0) if edge is Edge.BEGIN else 1
        step *= content.shape[axis] + more
    return steps


def _spread(content: Array, steps: list[int]) -> Array:
    """Nothing but gaps, from the first element to the last."""
    span = _span(content.shape, steps)
    return np.full(span * content.itemsize, _GAP, np.uint8).view(content.dtype)


def _span(shape: tuple[int, ...], steps: list[int]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))


def _window(memory: Array, like: Array, steps: list[int]) -> Array:
    strides = [step * memory.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(memory, like.shape, strides)


def _written_gaps(window: Array) -> bool:
    """Whether something has been written to the memory between the elements."""
    steps = [step // window.itemsize for step in window.strides]
    span = _span(window.shape, steps)
    elements = np.zeros(span, np.bool_)
    np.lib.stride_tricks.as_strided(elements, window.shape, steps)[...] = True
    memory = np.lib.stride_tricks.as_strided(window, (span,), (window.itemsize,))
    return bool((memory[~elements].view(np.uint8) != _GAP).any())


def _argument(value: Attr, kind: str) -> Any:
    match kind:
        case "ints" | "dims":
            assert isinstance(value, tuple)
            return ctypes.byref(Ints.of(value))
        case "int" | "dim":
            return ctypes.c_ssize_t(int(value))  # type: ignore[arg-type]
        case "flag":
            return ctypes.c_bool(bool(value))
        case _:
            return ctypes.c_float(float(value))  # type: ignore[arg-type]


def _difference(actual: Array, expected: Array, rtol: float, atol: float) -> str:
    with np.errstate(all="ignore"):
        wrong = np.ma.filled(actual != expected, fill_value=False)
        if kernel_cases.is_float(expected.dtype):
            wrong &= ~(np.isnan(actual) & np.isnan(expected))
            if rtol or atol:
                close = np.abs(actual - expected) <= atol + rtol * np.abs(expected)
                wrong &= ~(close & np.isfinite(expected))
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong, the first at {place}: "
        f"expected {expected[place]!r}, got {actual[place]!r}"
    )


# ---------------------------------------------------------------------------------- scalars, bundle.c


def scalar_checks(library: ctypes.CDLL, mnemonic: str) -> Checks:
    """Every scalar kernel of a mnemonic, through its loop."""
    for scalar in scalar_cases.scalars_of(SCHEMAS[mnemonic]):
        yield f"libjit_{scalar.name}", partial(_run_scalar, library, scalar)


def _run_scalar(library: ctypes.CDLL, scalar: scalar_cases.Scalar) -> str:
    inputs = scalar_cases.arguments(scalar)
    result = np.empty(inputs[0].shape, kernel_cases.DTYPES[scalar.result])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (result, *inputs)]
    loop = getattr(library, f"loop_{scalar.name}")
    loop.restype = None
    loop(ctypes.c_ssize_t(result.size), *pointers)
    return scalar_cases.mismatch(scalar, inputs, result)


def bundle_checks(library: ctypes.CDLL) -> Checks:
    """The functions of bundle.c."""
    area = GuardedArea(1 << 16)
    for edge, size in itertools.product(Edge, (*range(20), 63, 64, 65, 4097)):
        yield f"libjit_crc32 of {size} bytes", partial(_check_crc, library, area, edge, size)
    for edge, size in itertools.product(Edge, (128, 129, 192, 1000)):
        yield f"libjit_guard_* of {size} bytes", partial(_check_guard, library, area, edge, size)
    for suffix, edge in itertools.product(("f32", "f64", "x8"), Edge):
        title = f"libjit_matches_{suffix} {edge.value}"
        yield title, partial(_check_matches, library, suffix, edge)


def _check_crc(library: ctypes.CDLL, area: GuardedArea, edge: Edge, size: int) -> str:
    data, pointer = area.place(kernel_cases.numbers("u8", (size,)), edge)
    library.libjit_crc32.restype = ctypes.c_uint32
    got = library.libjit_crc32(ctypes.c_void_p(pointer), ctypes.c_ssize_t(size))
    expected = zlib.crc32(data.tobytes())
    return "" if got == expected else f"expected {expected:#x}, got {got:#x}"


def _check_guard(library: ctypes.CDLL, area: GuardedArea, edge: Edge, size: int) -> str:
    before = kernel_cases.numbers("u8", (size,))
    data, pointer = area.place(before, edge)
    arguments = (ctypes.c_void_p(pointer), ctypes.c_ssize_t(size))
    library.libjit_guard_fill.restype = None
    library.libjit_guard_fill(*arguments)
    library.libjit_guard_intact.restype = ctypes.c_bool
    inside = slice(_GUARD_BYTES, size - _GUARD_BYTES)
    if (data[inside] != before[inside]).any():
        return "guard_fill wrote between the canaries"
    data[inside] ^= 0xFF
    if not library.libjit_guard_intact(*arguments):
        return "guard_intact found damage where there is none"
    for place in range(size):
        data[place] ^= 1
        intact = library.libjit_guard_intact(*arguments)
        data[place] ^= 1
        if intact != (_GUARD_BYTES <= place < size - _GUARD_BYTES):
            return f"guard_intact says {intact} where byte {place} of {size} was changed"
    data[:_GUARD_BYTES] = np.roll(data[:_GUARD_BYTES], 1)
    return (
        "guard_intact accepts a shifted canary" if library.libjit_guard_intact(*arguments) else ""
    )


_INF, _NAN = float("inf"), float("nan")
_MATCHES: list[tuple[list[float], list[float], float, bool]] = [
    ([], [], 0, True),
    ([1.0, -2.0], [1.0, -2.0], 0, True),
    ([1.0, -2.0], [1.0, 2.0], 1e-3, False),
    ([1.001, 2.0], [1.0, 2.0], 1e-3, True),  # within a thousandth of the largest
    ([1.003, 2.0], [1.0, 2.0], 1e-3, False),
    ([1.0, 2.0, 5.0], [1.0, 2.0, 4.0], 1e-3, False),
    ([1e-8, 0.0], [0.0, -0.0], 1e-3, True),  # nothing is compared more strictly than with 1e-4
    ([1e-6], [0.0], 1e-3, False),
    ([_NAN, _INF, -_INF], [_NAN, _INF, -_INF], 0, True),
    ([1.0], [_NAN], 1e9, False),
    ([_NAN], [1.0], 1e9, False),
    ([_INF], [1.0], 1e3, False),
    ([1.0], [_INF], 1e3, False),
    ([-_INF], [_INF], 1e3, False),
    ([1.5, _INF], [1.0, _INF], 1e-3, False),  # infinity does not widen the tolerance
]


def _check_matches(library: ctypes.CDLL, suffix: str, edge: Edge) -> str:
    areas = GuardedArea(64), GuardedArea(64)
    matches = getattr(library, f"libjit_matches_{suffix}")
    matches.restype = ctypes.c_bool
    rows: list[tuple[list[float], list[float], float, bool]] = _MATCHES
    if suffix == "x8":
        rows = [([1, 255], [1, 255], 0, True), ([1, 2], [1, 3], 0, False), ([], [], 0, True)]
    for actual, golden, tolerance, expected in rows:
        dtype = kernel_cases.DTYPES[suffix]
        arrays = [np.array(numbers, dtype) for numbers in (actual, golden)]
        pointers = [area.place(a, edge)[1] for area, a in zip(areas, arrays, strict=True)]
        tail = () if suffix == "x8" else (ctypes.c_double(tolerance),)
        places = (ctypes.c_void_p(pointer) for pointer in pointers)
        got = matches(*places, ctypes.c_ssize_t(len(actual)), *tail)
        if got != expected:
            return f"{actual} of {golden} within {tolerance}: expected {expected}, got {got}"
    return ""


# ------------------------------------------------------------------------------------------ processes


def jobs(library: ctypes.CDLL) -> dict[str, Callable[[], Checks]]:
    """Everything there is to do, by name."""
    caller = Caller(library)
    kernels = {m: partial(caller.checks, m) for m in KERNELS}
    scalars = {f"scalar {m}": partial(scalar_checks, library, m) for m in SCALARS}
    return {**kernels, **scalars, "bundle": partial(bundle_checks, library)}


def run_forked(checks: Callable[[], Checks]) -> dict[str, Any]:
    """Runs a job in a process of its own, and says what was wrong, and what it was doing if it died."""
    reading, writing = os.pipe()
    # What it does is told in memory, as there are many thousand calls.
    doing = mmap.mmap(-1, _DOING.size + _LONGEST_TITLE)
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "w") as report:
                for count, (title, check) in enumerate(checks(), 1):
                    name = title.encode()[:_LONGEST_TITLE]
                    doing[: _DOING.size + len(name)] = _DOING.pack(count, len(name)) + name
                    failure = check()
                    if failure:
                        report.write(json.dumps(f"{title}: {failure}") + "\n")
                        report.flush()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as lines:
        failures = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    calls, length = _DOING.unpack_from(doing)
    last = doing[_DOING.size :][:length].decode(errors="replace") or "nothing"
    if os.WIFSIGNALED(status):
        failures.append(f"{last}: died of {signal.Signals(os.WTERMSIG(status)).name}")
    elif status:
        failures.append(f"{last}: the test itself failed, see the standard error")
    return {"calls": calls, "failures": failures}


def main() -> None:
    """Runs some jobs, or all, on one library. A kernel's job may be of one kind: `cpu_conv u8`."""
    path, *names = sys.argv[1:]
    library = ctypes.CDLL(path)
    wanted = jobs(library)
    caller = Caller(library)
    row_cases.read()
    for name in names:
        if name not in wanted:
            wanted[name] = partial(caller.checks, *name.split())
    json.dump({name: run_forked(wanted[name]) for name in names or wanted}, sys.stdout)


if __name__ == "__main__":
    main()
