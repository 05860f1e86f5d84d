"""Python functions that are compiled with their branches, loops and calls: numpy is the reference."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.errors import UserError

RNG = np.random.default_rng(0)
BACKENDS = ("interpreter", "cpu")
SCALE = 1.5
SQUARE = np.array([[0.9, -1.2, 0.4], [0.35, 1.6, -0.8], [-0.1, 0.6, 1.1]])


def factorial(n: Any) -> Any:
    if n <= 1:
        return 1
    return n * factorial(n - 1)


def newton(a: Any) -> Any:
    x = a
    while np.abs(x * x - a) > 1e-9 * a:
        x = (x + a / x) / 2
    return x


def bent(x: Any) -> Any:
    if x.sum() > 0:
        y = np.sin(x)
        y = y * x
    else:
        y = np.exp(-x) / SCALE
    return (y * y).mean()


def even(n: Any) -> Any:
    return True if n == 0 else odd(n - 1)


def odd(n: Any) -> Any:
    return False if n == 0 else even(n - 1)


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def skipping(x: Any, n: Any) -> Any:
    total = x * 0
    for i in range(1, n, 2):
        if i == 5:
            continue
        if i > 8:
            break
        total += x**i
    else:
        total = -total
    return total


def searching(rows: Any, least: Any) -> Any:
    k = 0
    for row in rows:
        k += 1
        if row.max() > least:
            break
    return k, rows[k - 1]


def applied(x: Any) -> Any:
    def twice(f: Any, y: Any) -> Any:
        return f(f(y))

    k = x + 1.0
    return twice(lambda z: z * k, x) + (x if x > 2 and not x > 5 else k)


def nested(n: Any, k: Any = 2) -> Any:
    def inner(m: Any) -> Any:
        return 1 if m < 1 else m * inner(m - 1) + k

    return inner(n)


def pairs(x: Any, y: Any) -> Any:
    both = (x, (y, x + y))
    first, (second) = both
    return second[1], first, len(both)


def places(x: Any) -> Any:
    i = x.argmax(axis=0)[0]
    return x[1:, ::2], x[-1], x[:, None, 0], x[i], x[0, 1:3], x.T.shape[0]


def network(x: Any, w: Any, b: Any) -> Any:
    for _ in range(3):
        x = np.tanh(x @ w + b)
    return np.where(x > 0, x, x * 0.1).reshape(-1).sum()


def reduced(x: Any) -> Any:
    return x.sum(), x.mean(), x.prod(axis=0), (x > 1).sum(), x / 2


def listed(a: Any, b: Any) -> Any:
    p, q = a, b
    p, q = (q, p)
    both = (p, q)
    both, p = both
    return np.concatenate([both, p]), np.clip(a, None, 1.0)


def folded(x: Any) -> Any:
    return x + 2**40, x * 2**-1, 7 // 2 - 1


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (factorial, (12,)),
    (factorial, (1,)),
    (newton, (2.0,)),
    (newton, (np.float64(1e-3),)),
    (bent, (np.array([1, 2, -0.5], np.float64),)),
    (bent, (np.array([1, -2], np.float32),)),
    (even, (10,)),
    (odd, (10,)),
    (fibonacci, (50,)),
    (fibonacci, (0,)),
    (skipping, (np.array([1.5, -2], np.float64), 4)),
    (skipping, (np.array([1.5, -2], np.float64), 30)),
    (searching, (RNG.standard_normal((5, 3)), np.float64(0.8))),
    (searching, (np.zeros((4, 1), np.float32), np.float32(1))),
    (applied, (3.0,)),
    (applied, (7.0,)),
    (nested, (4,)),
    (nested, (4, 3)),
    (pairs, (np.array([1, 2], np.int32), np.int32(5))),
    (reduced, (np.array([100, 100], np.int8),)),
    (reduced, (np.array([200, 100], np.uint8),)),
    (reduced, (np.array([2**31 - 1, 1], np.int32),)),
    (listed, (np.array([1.0, 2.0]), np.array([3.0]))),
    (folded, (np.float64(3),)),
    (places, (RNG.standard_normal((3, 4)).astype(np.float32),)),
    (
        network,
        (
            RNG.standard_normal((2, 4)),
            RNG.standard_normal((4, 4)),
            np.array([1, 2, 3, 4], np.float64),
        ),
    ),
]


def assert_same(got: Any, expected: Any) -> None:
    """Tuples item by item; kinds of tensors as well."""
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
        return
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("f", "arguments"), CASES)
def test_a_function_computes_what_python_does(
    f: Callable[..., Any], arguments: tuple[Any, ...], backend: str
) -> None:
    assert_same(glowpy.function(backend=backend)(f)(*arguments), f(*arguments))


def derivative(f: Callable[..., Any], x: Array, step: float = 1e-6) -> Array:
    """Central differences."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[place] = step
        result[place] = (f(x + shift) - f(x - shift)) / (2 * step)
    return result


