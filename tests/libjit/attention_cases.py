"""What the kernel of attention is called with: a few queries and many, with masks of every shape, against f64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from glowpy.backends.cpu.strategy.attention import FEW_QUERIES
from glowpy.core.tensor import Array
from tests.libjit.kernel_cases import DTYPES, Attr, Case, Maker, Shape, specials

_PLAIN: dict[str, Attr] = {
    "scale": 0.25,
    "softcap": 0.0,
    "bias_chooses": False,
    "mask_chooses": False,
    "causal": False,
    "diagonal": 0,
    "clears_nan": False,
    "in_bf16": False,
}


def reference(
    operands: dict[str, Array],
    *,
    scale: float,
    softcap: float,
    bias_chooses: bool,
    mask_chooses: bool,
    causal: bool,
    diagonal: int,
    clears_nan: bool,
    in_bf16: bool = False,
    **_: Attr,
) -> Array:
    """Attention in f64, with all scores in memory. In bf16 the operands are rounded, and the weights are not."""
    rounds = in_bf16 and operands["query"].shape[2] > FEW_QUERIES
    kind = DTYPES["bf16"] if rounds else np.dtype(np.float32)
    query, key, value = (
        operands[name].astype(kind).astype(np.float64) for name in ("query", "key", "value")
    )
    served = query.shape[1] // key.shape[1]
    scores = query @ np.repeat(key, served, 1) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    for name, chooses in (("bias", bias_chooses), ("mask", mask_chooses)):
        one = operands[name].astype(np.float64)
        if one.ndim == 4:
            one = np.swapaxes(one, 2, 3)
            scores = np.where(one != 0, one, scores) if chooses else scores + one
    if causal:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(columns > rows + diagonal, -np.inf, scores)
    powers = np.exp(scores - scores.max(3, keepdims=True))
    weights = powers / powers.sum(3, keepdims=True)
    if clears_nan:
        weights = np.where(np.isnan(weights), 0, weights)
    return np.asarray(weights @ np.repeat(value, served, 1))


def _case(
    shape: tuple[int, ...],
    lanes: int,
    decision: tuple[int, ...],
    bias: Shape = (0,),
    mask: Shape = (0,),
    **attrs: Any,
) -> Case:
    """Of batch, heads, heads that are shared, queries, keys, depth and width.

    The decision is units, groups of a unit, keys of a block, of a tile, queries of a tile, and vectors of a group.
    """
    batch, heads, shared, queries, keys, depth, width = shape
    random = np.random.default_rng(list(shape))

    def some(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape), np.float32)

    units, groups, block, tile_keys, tile_rows, vectors = decision
    group = vectors * lanes
    rows, padded = groups * group, -(-width // group) * group
    score_rows = -(-block // tile_keys) * tile_keys
    in_bf16 = attrs.get("in_bf16", False)
    arranged = (
        score_rows * -(-depth // 2) + -(-block // 2) * padded
        if in_bf16
        else tile_keys * depth + (block if padded != width else 0) * padded
    )
    size = rows * (depth + padded + 2) + arranged + score_rows * group
    operands = {
        "query": some(batch, heads, queries, depth),
        "key": some(batch, shared, depth, keys),
        "value": some(batch, shared, keys, width),
        "bias": some(*bias),
        "mask": np.where(random.random(mask) < 0.5, np.float32(-20), np.float32(0)),
        "work": np.zeros((units, size), np.float32),
    }
    if attrs.pop("endless", False):
        operands["mask"] = np.where(operands["mask"] == 0, np.float32(0), np.float32(-np.inf))
        operands["query"][0, 0, 0] = specials("f32", (depth,))
        operands["value"][0, 0, 0, 0] = np.inf
    free = ("units", "rows", "block", "tile_keys", "tile_rows", "group")
    chosen = dict(
        zip(free, (units, rows, block, tile_keys, min(tile_rows, group), group), strict=True)
    )
    whole = {**_PLAIN, **attrs, **chosen}
    result = reference(operands, **whole)
    rtol, atol = (0.02, 0.02) if in_bf16 else (2e-5, 2e-6)
    return Case(operands, {"result": result.astype(np.float32)}, whole, rtol=rtol, atol=atol)


def _cpu_attention(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    del suffixes
    for in_bf16 in (False, True):
        yield from _many_queries(lanes, in_bf16=in_bf16)
        yield from _special_masks(lanes, in_bf16=in_bf16)
        yield from _few_queries(lanes, in_bf16=in_bf16)


def _many_queries(lanes: int, *, in_bf16: bool) -> Iterator[Case]:
    some = partial(_case, in_bf16=in_bf16)
    several, one = 2 * lanes + 3, lanes
    yield some((1, 1, 1, 5, 1, 1, 1), lanes, (1, 1, 1, 1, 1, 1))
    yield some((2, 2, 2, several, 19, 5, lanes), lanes, (3, 1, 7, 3, 4, 2))
    yield some(
        (1, 3, 3, one + 4, 33, 8, 2 * lanes + 1), lanes, (2, 2, 16, 6, 3, 2), (1, 3, 33, one + 4)
    )
    yield some(
        (2, 4, 2, 5 * lanes, 24, 4, 3 * lanes),
        lanes,
        (5, 2, 24, 13, 8, 2),
        (1, 1, 24, 1),
        (2, 1, 1, 5 * lanes),
    )
    yield some(
        (1, 2, 1, several, 17, 3, 7),
        lanes,
        (2, 1, 8, 4, 2, 1),
        (0,),
        (1, 2, 17, several),
        mask_chooses=True,
    )
    yield some((1, 1, 1, 40, 40, 6, 5), lanes, (2, 1, 9, 4, 4, 2), causal=True, diagonal=0)
    yield some(
        (1, 1, 1, 21, 30, 6, 5), lanes, (2, 1, 9, 4, 4, 1), causal=True, diagonal=9, softcap=0.5
    )


def _special_masks(lanes: int, *, in_bf16: bool) -> Iterator[Case]:
    some = partial(_case, in_bf16=in_bf16)
    several = 2 * lanes + 3
    yield some((2, 1, 1, 9, 12, 4, 4), lanes, (1, 1, 5, 4, 2, 1), (0,), (2, 1, 12, 1), endless=True)
    yield some(
        (2, 1, 1, 9, 12, 4, 4),
        lanes,
        (1, 1, 5, 4, 2, 1),
        (0,),
        (2, 1, 12, 1),
        endless=True,
        clears_nan=True,
    )
    yield some(
        (1, 2, 2, several, 11, 4, 2 * lanes),
        lanes,
        (1, 1, 6, 3, 2, 2),
        (1, 2, 11, 1),
        (1, 1, 11, several),
        mask_chooses=True,
        scale=-0.5,
    )
    yield some(
        (1, 1, 1, lanes, 11, 4, lanes),
        lanes,
        (1, 1, 11, 3, 2, 1),
        (1, 1, 11, 1),
        (1, 1, 11, lanes),
        bias_chooses=True,
        mask_chooses=True,
        softcap=3.0,
    )


def _few_queries(lanes: int, *, in_bf16: bool) -> Iterator[Case]:
    """Of each head."""
    some = partial(_case, in_bf16=in_bf16)
    yield some(
        (2, 6, 2, 1, 70, 2 * lanes + 3, 5 * lanes + 2), lanes, (3, 1, 32, 8, 4, 1), (2, 1, 70, 1)
    )
    yield some(
        (1, 2, 2, 3, 12, 8, 8), lanes, (2, 1, 5, 4, 4, 1), (1, 2, 12, 3), causal=True, diagonal=9
    )
    yield some(
        (1, 2, 1, 2, 13, 4, 3),
        lanes,
        (1, 1, 4, 2, 2, 1),
        (0,),
        (1, 1, 13, 2),
        mask_chooses=True,
        softcap=2.0,
    )
    yield some((2, 1, 1, 2, 12, 4, 4), lanes, (1, 1, 5, 4, 2, 1), (0,), (2, 1, 12, 1), endless=True)
    yield some(
        (2, 1, 1, 2, 12, 4, 4),
        lanes,
        (1, 1, 5, 4, 2, 1),
        (2, 1, 12, 1),
        (2, 1, 12, 1),
        endless=True,
        bias_chooses=True,
        clears_nan=True,
    )


MAKERS: dict[str, Maker] = {"cpu_attention": _cpu_attention}
