"""Windows of convolutions and pools over N, spatial..., C as numpy views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from glowpy.core.shape import window_shape
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, lowest, static

__all__ = ["Windows", "windowed_shape"]

MAX_SPATIAL = 3


@dataclass(frozen=True, slots=True)
class Windows:
    """Placement of the windows of a convolution or pool. pads are the begins, then the ends."""

    kernels: Sequence[int]
    strides: Sequence[int]
    pads: Sequence[Dim]
    dilation: Sequence[int]

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are."""
        return len(self.kernels)

    def view(self, array: Array, fill: float, counts: Sequence[int]) -> Array:
        """Every window of `array` [N, spatial..., C] as [N, counts..., C, kernels...].

        `counts` windows, at least one, are taken in each dimension; they may reach beyond
        the end pads. Outside the array is `fill`.
        """
        pads = static(self.pads)
        spans = [d * (k - 1) + 1 for k, d in zip(self.kernels, self.dilation, strict=True)]
        around = [(0, 0)]
        for axis, (count, stride, span) in enumerate(zip(counts, self.strides, spans, strict=True)):
            reach = (count - 1) * stride + span
            around.append((pads[axis], max(0, reach - pads[axis] - array.shape[axis + 1])))
        around.append((0, 0))
        padded = np.pad(array, around, constant_values=fill) if np.any(around) else array
        spatial = tuple(range(1, self.rank + 1))
        every = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=spatial)
        starts = [slice(0, n * s, s) for n, s in zip(counts, self.strides, strict=True)]
        taps = [slice(None, None, step) for step in self.dilation]
        return every[(slice(None), *starts, slice(None), *taps)]

    def reaching(self, extents: Sequence[int]) -> Windows:
        """Returns the windows over an image of `extents`, without taps that lie after it in every window."""
        reaches = [size + static([pad])[0] for size, pad in zip(extents, self.pads, strict=False)]
        kernels = [
            min(kernel, max(1, -(-reach // step)))
            for kernel, reach, step in zip(self.kernels, reaches, self.dilation, strict=True)
        ]
        return replace(self, kernels=kernels)

    def counted(self, extents: Sequence[int], counts: Sequence[int], *, pads: bool) -> Array:
        """How many taps of each window lie in an image of `extents`, or in its `pads`."""
        result, padding = np.ones((), np.int64), static(self.pads)
        for axis in range(self.rank):
            begin, end = padding[axis], padding[self.rank + axis]
            first = np.arange(counts[axis]) * self.strides[axis] - begin
            at = first[:, None] + np.arange(self.kernels[axis]) * self.dilation[axis]
            low, high = (-begin, extents[axis] + end) if pads else (0, extents[axis])
            result = np.multiply.outer(result, ((at >= low) & (at < high)).sum(axis=1))
        return result


def windowed_shape(
    input: Type, windows: Windows, *, ceil: bool = False, partial: bool = False
) -> Shape:
    """How many windows there are in each spatial dimension of `input`, which is N, spatial..., C.

    `ceil` and `partial` are those of `window_shape`.

    Raises UserError if there are not 1 to 3 spatial dimensions or the attributes do not fit.
    """
    if not 1 <= input.rank - 2 <= MAX_SPATIAL:
        raise UserError(
            f"expected an input N, 1 to {MAX_SPATIAL} spatial dimensions, C, got {input}"
        )
    if any(lowest(pad) < 0 for pad in windows.pads):
        raise UserError(f"expected pads of at least 0, got {list(windows.pads)}")
    return window_shape(
        input.shape[1:-1],
        windows.kernels,
        windows.strides,
        windows.pads,
        windows.dilation,
        ceil=ceil,
        partial=partial,
    )
