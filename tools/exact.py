"""Runs a network in f64, and estimates by how much rounding may move its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

import glowpy
from glowpy.backend import CompileOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.core.tensor import Array
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.inst import Instruction
from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.errors import GlowError

__all__ = ["DifferenceError", "compare", "judged"]

Arrays = Mapping[str, Array]
Judgement = tuple[Arrays, Arrays]

_TRIES = 6
_MARGIN = 8.0
"""The multiple of the largest move in these tries by which an element may differ."""

_TOLERANCES = {2: 3e-2, 4: 4e-4, 8: 1e-9}
"""By how much of the largest result floats of so many bytes may be off without a question."""

_TOPS = {2: 6e3, 4: 1e34, 8: 1e304}
"""The magnitudes, by bytes of a float, beyond which the order of operations decides what overflows first."""

_NARROW = (ElemKind.F16, ElemKind.BF16, ElemKind.F32)
_KIND = re.compile(r"\b(bf16|f16|f32)\[")
_NUMBER = re.compile(r"(?<![\w.:])-?\d+(\.\d+)?(e[-+]?\d+)(?![\w.])|(?<![\w.:])-?\d+\.\d+(?![\w.])")


class DifferenceError(Exception):
    """Results differ by more than rounding explains."""


@dataclass(frozen=True)
class _Rounding:
    """An observer that moves every float up or down by at most a unit in its last place, were it of the narrow kind."""

    numbers: np.random.Generator
    unit: float

    def before(self, inst: Instruction, operands: Arrays) -> None:
        """Leaves operands as they are."""

    def after(self, inst: Instruction, operands: Arrays) -> None:
        """Moves results."""
        for ref in inst.operands:
            array = operands[ref.name]
            if ref.access is not Access.IN and _is_float(array):
                array[...] = self.moved(array)

    def moved(self, array: Array) -> Array:
        """Floats, each of which is moved."""
        parts = self.numbers.uniform(-self.unit, self.unit, array.shape)
        return np.asarray(_wide(array) * (1 + parts), array.dtype)


def judged(build: Callable[[], Module], inputs: Arrays) -> Judgement:
    """Runs a module in f64, interpreted, and estimates by how much rounding may move each element.

    A variance from which nearly as much is subtracted is moved by far more than the last place of what is left: how
    far is seen where inputs, and what each instruction computes, move at random by as little as rounding moves them.
    A module that does not exist in f64, as quantization is from f32, is taken as it is.

    Args:
        build: Makes the module anew.
        inputs: The inputs it is run with, by placeholder.
    """
    module = build()
    outputs = {port.placeholder: port.name for port in _interpreted(build()).output_ports}
    kinds = [
        value.type.kind for f in module.functions for node in f.nodes for value in node.results
    ]
    unit = max((_unit(kind) for kind in kinds if kind.is_float), default=0.0)
    try:
        function = _interpreted(_widened(module))
    except GlowError:
        function = _interpreted(build())

    def results(rounding: _Rounding) -> Arrays:
        function.observer = rounding
        given = {port.name: inputs[port.placeholder] for port in function.input_ports}
        kinds = {port.name: port.type.kind.dtype for port in function.input_ports}
        arrays = function(
            {
                name: rounding.moved(array.astype(kinds[name])) if _is_float(array) else array
                for name, array in given.items()
            }
        )
        return {
            outputs[port.placeholder]: _wide(arrays[port.name]) for port in function.output_ports
        }

    numbers = np.random.default_rng(0)
    exact = results(_Rounding(numbers, 0.0))
    moved_results = [results(_Rounding(numbers, unit)) for _ in range(_TRIES)]
    spread = {
        name: _MARGIN * np.max([np.abs(other[name] - array) for other in moved_results], 0)
        for name, array in exact.items()
    }
    return exact, spread


def _widened(module: Module) -> Module:
    """The module with f64 for its floats: that is read from its text."""
    blobs = {
        constant.digest: _wide(constant.tensor.array)
        if constant.type.kind in _NARROW
        else constant.tensor.array
        for constant in module.constants
        if constant.has_elements
    }
    lines = map(_widened_line, print_module(module).splitlines())
    return parse_module("\n".join(lines), blobs=blobs)


def _widened_line(line: str) -> str:
    """A line of text with f64 for its floats, whose numbers are those that the shorter ones stood for."""
    kind = _KIND.search(line)
    if kind is None:
        return line
    dtype = ElemKind(kind[1]).dtype.type
    return _KIND.sub("f64[", _NUMBER.sub(lambda number: repr(float(dtype(number[0]))), line))


def _interpreted(module: Module) -> CompiledFunction:
    function = glowpy.compile(module, "interpreter", CompileOptions(cache=False, instrument=True))
    assert isinstance(function, CompiledFunction)
    return function


def _unit(kind: ElemKind) -> float:
    return float(ml_dtypes.finfo(kind.dtype).eps)  # type: ignore[no-untyped-call]


def _wide(array: Array) -> npt.NDArray[np.float64]:
    return np.asarray(array, np.float64)


def _is_float(array: Array) -> bool:
    return array.dtype.kind not in "biu"


def compare(got: Arrays, expected: Arrays, judge: Callable[[], Judgement]) -> None:
    """Raises DifferenceError where results are not `expected`, but for rounding.

    Where floats are off by more than a small part of the largest result, or anything else is not equal, `judge` is
    asked how far what was got is from exact numbers, and how far rounding may move these.
    """
    for name, wanted in expected.items():
        array = got[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise DifferenceError(
                f"{name} is {array.dtype}{array.shape}, not {wanted.dtype}{wanted.shape}"
            )
        doubtful, tolerance = _doubtful(array, wanted)
        if not doubtful.any():
            continue
        exact, spread = (part[name][doubtful] for part in judge())
        wrong = np.zeros(doubtful.shape, bool)
        apart = np.abs(_wide(array)[doubtful] - exact)
        wrong[doubtful] = ~(apart <= spread + tolerance) & np.isfinite(spread)
        if _is_float(array):
            wrong[doubtful] &= np.abs(exact) < _TOPS[array.dtype.itemsize]
        # A kernel that makes a number of what is none is wrong, however little is known of the spread.
        others = (_wide(part)[doubtful] for part in (wanted, array))
        nowhere, somewhere = (np.isnan(part) for part in others)
        wrong[doubtful] |= np.isnan(exact) & nowhere & ~somewhere
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise DifferenceError(
                f"{name}{list(array.shape)} at {place}: {array[place]}, not {wanted[place]}; "
                f"{wrong.sum()} of {wrong.size} are wrong"
            )


def _doubtful(array: Array, wanted: Array) -> tuple[npt.NDArray[np.bool_], float]:
    """Which elements are not as wanted, and by how much they may be off."""
    if not _is_float(array):
        return np.asarray(array != wanted), 0.0
    a, b = _wide(array), _wide(wanted)
    finite = np.isfinite(a) & np.isfinite(b)
    largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    tolerance = _TOLERANCES[array.dtype.itemsize] * largest + 1e-30
    apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(np.where(finite, apart > tolerance, ~same)), tolerance
