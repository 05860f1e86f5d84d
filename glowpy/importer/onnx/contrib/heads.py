"""Parts that all forms of attention share: heads, masks as terms of the scores, and the weighted sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import concat, convert, full, reshape, slice_axis, transpose
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = [
    "LOWEST",
    "added",
    "bias_term",
    "causal_term",
    "check_type",
    "extended",
    "joined",
    "masked_term",
    "mixed",
    "scores",
    "scores_type",
    "split",
]


LOWEST = float(np.finfo(np.float32).min)
"""The term that outweighs every score."""


def check_type(n: OnnxNode, index: int, shape: Sequence[Dim]) -> None:
    """Raises UserError unless input `index` has this shape."""
    if not is_same_shape(n.type(index).shape, tuple(shape)):
        raise UserError(
            f"expected the shape {list(shape)} as input {index} ('{n.proto.input[index]}'), got {n.type(index)}"
        )


def split(n: OnnxNode, value: Value, heads: int) -> NodeValue:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    batch, length, _ = value.type.shape
    width = value.type.extent(-1)
    if heads < 1 or width % heads:
        raise UserError(f"expected {width} elements in equal heads, got {heads} heads")
    parts = reshape(n, value, (batch, length, heads, width // heads))
    return n.operand(transpose(n, parts, (0, 2, 1, 3)))


def joined(n: OnnxNode, value: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, length, size = value.type.shape
    return reshape(n, transpose(n, value, (0, 2, 1, 3)), (batch, length, heads * size))


def extended(n: OnnxNode, past: Value | None, value: NodeValue) -> NodeValue:
    """The keys or values of the past, if any, and those that come now."""
    if past is None:
        return value
    shape, new = past.type.shape, value.type.shape
    if len(shape) != 4 or not is_same_shape((*shape[:2], shape[3]), (*new[:2], new[3])):
        raise UserError(f"expected a past that fits {value.type}, got {past.type}")
    return n.operand(concat(n, [past, value], 2))


def added(n: OnnxNode, value: NodeValue, terms: Sequence[Value | None]) -> NodeValue:
    """The sum of the value and those terms that are there, which broadcast to it."""
    for term in terms:
        if term is not None:
            value = n.f.create_add(n.name, value, n.operand(term)).result
    return value


def scores_type(query: NodeValue, key: NodeValue) -> Type:
    """The type of `scores`, f32 for halves. Raises UserError if the keys do not fit the queries, or are empty."""
    left, right = query.type.shape, key.type.shape
    if not query.type.extent(-1):
        raise UserError(f"expected heads of at least one element, got queries of {query.type}")
    if not is_same_shape((*left[:2], left[3]), (*right[:2], right[3])):
        raise UserError(f"expected keys that fit queries of {query.type}, got {key.type}")
    kind = ElemKind.F32 if query.type.kind.is_half else query.type.kind
    return Type(kind, (*left[:3], right[2]))


def scores(n: OnnxNode, query: NodeValue, key: NodeValue) -> NodeValue:
    """All queries times all keys, [batch, heads, queries, keys], times `scale`, 1 / sqrt(size) if not given."""
    type = scores_type(query, key)
    turned = n.operand(transpose(n, convert(n, key, type.kind), (0, 1, 3, 2)))
    product = n.f.create_mat_mul(n.name, n.operand(convert(n, query, type.kind)), turned)
    factor = n.real("scale", 0.0) or 1 / math.sqrt(max(query.type.extent(-1), 1))
    scale = n.f.create_splat(f"{n.name}_scale", Type(type.kind, ()), factor)
    return n.f.create_mul(n.name, product, scale).result


def mixed(n: OnnxNode, weights: NodeValue, value: NodeValue) -> Value:
    """The values, weighed: [batch, queries, heads * size]."""
    keys = weights.type.shape[3:]
    if not is_same_shape(keys, value.type.shape[2:3]):
        raise UserError(f"expected values for {keys[0]} keys, got {value.type}")
    wide = n.operand(convert(n, value, weights.type.kind))
    product = n.f.create_mat_mul(n.name, weights, wide).result
    return joined(n, convert(n, product, value.type.kind))


def _term(n: OnnxNode, kept: NodeValue, type: Type, lowest: float) -> Value:
    """0 where something is kept, else `lowest`."""
    scalar = Type(type.kind, ())
    zero = n.operand(full(scalar, 0), f"{n.name}_zero")
    return n.f.create_select(n.name, kept, zero, n.operand(full(scalar, lowest))).result


def causal_term(n: OnnxNode, type: Type, past: Dim) -> Value | None:
    """The term that keeps queries from later keys, if `unidirectional` is set; `past` keys precede the first query.

    It outweighs every other mask: a query that may see no key at all still looks only back.
    """
    queries, keys = type.shape[2:]
    if not n.flag("unidirectional") or queries == 1:
        return None
    if not is_same_shape((keys,), (past + queries,)):
        raise n.unsupported(f"unidirectional 1 for {queries} queries and {keys - past} keys")
    is_visible = counted(n, keys) <= counted(n, queries).reshaped(queries, 1) + past
    return _term(n, n.operand(is_visible.value, f"{n.name}_causal"), type, LOWEST)


def masked_term(n: OnnxNode, index: int, type: Type, *, starts: bool) -> Value | None:
    """The term that keeps all queries from keys that input `index` masks, if it is given.

    The mask says for each key [batch, keys], or for each query as well [batch, queries, keys], whether it is above 0;
    or it is the number of keys [batch], which if `starts` may be followed by where they begin [2 * batch]; then a
    column [batch or 1, 1] stands for no mask, whatever is in it.
    """
    if not n.has(index):
        return None
    batch, _, queries, keys = type.shape
    mask, f, lowest = n.input(index), n.f, n.real("mask_filter_value", -10000.0)
    shape = mask.type.shape
    if starts and shape in ((batch, 1), (1, 1)):
        return None  # for a single key as well, which counts whatever masks it
    if is_same_shape(shape, (batch, queries, keys)[:: 1 if len(shape) == 3 else 2]):
        rows = queries if len(shape) == 3 else 1
        wide = n.operand(reshape(n, mask, (batch, 1, rows, keys)))
        zero = n.operand(full(Type(mask.type.kind, ()), 0), f"{n.name}_zero")
        return _term(n, f.create_lt(n.name, zero, wide).result, type, lowest)
    parts = 2 if starts and shape == (2 * batch,) else 1
    if not is_same_shape(shape, (parts * batch,)):
        name = n.proto.input[index]
        raise n.unsupported(f"a mask of {mask.type} as input {index} ('{name}') of scores {type}")
    places = n.operand(counted(n, keys).to(mask.type.kind).value, f"{n.name}_places")
    bounds = reshape(n, mask, (parts, batch, 1, 1, 1))
    end, *start = (
        n.operand(reshape(n, slice_axis(n, bounds, 0, i, 1, 1), (batch, 1, 1, 1)))
        for i in range(parts)
    )
    is_visible = f.create_lt(n.name, places, end).result
    if start:
        is_visible = f.create_and(n.name, is_visible, f.create_le(n.name, start[0], places)).result
    return _term(n, is_visible, type, lowest)


def bias_term(n: OnnxNode, index: int, type: Type) -> Value | None:
    """Input `index`, which is added to the scores, if it is given."""
    if not n.has(index):
        return None
    shape, expected = n.type(index).shape, type.shape
    ones = tuple(1 if dim == 1 else size for dim, size in zip(shape[:2], expected, strict=False))
    if not is_same_shape(shape, (*ones, *expected[2:])):
        raise UserError(
            f"expected a bias that broadcasts to scores {type} as input {index} "
            f"('{n.proto.input[index]}'), got {n.type(index)}"
        )
    return convert(n, n.value(index), type.kind)
