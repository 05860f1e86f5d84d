"""Convolutions against the reference evaluator of the onnx package, transposed ones against their definition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.nodes_gen import ConvolutionNode, FilterGradientNode, TransposedConvolutionNode
from tests.ops.harness import (
    FLOATS,
    Case,
    Row,
    channels_first,
    channels_last,
    check_row,
    normal_array,
    on_every_backend,
    onnx_reference,
    random_array,
    sum_tolerance,
)


@dataclass(frozen=True)
class Geometry:
    """One convolution: sizes and attributes, the plainest ones where none are given."""

    image: tuple[int, ...]
    channels: int
    outputs: int
    kernels: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1
    batch: int = 1

    @property
    def attrs(self) -> dict[str, object]:
        rank = len(self.image)
        return {
            "kernels": self.kernels,
            "strides": self.strides or (1,) * rank,
            "pads": self.pads or (0,) * (2 * rank),
            "dilation": self.dilation or (1,) * rank,
            "group": self.group,
        }

    def arrays(self, kind: ElemKind) -> list[Array]:
        make = normal_array if kind.is_float else random_array
        return [
            make(kind, (self.batch, *self.image, self.channels), 1),
            make(kind, (self.outputs, *self.kernels, self.channels // self.group), 2),
            make(kind, (self.outputs,), 3),
        ]


GEOMETRIES = [
    Geometry((5, 7), 3, 4, (3, 3), pads=(1, 1, 1, 1)),
    Geometry((11, 13), 17, 33, (3, 3), pads=(1, 1, 1, 1)),
    Geometry((7, 7), 31, 37, (1, 1)),
    Geometry((1, 1), 5, 19, (1, 1), batch=3),
    Geometry((14, 15), 3, 16, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Geometry((9, 8), 6, 5, (2, 3), strides=(3, 2), pads=(2, 0, 1, 3), dilation=(2, 1), batch=2),
    Geometry((6, 6), 8, 12, (3, 3), pads=(1, 1, 1, 1), group=4),
    Geometry((9, 9), 16, 16, (3, 3), pads=(1, 1, 1, 1), group=16),
    Geometry((9, 10), 33, 33, (5, 3), strides=(2, 1), pads=(2, 1, 2, 1), group=33, batch=2),
    Geometry((6, 5), 7, 14, (3, 3), dilation=(2, 2), group=7, pads=(1, 2, 3, 2)),
    Geometry((8,), 3, 5, (3,), strides=(2,), pads=(1, 2)),
    Geometry((17,), 4, 8, (5,), dilation=(3,), group=2),
    Geometry((4, 5, 3), 2, 3, (2, 3, 2), strides=(2, 1, 1), pads=(1, 0, 0, 0, 1, 1)),
    Geometry((3, 3, 3), 4, 4, (3, 3, 3), group=4, pads=(1,) * 6),
    Geometry((1, 1), 1, 1, (3, 3), pads=(1, 1, 1, 1)),
    Geometry((3, 3), 2, 3, (5, 5), pads=(2, 2, 2, 2), strides=(4, 4)),
]
EMPTY = [
    Geometry((4, 4), 3, 2, (3, 3), batch=0),
    Geometry((4, 4), 0, 2, (3, 3)),
    Geometry((4, 4), 3, 0, (1, 1)),
    Geometry((0, 4), 3, 2, (2, 3), pads=(1, 1, 2, 1)),
    Geometry((0, 4), 16, 17, (3, 3), pads=(1, 1, 1, 1)),
    Geometry((3, 0), 16, 16, (1, 1), group=16),
]


def _expected(arrays: list[Array], geometry: Geometry) -> Array:
    """In f64, without anything to convolve where the evaluator refuses."""
    attrs = geometry.attrs
    if 0 in (geometry.batch, *geometry.image, geometry.channels, geometry.outputs):
        rank, pads = len(geometry.image), geometry.pads or (0,) * 4
        around = [begin + end for begin, end in zip(pads[:rank], pads[rank:], strict=True)]
        sizes = zip(geometry.image, around, geometry.kernels, strict=True)
        counts = [size + pad - kernel + 1 for size, pad, kernel in sizes]
        shape = (geometry.batch, *counts, geometry.outputs)
        return np.broadcast_to(arrays[2].astype(np.float64), shape)
    wide = [array.astype(np.float64) for array in arrays]
    (result,) = onnx_reference(
        "Conv",
        [channels_first(wide[0]), channels_first(wide[1]), wide[2]],
        kernel_shape=attrs["kernels"],
        strides=attrs["strides"],
        pads=attrs["pads"],
        dilations=attrs["dilation"],
        group=attrs["group"],
    )
    return channels_last(result)


def _cases(kind: ElemKind, constants: frozenset[int]) -> Iterator[Case]:
    for geometry in GEOMETRIES + ([] if constants else EMPTY):
        arrays = geometry.arrays(kind)
        expected = _expected(arrays, geometry)
        terms = math.prod(geometry.kernels) * geometry.channels // geometry.group + 1
        tolerance = sum_tolerance(kind, terms)
        if not kind.is_float:
            expected = expected.astype(np.int64)
        yield Case(arrays, [expected], geometry.attrs, tolerance=tolerance, constants=constants)


@dataclass(frozen=True)
class Spread:
    """One transposed convolution: sizes and attributes; `cut` is what the ends lose of all that is reached."""

    image: tuple[int, ...]
    channels: int
    outputs: int
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    cut: tuple[int, ...]
    dilation: tuple[int, ...] = ()
    group: int = 1
    batch: int = 1


SPREADS = [
    Spread((5, 6), 3, 4, (2, 2), (2, 2), (0, 0), (0, 0), batch=2),
    Spread((7, 5), 17, 9, (4, 4), (2, 2), (1, 1), (1, 1)),
    Spread((6, 7), 4, 18, (3, 3), (2, 2), (1, 1), (0, 0)),
    Spread((4, 5), 4, 6, (3, 2), (2, 3), (1, 0), (-1, 1), group=2),
    Spread((3, 4), 2, 3, (1, 2), (3, 4), (0, -2), (1, -3)),
    Spread((4, 3), 3, 2, (3, 2), (4, 3), (2, 1), (0, 1), dilation=(2, 3)),
    Spread((5, 4), 2, 2, (5, 3), (3, 2), (4, 3), (5, 2), dilation=(1, 2), group=2),
    Spread((3, 3), 2, 3, (2, 2), (1, 1), (0, 1), (1, 0)),
    Spread((6,), 5, 3, (4,), (2,), (1,), (1,)),
    Spread((2, 3, 2), 2, 3, (2, 1, 3), (2, 2, 1), (0, 0, 1), (0, -1, 1)),
    Spread((2, 3), 2, 3, (2, 1), (1, 2), (4, 0), (-4, -3)),
    Spread((2, 3), 2, 9, (2, 3), (3, 2), (-8, 0), (8, -6)),
    Spread((5, 4), 6, 1, (9, 9), (3, 3), (4, 3), (2, 4), batch=2),
    Spread((3, 2, 3), 6, 1, (4, 4, 3), (2, 2, 2), (1, 0, 1), (1, 2, 0)),
]


def _scatter(spread: Spread, x: Array, filter: Array, bias: Array) -> Array:
    """Every input element adds to all that its kernel reaches, in f64."""
    rank, group = len(spread.image), spread.group
    dilation = spread.dilation or (1,) * rank
    axes = list(zip(spread.image, spread.kernels, spread.strides, dilation, strict=True))
    whole = [(size - 1) * stride + (kernel - 1) * step + 1 for size, kernel, stride, step in axes]
    ends = [begin + cut for begin, cut in zip(spread.begins, spread.cut, strict=True)]
    sizes = [size - end for size, end in zip(whole, ends, strict=True)]
    result = np.zeros((spread.batch, *sizes, spread.outputs)) + bias
    depth, per_group = spread.channels // group, spread.outputs // group
    for place in np.ndindex(*spread.image):
        for tap in np.ndindex(*spread.kernels):
            at = tuple(
                p * stride + t * step - begin
                for p, t, (_, _, stride, step), begin in zip(
                    place, tap, axes, spread.begins, strict=True
                )
            )
            if not all(0 <= a < size for a, size in zip(at, sizes, strict=True)):
                continue
            for g in range(group):
                own, to = (
                    slice(g * depth, (g + 1) * depth),
                    slice(g * per_group, (g + 1) * per_group),
                )
                weights = filter[(to, *tap, slice(None))].astype(np.float64)
                result[(slice(None), *at, to)] += x[(slice(None), *place, own)] @ weights.T
    return result


def _spread_cases(kind: ElemKind, constants: frozenset[int]) -> Iterator[Case]:
    for spread in SPREADS:
        rank, make = len(spread.image), normal_array if kind.is_float else random_array
        x = make(kind, (spread.batch, *spread.image, spread.channels), 1)
        filter = make(kind, (spread.outputs, *spread.kernels, spread.channels // spread.group), 2)
        bias = make(kind, (spread.outputs,), 3)
        expected = _scatter(spread, x, filter, bias)
        terms = math.prod(spread.kernels) * spread.channels // spread.group + 1
        attrs = {
            "kernels": spread.kernels,
            "strides": spread.strides,
            "begins": spread.begins,
            "dilation": spread.dilation or (1,) * rank,
            "group": spread.group,
        }
        yield Case(
            [x, filter, bias], [expected], attrs, Type(kind, expected.shape),
            sum_tolerance(kind, terms), constants,
        )  # fmt: skip


def _filter_sums(geometry: Geometry, x: Array, flow: Array) -> Array:
    """The sums over images and pixels of what meets each tap, in f64."""
    attrs, rank = geometry.attrs, len(geometry.image)
    pads: tuple[int, ...] = attrs["pads"]  # type: ignore[assignment]
    spatial = list(zip(pads[:rank], pads[rank:], strict=True))
    wide = np.pad(x.astype(np.float64), [(0, 0), *spatial, (0, 0)])
    grouped = flow.astype(np.float64).reshape(*flow.shape[:-1], geometry.group, -1)
    result = np.zeros((geometry.outputs, *geometry.kernels, geometry.channels // geometry.group))
    steps = list(zip(attrs["strides"], attrs["dilation"], flow.shape[1:-1], strict=True))  # type: ignore[call-overload]
    for tap in np.ndindex(*geometry.kernels):
        box = tuple(
            slice(at * step, at * step + stride * (count - 1) + 1, stride)
            for at, (stride, step, count) in zip(tap, steps, strict=True)
        )
        met = wide[(slice(None), *box)].reshape(*flow.shape[:-1], geometry.group, -1)
        last = (met.reshape(-1, *met.shape[-2:]), grouped.reshape(-1, *grouped.shape[-2:]))
        sums = np.einsum("pgi,pgo->goi", *last)
        result[(slice(None), *tap)] = sums.reshape(geometry.outputs, -1)
    return result


def _filter_gradient_cases(kind: ElemKind) -> Iterator[Case]:
    for geometry in (GEOMETRIES[i] for i in (5, 6, 8, 10, 12, 15)):
        arrays = geometry.arrays(kind)
        flow = normal_array(kind, _expected(arrays, geometry).shape, 4)
        expected = _filter_sums(geometry, arrays[0], flow)
        attrs = {key: value for key, value in geometry.attrs.items() if key != "pads"}
        attrs["begins"] = geometry.attrs["pads"][: len(geometry.image)]  # type: ignore[index]
        terms = geometry.batch * math.prod(flow.shape[1:-1])
        yield Case(
            [arrays[0], flow],
            [expected],
            attrs,
            Type(kind, expected.shape),
            sum_tolerance(kind, terms),
        )


KINDS = (*FLOATS, ElemKind.I8, ElemKind.I32)
ROWS = [
    Row(ConvolutionNode, KINDS, lambda kind: _cases(kind, frozenset())),
    Row(
        ConvolutionNode,
        FLOATS,
        lambda kind: _cases(kind, frozenset({1, 2})),
        title="convolution of constants",
    ),
    *(
        Row(
            ConvolutionNode,
            (ElemKind.F64,),
            partial(_cases, constants=frozenset(constants)),
            title=f"convolution in f64, {'constants' if constants else 'computed'}",
        )
        for constants in ((), (1, 2))
    ),
    Row(TransposedConvolutionNode, FLOATS, lambda kind: _spread_cases(kind, frozenset())),
    Row(
        TransposedConvolutionNode,
        (ElemKind.F16, ElemKind.F32, ElemKind.F64),
        lambda kind: _spread_cases(kind, frozenset({1, 2})),
        title="transposed convolution of constants",
    ),
    Row(FilterGradientNode, FLOATS, _filter_gradient_cases),
]


@on_every_backend(ROWS)
def test_convolution(row: Row, backend: str) -> None:
    check_row(row, backend)
