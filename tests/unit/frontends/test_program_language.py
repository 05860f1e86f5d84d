"""The Python that `glowpy.function` compiles: what works does as Python does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.support.errors import UserError
from tests.unit.frontends.test_program import assert_same

X = np.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]])
N = np.array([7, -7, 6, 0, -1], np.int32)


def mutual(n: Any) -> Any:
    def is_even(m: Any) -> Any:
        return True if m == 0 else is_odd(m - 1)

    def is_odd(m: Any) -> Any:
        return False if m == 0 else is_even(m - 1)

    return is_even(n), is_odd(n)


def enclosing(n: Any) -> Any:
    step = 2

    def outer(m: Any, k: Any = 1) -> Any:
        def inner(q: Any) -> Any:
            return outer(q - step, k=k + 1)

        return k if m <= 0 else inner(m)

    return outer(n), outer(n, 5), outer(k=7, m=n)


def shadowed(n: Any) -> Any:
    k = 10

    def f(m: Any) -> Any:
        return m + k

    def g(m: Any) -> Any:
        k = 3
        return f(m) * k + (lambda k: f(k))(m)

    return g(n)


def counter(n: Any) -> Any:
    total = 0

    def add(m: Any) -> Any:
        nonlocal total
        total = total + m
        return total

    for i in range(n):
        add(i)
    return total, add(1), total


def late(n: Any) -> Any:
    f: Any = None
    g: Any
    for i in range(n):
        f = lambda: i  # noqa: E731, B023
    k = 1
    g = lambda y: y * k  # noqa: E731
    k = k + 1
    return f(), g(n)


def forward(n: Any) -> Any:
    def f() -> Any:
        return k

    k = n + 1
    return f()


def shapes(x: Any) -> Any:
    n = x.shape[0]
    rows = x.reshape(n, -1)
    for _ in range(2):
        rows = rows + np.ones(x.shape)
    filled = np.full((n, 2), x.sum()), np.full(2, 1.5, dtype=np.float32)
    return rows.reshape(x.shape[0], -1), np.zeros(x.shape), filled, np.arange(n), x.ndim, x.size


def typed(x: Any) -> Any:
    return np.zeros(x.shape, x.dtype), np.arange(1, 6, 2), np.arange(3.0), N.shape[0], len(x.shape)


def sized(x: Any, n: Any) -> Any:
    total = np.zeros(n)
    for i in range(n):
        total = total + x[0, : i + 1].sum()
    return total, x[:, n - 2 : n], x[:, ::-1], x[:, -1:0:-1], np.sum(x, axis=n - 2)


def chained(x: Any, y: Any) -> Any:
    return 0 < x < 1, 0 < x <= y < 5, x == 1 == y, -1 < x < 0 < y


def chained_once(n: Any) -> Any:
    calls = 0

    def middle() -> Any:
        nonlocal calls
        calls = calls + 1
        return n

    held = 0 < middle() < 10
    return held, calls, 5 < n < middle(), calls


def divided(a: Any, b: Any) -> Any:
    return a // b, a % b


def inverted(n: Any, b: Any) -> Any:
    return (
        ~n,
        ~b,
        ~(n > 0),
        n & 6,
        n | 1,
        n ^ 3,
        np.logical_not(n),
        np.logical_and(n, b),
        n != 0,
        n == 0,
        n >= 0,
    )


def spread(x: Any) -> Any:
    return x[..., 0], x[:, None], x[None, ..., None], x[1, ...], x[..., -1, :], x[...]


def over_tuples(a: Any, b: Any) -> Any:
    total = a * 0
    for v in (a, b, 2.0):
        total = total + v
    for i, v in enumerate((a, b)):
        total = total + i * v
    for i, (v, w) in enumerate(zip((a, b), (b, a, 1), strict=False), 2):
        total = total * i + v - w
    for row, k in zip(X, (1, 2), strict=False):
        total = total + row.sum() * k
    for pair in zip((a,), (b,), strict=False):
        total = total + pair[0] * pair[1]
    return total


def over_functions(x: Any) -> Any:
    def double(y: Any) -> Any:
        return 2 * y

    both = (double, lambda y: y + 1)
    for f in both:
        x = f(x)
    return both[0](x), len(both)


def logic(a: Any, b: Any) -> Any:
    return (
        a and b,
        a or b,
        not a,
        not (a and b),
        (a and b and a - b),
        (a > 1 and b > 1) or a == b,
        1 if a else 2,
    )


def optional(x: Any, bias: Any = None) -> Any:
    if bias is None:
        return x
    return x + bias if bias is not None else x


def options(x: Any) -> Any:
    return optional(x), optional(x, 1.0), optional(bias=x, x=2.0)


def booleans(a: Any, b: Any) -> Any:
    return a + a, -a, abs(b), a - b, a * b, a / 2, a**2


def assigned(x: Any) -> Any:
    a = b = x
    (a, (b, c)), d = (a, (b, 1)), 2
    a, a = b, c
    a += 1
    d *= a
    a, d = d, a
    (e, f) = (a, d)
    [g, h] = e, f
    y: Any = g
    y -= h
    if y:
        y **= 2
    return a, b, c, d, y


def leaving(n: Any) -> Any:
    k = 0
    while True:
        k += 1
        if k % 2 == 0:
            continue
        if k > n:
            break
    for i in range(10):
        for j in range(10):
            if i * j == n:
                return i, j, k
    return k


def forever(n: Any) -> Any:
    while True:
        if n > 100:
            return n
        n = n * 2


def functions(x: Any, w: Any) -> Any:
    return (
        np.where(x > 0, x, 0.0),
        np.sum(x, axis=1),
        np.max(x, axis=0, keepdims=True),
        np.exp(x) @ w,
        np.clip(x, a_max=1.0, a_min=0.0),
        x.max(),
        np.min(x),
        np.abs(x).mean(),
    )


def mixed(x: Any, rate: Any, n: Any) -> Any:
    return x - rate * x, x * n, rate + n


def grown(x: Any, n: Any) -> Any:
    rows: Any = ()
    for i in range(n):
        rows = (*rows, x[0] * 2**i)
    rows += (x[1],)
    if rows and not ():
        rows = rows[1:]
    same = x.shape == rows[0].shape, x.T.shape[::-1] == x.shape
    return np.stack(rows), same, np.zeros((n, *x.shape[1:]))


def numbers(x: Any, n: Any) -> Any:
    half = int(n / 2)
    share = float(n) * x, np.zeros(np.clip(half, 1, 9)), np.ones(np.where(True, 2, 3))
    return max(n, 2), min(half, x[0, 0]), share, n**2, 2**n, x**half, n**0, bool(n), int(x[0, 1])


def places(x: Any, i: Any, j: Any) -> Any:
    return x[i], x[i, j], x[:, j], x[j, 1:], x[i][j]


def products(x: Any) -> Any:
    a, b = x[0], x[1]
    return np.dot(a, b), a @ b, a @ x.T, x @ b, np.dot(x, x.T), x.dot(b)


def kinds(x: Any, n: Any) -> Any:
    numbers = 7 % -3, 7 // 2, 5 & 3, ~5, +n, 2.5 < 3.0, np.isnan(1.0), -(2**3)
    filled = np.full((2, 3), x[0], dtype=np.float32), np.zeros_like(x), np.ones_like(n)
    return numbers, filled, n + 2**60, np.exp(n), np.isnan(x), n.astype(np.float64) % 4, n / 3


def both_ways(n: Any) -> Any:
    if n > 0:
        return n
    else:  # noqa: RET505
        return -n


WORKS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (mutual, (7,)),
    (enclosing, (5,)),
    (shadowed, (4,)),
    (counter, (5,)),
    (late, (3,)),
    (forward, (3,)),
    (shapes, (X,)),
    (typed, (X.astype(np.float32),)),
    (sized, (X, 3)),
    (chained, (0.5, 2.0)),
    (chained, (np.array(3.0), np.float64(3))),
    (chained_once, (3,)),
    (chained_once, (-3,)),
    (divided, (N, np.array([2, 2, -4, 3, 5], np.int32))),
    (divided, (X, 0.75)),
    (divided, (X.astype(np.float32), np.float32(-0.1))),
    (
        divided,
        (np.array([1.0, -1.0, 1e15, 5.0, -5.0, 0.0]), np.array([0.1, 0.1, 3, np.inf, np.inf, 2])),
    ),
    (
        divided,
        (np.array([1e305, -1e305, 1e303, np.inf, -np.inf]), np.array([3e303, 7e302, 1e305, 2, 3])),
    ),
    (divided, (7.5, -2)),
    (inverted, (N, np.array([True, False, True, False, True]))),
    (inverted, (np.array([0, 255, 3], np.uint8), np.array([True, False, True]))),
    (spread, (X,)),
    (over_tuples, (3.0, np.array(2.0))),
    (over_functions, (3,)),
    (logic, (0, 3)),
    (logic, (np.array(2.0), np.array(0.0))),
    (options, (3.0,)),
    (optional, (X, None)),
    (booleans, (True, False)),
    (assigned, (3,)),
    (leaving, (6,)),
    (leaving, (97,)),
    (forever, (3,)),
    (functions, (X, np.ones((3, 2)))),
    (mixed, (X.astype(np.float32), 0.5, 3)),
    (grown, (X, 2)),
    (numbers, (X.astype(np.float32), 5)),
    (products, (X,)),
    (kinds, (X, np.array([5, -3], np.int64))),
    (both_ways, (3,)),
    (both_ways, (-3,)),
    (places, (X, -1, 0)),
    (places, (X, np.int32(1), np.array(-2))),
]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(("f", "arguments"), WORKS)
def test_what_is_compiled_does_as_python_does(
    f: Callable[..., Any], arguments: tuple[Any, ...], backend: str
) -> None:
    with np.errstate(all="ignore"):
        assert_same(glowpy.function(backend=backend)(f)(*arguments), f(*arguments))


def test_names_around_a_function_are_looked_up() -> None:
    factor = 3.0

    @glowpy.function(backend="interpreter")
    def scaled(x: Any) -> Any:
        return x * factor + (x * 0 if x < 100 else later(x))

    with pytest.raises(UserError, match="'later' is not defined"):
        scaled(2.0)

    def later(x: Any) -> Any:
        return x

    assert glowpy.function(backend="interpreter")(scaled.python_function)(200.0) == 800.0


def test_gradients_of_several_kinds_are_added() -> None:
    @glowpy.function(backend="interpreter")
    def mixed_kinds(x: Any) -> Any:
        narrow, wide = x * 2, x.astype(np.float64)
        if wide.sum() > 0:
            return (narrow.astype(np.float64) * wide).sum()
        return wide.sum()

    assert_same(mixed_kinds.gradient(np.array([1, 2], np.float32)), np.array([4, 8], np.float32))


def at(x: Any, i: Any) -> Any:
    return x[i + 0, 1:]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_computed_places_are_those_of_python(backend: str) -> None:
    f = glowpy.function(backend=backend)(at)
    fitting: tuple[Any, ...] = (0, 1, -1, -2, np.int32(-1), np.array(1))
    for i in fitting:
        assert_same(f(X, i), at(X, i))
    others: tuple[Any, ...] = (2, -3, 2**40, np.array(-3, np.int8), np.uint8(255))
    for i in others:
        message = rf"py:\d+:12: expected a place from -2 to 1, got {int(i)}\n  return x\[i"
        with pytest.raises(UserError, match=message):
            f(X, i)
    with pytest.raises(UserError, match="expected a place in a tensor without elements"):
        f(X[:0], 0)


def descending(n: Any, k: Any = 0) -> Any:
    return k if n == 0 else descending(n - 1, k + 1)


def piled(n: Any) -> Any:
    return 0 if n == 0 else 1 + piled(n - 1)


def shrunk(x: Any, n: Any) -> Any:
    return x.sum() if n == 0 else shrunk(x * 0.5, n - 1) * 2


def test_recursion_is_deep_and_tail_calls_take_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    assert glowpy.function(backend="interpreter")(piled)(2500) == 2500
    gradient = glowpy.function(backend="interpreter")(shrunk).gradient(np.ones(2), 300)
    assert_same(gradient, np.ones(2))
    monkeypatch.setattr("glowpy.frontends.python.machine.MAX_DEPTH", 1)
    assert glowpy.function(backend="interpreter")(descending)(300) == 300


def test_the_place_of_an_extreme_is_that_of_numpy() -> None:
    def places(x: Any) -> Any:
        return x.argmax(), np.argmin(x), x.argmin(axis=0), np.argmax(x, axis=-1)

    def several(x: Any) -> Any:
        return x.argmax(axis=(0, 1))

    x = np.array([[3, 1, 2], [0, 5, 4]], np.float32)
    for result, expected in zip(glowpy.function(places)(x), places(x), strict=True):
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(glowpy.UserError, match=r"expected one axis, got \(0, 1\)"):
        glowpy.function(several)(x)
