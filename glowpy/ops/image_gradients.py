"""Gradients of images that are read at computed places, and put together of columns."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.autodiff.gradients import flows_through
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import ColumnsToImageNode, SampleNode
from glowpy.ops.image import BORDER, CUBIC, LINEAR, NEAREST, REFLECTION, ZEROS
from glowpy.ops.operands import widened
from glowpy.ops.positions import extent, positions
from glowpy.ops.term import Term
from glowpy.support.symbolic import Dim, product

__all__: list[str] = []


@derivative(SampleNode)
def _differentiate_sample(f: Function, n: SampleNode, g: NodeValue) -> list[Operand | None]:
    """Differentiates the weighted sum that a sample is, by pixels and by places."""
    return list(flows_through(f, n.inputs, lambda inputs: [_sampled(f, n, *inputs)], [g]))


def _sampled(f: Function, n: SampleNode, input: NodeValue, places: NodeValue) -> NodeValue:
    """The sum of all combinations of taps along the dimensions; halves are computed in f32."""
    image = value_of(widened(f, n.name, input))
    images, *sizes, channels = image.type.shape
    _, points, groups, _ = places.type.shape
    depth = channels // groups
    rows = f.create_reshape(
        n.name, image.type.with_shape((product((images, *sizes, groups)), depth)), image
    )
    at = value_of(widened(f, n.name, places))
    shape = (images, points, groups)
    axes = [
        _Axis(f, n, _coordinates(f, n.name, at, len(sizes) - 1 - index), size)
        for index, size in enumerate(sizes)
    ]
    taps = [axis.taps() for axis in axes]
    total: Term | None = None
    for choice in itertools.product(range(n.order + 1), repeat=len(sizes)):
        chosen = [taps[axis][tap] for axis, tap in enumerate(choice)]
        weight, pixel, inside = _combined(f, n.name, chosen, axes, shape)
        group = f.create_reshape(n.name, _counts(1, 1, groups), positions(f, n.name, groups))
        index = pixel * _number(f, n.name, groups) + Term(f, n.name, group)
        places_of_rows = f.create_reshape(n.name, _counts(product(shape)), index.value)
        taken = f.create_gather(n.name, rows, places_of_rows, 0)
        wide = Term(
            f, n.name, f.create_reshape(n.name, image.type.with_shape((*shape, depth)), taken)
        )
        column = f.create_reshape(n.name, image.type.with_shape((*shape, 1)), weight.value)
        mask = f.create_reshape(n.name, Type(ElemKind.BOOL, (*shape, 1)), inside.value)
        part = (wide * Term(f, n.name, column)).where(Term(f, n.name, mask), 0.0)
        total = part if total is None else total + part
    assert total is not None
    result = f.create_reshape(n.name, image.type.with_shape(n.type.shape), total.value)
    return value_of(Term(f, n.name, result).as_type(n.type))


def _counts(*shape: Dim) -> Type:
    return Type(ElemKind.I64, shape)


def _number(f: Function, name: str, dim: Dim) -> Term:
    return Term(f, name, extent(f, name, dim))


def _coordinates(f: Function, name: str, places: NodeValue, index: int) -> Term:
    """The coordinates along one dimension: [N, points, groups]."""
    shape = places.type.shape[:3]
    part = f.create_slice(
        name, places.type.with_shape((*shape, 1)), places, (0, 0, 0, index), (1, 1, 1, 1)
    )
    return Term(f, name, f.create_reshape(name, places.type.with_shape(shape), part))


def _combined(
    f: Function,
    name: str,
    chosen: list[tuple[Term, Term, Term]],
    axes: list[_Axis],
    shape: tuple[Dim, ...],
) -> tuple[Term, Term, Term]:
    """The weight of a tap of all dimensions, the number of its pixel in all images, and whether there is one."""
    image = f.create_reshape(name, _counts(shape[0], 1, 1), positions(f, name, shape[0]))
    pixel, weight, inside = Term(f, name, image), chosen[0][0], chosen[0][2]
    for number, ((factor, place, is_in), axis) in enumerate(zip(chosen, axes, strict=True)):
        pixel = pixel * axis.size + place
        if number:
            weight = weight * factor
            inside = Term(f, name, f.create_and(name, inside.value, is_in.value))
    return weight, pixel, inside


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension, and where its coordinates lead, in the formulas of the interpreter."""

    f: Function
    n: SampleNode
    places: Term
    count: Dim

    @property
    def size(self) -> Term:
        """How many pixels there are, as an integer."""
        return _number(self.f, self.n.name, self.count)

    def taps(self) -> list[tuple[Term, Term, Term]]:
        """The weight of each pixel that the places are between, where it is, and whether there is one."""
        places = self._limited()
        floors = self._of(self.f.create_floor(self.n.name, places.value))
        rest = places - floors
        whole = self._of(
            self.f.create_convert(self.n.name, floors.type.with_kind(ElemKind.I64), floors.value)
        )
        first = whole - 1 if self.n.order == CUBIC else whole
        return [
            (weight, *self._pixel(first + tap)) for tap, weight in enumerate(self._weights(rest))
        ]

    def _of(self, value: Operand) -> Term:
        return Term(self.f, self.n.name, value)

    def _last(self) -> Term:
        """The number of the last pixel, as a float."""
        size = self.size
        kind = self.places.type.kind
        return (
            self._of(self.f.create_convert(self.n.name, size.type.with_kind(kind), size.value))
            - 1.0
        )

    def _limited(self) -> Term:
        """The places, turned back at the ends if they are reflected, and not far outside."""
        places, last = self.places, self._last()
        if self.n.order == NEAREST:
            places = self._of(self.f.create_round(self.n.name, places.value))
        if self.n.padding == REFLECTION:
            low = 0.0 if self.n.aligned else -0.5
            places = self._reflected(places, low, last - low)
        return places.min(last + 4.0).where(places > -4.0, -4.0)

    def _reflected(self, places: Term, low: float, high: Term) -> Term:
        span = high - low
        below = places < low
        distance = (-(places - low)).where(below, places - high)
        safe = span.where(span > 0.0, 1.0)
        ratio = distance / safe
        turns = self._of(self.f.create_floor(self.n.name, ratio.value))
        rest = distance - turns * span
        half = self._of(self.f.create_floor(self.n.name, (turns * 0.5).value))
        even = self._of(self.f.create_eq(self.n.name, turns.value, (half * 2.0).value))
        upward = self._of(self.f.create_eq(self.n.name, below.value, even.value))
        turned = (rest + low).where(upward, high - rest)
        outside = self._of(self.f.create_or(self.n.name, below.value, (places > high).value))
        inside = turned.where(outside, places)
        return inside.where(span > 0.0, low)

    def _weights(self, rest: Term) -> list[Term]:
        if self.n.order == NEAREST:
            return [rest * 0.0 + 1.0]
        if self.n.order == LINEAR:
            return [1.0 - rest, rest]
        return [_keys(abs(rest - offset)) for offset in (-1.0, 0.0, 1.0, 2.0)]

    def _pixel(self, at: Term) -> tuple[Term, Term]:
        """Where a pixel is, and whether there is one."""
        size, zero = self.size, at * 0
        inside = self._of(self.f.create_and(self.n.name, (at > -1).value, (at < size).value))
        if self.n.padding == ZEROS:
            return at.where(inside, zero), inside
        always = self._of(self.f.create_not(self.n.name, (zero > 0).value))
        if self.n.padding == BORDER:
            return at.max(0).min(size - 1), always
        period = size * 2 - (2 if self.n.aligned else 0)
        period = period.max(1)
        turns = at / period
        rest = at - turns * period
        rest = (rest + period).where(rest < 0, rest)
        back = period - rest - (0 if self.n.aligned else 1)
        return rest.where(rest < size, back).max(0).min(size - 1), always


