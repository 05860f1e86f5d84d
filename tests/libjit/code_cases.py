"""What codes, floats of at most 8 bits, stand for, by their formats; and which code is the nearest to a number.

Formats as in the tables of ONNX's `Cast`, and for f8e8m0 in those of the OCP's microscaling formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np

from glowpy.core.tensor import Array

__all__ = ["FORMATS", "Format", "floats_to_encode"]


@dataclass(frozen=True)
class Format:
    """Digits after the point, what is taken off the exponent, and the codes that are no numbers, without a sign.

    `infinity` is the code of what lies beyond the range, which is the greatest number where there is nothing else.
    """

    digits: int
    bias: int
    greatest: int
    infinity: int
    nan: int
    is_infinite: bool = False
    has_minus_zero: bool = True
    sign: int = 0x80

    def number(self, code: int) -> float:
        """What a code stands for."""
        rest = code & (self.sign - 1)
        if rest > self.greatest or (not self.has_minus_zero and code == self.sign):
            magnitude = np.inf if self.is_infinite and rest == self.infinity else np.nan
        else:
            exponent, fraction = divmod(rest, 1 << self.digits)
            whole = fraction + (1 << self.digits if exponent else 0)
            magnitude = float(whole * Fraction(2) ** (max(exponent, 1) - self.bias - self.digits))
        return -magnitude if code & self.sign else magnitude

    def nearest(self, x: Array) -> Array:
        """The code for each float; ties to the even one. The sign of a NaN stays where there is room for it."""
        numbers = np.array([self.number(code) for code in range(self.greatest + 1)])
        steps = np.diff(numbers)
        between = np.append(numbers[:-1] + steps / 2, numbers[-1] + steps[-1] / 2)
        with np.errstate(invalid="ignore"):
            magnitude = np.abs(x.astype(np.float64))
        below = np.searchsorted(between, magnitude, side="left")
        tie = between[np.minimum(below, self.greatest)] == magnitude
        code = np.where(tie & (below % 2 == 1), below + 1, below)
        code = np.where(code > self.greatest, self.infinity, code)
        code = np.where(np.isnan(x), self.nan, code)
        negative = np.signbit(x)
        if not self.has_minus_zero:
            negative &= (code != 0) & (code != self.sign)
        elif self.nan == 0:
            negative &= ~np.isnan(x)
        return (code | np.where(negative, self.sign, 0)).astype(np.uint8)


class Powers:
    """Powers of two without a sign; ties go up."""

    def number(self, code: int) -> float:
        """What a code stands for."""
        return np.nan if code == 0xFF else float(Fraction(2) ** (code - 127))

    def nearest(self, x: Array) -> Array:
        """The code for each float; that of NaN below the least and above the greatest."""
        with np.errstate(invalid="ignore"):
            wide = x.astype(np.float64)
        fraction, exponent = np.frexp(np.where(wide > 0, wide, 1))  # fractions from 0.5
        code = exponent - 1 + 127 + (fraction >= 0.75)
        lost = ~((wide >= 2.0**-127) & (wide <= 2.0**127))
        return np.where(lost, 0xFF, code).astype(np.uint8)


FORMATS: dict[str, Format | Powers] = {
    "f8e4m3fn": Format(3, 7, greatest=0x7E, infinity=0x7F, nan=0x7F),
    "f8e4m3fnuz": Format(3, 8, greatest=0x7F, infinity=0x80, nan=0x80, has_minus_zero=False),
    "f8e5m2": Format(2, 15, greatest=0x7B, infinity=0x7C, nan=0x7E, is_infinite=True),
    "f8e5m2fnuz": Format(2, 16, greatest=0x7F, infinity=0x80, nan=0x80, has_minus_zero=False),
    "f8e8m0": Powers(),
    "f6e2m3": Format(3, 1, greatest=0x1F, infinity=0x1F, nan=0, sign=0x20),
    "f6e3m2": Format(2, 3, greatest=0x1F, infinity=0x1F, nan=0, sign=0x20),
    "f4e2m1": Format(1, 1, greatest=7, infinity=7, nan=0, sign=8),
}
"""By the suffix of kernels."""


def floats_to_encode(suffix: str) -> Array:
    """In f32: every f16 and bf16, what lies halfway between two codes with its neighbours, and a sample of all bits."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    codes = FORMATS[suffix]
    numbers = np.array([codes.number(code) for code in range(256)])
    finite = np.unique(numbers[np.isfinite(numbers)])
    with np.errstate(all="ignore"):
        middle = (finite[:-1] / 2 + finite[1:] / 2).astype(np.float32)
        outside = np.array([finite[-1] * factor for factor in (1, 1.0625, 1.125, 1.25, 1.5, 2)])
        some = np.concatenate([middle, finite, outside]).astype(np.float32)
        up, down = np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(-np.inf))
        wide = [halves.view(dtype).astype(np.float32) for dtype in (np.float16, ml_dtypes.bfloat16)]
    tiny = np.array([0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x5FFFFF, 0x600000, 0x7FFFFF], np.uint32)
    bits = np.random.default_rng(13).integers(0, 1 << 32, 100_000, np.uint32)
    all_bits = np.concatenate([tiny, bits]).view(np.float32)
    return np.concatenate([some, -some, up, down, *wide, all_bits])
