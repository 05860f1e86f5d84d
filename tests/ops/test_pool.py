"""Pools against loops over windows, which are themselves held against onnxruntime."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import AvgPoolNode, MaxPoolNode, MaxPoolWithArgmaxNode, SumPoolNode
from glowpy.ops.operands import bounds
from tests.ops.harness import (
    FLOATS,
    Case,
    Row,
    Tolerance,
    channels_first,
    channels_last,
    check_row,
    on_every_backend,
    onnx_model,
    random_array,
)
from tests.ops.test_elementwise import special_values


@dataclass(frozen=True)
class Pool:
    """One pool over N, spatial..., C."""

    input: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False

    @property
    def attrs(self) -> dict[str, object]:
        return {
            "kernels": self.kernels,
            "strides": self.strides,
            "pads": self.pads,
            "dilation": self.dilation,
            "ceil": self.ceil,
        }

    @property
    def counts(self) -> list[int]:
        """Windows in each dimension, as the ONNX operators define their output's shape."""
        counts = []
        for axis, size in enumerate(self.input[1:-1]):
            begin, end = self.pads[axis], self.pads[axis + len(self.kernels)]
            span = self.dilation[axis] * (self.kernels[axis] - 1) + 1
            steps = (size + begin + end - span) / self.strides[axis]
            count = math.ceil(steps) + 1 if self.ceil else math.trunc(steps) + 1
            if self.ceil and (count - 1) * self.strides[axis] >= size + begin:
                count -= 1
            counts.append(count)
        return counts

    def windows(self) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Each window's index, and the positions of its taps, which may lie outside the image."""
        for index in itertools.product(*map(range, self.counts)):
            at = [
                [i * s - p + d * k for k in range(n)]
                for i, s, p, d, n in zip(
                    index, self.strides, self.pads, self.dilation, self.kernels, strict=False
                )
            ]
            yield index, list(itertools.product(*at))

    def inside(self, tap: tuple[int, ...], *, pads: bool = False) -> bool:
        """Whether a tap lies in the image (or its pads)."""
        rank = len(self.kernels)
        begins, ends = (self.pads[:rank], self.pads[rank:]) if pads else ((0,) * rank,) * 2
        sizes = zip(tap, self.input[1:-1], begins, ends, strict=True)
        return all(-begin <= t < size + end for t, size, begin, end in sizes)


def max_pool(x: Array, pool: Pool) -> tuple[Array, Array]:
    """The maxima, and where the first of each is in N, C, spatial order."""
    shape = (x.shape[0], *pool.counts, x.shape[-1])
    is_float = ElemKind.of(x.dtype).is_float
    lowest, _ = bounds(ElemKind.of(x.dtype))
    result, argmax = np.full(shape, lowest, x.dtype), np.full(shape, -1, np.int64)
    flat = np.arange(x.size).reshape(x.shape[0], x.shape[-1], *x.shape[1:-1])
    for index, taps in pool.windows():
        for n, c in itertools.product(range(x.shape[0]), range(x.shape[-1])):
            best: tuple[float, int] | None = None
            for tap in taps:
                if pool.inside(tap):
                    element = x[(n, *tap, c)]
                    item = float(element) if is_float else int(element)
                    place = int(flat[(n, c, *tap)])
                    if best is None or item > best[0] or (item != item and best[0] == best[0]):
                        best = item, place
            if best is not None:
                result[(n, *index, c)], argmax[(n, *index, c)] = best
    return result, argmax


def avg_pool(x: Array, pool: Pool, *, count_pads: bool) -> Array:
    """The means in f64."""
    result = np.zeros((x.shape[0], *pool.counts, x.shape[-1]))
    for index, taps in pool.windows():
        divisor = sum(pool.inside(tap, pads=count_pads) for tap in taps)
        for n in range(x.shape[0]):
            values = [x[(n, *tap)].astype(np.float64) for tap in taps if pool.inside(tap)]
            result[(n, *index)] = np.sum(values, axis=0) / max(divisor, 1)
    return result