def _keys(x: Term) -> Term:
    """The cubic kernel of Keys (1981) with a = -0.75."""
    near = (x * 1.25 - 2.25) * x * x + 1.0
    far = ((x * -0.75 + 3.75) * x - 6.0) * x + 3.0
    return far.where(x > 1.0, near)


@derivative(ColumnsToImageNode)
def _differentiate_columns_to_image(
    f: Function, n: ColumnsToImageNode, g: NodeValue
) -> list[Operand | None]:
    """The windows taken out again: a slice for each tap, with zeros for those on the pads."""
    rank, (images, channels, *sizes) = len(n.kernels), n.type.shape
    begins, ends = n.pads[:rank], n.pads[rank:]
    padded = f.create_pad(n.name, g, (0, 0, *begins, 0, 0, *ends), 0.0)
    counts = [
        (size + begin + end - step * (kernel - 1) - 1) // stride + 1
        for size, begin, end, step, kernel, stride in zip(
            sizes, begins, ends, n.dilation, n.kernels, n.strides, strict=True
        )
    ]
    taps: list[Operand] = []
    for tap in np.ndindex(*n.kernels):
        starts = (0, 0, *(at * step for at, step in zip(tap, n.dilation, strict=True)))
        type = g.type.with_shape((images, channels, *counts))
        part = f.create_slice(n.name, type, padded, starts, (1, 1, *n.strides))
        flat = g.type.with_shape((images, channels, 1, product(counts)))
        taps.append(f.create_reshape(n.name, flat, part))
    return [f.create_reshape(n.name, n.input.type, f.create_concat(n.name, taps, 2))]