def power(x: Any, n: Any) -> Any:
    return x.sum() * 0 + 1 if n == 0 else (x * 1.1).sum() * power(x, n - 1)


def through_cells(x: Any) -> Any:
    total = 0.0

    def add(y: Any) -> Any:
        nonlocal total
        total = total + y * y
        return total

    for row in x:
        add(row.sum())
    return total * add(x[0, -1])


def through_tuples(x: Any) -> Any:
    pair = (x * 2, (x[0], x[:, ::-2]))
    total = 0.0
    for v in (pair[0], pair[1][1], x):
        total = total + (v * v).sum()
    for i, (a, b) in enumerate(zip(x, pair[0], strict=False)):
        total = total + (a * b).prod() * i
    return total + pair[1][0].max() + (x % 0.7).sum() + (x // 0.31).sum() * x.mean()


def through_functions(x: Any) -> Any:
    def scaled(k: Any) -> Any:
        return lambda y: y * k * x.sum()

    result = x[1, 1]
    for f in (scaled(2.0), scaled(x[0, 0])):
        result = f(result)
    return result


def through_recursion(x: Any, depth: Any = 0) -> Any:
    if depth > 3:
        return x.mean()
    return through_recursion(x * 1.1, depth + 1) * x[0, 0] + through_recursion(x[:1], depth + 2)


GRADIENTS: list[tuple[Callable[..., Any], Array, tuple[Any, ...]]] = [
    (bent, np.array([1.0, 2.0, -0.5]), ()),
    (bent, np.array([-1.0, -2.0, 0.5]), ()),
    (newton, np.array(2.0), ()),
    (power, np.array([0.5, 0.25]), (5,)),
    (applied, np.array(3.0), ()),
    (through_cells, SQUARE, ()),
    (through_tuples, SQUARE, ()),
    (through_functions, SQUARE, ()),
    (through_recursion, SQUARE, ()),
    (network, RNG.standard_normal((2, 3)), (RNG.standard_normal((3, 3)), np.ones(3))),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("f", "x", "others"), GRADIENTS)
def test_gradients_follow_what_ran(
    f: Callable[..., Any], x: Array, others: tuple[Any, ...], backend: str
) -> None:
    gradient = glowpy.function(backend=backend)(f).gradient(x, *others)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(
        gradient, derivative(lambda y: f(y, *others), x), rtol=1e-5, atol=1e-7
    )


def test_gradients_by_several_arguments_and_tuples() -> None:
    @glowpy.function(backend="interpreter")
    def weighted(x: Any, pair: Any, unused: Any) -> Any:
        return (x * pair[0] + pair[1]).sum()

    x, w, b = (
        np.array([1, 2], np.float64),
        np.array([3, 4], np.float64),
        np.array([5, 6], np.float64),
    )
    by_x, (by_w, by_b), none = weighted.gradient(x, (w, b), np.float64(1), by=(0, 1, 2))
    assert_same((by_x, by_w, by_b, none), (w, x, np.ones(2), np.zeros(())))


def rated(x: Any, rate: Any, n: Any = 2) -> Any:
    return (x * rate).sum() ** n


def settled(x: Any) -> Any:
    return 1.5 if x > 0 else x


def test_gradients_by_numbers_and_of_what_does_not_flow() -> None:
    f = glowpy.function(backend="interpreter")(rated)
    x = np.array([1.0, 2.0])
    assert_same(f.gradient(x, 0.5, by=1), np.array(2 * 9 * 0.5))
    assert_same(f.gradient(x, 0.5, by=-3), np.array([1.5, 1.5]))
    assert_same(glowpy.function(backend="interpreter")(settled).gradient(2.0), np.array(0.0))
    with pytest.raises(
        UserError, match=r"argument 2: expected floats to differentiate by, got int"
    ):
        f.gradient(x, 0.5, 2, by=2)
    others: list[Any] = [3, 1.5, None, (0, 1.0)]
    for by in others:
        with pytest.raises(
            UserError, match=r"by: expected the number of one of 3 arguments.*, got"
        ):
            f.gradient(x, 0.5, by=by)


def test_one_compilation_serves_all_turns_of_a_loop() -> None:
    f = glowpy.function(backend="interpreter")(newton)
    assert f(2.0) == pytest.approx(math.sqrt(2))
    graphs = f.dump("graph")
    assert f(5.0) == pytest.approx(math.sqrt(5))
    assert f.dump("graph") == graphs
    f(np.array([9.0], np.float64))
    assert len(f.dump("graph")) > len(graphs)


def test_the_dump_shows_segments_and_what_links_them() -> None:
    text = glowpy.function(factorial).dump()
    line = factorial.__code__.co_firstlineno + 1
    for words in (
        f"factorial.{line}.then():",
        "segment factorial.0(n)",
        "less_equal(n, 1)",
        "partial 1\n    switch\n    tail_call 0",
        "push @factorial",
        "call 1",
        "multiply(n, t3')",
        "return",
    ):
        assert words in text
    with pytest.raises(UserError, match="expected the stage 'code' or 'graph'"):
        glowpy.function(factorial).dump("ir")


def counting(n: Any, total: Any) -> Any:
    return total if n == 0 else counting(n - 1, total + n)


def endless(n: Any) -> Any:
    return 1 + endless(n)


def test_tail_calls_need_no_frames_and_endless_recursion_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glowpy.frontends.python.machine.MAX_DEPTH", 50)
    assert glowpy.function(backend="interpreter")(counting)(200, 0) == 20100
    with pytest.raises(
        UserError, match=r"test_program.py:\d+:\d+: expected a recursion of at most 50 calls"
    ):
        glowpy.function(backend="interpreter")(endless)(1)


def test_integers_are_divided_as_numpy_does() -> None:
    @glowpy.function(backend="interpreter")
    def divided(a: Any, b: Any) -> Any:
        return a // b, a % b, a**3, 7 // 2, (a - a) // b

    a, b = np.array([7, -7, 7, -7, 6, -6], np.int32), np.array([2, 2, -2, -2, 3, -3], np.int32)
    assert_same(divided(a, b), (a // b, a % b, a**3, 3, (a - a) // b))


def with_statement(x: Any) -> Any:
    with x:
        return x


def unknown_name(x: Any) -> Any:
    return missing(x)  # type: ignore[name-defined] # noqa: F821


def not_compiled(x: Any) -> Any:
    return np.linalg.inv(x)


def changed(x: Any) -> Any:
    x[0] = 1
    return x


def unassigned(x: Any) -> Any:
    if x > 0:
        y = x
    return y


def chosen(x: Any) -> Any:
    return 1 if x else 2


def joined(x: Any) -> Any:
    return x + np.int32(1)


def enormous(x: Any) -> Any:
    return x + 2**70


def stacked(x: Any) -> Any:
    return np.dot(x, x)


def emptied(x: Any) -> Any:
    return x.max()


def doubled(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapper(*arguments: Any) -> Any:
        return 2 * f(*arguments)

    return wrapper


@doubled
def decorated(x: Any) -> Any:
    return x + 1


def decorating(x: Any) -> Any:
    return decorated(x)


REFUSED: list[tuple[Callable[..., Any], Any, str]] = [
    (with_statement, 1, "expected a statement that can be compiled, got 'with x:'"),
    (unknown_name, 1, "'missing' is not defined"),
    (not_compiled, 1, "expected a function that can be compiled, got 'np.linalg.inv'"),
    (changed, np.zeros(2), r"expected a variable to assign, got 'x\[0\]'"),
    (unassigned, -1, "'y' has no value here"),
    (chosen, np.zeros(2), r"expected a condition of one element, got a tensor of shape \(2,\)"),
    (joined, np.float32(1), r"expected one element kind, got f32 and i32"),
    (stacked, np.zeros((2, 2, 2)), "expected vectors or matrices, got "),
    (enormous, 1, "power of 2, 70: the result is too large"),
    (emptied, np.zeros(0), r"expected elements to choose from, got f64\[0\]"),
]


@pytest.mark.parametrize(("f", "argument", "message"), REFUSED)
def test_what_cannot_be_compiled_is_refused_with_its_line(
    f: Callable[..., Any], argument: Any, message: str
) -> None:
    with pytest.raises(UserError, match=rf"test_program.py:\d+:\d+: {message}"):
        glowpy.function(backend="interpreter")(f)(argument)


def test_what_another_decorator_adds_is_not_left_out() -> None:
    for f in (decorating, decorated):
        with pytest.raises(UserError, match="expected a function without other decorators"):
            glowpy.function(backend="interpreter")(f)(1)


def constant(x: Any) -> Any:
    return KEPT if x > 0 else x


KEPT = np.array([1.0])


def test_results_are_the_callers() -> None:
    f = glowpy.function(backend="interpreter")(constant)
    result = f(1)
    result += 5
    assert f(1) == 1 == KEPT


def test_arguments_by_name_and_defaults_that_stay_numbers() -> None:
    def scaled(x: Any, k: Any = 3, *, unused: Any = None) -> Any:
        return x * k

    def by(x: Any, k: Any = 3) -> Any:
        return x * k

    with pytest.raises(UserError, match="expected a function of plain arguments"):
        glowpy.function(backend="interpreter")(scaled)(1)
    f = glowpy.function(backend="interpreter")(by)
    assert_same(f(np.array([1.5], np.float32)), np.array([4.5], np.float32))
    assert_same(f(k=2.0, x=1.5), 3.0)
    with pytest.raises(UserError, match="by: expected x, k, got int, q"):
        f(1, q=2)


def test_wrong_arguments_are_refused() -> None:
    for array in (np.ones(2, complex), np.array(["a"]), np.array([None])):
        with pytest.raises(UserError, match="'a': expected numbers of a kind that is compiled"):
            glowpy.function(newton)(array)
    assert_same(glowpy.function(backend="interpreter")(newton)(np.array(4.0, ">f8")), np.array(2.0))
    f = glowpy.function(backend="interpreter")(newton)
    with pytest.raises(UserError, match="newton: expected a, got int, int"):
        f(1, 2)
    with pytest.raises(
        UserError, match="'a': expected an array, a number or a tuple of such, got str"
    ):
        f("x")
    with pytest.raises(UserError, match="expected floats to differentiate by"):
        glowpy.function(backend="interpreter")(skipping).gradient(np.ones(1), 3, by=1)
    with pytest.raises(UserError, match=r"expected one float to differentiate, got int64\[\]"):
        glowpy.function(backend="interpreter")(largest).gradient(np.ones(3))
    with pytest.raises(UserError, match="expected a function that 'def' defines"):
        glowpy.function(3)  # type: ignore[call-overload]


def largest(x: Any) -> Any:
    return x.argmax(axis=0)


def ranked(x: Any) -> Any:
    return x[x.argmax(axis=0)] * 2.0


def test_gradients_reach_an_element_that_is_taken() -> None:
    gradient = glowpy.function(backend="interpreter")(ranked).gradient(np.array([1.0, 3.0, 2.0]))
    assert_same(gradient, np.array([0.0, 2.0, 0.0]))
