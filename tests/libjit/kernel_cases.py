"""What the kernels of KERNELS are called with, and what they must answer; products are in product_cases.py.

* Sizes lie around the widths of vectors and tiles.
* Floats are small multiples of a quarter wherever a kernel only adds and multiplies: all sums are then exact,
  in whatever order they are computed, and so is the comparison.
* Integers range over everything their type holds, and wrap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array

Attr = int | float | bool | tuple[int, ...]
Shape = tuple[int, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "b": np.dtype(np.bool_),
    **{kind.suffix: kind.dtype for kind in ElemKind if kind.is_code},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"{sort}{bits}": np.dtype(f"uint{bits}") for sort in "ux" for bits in (8, 16, 32, 64)},
}
"""The element of each suffix."""

LENGTHS = (0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127)
EDGY = (1, 7, 16, 17, 33, 65)
BEYOND_ANY_BLOCK = 16387
"""More elements than reduce.c folds into one vector accumulator, of any kind."""


@dataclass(frozen=True)
class Case:
    """One call of a kernel: operands that it reads, or that are scratch, and what it must write, by name."""

    operands: Mapping[str, Array]
    expected: Mapping[str, Array]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    rtol: float = 0
    atol: float = 0

    def __str__(self) -> str:
        shapes = {name: array.shape for name, array in self.operands.items()}
        return f"{shapes} {dict(self.attrs)}"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether elements are floats. numpy knows bf16 as bytes of no kind."""
    return dtype.kind == "f" or dtype == DTYPES["bf16"]


def numbers(suffix: str, shape: Shape, seed: int = 0) -> Array:
    """Multiples of a quarter, or integers over their whole range."""
    rng = np.random.default_rng([seed, *shape])
    dtype = DTYPES[suffix]
    if is_float(dtype):
        return np.asarray(rng.integers(-8, 9, shape) / 4).astype(dtype)
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))


def specials(suffix: str, shape: Shape, seed: int = 0) -> Array:
    """The ends of the range, zeros of both signs, infinities and NaN, in any order."""
    dtype = DTYPES[suffix]
    if is_float(dtype):
        some: list[float] = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
        picked = np.array(some, dtype)
    else:
        limits = np.iinfo(dtype)
        picked = np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
    return np.asarray(np.random.default_rng([seed, *shape]).choice(picked, shape))


# ------------------------------------------------------------------------------------- moving elements

_EIGHT = (2, 1, 3, 2, 1, 2, 3, 2)
_TRANSPOSED: list[tuple[Shape, Shape]] = [
    ((), ()),
    ((17,), (0,)),
    *(((n, m), (1, 0)) for n, m in itertools.product(EDGY, EDGY)),
    *(((3, 17, 1, 9), shuffle) for shuffle in itertools.permutations(range(4))),
    *(((5, 33, 18), shuffle) for shuffle in itertools.permutations(range(3))),
    (_EIGHT, (7, 6, 5, 4, 3, 2, 1, 0)),
    (_EIGHT, (3, 0, 7, 1, 6, 2, 5, 4)),
    ((0, 3), (1, 0)),
    ((4, 0, 3), (2, 0, 1)),
]


