"""Types of moved elements: where the channel axis of a tensor quantized per channel is afterwards.

Every function gives the type of the moved tensor. A tensor that is quantized as a whole, or not at all, keeps its
parameters. One that is quantized per channel keeps scale and offset of every element, or a UserError says why one
axis cannot hold them any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from glowpy.core.shape import permute
from glowpy.core.strides import span_of, strides_of
from glowpy.core.tensor import Array
from glowpy.core.type import Quant, Shape, Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, product, static

__all__ = [
    "broadcast",
    "concatenated",
    "gathered",
    "keeps_parameters",
    "permuted",
    "reshaped",
    "resized",
    "sliced",
]


def permuted(type: Type, shuffle: Sequence[int]) -> Type:
    """Dimension i of the result is dimension shuffle[i] of `type`."""
    shape, quant = permute(type.shape, shuffle), type.quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=tuple(shuffle).index(quant.axis))
    return Type(type.kind, shape, quant)


def reshaped(type: Type, shape: Sequence[Dim]) -> Type:
    """Returns the type of the same elements in row-major order. The channel axis must stay a dimension of its own."""
    new, quant = tuple(shape), type.quant
    if quant is None or quant.axis is None:
        return type.with_shape(new)
    outer, size = product(type.shape[: quant.axis]), type.shape[quant.axis]
    before: Dim = 1
    for axis, extent in enumerate(new):
        if before == outer and extent == size:
            return Type(type.kind, new, replace(quant, axis=axis))
        before *= extent
    raise UserError(
        f"expected a shape that keeps the channel axis {quant.axis} of {type}, got {list(new)}"
    )


def resized(type: Type, shape: Sequence[Dim]) -> Type:
    """Returns the type with other extents of its dimensions; the channel axis must keep its own."""
    new, quant = tuple(shape), type.quant
    if quant is not None and quant.axis is not None:
        extent = new[quant.axis] if quant.axis < len(new) else None
        if len(new) != type.rank or extent != type.shape[quant.axis]:
            raise UserError(
                f"expected a shape that keeps the channel axis {quant.axis} of {type}, got {list(new)}"
            )
    return Type(type.kind, new, quant)


def sliced(
    type: Type, starts: Sequence[Dim], shape: Sequence[Dim], steps: Sequence[int] | None = None
) -> Type:
    """Elements start + i * step of each dimension; the parameters of the channels that are left."""
    new, quant = tuple(shape), type.quant
    if quant is None or quant.axis is None:
        return type.with_shape(new)
    axis = quant.axis
    step = 1 if steps is None else steps[axis]
    start, count = static((starts[axis], new[axis]))
    indices = [start + index * step for index in range(count)]
    if any(not 0 <= channel < len(quant.scales) for channel in indices):
        raise UserError(f"expected channels of {type}, got {indices[0]} to {indices[-1]}")
    scales = tuple(quant.scales[channel] for channel in indices)
    offsets = tuple(quant.offsets[channel] for channel in indices)
    return Type(type.kind, new, Quant(scales, offsets, axis))


def gathered(type: Type, axis: int, indices: Shape) -> Type:
    """Dimension `axis` replaced by those of `indices`. The channels themselves cannot be gathered."""
    shape = (*type.shape[:axis], *indices, *type.shape[axis + 1 :])
    quant = type.quant
    if quant is None or quant.axis is None:
        return type.with_shape(shape)
    if quant.axis == axis:
        raise UserError(
            f"expected to gather along a dimension other than the channel axis {axis}, got {type}"
        )
    moved = quant.axis if quant.axis < axis else quant.axis + len(indices) - 1
    return Type(type.kind, shape, replace(quant, axis=moved))


def broadcast(types: Sequence[Type], shape: Shape) -> Type:
    """Element-wise operands of one element kind that broadcast to `shape`; their parameters must be equal."""
    parameters = [_counted_from_the_end(type) for type in types]
    if any(other != parameters[0] for other in parameters):
        raise UserError(
            f"expected equal quantization parameters, got {' and '.join(map(str, types))}"
        )
    first, quant = types[0], types[0].quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=quant.axis + len(shape) - first.rank)
    return Type(first.kind, shape, quant)


def _counted_from_the_end(type: Type) -> Quant | None:
    quant = type.quant
    if quant is None or quant.axis is None:
        return quant
    return replace(quant, axis=quant.axis - type.rank)


def concatenated(types: Sequence[Type], axis: int) -> Type:
    """Tensors one after the other along `axis`. Where their parameters differ, they become those of channels.

    A tensor that is quantized as a whole has equal channels along any axis.
    """
    first = types[0]
    shape = list(first.shape)
    shape[axis] = sum(type.shape[axis] for type in types)
    channels = first.quant is not None and first.quant.axis == axis
    same = not channels and all(type.quant == first.quant for type in types)
    return Type(first.kind, tuple(shape), first.quant if same else _appended(types, axis))


def _appended(types: Sequence[Type], axis: int) -> Quant:
    scales: list[float] = []
    offsets: list[int] = []
    for type in types:
        quant = type.quant
        if quant is None or quant.axis not in (None, axis):
            raise UserError(
                f"expected equal quantization parameters, or channels along dimension {axis}, "
                f"got {' and '.join(map(str, types))}"
            )
        (repeats,) = static([type.shape[axis]]) if quant.axis is None else (1,)
        scales += quant.scales * repeats
        offsets += quant.offsets * repeats
    return Quant(tuple(scales), tuple(offsets), axis)


def keeps_parameters(
    source: Type,
    offset: Dim,
    part: Type,
    source_strides: Shape | None = None,
    strides: Shape | None = None,
) -> bool:
    """Whether element i of `part` means the same as element `offset` + i of `source`: kind, scale and offset are equal.

    With strides, of either, elements of memory are compared, which `offset` counts from the first of `source`.

    The parameters of a type are periodic, and constant over runs of the elements of one channel: one element of
    each run of one common period is compared.
    """
    if source.quant is None or part.quant is None:
        return source.quant is part.quant
    if source.kind is not part.kind:
        return False
    if source.quant.axis is None and part.quant.axis is None:
        return source.quant == part.quant
    if not (source.is_static and part.is_static and isinstance(offset, int)):
        return offset == 0 and _run_of(source) == _run_of(part)
    outer, inner = strides_of(source.shape), strides_of(part.shape)
    if (source_strides or outer, strides or inner) != (outer, inner):
        return _keeps_strided(source, offset, part, source_strides or outer, strides or inner)
    first, second = _Channels.of(source, source.quant), _Channels.of(part, part.quant)
    period = math.lcm(first.period, second.period)
    step = math.gcd(first.run, second.run, offset) or 1
    return all(
        first.parameters(offset + index) == second.parameters(index)
        for index in range(0, min(math.prod(part.extents), period), step)
    )


def _run_of(type: Type) -> tuple[tuple[float, ...], tuple[int, ...], Dim] | None:
    """Scales and offsets of the channels, and how many elements each has in turn; None for no axis."""
    quant = type.quant
    if quant is None or quant.axis is None:
        return None
    return quant.scales, quant.offsets, product(type.shape[quant.axis + 1 :])


def _keeps_strided(
    source: Type, offset: int, part: Type, source_strides: Shape, strides: Shape
) -> bool:
    """`keeps_parameters`, by the channel of every element of memory."""
    if 0 in part.shape:
        return True
    places = offset + _places(part.shape, strides)
    channels = np.full(static([span_of(source.shape, source_strides)]), -1)
    channels[_places(source.shape, source_strides)] = _channels(source)
    known = channels[places]
    own = _channels(part)
    pairs = set(zip(known.reshape(-1).tolist(), own.reshape(-1).tolist(), strict=True))
    return all(a >= 0 and _parameters(source, a) == _parameters(part, b) for a, b in pairs)


def _places(shape: Shape, strides: Shape) -> Array:
    """Returns the place of each element, counted from the first."""
    extents = static(shape)
    places = np.zeros(extents, np.int64)
    for axis, (size, stride) in enumerate(zip(extents, static(strides), strict=True)):
        places += stride * np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1))
    return places


def _channels(type: Type) -> Array:
    """The channel of every element."""
    axis = type.quant.axis if type.quant is not None else None
    if axis is None:
        return np.zeros(type.extents, np.int64)
    ramp = np.arange(type.extents[axis]).reshape(-1, *(1,) * (type.rank - axis - 1))
    return np.asarray(np.broadcast_to(ramp, type.extents))


def _parameters(type: Type, channel: int) -> tuple[float, int] | None:
    quant = type.quant
    return (quant.scales[channel], quant.offsets[channel]) if quant is not None else None


@dataclass(frozen=True, slots=True)
class _Channels:
    """Parameters of a tensor's elements, in row-major order: `run` elements of each channel in turn.

    `run` is 0 where there is one channel.
    """

    quant: Quant
    run: int

    @classmethod
    def of(cls, type: Type, quant: Quant) -> _Channels:
        return cls(quant, 0 if quant.axis is None else math.prod(type.extents[quant.axis + 1 :]))

    @property
    def period(self) -> int:
        return self.run * len(self.quant.scales) or 1

    def parameters(self, index: int) -> tuple[float, int]:
        channel = index // self.run % len(self.quant.scales) if self.run else 0
        return self.quant.scales[channel], self.quant.offsets[channel]
