"""Shape arithmetic: broadcasting, windows of convolutions and pools, axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from glowpy.core.type import Shape
from glowpy.support.errors import UserError
from glowpy.support.symbolic import (
    Dim,
    Expr,
    UnequalError,
    ceil_div,
    greatest,
    is_at_most,
    least,
    likely_extent,
    lowest,
    product,
)

__all__ = [
    "broadcast_shapes",
    "broadcasts_to",
    "is_same",
    "is_same_shape",
    "normalize_axis",
    "permute",
    "window_shape",
]


def is_same(dim: Dim, other: Dim) -> bool:
    """Whether two extents are equal.

    Raises UnequalError where they are for some extents of symbols and not for others: whoever compiles may give
    symbols other meanings, with which they are.
    """
    if dim == other:
        return True
    if is_at_most(dim + 1, other) or is_at_most(other + 1, dim):
        return False
    raise UnequalError(*_without_common_factors(dim, other))


def _without_common_factors(dim: Dim, other: Dim) -> tuple[Dim, Dim]:
    """Two dimensions without what both are multiples of, as far as it is known to be positive."""
    terms = [
        term
        for extent in (dim, other)
        for term in (extent.terms if isinstance(extent, Expr) else (((), extent),))
    ]
    factor: Dim = math.gcd(*(number for _, number in terms))
    for atom in dict.fromkeys(terms[0][0]):
        power = min(atoms.count(atom) for atoms, _ in terms)
        if atom.low > 0:
            factor = factor * product([Expr((((atom,), 1),))] * power)
    return (dim // factor, other // factor) if factor != 0 else (dim, other)


def is_same_shape(shape: Shape, other: Shape) -> bool:
    """Whether two shapes are equal. Raises UnequalError where they are for some extents of symbols only."""
    if len(shape) != len(other):
        return False
    pairs = [pair for pair in zip(shape, other, strict=True) if pair[0] != pair[1]]
    if any(isinstance(dim, int) and isinstance(size, int) for dim, size in pairs):
        return False
    return all(is_same(dim, size) for dim, size in pairs)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape numpy broadcasts `shapes` to.

    A symbolic extent is not taken to be 1 if it need not be. Raises UserError if shapes do not fit, and UnequalError if
    they fit for some extents of symbols only.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = {dim for dim in dims if dim != 1}
        first, *others = wide or {1}
        if not all(is_same(first, other) for other in others):
            texts = [f"[{', '.join(map(str, shape))}]" for shape in shapes]
            raise UserError(f"expected shapes that broadcast, got {' and '.join(texts)}")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether numpy broadcasts a shape to another.

    Raises UnequalError where it does for some extents of symbols only.
    """
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(dim == 1 or is_same(dim, size) for dim, size in pairs)


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises UserError unless -rank <= axis < rank."""
    if not -rank <= axis < rank:
        raise UserError(f"expected an axis between {-rank} and {rank - 1}, got {axis}")
    return axis % rank if rank else 0


def permute(shape: Sequence[Dim], shuffle: Sequence[int]) -> Shape:
    """The shape whose dimension i is shape[shuffle[i]]."""
    return tuple(shape[axis] for axis in shuffle)


def window_shape(
    spatial: Sequence[Dim],
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[Dim],
    dilation: Sequence[int],
    *,
    ceil: bool = False,
    partial: bool = False,
) -> Shape:
    """How many windows fit in each spatial dimension; pads are the begins, then the ends.

    With `ceil` a last window may reach beyond the end pad, but must begin inside the input or its
    begin pad (ONNX pooling, opset 10). With `partial` the only window may be larger than the padded
    input, as in pools. Raises UserError if an attribute has the wrong length or a window is too large.
    """
    rank = len(spatial)
    for name, values, length in (
        ("kernels", kernels, rank),
        ("strides", strides, rank),
        ("pads", pads, 2 * rank),
        ("dilation", dilation, rank),
    ):
        if len(values) != length:
            raise UserError(
                f"expected {length} {name} for {rank} spatial dimensions, got {len(values)}"
            )
    if min((*kernels, *strides, *dilation), default=1) < 1:
        raise UserError("expected kernels, strides and dilation of at least 1")
    result: list[Dim] = []
    for axis, (size, kernel, step) in enumerate(zip(spatial, kernels, dilation, strict=True)):
        reach, span = size + pads[axis], step * (kernel - 1) + 1
        room, stride = reach + pads[rank + axis] - span, strides[axis]
        last = (
            _last_window_rounded_up(room, reach, stride)
            if ceil
            else _last_window(room, size, stride, partial=partial)
        )
        if last is None or last < -1:
            detail = f" with dilation {step}, which spans {span}," if step > 1 else ""
            raise UserError(
                f"window of {kernel}{detail} is larger than the padded input of {room + span} "
                f"in spatial dimension {axis}"
            )
        result.append(last + 1)
    return tuple(result)


def _last_window(room: Dim, size: Dim, stride: int, *, partial: bool) -> Dim | None:
    """The number of the last window that fits, or of the only one where it is `partial`; None if it is too large.

    No elements have no windows, or those of their pads. Larger windows are counted as onnxruntime and onnx's own shape
    inference count them, by division that rounds towards zero: there is one if the next would be too large by a
    stride or more. Where code for larger ones is of no use so far, it asks for bounds that rule them out.
    """
    fits = least(0, size - 1)
    if lowest(room - fits) >= 0:
        return room // stride
    if not partial or likely_extent(room) >= 0:
        return None if room < fits else room // stride
    return greatest(room // stride, least(ceil_div(room, stride), fits))


def _last_window_rounded_up(room: Dim, reach: Dim, stride: int) -> Dim:
    """Returns the last window with `ceil`: at most one that begins beyond the input and its begin pad is left out."""
    last = ceil_div(room, stride)
    return greatest(least(last, (reach - 1) // stride), last - 1)
