"""Attention, norms, activations and products as exporters write them, and nearly so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from tools.patterns.network import Network

__all__ = ["attention", "gelu", "merged_products", "norm", "product"]


def attention(n: Network) -> None:
    """softmax(q @ k * scale + mask) @ v, with much that may come between."""
    batch, heads = n.extent("batch", (1, 1, 2, 3)), n.rng.choice((1, 2, 3, 4, 8))
    queries, keys = (
        n.extent("queries", (1, 2, 4, 5, 17, 40)),
        n.extent("keys", (1, 3, 7, 16, 33, 80)),
    )
    if n.chance(0.3):
        keys = queries
    depth, width = n.rng.choice((1, 3, 4, 8, 16, 20, 32)), n.rng.choice((1, 2, 5, 8, 16, 24, 33))
    shared = n.rng.choice([count for count in range(1, heads + 1) if heads % count == 0])
    q = _heads(n, batch, queries, heads, depth)
    k = _heads(n, batch, keys, shared, depth)
    v = k if n.chance(0.03) else _heads(n, batch, keys, shared, width)
    if n.chance(0.03) and shared == heads and queries == keys:
        q = k
    if n.chance(0.2):
        factor = n.number(n.rng.choice((depth**-0.25, 1.0, 0.0, -1.0, 2.0)), 4)
        q, k = (n.op("Mul", one, factor) for one in (q, k))
    if n.chance(0.5):
        k = n.op("Transpose", k, perm=[0, 1, 3, 2])
        k, v = _repeated(n, k, batch, shared, heads), _repeated(n, v, batch, shared, heads)
    else:
        k, v = _repeated(n, k, batch, shared, heads), _repeated(n, v, batch, shared, heads)
        k = n.op("Transpose", k, perm=[0, 1, 3, 2])
    scores = n.op("MatMul", q, k)
    for step in n.rng.choice((("scale", "mask"), ("mask", "scale"), ("scale",), ("mask",),
                              ("scale", "cap", "mask"), ("scale", "mask", "mask"),
                              ("cap", "mask", "mask"), ("mask", "mask", "mask"))):  # fmt: skip
        if step == "scale":
            scores = _scaled(n, scores, depth, heads)
        elif step == "cap":
            cap = n.number(n.rng.choice((1.0, 2.0, 30.0, -2.0)), 4)
            other = cap if n.chance(0.8) else n.number(3.0)
            scores = n.op("Mul", n.op("Tanh", n.op("Div", scores, cap)), other)
        else:
            scores = _masked(n, scores, (batch, heads, queries, keys))
    weights = n.op("Softmax", scores, axis=n.rng.choice((-1, -1, -1, -1, -1, 3, 3, 2, 1)))
    weights = _cleared(n, weights, (batch, heads, queries))
    o = n.op("MatMul", weights, v)
    if n.chance(0.7):
        n.op("Reshape", n.op("Transpose", o, perm=[0, 2, 1, 3]), n.ints(0, 0, -1))


def _heads(n: Network, batch: int, rows: int, heads: int, depth: int) -> str:
    """Queries, keys or values, of heads, made in one of several ways."""
    if n.chance(0.35):
        return n.input((batch, heads, rows, depth))
    if n.chance(0.6):
        flat = n.input((batch, rows, heads * depth))
    else:
        flat = n.op("MatMul", n.input((batch, rows, 12)), n.weights((12, heads * depth)))
        if n.chance(0.5):
            flat = n.op("Add", flat, n.weights((heads * depth,)))
    split = n.op("Reshape", flat, n.ints(0, 0, heads, depth))
    turned: str = n.op("Transpose", split, perm=[0, 2, 1, 3])
    return turned


def _repeated(n: Network, x: str, batch: int, shared: int, heads: int) -> str:
    """Each head as often as heads share it, by the axes of its rows; sometimes in another order."""
    del batch
    many = heads // shared
    if many == 1 and n.chance(0.9):
        return x
    axis = 2 if n.chance(0.9) else 1  # heads one after the other, or all of them over again
    five = n.op("Unsqueeze", x, n.ints(axis))
    shape = [1, 1, 1, 1, 1]
    shape[axis] = many
    expanded = n.op("Expand", five, n.ints(*shape))
    flat: str = n.op("Reshape", expanded, _joined(n, x, heads))
    return flat


def _joined(n: Network, x: str, heads: int) -> str:
    """The shape of `x` with so many heads."""
    shape = n.op("Shape", x)
    parts = [n.op("Slice", shape, n.ints(first), n.ints(last)) for first, last in ((0, 1), (2, 4))]
    joined: str = n.op("Concat", parts[0], n.ints(heads), parts[1], axis=0)
    return joined


def _scaled(n: Network, scores: str, depth: int, heads: int) -> str:
    number = n.rng.choice((depth**-0.5, depth**-0.5, depth**-0.5, 1.0, 0.0, -0.5, 3.0))
    kind = n.rng.random()
    if kind < 0.4:
        pair = [scores, n.number(number, 4)]
        n.rng.shuffle(pair)
        return str(n.op("Mul", *pair))
    if kind < 0.75:
        return str(n.op("Div", scores, n.number(1 / number if number else 1.0, 4)))
    if kind < 0.85:
        return str(n.op("Mul", scores, n.weights((heads, 1, 1))))
    return str(n.op("Mul", scores, n.given(np.full((), number, n.dtype))))


def _mask_shape(n: Network, sizes: tuple[int, int, int, int]) -> tuple[int, ...]:
    batch, heads, queries, keys = sizes
    return n.rng.choice((
        (queries, keys), (queries, keys), (1, 1, queries, keys), (batch, 1, 1, keys), (batch, 1, queries, keys),
        (1, heads, queries, keys), (keys,), (queries, 1), (heads, 1, 1), (1,), (), (batch, heads, queries, keys),
        (1, queries, keys), (batch, heads, queries, 1),
    ))  # fmt: skip


def _hides(n: Network, shape: Sequence[int]) -> Array:
    """Which scores are hidden: a triangle, nearly one, or some."""
    rows, columns = ([1, 1, *shape])[-2:]
    numbers = np.random.default_rng(n.rng.getrandbits(32))
    if n.chance(0.55):
        hidden = ~np.tri(rows, columns, n.rng.choice((0, 0, 0, 1, 2, -1, columns)), bool)
        if n.chance(0.2) and hidden.size:
            place = n.rng.randrange(rows), n.rng.randrange(columns)
            hidden[place] = not hidden[place]
        if len(shape) >= 2:
            return np.broadcast_to(hidden, tuple(shape))
    return numbers.random(tuple(shape)) < n.rng.choice((0.0, 0.2, 0.5, 1.0))


def _masked(n: Network, scores: str, sizes: tuple[int, int, int, int]) -> str:
    shape = _mask_shape(n, sizes)
    hidden = _hides(n, shape)
    lowest = float(np.finfo(n.dtype).min)
    fill = n.rng.choice((-np.inf, -np.inf, lowest, -1e4, -1.0, 0.0, 5.0, np.nan))
    is_known = not any(hasattr(size, "name") for size in shape) and n.chance(0.6)
    if n.chance(0.5):
        added = np.where(hidden, fill, n.array(shape) if n.chance(0.3) else 0).astype(n.dtype)
        mask = n.known(added) if is_known else n.given(added, shape)
        pair = [scores, mask]
        n.rng.shuffle(pair)
        return str(n.op("Add", *pair))
    keeps = n.chance(0.5)
    bits = ~hidden if keeps else hidden
    condition = n.known(bits) if is_known else n.given(bits, shape)
    number = n.number(fill, 4)
    if n.chance(0.1):
        number = n.op("Expand", number, n.op("Shape", scores))
    return str(n.op("Where", condition, *((scores, number) if keeps else (number, scores))))


def _cleared(n: Network, weights: str, sizes: tuple[int, int, int]) -> str:
    if n.chance(0.2):
        zero = n.number(0.0 if n.chance(0.9) else 1.0, 4)
        return str(n.op("Where", n.op("IsNaN", weights), zero, weights))
    if n.chance(0.1):
        batch, _, queries = sizes
        shape = n.rng.choice(((batch, 1, queries, 1), (queries, 1), (1, 1, 1, 1), (1,), ()))
        numbers = np.random.default_rng(n.rng.getrandbits(32))
        condition = n.given(numbers.random(tuple(shape)) < 0.4, shape)
        return str(n.op("Where", condition, n.number(0.0, 4), weights))
    return weights


def norm(n: Network) -> None:
    """A layer norm: (x - mean) / sqrt(variance + epsilon) in its many spellings, or without the mean."""
    rank = n.rng.choice((2, 3, 3, 4))
    row = n.rng.choice((1, 3, 8, 15, 16, 17, 64, 70, 200))
    shape = [n.extent(f"d{axis}", (1, 2, 3, 5)) for axis in range(rank - 1)] + [row]
    x = n.input(shape)
    if n.chance(0.3):
        x = n.op("Add", x, n.weights((row,)))
    axes = list(n.rng.choice(((-1,), (-1,), (-1,), (-2, -1), (-2,), (0,))))
    if not {abs(axis) <= rank for axis in axes} <= {True}:
        axes = [-1]
    keep = {"keepdims": 1}
    centred = n.chance(0.6)
    apart = other = x
    if centred:
        mean = n.axes_op("ReduceMean", x, axes, **keep)
        apart = n.op("Sub", *((mean, x) if n.chance(0.05) else (x, mean)))
        other = n.op("Sub", x, mean) if n.chance(0.2) else apart
        if n.chance(0.05):
            other = x
    square = (
        n.op("Mul", other, other)
        if n.chance(0.5)
        else n.op("Pow", other, n.number(n.rng.choice((2.0, 2.0, 2.0, 3.0))))
    )
    inner = axes if n.chance(0.95) else [0]
    variance = n.axes_op(n.rng.choice(("ReduceMean",) * 5 + ("ReduceSum",)), square, inner, **keep)
    if n.chance(0.9):
        epsilon = n.rng.choice((1e-5, 1e-5, 1e-6, 1e-12, 0.0, 1.0, -1e-3))
        raised = n.number(epsilon, 2) if n.chance(0.9) else n.weights((row,))
        variance = n.op("Add", *n.rng.choice(((variance, raised), (raised, variance))))
    result = _over_root(n, apart, variance)
    for op_type in ("Mul", "Add"):
        if n.chance(0.6):
            factor = n.weights(n.rng.choice(((row,), (row,), (1, row), (), (1,))))
            result = n.op(op_type, *n.rng.choice(((result, factor), (factor, result))))
    if n.chance(0.4):
        n.op("MatMul", result, n.weights((row, 7)))
    elif n.chance(0.3):
        n.op("Add", result, x)


def _over_root(n: Network, numbers: str, variance: str) -> str:
    kind = n.rng.randrange(5)
    if kind == 4:
        power = n.op("Pow", variance, n.number(-0.5))
        return str(n.op("Mul", numbers, power))
    root = n.op("Sqrt", variance) if n.chance(0.8) else n.op("Pow", variance, n.number(0.5))
    if kind == 0:
        pair = [numbers, n.op("Reciprocal", root)]
        n.rng.shuffle(pair)
        return str(n.op("Mul", *pair))
    if kind == 1:
        return str(n.op("Mul", numbers, n.op("Div", n.number(n.rng.choice((1.0, 1.0, 2.0))), root)))
    return str(n.op("Div", numbers, root))


def gelu(n: Network) -> None:
    """GELU: x * (1 + erf(x / sqrt(2))) / 2, by tanh too, with wrong numbers now and then; perhaps after a product."""
    row = n.rng.choice((1, 5, 16, 19))
    shape = (n.extent("rows", (1, 2, 7)), row)
    x = n.input(shape)
    if n.chance(0.3):
        x = n.op("Add", n.op("MatMul", x, n.weights((row, row))), n.weights((row,)))
    y = x if n.chance(0.93) else n.input(shape)

    def near(number: float) -> str:
        wrong = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1 + 1e-7, 1.001, 2.0, -1.0)
        return n.number(number * n.rng.choice(wrong), 2)

    def times(*operands: str) -> str:
        order = list(operands)
        n.rng.shuffle(order)
        total, *rest = order
        for factor in rest:
            total = n.op("Mul", total, factor)
        return total

    if n.chance(0.4) and n.dtype is not np.float64:
        inner = (
            n.op("Div", y, near(math.sqrt(2))) if n.chance(0.6) else times(y, near(math.sqrt(0.5)))
        )
        wave = n.op("Erf", inner)
    else:
        cube = n.op("Pow", y, near(3.0)) if n.chance(0.5) else times(y, y, y)
        if n.chance(0.3):
            square = n.op("Pow", y, n.number(2.0)) if n.chance(0.5) else times(y, y)
            total = n.op("Add", n.number(1.0), times(square, near(0.044715)))
            wave = n.op("Tanh", times(y, total, near(math.sqrt(2 / math.pi))))
        else:
            total = n.op("Add", y, times(cube, near(0.044715)))
            wave = n.op("Tanh", times(total, near(math.sqrt(2 / math.pi))))
    gate = n.op("Add", *n.rng.choice(((wave, near(1.0)), (near(1.0), wave))))
    result = times(x, near(0.5), gate)
    if n.chance(0.3):
        n.op("MatMul", result, n.weights((row, 9)))


def merged_products(n: Network) -> None:
    """Several products of one left side."""
    depth = n.rng.choice((1, 3, 8, 17, 40))
    rows = [n.extent(f"d{axis}", (1, 2, 5, 9)) for axis in range(n.rng.choice((1, 2, 2, 3)))]
    x = n.input((*rows, depth))
    if n.chance(0.3):
        x = n.op("Relu", x)
    first = ""
    for _ in range(n.rng.choice((2, 3, 3, 4))):
        heads, width = n.rng.choice((1, 2, 3)), n.rng.choice((1, 4, 5, 16))
        columns = heads * width
        w = first if first and n.chance(0.05) else n.weights((depth, columns))
        result = n.op("MatMul", x, w)
        if n.chance(0.6):
            shapes = ((columns,), (columns,), (1, columns), (), (1,), (*rows, 1))
            bias = n.weights(n.rng.choice(shapes[: 5 if n.extents else 6]))
            result = n.op("Add", *n.rng.choice(((result, bias), (bias, result))))
        match n.rng.randrange(7):
            case 0:
                result = n.op("Softmax", result, axis=-1)
            case 1:
                result = n.op("Sigmoid", result)
            case 2 if len(rows) == 2:
                result = n.op("Reshape", result, n.ints(0, 0, heads, width))
                result = n.op("Transpose", result, perm=[0, 2, 1, 3])
            case 3:
                result = n.op("Transpose", result, perm=[*range(1, len(rows) + 1), 0])
            case 4:
                n.axes_op("ReduceMax", result, [-1], keepdims=1)
            case 5:
                result = n.op("Concat", result, result, axis=-1)
            case _:
                pass


def product(n: Network) -> None:
    """A matrix product of any sizes, large enough for Strassen's algorithm now and then, with what follows it."""
    rows, columns = (
        n.extent("rows", (1, 2, 5, 16, 60, 97)),
        n.rng.choice((1, 7, 16, 24, 33, 40, 64, 130)),
    )
    depth = n.rng.choice((1, 2, 9, 16, 32, 64, 66, 100))
    batch = n.rng.choice(((), (), (2,), (1, 3)))
    x = n.input((*batch, rows, depth))
    if n.chance(0.7) or batch:
        y = n.weights(n.rng.choice(((depth, columns), (depth, columns), (*batch, depth, columns))))
        result = n.op("MatMul", x, y)
    else:
        a = n.input((depth, rows)) if n.chance(0.3) else ""
        transposed = n.chance(0.5)
        w = n.weights((columns, depth) if transposed else (depth, columns))
        c = n.weights(n.rng.choice(((columns,), (1, columns), (1,), ())))
        more: dict[str, Any] = {
            "alpha": n.rng.choice((1.0, 0.5)),
            "beta": n.rng.choice((1.0, 2.0, 0.0)),
        }
        result = n.op("Gemm", a or x, w, c, transA=int(bool(a)), transB=int(transposed), **more)
    for _ in range(n.rng.randrange(4)):
        match n.rng.randrange(6):
            case 0:
                result = n.op(n.rng.choice(("Relu", "Sigmoid", "Tanh", "Exp", "Neg")), result)
            case 1:
                result = n.op("Add", result, n.weights(n.rng.choice(((columns,), (1,), ()))))
            case 2:
                result = n.op("Mul", result, result)
            case 3:
                result = n.op("Add", result, n.input((*batch, rows, columns)))
            case 4:
                result = n.op("Clip", result, n.number(-1.0), n.number(0.5))
            case _:
                result = n.op("Softmax", result, axis=-1)
                break
