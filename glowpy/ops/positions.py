"""Positions and extents as values, for rules that compute with them where shapes may be open."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.support.symbolic import Dim, product

__all__ = ["extent", "number", "positions", "restored", "rows_along"]


def positions(f: Function, name: str, count: Dim) -> NodeValue:
    """0, 1, 2... as i64[count]."""
    ones = f.create_splat(name, Type(ElemKind.I64, (count,)), 1)
    return f.create_cum_sum(name, ones, 0, True, False).result


def number(f: Function, name: str, value: int) -> NodeValue:
    """A number as i64[]."""
    return f.create_splat(name, Type(ElemKind.I64, ()), value).result


def extent(f: Function, name: str, dim: Dim) -> NodeValue:
    """A dimension as i64[1]."""
    if isinstance(dim, int):
        return f.create_splat(name, Type(ElemKind.I64, (1,)), dim).result
    return f.create_extents(name, (dim,)).result


def rows_along(f: Function, name: str, value: NodeValue, axis: int) -> NodeValue:
    """A value as a matrix, whose rows run along one dimension."""
    others = [other for other in range(value.type.rank) if other != axis]
    moved = f.create_transpose(name, value, (*others, axis))
    count = product(value.type.shape[other] for other in others)
    matrix = value.type.with_shape((count, value.type.shape[axis]))
    return f.create_reshape(name, matrix, moved).result


def restored(f: Function, name: str, rows: NodeValue, like: Type, axis: int) -> NodeValue:
    """The value of a type whose matrix of `rows_along` this is."""
    others = [other for other in range(like.rank) if other != axis]
    apart = like.with_shape((*(like.shape[other] for other in others), like.shape[axis]))
    back = (*range(axis), like.rank - 1, *range(axis, like.rank - 1))
    return f.create_transpose(name, f.create_reshape(name, apart, rows), back).result
