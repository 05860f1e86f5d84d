"""Forward mode on the interpreter: the derivative along a direction, exact to rounding, by complex steps.

What numpy computes of x + ih has an imaginary part of h times the derivative along the real axis if the function is
analytic, and nothing is subtracted, so that h may be so small that its square is 0 (Squire and Trapp 1998). What an
instruction means is written in numpy: it is run once more, on complex operands. Where numpy's function of a complex
number is another one, `_ALONG` says what the derivative is. That shares nothing with the table `derivative`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import glowpy
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.core.tensor import Array, Tensor, address_of
from glowpy.ir import insts_gen as insts
from glowpy.ir.inst import Instruction
from glowpy.runtime.host_memory import aligned_array

__all__ = ["check_adjoint", "derivative_along"]

STEP = 1e-200


def derivative_along(
    f: glowpy.Function, inputs: Mapping[str, Array], directions: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs of a function, and their derivatives along a direction of its f64 inputs; 0 where none is given."""
    options = glowpy.CompileOptions(instrument=True)
    network = glowpy.compile(f, "interpreter", options)
    bindings: dict[str, Array] = {}
    tangents = _Tangents()
    for port in (*network.input_ports, *network.output_ports):
        given = inputs.get(port.name)
        shape = port.type.extents if given is None else given.shape
        array = np.zeros(shape, port.type.kind.dtype)
        if given is not None:
            array[...] = given
        bindings[port.placeholder] = array
        if (tangent := tangents.cover(array)) is not None and port.name in directions:
            tangent[...] = directions[port.name]
    arena = aligned_array(network.arena_size)
    tangents.cover(arena)
    network.observer = tangents
    network.execute(bindings, arena, {})
    results = {port.name: bindings[port.placeholder] for port in network.output_ports}
    return results, {name: tangents.of(array) for name, array in results.items()}


def check_adjoint(f: glowpy.Function, inputs: Mapping[str, Array], loss: str = "loss") -> None:
    """Asserts that a loss moves along random directions of each input as far as its gradients point along them."""
    by = [name for name, array in inputs.items() if array.dtype == np.float64]
    g = glowpy.differentiate(f, loss, wrt=by)
    options = glowpy.CompileOptions(verify_each=True)
    outputs = glowpy.compile(g, "interpreter", options)(inputs)
    rng = np.random.default_rng(9)
    for name in by:
        direction = rng.uniform(-1, 1, inputs[name].shape)
        _, along = derivative_along(f, inputs, {name: direction})
        terms = outputs[f"{name}_grad"] * direction
        error = abs(float(along[loss].item()) - terms.sum())
        scale = np.abs(terms).sum() + np.abs(along[loss]).sum()
        assert error <= 1e-11 * scale, (name, error, scale)


class _Tangents:
    """The derivatives of all floats in memory, in memory that lies beside it. An `Observer`."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, Array]] = []
        self._operands: dict[str, Array] = {}

    def cover(self, memory: Array) -> Array | None:
        """Adds tangents of 0 for some memory; those of its elements if they are of f64."""
        if not memory.size:
            return None
        self._blocks.append((address_of(memory), np.zeros(memory.nbytes, np.uint8)))
        return self.of(memory) if memory.dtype == np.float64 else None

    def of(self, array: Array) -> Array:
        """The tangents of an array's elements; zeros, which nobody keeps, for those of a constant."""
        place = array.ctypes.data
        for start, shadow in self._blocks:
            if start <= place < start + shadow.nbytes and array.dtype == np.float64:
                offset = place - start
                return np.ndarray(array.shape, np.float64, shadow.data, offset, array.strides)
        return np.zeros(array.shape)

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Keeps the operands, complex where they are floats."""
        self._operands = {
            name: np.array(
                array + STEP * 1j * self.of(array) if array.dtype == np.float64 else array
            )
            for name, array in operands.items()
        }

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Runs the instruction on the complex numbers. Those that call functions were followed in these."""
        calls = isinstance(inst, insts.IfInst | insts.LoopInst)
        written = [ref for ref in inst.operands if ref.access is not Access.IN]
        if calls or not any(operands[ref.name].dtype == np.float64 for ref in written):
            return
        tensors = {
            ref.name: _Numbers(_ComplexType(ref.value.type), self._operands[ref.name])
            for ref in inst.operands
        }
        if (along := _ALONG.get(type(inst))) is not None:
            result, *others = (tensor.array for tensor in tensors.values())
            result[...] = along(*others)
        elif isinstance(inst, insts.FourierTransformInst):
            _run_linear(inst, *tensors.values())
        else:
            with mock.patch.object(ElemKind, "of", _kind_of), mock.patch.multiple(np, **_REAL):
                interpret[type(inst)](*tensors.values(), **inst.attrs)
        for ref in written:
            if operands[ref.name].dtype == np.float64:
                self.of(operands[ref.name])[...] = tensors[ref.name].array.imag / STEP