def _transpose(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    for shape, shuffle in _TRANSPOSED:
        x = numbers(suffixes[0], shape)
        result = np.ascontiguousarray(x.transpose(shuffle)).reshape([shape[i] for i in shuffle])
        yield Case({"input": x}, {"result": result}, {"shuffle": shuffle})


_BROADCASTS: list[tuple[Shape, Shape]] = [
    ((), ()),
    *(((1,), (n,)) for n in LENGTHS),
    *(((n, 1), (n, 33)) for n in LENGTHS),
    *(((1, n), (5, n)) for n in LENGTHS),
    ((3, 1, 5), (3, 17, 5)),
    ((1, 7, 1), (4, 7, 9)),
    ((2, 1, 3, 1, 5), (2, 4, 3, 2, 5)),
    ((1, 2, 1, 2, 1, 2, 1, 2), (2, 2, 3, 2, 2, 2, 3, 2)),
    ((1,) * 8, (2, 1, 2, 1, 3, 1, 2, 3)),
    ((1, 3), (0, 3)),
    ((0, 1), (0, 4)),
]


def _broadcast(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    for shape, result in _BROADCASTS:
        x = numbers(suffixes[0], shape)
        yield Case({"input": x}, {"result": np.broadcast_to(x, result).copy()})


_INSERTED: list[tuple[Shape, Shape, Shape]] = [
    ((), (), ()),
    *(((n + 3,), (n,), (2,)) for n in LENGTHS),
    *(((9, n), (9, n), (0, 0)) for n in EDGY),
    ((5, 17), (3, 17), (2, 0)),
    ((5, 17), (5, 3), (0, 14)),
    ((4, 5, 6), (2, 3, 4), (1, 2, 1)),
    ((4, 5, 6), (4, 1, 6), (0, 4, 0)),
    ((3,) * 8, (2, 1, 2, 1, 2, 1, 2, 1), (1, 2, 0, 1, 1, 0, 1, 2)),
    ((4, 5), (0, 5), (4, 0)),
    ((4, 5), (2, 0), (2, 5)),
]


def _insert_tensor(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    for shape, part, offsets in _INSERTED:
        result, x = numbers(suffixes[0], shape, 1), numbers(suffixes[0], part, 2)
        expected = result.copy()
        expected[tuple(slice(o, o + n) for o, n in zip(offsets, part, strict=True))] = x
        yield Case({"result": result, "input": x}, {"result": expected}, {"offsets": offsets})


_EXTRACTED: list[tuple[Shape, Shape, Shape, Shape]] = [
    ((), (), (), ()),
    *(((n + 3,), (n,), (3,), (1,)) for n in LENGTHS),
    *(((max(2 * n - 1, 0),), (n,), (0,), (2,)) for n in LENGTHS),
    *(((n,), (n,), (n - 1,), (-1,)) for n in LENGTHS if n),
    ((5, 17), (3, 17), (2, 0), (1, 1)),
    ((5, 17), (2, 6), (4, 16), (-4, -3)),
    ((9, 65), (3, 33), (1, 0), (3, 2)),
    ((4, 5, 6), (2, 5, 2), (3, 4, 1), (-2, -1, 4)),
    ((7, 9, 16), (3, 4, 16), (0, 1, 0), (3, 2, 1)),
    ((3,) * 8, (2, 1, 2, 3, 2, 1, 2, 3), (0, 2, 2, 0, 1, 1, 2, 2), (2, 1, -2, 1, 1, 3, -1, -1)),
    ((4, 5), (0, 5), (1, 0), (1, 1)),
    ((4, 0), (2, 0), (2, 0), (1, 1)),
]


def _extract_tensor(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    for shape, part, offsets, steps in _EXTRACTED:
        x = numbers(suffixes[0], shape)
        places = [o + s * np.arange(n) for o, s, n in zip(offsets, steps, part, strict=True)]
        result = x[np.ix_(*places)] if places else x.copy()
        yield Case({"input": x}, {"result": result}, {"offsets": offsets, "steps": steps})


_GATHERED: list[tuple[Shape, int, Shape]] = [
    *(((n,), 0, (9,)) for n in LENGTHS),
    *(((5, n), 0, (3, 2)) for n in LENGTHS),
    ((3, 17), 1, (7,)),
    ((2, 3, 4, 5), 2, (2, 3)),
    ((2, 3, 4, 5), 1, ()),
    ((2, 2, 2, 2, 2, 2, 2, 3), 7, (5,)),
    ((3, 0), 1, (4,)),
    ((0, 3), 1, (4,)),
    ((4, 3), 0, (0,)),
]


def _gather(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    limits = np.iinfo(DTYPES[suffixes[1]])
    for number, (shape, axis, picks) in enumerate(_GATHERED):
        x, extent = numbers(suffixes[0], shape), shape[axis]
        near = np.arange(-2 * extent - 1, 2 * extent + 2)
        some = np.array([*near, limits.min, limits.max], DTYPES[suffixes[1]])
        indices = np.asarray(np.random.default_rng(number).choice(some, picks))
        ends = [0, -1, extent - 1, -extent, extent, -extent - 1, limits.min, limits.max]
        chosen = np.roll(ends, number)[: indices.size]
        indices.flat[: chosen.size] = chosen
        whole = [int(i) for i in indices.flat]
        place = [min(max(i + extent if i < 0 else i, 0), extent - 1) for i in whole]
        taken = (*shape[:axis], len(place), *shape[axis + 1 :])
        flat = np.take(x, place, axis) if extent else np.zeros(taken, x.dtype)
        result = flat.reshape(*shape[:axis], *picks, *shape[axis + 1 :])
        yield Case({"input": x, "indices": indices}, {"result": result}, {"axis": axis})


def _cpu_weighted_gather(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    (suffix,) = suffixes
    rng, limits = np.random.default_rng(lanes), np.iinfo(np.int64)
    shapes = ((5, 1), 0), ((2, 3, 5, lanes + 3), 1), ((2, 3, 5, lanes + 3), 2), ((3, 2, 0), 1)
    for (shape, axis), counts in itertools.product(shapes, ((1, 1), (7, 2), (4, 4))):
        extent = shape[axis]
        indices = rng.integers(-2 * extent, 2 * extent, counts)
        indices.flat[1:3] = limits.min, limits.max
        places = np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)
        x, weights = numbers(suffix, shape), numbers(suffix, counts)
        factors = weights.reshape(*counts, *(1,) * (len(shape) - axis - 1))
        result = (np.take(x, places, axis) * factors).sum(axis + 1)
        operands = {"input": x, "indices": indices, "weights": weights}
        yield Case(operands, {"result": result}, {"axis": axis}, rtol=1e-5, atol=1e-5)


# --------------------------------------------------------------------------- reductions, running sums

_REDUCED: list[tuple[Shape, Shape]] = [
    ((), ()),
    *(((n,), (0,)) for n in (*LENGTHS, 255, 1031, BEYOND_ANY_BLOCK)),
    *(((5, n), (0,)) for n in LENGTHS),
    *(((n, 3), (0,)) for n in LENGTHS),
    *(((3, n), (1,)) for n in LENGTHS),
    ((130, 67), (0,)),
    ((67, 130), (1,)),
    ((3, 5, 7), (0, 2)),
    ((3, 5, 17), (1,)),
    ((5, 1, 9), (1,)),
    ((2, 3, 4, 5, 6), (1, 3)),
    ((2, 3, 4, 5, 6), ()),
    (_EIGHT, (0, 2, 5)),
    (_EIGHT, (1, 3, 7)),
    (_EIGHT, tuple(range(8))),
    ((0, 5), (0,)),
    ((5, 0), (0,)),
    ((5, 0), (1,)),
    ((2, 0, 3), (0, 1, 2)),
]


def _powers_of_two(suffix: str, shape: Shape) -> Array:
    """Floats whose products are exact, and neither overflow nor vanish; integers with low bits set."""
    if DTYPES[suffix].kind != "f":
        return np.asarray(numbers(suffix, shape) | DTYPES[suffix].type(1))
    rng = np.random.default_rng([3, *shape])
    some = rng.choice([1.0, -1.0], shape) * np.exp2(rng.integers(-1, 2, shape))
    rare = rng.integers(0, 8, shape) == 0
    return np.asarray(np.where(rare, some, 1.0)).astype(DTYPES[suffix])


def _reduction(
    fold: np.ufunc, plain: Callable[[str, Shape], Array]
) -> Callable[[tuple[str, ...], int], Iterator[Case]]:
    def make(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
        dtype = DTYPES[suffixes[0]]
        start = _identity(fold, dtype)
        for shape, axes in _REDUCED:
            for x in (plain(suffixes[0], shape), specials(suffixes[0], shape)):
                wide = x.astype(np.float64) if dtype.kind == "f" else x
                result = fold.reduce(
                    wide, axis=axes, dtype=wide.dtype, keepdims=True, initial=start
                )
                yield Case({"input": x}, {"result": np.asarray(result, dtype)}, {"axes": axes})
        if fold is np.add and dtype.kind == "f":
            yield from _long_sums(dtype)
        if fold in (np.maximum, np.minimum):
            x = _peaks(dtype, largest=fold is np.maximum)
            for axis in (0, 1):
                result = fold.reduce(x, axis=axis, keepdims=True)
                yield Case({"input": x}, {"result": result}, {"axes": (axis,)})

    return make


def _peaks(dtype: np.dtype[Any], *, largest: bool) -> Array:
    """The extreme in another place of each row and column: in every lane of every accumulator, and in the rest."""
    peaks = np.eye(5 * 64 + 3, dtype=dtype)
    return peaks if largest else np.asarray(1 - peaks).astype(dtype)


def _long_sums(dtype: np.dtype[Any]) -> Iterator[Case]:
    """A sum in one accumulator of this kind is off by several times as much."""
    for shape, factor in (((100_003,), 32), ((50_001, 2), 200), ((3001, 17), 32)):
        x = np.full(shape, 0.1, dtype)
        exact = x.astype(np.longdouble).sum(axis=0, keepdims=True)
        rtol = factor * float(np.finfo(dtype).eps)
        yield Case({"input": x}, {"result": exact.astype(dtype)}, {"axes": (0,)}, rtol=rtol)


def _identity(fold: np.ufunc, dtype: np.dtype[Any]) -> float | int:
    if fold is np.add or fold is np.multiply:
        return int(fold is np.multiply)
    if is_float(dtype):
        return -math.inf if fold is np.maximum else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if fold is np.maximum else limits.max)


_ALONG: list[tuple[Shape, int]] = [
    *(((n,), 0) for n in LENGTHS),
    *(((n, 5), 0) for n in LENGTHS),
    *(((5, n), 1) for n in (*LENGTHS, 128, 129, 400)),
    *(((7, n), 0) for n in (*LENGTHS, 130)),
    ((19, 3), 1),
    ((2, 5, 130), 1),
    ((9, 2100), 0),
    ((2, 3, 4, 5), 2),
    (_EIGHT, 4),
    ((0, 3), 1),
    ((4, 0, 3), 0),
]


def _arg(*, largest: bool) -> Callable[[tuple[str, ...], int], Iterator[Case]]:
    """Ranks make NaN the most extreme; of equal ranks numpy takes the first, which is the last from the end."""

    def make(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
        arrays = [
            (array, axis)
            for shape, axis in _ALONG
            for array in (numbers(suffixes[0], shape), specials(suffixes[0], shape))
            if shape[axis]
        ]
        arrays += [(_peaks(DTYPES[suffixes[0]], largest=largest), axis) for axis in (0, 1)]
        for x, axis in arrays:
            ranks = _ranks(x)
            signed = ranks if largest else np.where(x == x, -ranks, 1)
            ahead = np.argmax(signed, axis, keepdims=True)
            back = x.shape[axis] - 1 - np.argmax(np.flip(signed, axis), axis, keepdims=True)
            for last, result in ((False, ahead), (True, back)):
                yield Case({"input": x}, {"result": result}, {"axis": axis, "last": last})

    return make


def _cum_sum(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    """Each shape in two of the four ways; neighbouring shapes in others."""
    ways = itertools.cycle(itertools.product((False, True), repeat=2))
    for shape, axis in _ALONG:
        for x in (numbers(suffixes[0], shape), specials(suffixes[0], shape)):
            exclusive, reverse = next(ways)
            wide = x.astype(np.float64) if x.dtype.kind == "f" else x
            turned = np.flip(wide, axis) if reverse else wide
            padded = np.insert(turned, 0, 0, axis)
            sums = np.cumsum(padded, axis, dtype=wide.dtype)
            picked = sums.take(np.arange(shape[axis]) + (not exclusive), axis)
            result = np.flip(picked, axis) if reverse else picked
            attrs: dict[str, Attr] = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            yield Case({"input": x}, {"result": result.astype(x.dtype)}, attrs)


# -------------------------------------------------------------------------------------- normalisation

_NORMALISED: list[tuple[Shape, int]] = [
    *(((n,), 0) for n in LENGTHS if n),
    *(((3, n), 1) for n in LENGTHS),
    *(((n, 5), 0) for n in LENGTHS),
    *(((7, n), 0) for n in LENGTHS),
    ((2, 5, 130), 1),
    ((2, 3, 4, 5), 2),
    ((2, 1, 3, 2, 1, 2, 3, 2), 6),
    ((0, 3), 1),
]
_HARD_ROWS = [
    [6e4, 6e4, -6e4],
    [-6e4] * 3,
    [0, -np.inf, 1],
    [np.nan, 0, 1],
    [0, 1, np.nan],
    [np.inf, 0, 1],
    [-np.inf] * 3,
    [3e38, -3e38, 0],
]


def _softmax(*, log: bool) -> Callable[[tuple[str, ...], int], Iterator[Case]]:
    def make(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
        dtype = DTYPES[suffixes[0]]
        is_wide = dtype == np.float64
        rng = np.random.default_rng(5)
        hard = np.array(_HARD_ROWS, dtype)
        arrays = [((3 * rng.standard_normal(s)).astype(dtype), axis) for s, axis in _NORMALISED]
        wide_row = np.tile(hard, (1, 40))  # 120 elements: whole vectors, blocks and a rest
        arrays += [(hard, 1), (hard.T.copy(), 0), (wide_row, 1), (wide_row.T.copy(), 0)]
        # The largest element in every place: without it in the maximum, its exponential overflows.
        peaks = [(1000 if is_wide else 200) * np.eye(n, dtype=dtype) for n in (3, 131)]
        arrays += [(peak, axis) for peak in peaks for axis in (0, 1)]
        for x, axis in arrays:
            shifted = x.astype(np.longdouble)
            shifted -= shifted.max(axis=axis, keepdims=True, initial=-np.inf)
            sums = np.exp(shifted).sum(axis=axis, keepdims=True)
            result = shifted - np.log(sums) if log else np.exp(shifted) / sums
            expected = {"result": result.astype(dtype)}
            tolerance = 1e-14 if is_wide else 4e-6
            yield Case({"input": x}, expected, {"axis": axis}, tolerance, tolerance * log)

    return make


_RESPONSES: list[tuple[Shape, int, float, float, float]] = [
    *(((3, n), 5, 0.5, 0.75, 1.0) for n in LENGTHS),
    *(((2, 17), size, 1.0, 0.5, 2.0) for size in (1, 2, 3, 4, 16, 17, 18, 40)),
    ((1, 3, 3, 7), 5, 2.0**-10, 0.75, 1.0),
    ((2, 1, 33), 4, 0.25, 0.625, 1.5),
    ((65,), 3, 1.0, 1.0, 0.5),
    ((0, 4), 3, 0.125, 0.75, 1.0),
]


def _local_response_normalization(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    dtype = DTYPES[suffixes[0]]
    for shape, size, alpha, beta, k in _RESPONSES:
        x = np.random.default_rng([6, *shape]).standard_normal(shape).astype(dtype)
        squares = x.astype(np.longdouble) ** 2
        channel = np.arange(shape[-1])
        first = channel[:, None] - (size - 1) // 2
        window = (channel >= first) & (channel < first + size)
        result = x / (k + alpha / size * (squares @ window.T)) ** beta
        yield Case(
            {"input": x},
            {"result": result.astype(dtype)},
            {"size": size, "alpha": alpha, "beta": beta, "k": k},
            rtol=16 * float(np.finfo(dtype).eps),
        )


# --------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class Pool:
    """One pool over N, spatial..., C; `result` counts windows, which may reach beyond the pads."""

    image: Shape
    kernels: Shape
    result: Shape
    strides: Shape
    pads: Shape
    dilation: Shape
    batch: int = 1
    channels: int = 1

    @property
    def attrs(self) -> dict[str, Attr]:
        names = ("kernels", "strides", "pads", "dilation")
        return {name: getattr(self, name) for name in names}

    def taps(self, array: Array, outside: Any, *, beyond: Any = None) -> Array:
        """Windows of N, spatial..., C as N, counts..., C, taps; `outside` in the pads, `beyond` them or both."""
        rank = len(self.image)
        begins, ends = self.pads[:rank], self.pads[rank:]
        none = [(0, 0)]
        padded = np.pad(
            array, [*none, *zip(begins, ends, strict=True), *none], constant_values=outside
        )
        reach = [
            max((n - 1) * s + (k - 1) * d + 1, 0)
            for n, s, k, d in zip(
                self.result, self.strides, self.kernels, self.dilation, strict=True
            )
        ]
        more = [(0, max(r - n, 0)) for r, n in zip(reach, padded.shape[1:-1], strict=True)]
        whole = np.pad(
            padded, [*none, *more, *none], constant_values=outside if beyond is None else beyond
        )
        views = []
        for tap in np.ndindex(self.kernels):
            steps = zip(tap, self.dilation, self.result, self.strides, strict=True)
            spatial = [slice(t * d, t * d + n * s, s) for t, d, n, s in steps]
            views.append(whole[(slice(None), *spatial, slice(None))])
        return np.stack(views, axis=-1)


_POOLS = [
    *(Pool((5, 7), (2, 2), (2, 3), (2, 2), (0,) * 4, (1, 1), channels=n) for n in LENGTHS),
    Pool((8, 9), (3, 3), (4, 5), (2, 2), (1, 1, 1, 1), (1, 1), 2, 17),
    Pool((7, 7), (3, 3), (4, 4), (2, 2), (0,) * 4, (1, 1), 1, 3),  # beyond the end
    Pool((8, 8), (3, 2), (3, 5), (3, 2), (1, 0, 1, 1), (1, 1), 1, 5),
    Pool((10, 11), (3, 2), (5, 4), (2, 3), (1, 1, 2, 0), (2, 3), 2, 2),
    Pool((4, 4), (4, 4), (1, 1), (1, 1), (0,) * 4, (1, 1)),
    Pool((3, 2), (3, 2), (1, 1), (1, 1), (0,) * 4, (1, 1), 1, 200),  # many vectors at once
    Pool((3, 2), (3, 2), (1, 1), (1, 1), (0,) * 4, (1, 1), 2, 31),
    Pool((3, 3), (3, 3), (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), 1, 4),
    Pool((6, 6), (1, 1), (2, 2), (5, 5), (0,) * 4, (1, 1)),
    Pool((2, 2), (1, 1), (4, 4), (1, 1), (1, 1, 1, 1), (1, 1), 1, 3),  # windows without a tap
    Pool((13,), (3,), (7,), (2,), (1, 0), (1,), 1, 3),
    Pool((13,), (4,), (5,), (3,), (1, 2), (2,), 2, 3),
    Pool((4, 5, 6), (2, 3, 2), (4, 3, 4), (1, 2, 2), (0, 1, 0, 1, 1, 1), (1, 1, 1), 1, 2),
    Pool((5, 19), (3, 3), (3, 10), (2, 2), (1, 1, 1, 1), (1, 1), 2, 64),  # windows side by side
    Pool((5, 12), (3, 3), (3, 6), (2, 2), (1, 1, 1, 1), (1, 1), 1, 27),  # vectors that overlap
    Pool((3, 14), (2, 3), (2, 5), (1, 2), (0,) * 4, (1, 2), 1, 64),
    Pool((4, 4), (2, 2), (2, 2), (2, 2), (0,) * 4, (1, 1), 0, 3),
    Pool((1, 4), (2, 2), (0, 3), (1, 1), (0,) * 4, (1, 1), 1, 3),
]


def _ranks(x: Array) -> Array:
    """The place of each element among all values; NaN is the largest, and the zeros are one."""
    x = x.astype(np.float64) if is_float(x.dtype) else x  # NaN of bf16 would be sorted as a number
    ordered = np.unique(x)
    ranks = np.searchsorted(ordered, x)
    return np.where(x == x, ranks, len(ordered))


def _max_pool(*, argmax: bool) -> Callable[[tuple[str, ...], int], Iterator[Case]]:
    def make(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
        dtype = DTYPES[suffixes[0]]
        lowest = _identity(np.maximum, dtype)
        for pool in _POOLS:
            shape = (pool.batch, *pool.image, pool.channels)
            for x in (numbers(suffixes[0], shape), specials(suffixes[0], shape)):
                place = np.arange(x.size).reshape(pool.batch, pool.channels, *pool.image)
                best = pool.taps(_ranks(x), -1).argmax(axis=-1)[..., None]
                index = np.take_along_axis(pool.taps(np.moveaxis(place, 1, -1), -1), best, -1)
                flat = np.moveaxis(x, -1, 1).ravel()
                value = flat[index[..., 0]] if x.size else np.empty(index.shape[:-1], dtype)
                expected = {"result": np.where(index[..., 0] < 0, lowest, value).astype(dtype)}
                if argmax:
                    expected["argmax"] = index[..., 0].astype(np.int64)
                yield Case({"input": x}, expected, {**pool.attrs, "ceil": True})

    return make


def _avg_pool(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    dtype = DTYPES[suffixes[0]]
    for pool, count_pads in itertools.product(_POOLS, (False, True)):
        x = numbers(suffixes[0], (pool.batch, *pool.image, pool.channels))
        total = pool.taps(x, 0).sum(axis=-1)
        divisor = pool.taps(np.ones_like(x), int(count_pads), beyond=0).sum(axis=-1)
        result = np.asarray(total / np.maximum(divisor, 1)).astype(dtype)
        attrs = {**pool.attrs, "ceil": True, "count_include_pads": count_pads}
        yield Case({"input": x}, {"result": result}, attrs)


def _sum_pool(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    dtype = DTYPES[suffixes[1]]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for pool in _POOLS:
        shape = (pool.batch, *pool.image, pool.channels)
        x = np.random.default_rng(9).integers(low, high, shape, endpoint=True).astype(dtype)
        sums = pool.taps(x.astype(np.int32), 0).sum(axis=-1, dtype=np.int32)
        yield Case({"input": x}, {"result": sums}, {**pool.attrs, "ceil": True})


def _lookup_table(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    kind, dtype = (DTYPES[suffix] for suffix in suffixes)
    rng = np.random.default_rng(8)
    table = (rng.permutation(256) * 2.0 ** (8 * (kind.itemsize - 1))).astype(kind)
    for shape in ((256,), (0,), (3, 5), *((n,) for n in LENGTHS)):
        x = rng.integers(0, 256, shape).astype(np.uint8).view(dtype)
        x.flat[: min(2, x.size)] = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)[
            : x.size
        ]
        place = x.astype(np.int64) - np.iinfo(dtype).min
        yield Case({"input": x, "table": table}, {"result": table[place]}, {})


Maker = Callable[[tuple[str, ...], int], Iterator[Case]]
MAKERS: dict[str, Maker] = {
    "cpu_weighted_gather": _cpu_weighted_gather,
    "gather": _gather,
    "lookup_table": _lookup_table,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "insert_tensor": _insert_tensor,
    "extract_tensor": _extract_tensor,
    "reduce_add": _reduction(np.add, numbers),
    "reduce_mul": _reduction(np.multiply, _powers_of_two),
    "reduce_max": _reduction(np.maximum, numbers),
    "reduce_min": _reduction(np.minimum, numbers),
    "arg_max": _arg(largest=True),
    "arg_min": _arg(largest=False),
    "cum_sum": _cum_sum,
    "softmax": _softmax(log=False),
    "log_softmax": _softmax(log=True),
    "local_response_normalization": _local_response_normalization,
    "max_pool": _max_pool(argmax=False),
    "max_pool_with_argmax": _max_pool(argmax=True),
    "avg_pool": _avg_pool,
    "sum_pool": _sum_pool,
}
"""The cases of each kernel that is no product, by mnemonic, for its suffixes and so many floats in a vector."""
