"""Operators that move elements, against numpy's indexing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.nodes_gen import (
    BitCastNode,
    BroadcastNode,
    ConcatNode,
    ExtentsNode,
    PadNode,
    ReshapeNode,
    SliceNode,
    SplatNode,
    TransposeNode,
)
from tests.ops.harness import ALL, NUMBERS, Case, Row, check_row, on_every_backend, random_array


def _numbered(kind: ElemKind, shape: Sequence[int]) -> Array:
    """Elements that tell their place, as far as the kind can."""
    if kind is ElemKind.BOOL:
        return random_array(kind, shape)
    count = int(np.prod(shape))
    return (np.arange(count) % 113).astype(kind.dtype).reshape(shape)


def _transpose(kind: ElemKind) -> Iterator[Case]:
    shuffles: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((7,), (0,)),
        ((37, 41), (1, 0)),
        ((1, 13), (1, 0)),
        ((2, 5, 7, 3), (0, 3, 1, 2)),
        ((2, 5, 7, 3), (0, 2, 3, 1)),
        ((2, 0, 3), (2, 0, 1)),
        ((3, 2, 4, 1, 5), (4, 2, 0, 3, 1)),
        ((2, 3, 2, 1, 2, 3, 1, 2), (7, 0, 6, 1, 5, 2, 4, 3)),
        *(((3, 5, 2), shuffle) for shuffle in itertools.permutations(range(3))),
    ]
    for shape, shuffle in shuffles:
        x = _numbered(kind, shape)
        yield Case([x], [x.transpose(shuffle)], {"shuffle": shuffle})


def _reshape(kind: ElemKind) -> Iterator[Case]:
    for shape, target in [
        ((6,), (2, 3)),
        ((), (1, 1)),
        ((2, 3, 5), (30,)),
        ((0, 3), (5, 0)),
        ((4, 3, 2), (2, 2, 1, 3, 2)),
    ]:
        x = _numbered(kind, shape)
        yield Case([x], [x.reshape(target)], result_type=Type(kind, target))


def _broadcast(kind: ElemKind) -> Iterator[Case]:
    for shape, target in [
        ((), ()),
        ((1,), (7,)),
        ((3, 1), (3, 17)),
        ((1, 3, 1, 5), (2, 3, 4, 5)),
        ((2, 1), (2, 0)),
        ((1, 2, 1, 1, 3, 1, 1, 2), (2, 2, 3, 1, 3, 2, 1, 2)),
    ]:
        x = _numbered(kind, shape)
        yield Case([x], [np.broadcast_to(x, target)], result_type=Type(kind, target))


def _splat(kind: ElemKind) -> Iterator[Case]:
    for shape, value in [((), 1.0), ((7, 3), 0.0), ((0, 2), 1.0), ((2, 17), 3.0)]:
        expected = np.full(shape, value).astype(kind.dtype)
        yield Case([], [expected], {"value": value}, result_type=Type(kind, shape))
    if not kind.is_integer:
        return
    low, high = kind.limits
    for value, element in [
        (-math.inf, low),
        (low - 1.0, low),
        (2.0**70, high),
        (math.nan, 0),
        (1.9, 1),
    ]:
        expected = np.full((2, 3), element, kind.dtype)
        yield Case([], [expected], {"value": value}, result_type=Type(kind, (2, 3)))


def _extents(kind: ElemKind) -> Iterator[Case]:
    for values in [(), (7,), (2, 0, 2**40, 5)]:
        yield Case([], [np.array(values, kind.dtype)], {"values": values})


def _concat(kind: ElemKind) -> Iterator[Case]:
    groups: list[tuple[list[tuple[int, ...]], int]] = [
        ([(3,), (5,)], 0),
        ([(2, 3), (2, 1), (2, 7)], 1),
        ([(2, 3), (1, 3)], 0),
        ([(2, 3, 5), (2, 0, 5), (2, 1, 5)], 1),
        ([(4, 2)], 1),
        ([(1, 5, 5, 3), (1, 5, 5, 17)], 3),
    ]
    for shapes, axis in groups:
        arrays = [_numbered(kind, shape) for shape in shapes]
        yield Case(arrays, [np.concatenate(arrays, axis=axis)], {"axis": axis})


def _slice(kind: ElemKind) -> Iterator[Case]:
    for shape, slices in [
        ((7,), [slice(2, 5)]),
        ((7,), [slice(None, None, -1)]),
        ((5, 11), [slice(1, 4), slice(2, 11, 3)]),
        ((5, 11), [slice(None, None, -2), slice(10, None, -4)]),
        ((2, 3, 4, 5), [slice(1, 2), slice(None), slice(0, 3), slice(1, None, 2)]),
        ((4, 3), [slice(2, 2), slice(None)]),
    ]:
        x = _numbered(kind, shape)
        bounds = [part.indices(size) for part, size in zip(slices, shape, strict=True)]
        expected = x[tuple(slices)]
        attrs = {"starts": tuple(b[0] for b in bounds), "steps": tuple(b[2] for b in bounds)}
        yield Case([x], [expected], attrs, result_type=Type(kind, expected.shape))
    scalar = _numbered(kind, ())
    yield Case([scalar], [scalar], {"starts": (), "steps": ()}, result_type=Type(kind, ()))


def _pad(kind: ElemKind) -> Iterator[Case]:
    for shape, pads, value in [
        ((5,), (2, 3), 1.0),
        ((3, 4), (0, 1, 2, 0), 0.0),
        ((2, 3, 4, 5), (0, 1, 1, 0, 0, 2, 0, 3), 2.0),
        ((5, 6), (-1, 2, 0, -3), 1.0),
        ((5, 6), (-2, -1, -2, -4), 1.0),
        ((0, 2), (1, 0, 1, 1), 3.0),
        ((2, 3), (-2, 0, 2, 0), 1.0),
        ((), (), 1.0),
    ]:
        x = _numbered(kind, shape)
        rank = len(shape)
        pairs = list(zip(pads[:rank], pads[rank:], strict=True))
        kept = x[
            tuple(
                slice(max(-b, 0), size - max(-e, 0))
                for (b, e), size in zip(pairs, shape, strict=True)
            )
        ]
        around = [(max(b, 0), max(e, 0)) for b, e in pairs]
        fill = np.asarray(value).astype(kind.dtype)
        expected = np.pad(kept, around, constant_values=fill) if rank else x
        yield Case([x], [expected], {"pads": pads, "value": value})


def _bit_cast(kind: ElemKind) -> Iterator[Case]:
    others = [other for other in NUMBERS if other.size == kind.size and other is not kind]
    for other in (kind, *others):
        for shape in ((), (17,), (3, 5), (0, 2)):
            x = _numbered(kind, shape)
            expected = x.reshape(-1).view(other.dtype).reshape(shape)
            yield Case([x], [expected], result_type=Type(other, shape))


ROWS = [
    Row(BitCastNode, NUMBERS, _bit_cast),
    Row(TransposeNode, ALL, _transpose),
    Row(ReshapeNode, ALL, _reshape),
    Row(BroadcastNode, ALL, _broadcast),
    Row(SplatNode, ALL, _splat),
    Row(ExtentsNode, (ElemKind.I64,), _extents),
    Row(ConcatNode, ALL, _concat),
    Row(SliceNode, ALL, _slice),
    Row(PadNode, ALL, _pad),
]


@on_every_backend(ROWS)
def test_shape(row: Row, backend: str) -> None:
    check_row(row, backend)
