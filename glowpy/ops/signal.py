"""Rules of transforms of signals."""

from __future__ import annotations

from math import prod

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.shape import is_same
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import FourierTransformNode
from glowpy.ir.insts_gen import FourierTransformInst
from glowpy.irgen import scratch
from glowpy.ops.operands import expect_floats, expect_same_kind, factors
from glowpy.support.errors import UserError
from glowpy.support.symbolic import highest, least, lowest

__all__: list[str] = []

_ROWS, _LONGEST = 16, 1024
"""A vector of rows is transformed at once, if they are so short that a nearby cache holds all that is worked on."""


@infer(FourierTransformNode)
def _infer_fourier_transform(input: Type, roots: Type, *, inverse: bool, half: bool) -> Type:
    expect_floats("input", input)
    expect_same_kind(input, roots=roots)
    if roots.rank != 2 or roots.shape[0] == 0 or not is_same(roots.shape[1], 2):
        raise UserError(f"expected a pair for each of some roots, got {roots}")
    if input.rank < 2 or input.shape[-1] not in (1, 2):
        raise UserError(f"expected input [..., rows, 1 or 2], got {input}")
    length = roots.shape[0]
    rows = length // 2 + 1 if half and not inverse else length
    return input.with_shape((*input.shape[:-2], rows, 1 if half and inverse else 2))


@scratch(FourierTransformNode)
def _scratch_fourier_transform(n: FourierTransformNode) -> tuple[Type, ...]:
    """Both parts of some rows before a pass, and after it: of several where that is no more than the input has."""
    length = n.roots.type.shape[0]
    number = prod(map(lowest, n.input.type.shape[:-2]))
    rows = _ROWS if number >= 4 * _ROWS and highest(length) <= _LONGEST else 1
    return (n.roots.type.with_shape((4, length, rows)),)


@interpret(FourierTransformInst)
def _fourier_transform(
    result: Tensor, input: Tensor, roots: Tensor, work: Tensor, *, inverse: bool, half: bool
) -> None:
    """Computes in the kind of the operands, as kernels do: numpy's errors are those of a good algorithm."""
    del work
    length, parts = roots.type.extents[0], factors(input)
    if result.array.size == 0:
        return
    rows = length // 2 + 1 if inverse and half else length
    given = parts[..., :rows, 0] + (1j * parts[..., :rows, 1] if parts.shape[-1] == 2 else 0)
    if given.shape[-1] == 0:
        given = np.zeros((*given.shape[:-1], 1))
    if inverse and half:
        result.array[..., 0] = np.fft.irfft(given, length)
        return
    spectrum = (np.fft.ifft if inverse else np.fft.fft)(given, length)
    spectrum = spectrum[..., : result.type.extents[-2]]
    result.array[..., 0], result.array[..., 1] = spectrum.real, spectrum.imag


@derivative(FourierTransformNode)
def _differentiate_fourier_transform(
    f: Function, n: FourierTransformNode, g: NodeValue
) -> list[Operand | None]:
    """A transform is linear: its gradient is that of the other direction, without the other's factor.

    What a half spectrum says of its conjugates counts twice.
    """
    length, input = n.roots.type.extents[0], n.input.type
    back = f.create_fourier_transform(
        n.name, g, n.roots, inverse=not n.inverse, half=n.inverse and n.half
    )
    rows = back.type.shape[-2]
    bins = length // 2 + 1 if n.inverse and n.half else 1
    factors = np.full((bins, 1), float(length))
    if n.inverse:
        factors = 1 / factors
        factors[1 : (length + 1) // 2] *= 2
    numbers = factors.astype(input.kind.dtype)
    scale = f.module.create_constant(f"{n.name}_scale", Tensor.of(numbers))
    scaled = f.create_mul(n.name, back, scale)
    zeros = (0,) * (input.rank - 2)
    count = least(rows, input.shape[-2])
    # What is scaled has imaginary parts, even where the signal is real.
    type = input.with_shape((*input.shape[:-2], count, input.shape[-1]))
    taken = f.create_slice(n.name, type, scaled, (*zeros, 0, 0), (1,) * input.rank)
    return [
        f.create_pad(n.name, taken, (*zeros, 0, 0, *zeros, input.shape[-2] - count, 0), 0.0),
        None,
    ]
