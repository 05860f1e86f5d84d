"""Conversion between every pair of element kinds."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.nodes_gen import ConvertNode
from glowpy.ops.operands import bounds
from tests.ops.harness import ALL, HALVES, Case, Row, check_row, on_every_backend, scalar_suffixes
from tests.ops.test_elementwise import special_values


def _values(kind: ElemKind) -> Array:
    """Special values, and for floats the neighbourhood of the limits of every integer kind."""
    special = special_values(kind)
    if not kind.is_float:
        return special
    limits = [float(2**bits) for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
    with np.errstate(over="ignore"):
        near = np.array([sign * limit for limit in limits for sign in (1, -1)], kind.dtype)
        inward, outward = near * (1 - 2.0**-7), near * (1 + 2.0**-7)
    return np.concatenate([special, near, inward.astype(kind.dtype), outward.astype(kind.dtype)])


def _integer(item: float, kind: ElemKind) -> int:
    """The integer a number becomes: floats truncate and saturate, integers wrap."""
    low, high = (int(limit) for limit in bounds(kind))
    if isinstance(item, int):
        wrapped = item & ((1 << 8 * kind.size) - 1)
        return wrapped - (1 << 8 * kind.size) if wrapped > high else wrapped
    if math.isnan(item):
        return 0
    if math.isinf(item):
        return high if item > 0 else low
    return max(low, min(high, math.trunc(item)))


def _converted(array: Array, to: ElemKind) -> Array:
    source = ElemKind.of(array.dtype)
    items = [float(x) if source.is_float else int(x) for x in array]
    if to is ElemKind.BOOL:
        return np.array([item != 0 for item in items])
    if to.is_integer:
        return np.array([_integer(item, to) for item in items], to.dtype)
    if to in HALVES and not source.is_float:
        return np.array(items, np.float64)  # exact, or far above the largest half
    return array.astype(np.float64 if source.is_float else to.dtype)


def _cases(source: ElemKind) -> Iterator[Case]:
    array = _values(source)
    supported = [kind for kind in ALL if kind.suffix in scalar_suffixes("convert")]
    targets = supported if source in supported else list(reversed(ALL))
    for target in targets:
        type = Type(target, array.shape)
        yield Case([array], [_converted(array, target)], result_type=type)


def _to_halves(source: ElemKind) -> Iterator[Case]:
    array = _values(source)
    for target in HALVES:
        if target is source:
            continue  # among _cases
        yield Case([array], [_converted(array, target)], result_type=Type(target, array.shape))


ROWS = [
    Row(ConvertNode, ALL, _cases, title="convert", thinned=False),
    Row(ConvertNode, ALL, _to_halves, title="convert to halves"),
]


@on_every_backend(ROWS)
def test_convert(row: Row, backend: str) -> None:
    check_row(row, backend)
