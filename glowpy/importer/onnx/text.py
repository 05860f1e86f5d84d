"""Import of operators on texts, whose words are numbers."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import concat, convert, filled, reshape, slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import highest

__all__: list[str] = []

_MAX_COLUMNS = 1 << 24
"""Most columns of a result: a few bytes of a file may demand any number."""

_MAX_DISTANCES = 1000
"""Between the words of an n-gram: nodes are written out for each."""

_MODES = ("TF", "IDF", "TFIDF")


@from_onnx("TfIdfVectorizer", since=9)
def _tf_idf(n: OnnxNode) -> Value:
    """How often n-grams are in a row of words, or weights of those that are.

    An n-gram is found by comparing its words with those at a distance of 1, 2, ... in the row, wherever they begin.
    """
    mode = n.text("mode", "")
    if mode not in _MODES:
        raise UserError(f"mode: expected one of {', '.join(_MODES)}, got '{mode}'")
    if n.texts("pool_strings"):
        raise UserError("expected pool_int64s for an input of integers")
    value = n.value(0)
    if value.type.rank not in (1, 2):
        raise UserError(f"expected one or two dimensions, got {value.type}")
    rows = value if value.type.rank == 2 else reshape(n, value, (1, *value.type.shape))
    columns, pool = _pool(n)
    counts: list[Value] = []
    order: list[Array] = []
    for size, grams in sorted(pool.items()):
        if n.integer("min_gram_length", 1) <= size <= n.integer("max_gram_length", 1):
            counts.append(_counts(n, n.operand(convert(n, rows, ElemKind.I64)), grams))
            order.append(columns[size])
    width = 1 + max((int(group.max()) for group in columns.values()), default=-1)
    result = _weighted(n, mode, _placed(n, counts, order, rows, width), columns, width)
    return result if value.type.rank == 2 else reshape(n, result, (width,))


def _pool(n: OnnxNode) -> tuple[dict[int, Array], dict[int, Array]]:
    """By the length of n-grams, their columns in the result, and a row for the words of each."""
    words = np.array(n.integers("pool_int64s") or (), np.int64)
    starts = [*(n.integers("ngram_counts") or ()), len(words)]
    if starts != sorted(starts) or starts[0] < 0:
        raise UserError(f"ngram_counts: expected ascending places in the pool, got {starts[:-1]}")
    pool = {}
    for size, (start, end) in enumerate(pairwise(starts), 1):
        if (end - start) % size:
            raise UserError(f"expected whole {size}-grams in the pool, got {end - start} words")
        if end > start:
            pool[size] = words[start:end].reshape(-1, size)
    indices = np.array(n.integers("ngram_indexes") or (), np.int64)
    total = sum(len(grams) for grams in pool.values())
    if len(indices) != total:
        raise UserError(f"ngram_indexes: expected {total} columns, got {len(indices)} numbers")
    if ((indices < 0) | (indices >= _MAX_COLUMNS)).any():
        raise UserError(f"ngram_indexes: expected columns from 0 to {_MAX_COLUMNS - 1}")
    ends = np.cumsum([len(grams) for grams in pool.values()])
    return dict(zip(pool, np.split(indices, ends[:-1]), strict=True)), pool


def _counts(n: OnnxNode, rows: NodeValue, grams: Array) -> Value:
    """How often each n-gram is in each row: f32[rows x n-grams]."""
    length, size = rows.type.shape[1], grams.shape[1]
    shape = (rows.type.shape[0], len(grams))
    total = filled(n, Type(ElemKind.F32, shape), 0.0)
    distances = 1 + (n.integer("max_skip_count", 0) if size > 1 else 0)
    if min(distances, highest(length) // max(size - 1, 1)) > _MAX_DISTANCES:
        raise UserError(f"max_skip_count: expected less than {_MAX_DISTANCES}, got {distances - 1}")
    for distance in range(1, distances + 1):
        reach = (size - 1) * distance
        if highest(length) <= reach:
            break
        matches: NodeValue | None = None
        for place in range(size):
            words = slice_axis(n, rows, 1, place * distance, length - reach, 1)
            words = n.operand(reshape(n, words, (*words.type.shape, 1)))
            equal = n.f.create_eq(n.name, words, n.operand(Tensor.of(grams[:, place].copy())))
            both = equal if matches is None else n.f.create_and(n.name, matches, equal.result)
            matches = both.result
        assert matches is not None
        numbers = n.operand(convert(n, matches, ElemKind.F32))
        summed = reshape(n, n.f.create_reduce_add(n.name, numbers, (1,)).result, shape)
        total = n.f.create_add(n.name, n.operand(total), n.operand(summed)).result
    return total


def _placed(
    n: OnnxNode, counts: list[Value], order: list[Array], rows: Value, width: int
) -> NodeValue:
    """The counts in their columns; those of n-grams with one column are added."""
    shape = rows.type.shape[0]
    zero = filled(n, Type(ElemKind.F32, (shape, 1)), 0.0)
    sources: dict[int, list[int]] = defaultdict(list)
    for source, column in enumerate(np.concatenate(order) if order else ()):
        sources[int(column)].append(source)
    none = sum(len(group) for group in order)
    columns = n.operand(concat(n, [*counts, zero], 1))
    total: NodeValue | None = None
    for turn in range(max(map(len, sources.values()), default=1)):
        picked = [next(iter(sources[c][turn : turn + 1]), none) for c in range(width)]
        indices = n.operand(Tensor.of(np.array(picked, np.int64)))
        part = n.f.create_gather(n.name, columns, indices, 1).result
        total = part if total is None else n.f.create_add(n.name, total, part).result
    assert total is not None
    return total


def _weighted(
    n: OnnxNode, mode: str, counts: NodeValue, columns: dict[int, Array], width: int
) -> Value:
    """Weights counts by the mode; there is a weight for each n-gram of the pool."""
    if mode == "IDF":
        ones = n.operand(Tensor.splat(Type(ElemKind.F32, (1, 1)), 1.0))
        counts = n.f.create_min(n.name, counts, ones).result
    weights = n.reals("weights")
    if mode == "TF" or not weights:
        return counts
    places = np.concatenate([*columns.values()])
    if len(weights) != len(places):
        raise UserError(f"weights: expected {len(places)} numbers, got {len(weights)}")
    row = np.zeros(width, np.float32)
    row[places] = weights
    return n.f.create_mul(n.name, counts, n.operand(Tensor.of(row))).result