POOLS = [
    Pool((1, 5, 7, 3), (2, 2), (2, 2), (0,) * 4, (1, 1)),
    Pool((2, 8, 9, 17), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    Pool((1, 7, 7, 2), (3, 3), (2, 2), (0,) * 4, (1, 1), ceil=True),
    Pool((1, 8, 8, 5), (3, 2), (3, 2), (1, 0, 1, 1), (1, 1), ceil=True),
    Pool((1, 10, 11, 2), (3, 2), (2, 3), (1, 1, 2, 0), (2, 3), ceil=True),
    Pool((1, 4, 4, 1), (4, 4), (1, 1), (0,) * 4, (1, 1)),
    Pool((1, 3, 3, 4), (3, 3), (1, 1), (2, 2, 2, 2), (1, 1)),
    Pool((1, 6, 6, 1), (1, 1), (5, 5), (0,) * 4, (1, 1), ceil=True),
    Pool((2, 9, 11, 17), (5, 7), (1, 1), (2, 3, 2, 3), (1, 1)),
    Pool((1, 12, 10, 3), (5, 4), (1, 1), (3, 0, 4, 1), (2, 2), ceil=True),
    Pool((2, 17, 35, 3), (3, 2), (1, 2), (1, 0, 1, 1), (1, 1)),
    Pool((1, 18, 17, 2), (2, 3), (1, 1), (1, 1, 0, 1), (1, 1)),
    Pool((1, 36, 18, 1), (4, 3), (2, 3), (1, 2, 2, 1), (2, 1), ceil=True),
    Pool((1, 13, 3), (3,), (2,), (1, 0), (1,)),
    Pool((2, 13, 3), (4,), (3,), (1, 2), (2,), ceil=True),
    Pool((1, 4, 5, 6, 2), (2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 1), (1, 1, 1), ceil=True),
]
LARGER = [
    Pool((1, 3, 3, 4), (5, 5), (5, 5), (0,) * 4, (1, 1), ceil=True),
    Pool((2, 3, 4, 17), (5, 3), (6, 1), (0,) * 4, (1, 1)),
    Pool((1, 1, 2, 3), (2, 20), (2, 20), (0,) * 4, (1, 1), ceil=True),
    Pool((1, 3, 2, 2), (7, 2), (3, 2), (1, 0, 1, 0), (1, 3), ceil=True),
    Pool((1, 4, 2), (4,), (9,), (0, 1), (3,)),
    Pool((1, 2, 3, 2, 5), (4, 4, 2), (3, 2, 1), (0, 1, 0, 0, 1, 0), (1, 1, 1)),
    Pool((1, 3, 3, 2), (4, 2), (1, 1), (0,) * 4, (1, 1)),
    Pool((1, 3, 3, 2), (5, 3), (2, 2), (0,) * 4, (1, 1), ceil=True),
]
"""Windows that are larger than the image with its pads: the last two have none."""
EMPTY = [
    Pool((0, 4, 4, 3), (2, 2), (2, 2), (0,) * 4, (1, 1)),
    Pool((1, 4, 4, 0), (2, 2), (2, 2), (0,) * 4, (1, 1)),
    Pool((1, 20, 20, 0), (2, 2), (1, 1), (0,) * 4, (1, 1)),
    Pool((1, 0, 4, 3), (1, 2), (1, 2), (0,) * 4, (1, 1)),
    Pool((1, 4, 0, 3), (3, 3), (1, 1), (1,) * 4, (1, 1), ceil=True),
]
NO_TAPS = Pool((1, 2, 2, 3), (1, 1), (1, 1), (1, 1, 1, 1), (1, 1))
"""The windows of its border see pads alone."""


ALL = (*POOLS, *LARGER, *EMPTY, NO_TAPS)


def _inputs(kind: ElemKind, pool: Pool) -> Iterator[Array]:
    yield random_array(kind, pool.input)
    special = special_values(kind)
    count = math.prod(pool.input)
    yield np.resize(special, count).reshape(pool.input)
    yield np.full(pool.input, bounds(kind)[0], kind.dtype)


def _max_cases(kind: ElemKind) -> Iterator[Case]:
    for pool in ALL:
        for x in _inputs(kind, pool):
            yield Case([x], max_pool(x, pool)[:1], pool.attrs, tolerance=Tolerance(zero_sign=False))


def _argmax_cases(kind: ElemKind) -> Iterator[Case]:
    for pool in ALL:
        for x in _inputs(kind, pool):
            yield Case([x], max_pool(x, pool), pool.attrs, tolerance=Tolerance(zero_sign=False))


def _avg_cases(kind: ElemKind) -> Iterator[Case]:
    for pool, count_pads in itertools.product(ALL, (False, True)):
        x = random_array(kind, pool.input)
        yield Case(
            [x],
            [avg_pool(x, pool, count_pads=count_pads)],
            {**pool.attrs, "count_include_pads": count_pads},
            tolerance=Tolerance(ulps=2),
        )


def _sum_cases(kind: ElemKind) -> Iterator[Case]:
    for pool in ALL:
        for x in _inputs(kind, pool):
            sums = np.zeros((x.shape[0], *pool.counts, x.shape[-1]), np.int32)
            for index, taps in pool.windows():
                for n, tap in itertools.product(range(x.shape[0]), filter(pool.inside, taps)):
                    sums[(n, *index)] += x[(n, *tap)]
            yield Case([x], [sums], pool.attrs)


ORDERED = (*FLOATS, ElemKind.I8, ElemKind.I64, ElemKind.U8, ElemKind.U64)
ROWS = [
    Row(MaxPoolNode, (*ORDERED, ElemKind.I16), _max_cases),
    Row(MaxPoolWithArgmaxNode, ORDERED, _argmax_cases),
    Row(AvgPoolNode, FLOATS, _avg_cases),
    Row(SumPoolNode, (ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.U16), _sum_cases),
]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_windows_of_a_million_taps_cost_what_the_image_does(backend: str) -> None:
    """As EfficientNet's pooler has them, whose windows are as wide as the image has channels."""
    window = ((1280, 1280), (1280, 1280), (0,) * 4, (1, 1), True)
    x = random_array(ElemKind.F32, (1, 3, 2, 1280))
    module = Module()
    f = module.create_function("main")
    image = module.create_placeholder("x", Type(ElemKind.F32, x.shape))
    pools = {
        "max": f.create_max_pool("m", image, *window).result,
        "mean": f.create_avg_pool("a", image, *window, False).result,
        "argmax": f.create_max_pool_with_argmax("w", image, *window).results[1],
    }
    for name, pool in pools.items():
        f.create_save(name, pool, module.create_placeholder(name, pool.type))
    results = glowpy.compile(module, backend)({"x": x})
    pixels = x.reshape(6, 1280)
    np.testing.assert_array_equal(results["max"].ravel(), pixels.max(0))
    np.testing.assert_allclose(results["mean"].ravel(), pixels.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(results["argmax"].ravel(), pixels.argmax(0) + 6 * np.arange(1280))


@on_every_backend(ROWS)
def test_pool(row: Row, backend: str) -> None:
    check_row(row, backend)


def _onnxruntime(op: str, x: Array, pool: Pool, outputs: int, **more: int) -> list[Array]:
    attrs = {
        "kernel_shape": pool.kernels,
        "strides": pool.strides,
        "pads": pool.pads,
        "dilations": pool.dilation,
        "ceil_mode": int(pool.ceil),
        **more,
    }
    model = onnx_model(op, [channels_first(x)], outputs, 19, attrs)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return [channels_last(result) for result in session.run(None, {"i0": channels_first(x)})]


@pytest.mark.parametrize(
    "pool",
    [*POOLS, *LARGER],
    ids=lambda pool: "-".join("x".join(map(str, sizes)) for sizes in (pool.input, pool.kernels)),
)
def test_reference_agrees_with_onnxruntime(pool: Pool) -> None:
    x = random_array(ElemKind.F32, pool.input)
    for got, expected in zip(max_pool(x, pool), _onnxruntime("MaxPool", x, pool, 2), strict=True):
        np.testing.assert_array_equal(got, expected)
    for count_pads in (False, True):
        (expected,) = _onnxruntime("AveragePool", x, pool, 1, count_include_pad=int(count_pads))
        np.testing.assert_allclose(
            avg_pool(x, pool, count_pads=count_pads), expected, rtol=1e-5, atol=1e-6
        )
