"""The Python that `glowpy.function` compiles: what works, as Python does it, and what is refused, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.support.errors import UserError
from tests.unit.test_program import assert_same

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
    return ~n, ~b, ~(n > 0), n & 6, n | 1, n ^ 3, np.logical_not(n), np.logical_and(n, b)


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
    return a and b, a or b, not a, not (a and b), (a > 1 and b > 1) or a == b, 1 if a else 2


def optional(x: Any, bias: Any = None) -> Any:
    if bias is None:
        return x
    return x + bias if bias is not None else x


def options(x: Any) -> Any:
    return optional(x), optional(x, 1.0), optional(bias=x, x=2.0)


def booleans(a: Any, b: Any) -> Any:
    return a + a, -a, abs(b), a - b, a * b, a / 2


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


def asserting(x: Any) -> Any:
    assert x > 0, "negative"
    return x


def raising(x: Any) -> Any:
    if x < 0:
        raise ValueError
    return x


def trying(x: Any) -> Any:
    try:
        return x
    except ValueError:
        return 0


def importing(x: Any) -> Any:
    import math  # noqa: PLC0415

    return math.sqrt(x)


def comprehending(x: Any) -> Any:
    return [row for row in x]  # noqa: C416


def appending(x: Any) -> Any:
    rows: Any = ()
    rows.append(x)
    return rows


def naming(x: Any) -> Any:
    return {"x": x}


def yielding(x: Any) -> Any:
    yield x


def containing(x: Any) -> Any:
    return x in (1, 2)


def identical(x: Any) -> Any:
    return x is X


def starred(x: Any) -> Any:
    return np.maximum(*x)


def keyword_only(x: Any, *, k: Any = 1) -> Any:
    return x + k


def printing(x: Any) -> Any:
    print(x)  # noqa: T201
    return x


def changing(x: Any) -> Any:
    x[0] += 1
    return x


def wrapped_inside(x: Any) -> Any:
    @glowpy.function
    def inner(y: Any) -> Any:
        return y

    return inner(x)


def default_computed(x: Any) -> Any:
    return (lambda y, k=x: y + k)(x)


def striding(n: Any) -> Any:
    for i in range(0, 10, n):
        n = i
    return n


def masked(x: Any) -> Any:
    return x[x > 0]


def listed(x: Any) -> Any:
    return x[[0, 1]]


def unknown_shape(x: Any) -> Any:
    return np.zeros(not x)


def larger(x: Any) -> Any:
    return max(x, 1)


def named(x: Any) -> Any:
    return x + (x := 2)


def by_text(x: Any) -> Any:
    return x.reshape(2.5), x.sum(axis=x.dtype)


def starred_target(x: Any) -> Any:
    a, *b = x
    return a, b


def computed_shape(x: Any) -> Any:
    return np.zeros(x.argmax(axis=0)[0])


def negated(x: Any) -> Any:
    return not x


def inverted_number(x: Any) -> Any:
    return ~x


def subtracted(x: Any) -> Any:
    return x - np.ones(4)


def minus(x: Any) -> Any:
    return -(x > 0)


def no_value(x: Any) -> Any:
    return print_less(x) + 1


def print_less(x: Any) -> Any:
    return None if x is None else print_less(None)


def unpacked(x: Any) -> Any:
    a, b = x
    return a + b


def given_too_few(x: Any) -> Any:
    return optional() + x  # type: ignore[call-arg]


def given_twice(x: Any) -> Any:
    def inner(y: Any) -> Any:
        return y + x

    return inner(1, y=x)  # type: ignore[misc]


def called(x: Any) -> Any:
    return x(1)


def fractional(x: Any) -> Any:
    return x.astype(np.int32) + 0.5


REFUSED: list[tuple[Callable[..., Any], Any, str, str]] = [
    (asserting, 1, "a statement that can be compiled, got 'assert x > 0", "check it where"),
    (raising, 1, "a statement that can be compiled, got 'raise ValueError'", "raise where"),
    (trying, 1, "a statement that can be compiled, got 'try:'", "decide with if"),
    (
        importing,
        1,
        "a statement that can be compiled, got 'import math'",
        "outside of the function",
    ),
    (comprehending, X, "an expression that can be compiled", "write a loop"),
    (appending, X, "a method that can be compiled, got 'rows.append'", "tuples are not changed"),
    (naming, 1, "an expression that can be compiled", "use a tuple"),
    (yielding, 1, "an expression that can be compiled, got '.yield x.'", "give a tuple"),
    (containing, 1, "an operator that can be compiled, got 'x in", "compare with each value"),
    (identical, 1, "a comparison with None, got 'x is X'", "with =="),
    (starred, X, "arguments one by one, got 'np.maximum", "write out what is in it"),
    (keyword_only, 1, "a function of plain arguments", "can be given by its name"),
    (printing, 1, "a function that can be compiled, got 'print'", "docs/functions.md"),
    (changing, X, r"a variable to assign, got 'x\[0\]'", "make a new one"),
    (wrapped_inside, 1, "a function without decorators", "would not be compiled"),
    (default_computed, 1, "a default that is a constant, got 'x'", "see the variables around them"),
    (striding, 1, "a step that is a constant other than 0", "count with while"),
    (masked, X, r"one integer as a place, got bool\[2x3\]", "np.where chooses"),
    (listed, X, "an integer as a place, got a tuple", ""),
    (computed_shape, X, r"a Python number, got i64\[\]", "elements of tensors are not"),
    (
        unknown_shape,
        np.ones(1),
        r"a number that is known before, got .* on f64\[1\]",
        "that are given",
    ),
    (unknown_shape, 1.5, r"a number that is known before, got .* on f64\[\]", "that are given"),
    (by_text, X, "an integer or a tuple of integers, got 2.5", ""),
    (starred_target, X, "a variable to assign, got '[*]b'", "name each item"),
    (larger, X, r"two numbers, got f64\[2x3\]", "use np.maximum"),
    (named, 1, "an expression that can be compiled", "a statement of its own"),
    (negated, X, r"a condition of one element, got f64\[2x3\]", "np.logical_not"),
    (inverted_number, True, "an integer or an array, got a Python bool", "write not"),
    (subtracted, X, r"shapes that broadcast, got \[2, 3\] and \[4\]", ""),
    (minus, X, "a kind of f32 f64 .*, got bool", ""),
    (no_value, 1, "a tensor or a number, got None", ""),
    (unpacked, 1, "a tuple of 2, got no tuple", ""),
    (given_too_few, 1, "x, bias, got none", ""),
    (given_twice, 1, "y, got int, y", ""),
    (called, 1, "a function to call, got int", ""),
    (fractional, X, "integers for a tensor of kind i32, got 0.5", "convert the tensor"),
]


@pytest.mark.parametrize(("f", "argument", "message", "remedy"), REFUSED)
def test_what_is_refused_names_the_line_and_a_remedy(
    f: Callable[..., Any], argument: Any, message: str, remedy: str
) -> None:
    with pytest.raises(UserError, match=rf"test_program_language.py:\d+:\d+: .*{message}") as error:
        glowpy.function(backend="interpreter")(f)(argument)
    (diagnostic,) = error.value.diagnostics
    assert remedy in diagnostic.note
    assert "%" not in str(error.value)
    assert f.__code__.co_firstlineno <= diagnostic.loc.line <= f.__code__.co_firstlineno + 6


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
    monkeypatch.setattr("glowpy.program.machine.MAX_DEPTH", 1)
    assert glowpy.function(backend="interpreter")(descending)(300) == 300