@dataclass(frozen=True)
class _ComplexKind:
    """Stands for f64 where elements are complex."""

    is_float = True
    is_half = False
    is_integer = False
    dtype = np.dtype(np.complex128)


_COMPLEX = _ComplexKind()
_KIND_OF = ElemKind.of


def _kind_of(dtype: Any) -> Any:
    return _COMPLEX if np.dtype(dtype) == np.complex128 else _KIND_OF(dtype)


def _abs(x: Any) -> Any:
    """The absolute value along the real axis, where numpy has the distance from 0."""
    return np.where(x.real < 0, -x, x) if np.iscomplexobj(x) else np.absolute(x)


def _step(function: Callable[[Array], Array]) -> Callable[[Any], Any]:
    """A function that is constant between its steps, of the real parts."""
    return lambda x: function(np.real(x))


_REAL: dict[str, Any] = {"abs": _abs} | {
    name: _step(getattr(np, name)) for name in ("floor", "ceil", "trunc", "rint", "sign")
}
"""Functions of numpy that are others, or none, of complex numbers."""


class _ComplexType:
    """A type whose elements are complex if they are of f64."""

    def __init__(self, type: glowpy.Type) -> None:
        self.type = type
        self.kind: Any = _COMPLEX if type.kind is ElemKind.F64 else type.kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self.type, name)


@dataclass(frozen=True)
class _Numbers:
    """What a rule sees of a tensor."""

    type: _ComplexType
    array: Array

    @property
    def real(self) -> Tensor:
        return Tensor(self.type.type, self.array.real)

    @property
    def imaginary(self) -> Tensor:
        return Tensor(self.type.type, self.array.imag)


def _run_linear(inst: Instruction, result: _Numbers, input: _Numbers, *others: _Numbers) -> None:
    """Makes of the tangent of the first input what the instruction makes of that."""
    rule, rest = interpret[type(inst)], [numbers.real for numbers in others]
    rule(result.real, input.imaginary, *rest, **inst.attrs)
    along = result.array.real.copy()
    rule(result.real, input.real, *rest, **inst.attrs)
    result.array.imag[...] = along


def _stepped(value: Callable[..., Array], slope: Callable[..., Array]) -> Callable[[Array], Array]:
    """A function of one real number, of complex ones near it, by its derivative."""
    return lambda x: np.asarray(value(x.real) + 1j * slope(x.real) * x.imag)


def _power(base: Array, exponent: Array) -> Array:
    x, y = np.broadcast_arrays(base, exponent)
    value = np.power(x.real, y.real)
    by_base = np.where(x.imag == 0, 0, y.real * np.power(x.real, y.real - 1) * x.imag)
    by_exponent = np.where(y.imag == 0, 0, value * np.log(x.real) * y.imag)
    return np.asarray(value + 1j * (by_base + by_exponent))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_ALONG: dict[type[Instruction], Callable[..., Array]] = {
    insts.ErfInst: _stepped(_erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    insts.PowInst: _power,
    insts.IsNanInst: lambda x: np.isnan(x.real),
}
