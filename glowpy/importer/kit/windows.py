"""Windows over spatial dimensions: kernels, strides, dilations, and pads, also those that keep a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.core.type import Shape
from glowpy.support.symbolic import Dim, greatest

__all__ = ["Window", "same_pads"]


@dataclass(frozen=True)
class Window:
    """A window over spatial dimensions. pads are the begins, then the ends."""

    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Shape


def same_pads(
    spatial: Sequence[Dim],
    kernels: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    *,
    upper: bool,
) -> Shape:
    """Pads that give ceil(size / stride) windows; an odd one goes to the end if `upper`, else to the begin."""
    begins: list[Dim] = []
    ends: list[Dim] = []
    for size, kernel, stride, step in zip(spatial, kernels, strides, dilation, strict=True):
        reach = (-(-size // stride) - 1) * stride + (kernel - 1) * step + 1
        total = greatest(reach - size, 0)
        begins.append(total // 2 if upper else total - total // 2)
        ends.append(total - begins[-1])
    return (*begins, *ends)
