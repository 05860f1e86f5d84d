"""What `glowpy.function` refuses: with the line of the source, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.support.errors import UserError

X = np.array([[1.5, -2.0, 0.25], [4.0, 0.5, -1.0]])
N = np.array([7, -7, 6, 0, -1], np.int32)


def optional(x: Any, bias: Any = None) -> Any:
    return x if bias is None else x + bias


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


def shifted(x: Any) -> Any:
    return x << 1


def between(x: Any) -> Any:
    return 0 < x is x


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


def sliced(x: Any) -> Any:
    return (x, x)[::0]  # type: ignore[misc]


def by_truth(x: Any) -> Any:
    return x.reshape((True, 6))


def twice(x: Any) -> Any:
    return np.sum(x, axis=(0, -2))


def endless(x: Any) -> Any:
    return x + np.arange(np.inf)


def starred_target(x: Any) -> Any:
    a, *b = x
    return a, b


def unbound(x: Any) -> Any:
    def inner() -> Any:
        return y

    if x > 0:
        y = x
    return inner()


def unbound_in_a_segment(x: Any) -> Any:
    if x > 0:
        y = x
    return y * 2 + 1


def misnamed(x: Any) -> Any:
    return np.sum(x, axs=1)  # type: ignore[call-overload]


def unread(x: Any) -> Any:
    x + 1
    return x.flat


def attribute(x: Any) -> Any:
    return x.flat


def global_text(x: Any) -> Any:
    return x + __name__


def too_many(x: Any) -> Any:
    return x[0, 0, 0]


def no_axis(x: Any) -> Any:
    return x.sum(axis=2)


def no_step(x: Any) -> Any:
    return x[::0]


def bits_of_floats(x: Any) -> Any:
    return x & 1


def too_large(x: Any) -> Any:
    return x.astype(np.int8) + 300


def by_float(n: Any) -> Any:
    return N[:n]


def half(x: Any) -> Any:
    return x.astype(np.int32) * SHARE


SHARE = np.float32(0.5)


def strict(x: Any) -> Any:
    for _ in zip(x, x, strict=True):
        pass
    return x


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
    (shifted, 1, "an operator that can be compiled, got 'x << 1'", "by a power of 2"),
    (between, 1, "an operator that can be compiled, got '0 < x is x'", "with =="),
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
    (sliced, X, "a slice of integers, with a step other than 0, got slice.None, None, 0.", ""),
    (by_truth, X, r"an integer or a tuple of integers, got \(True, 6\)", ""),
    (twice, X, r"every axis once, got \(0, -2\)", ""),
    (endless, X, "arange of 0, inf, 1: ", ""),
    (starred_target, X, "a variable to assign, got '[*]b'", "name each item"),
    (unbound, -1, "'y' has no value here", ""),
    (unbound_in_a_segment, -1, "'y' has no value here", ""),
    (misnamed, X, "sum has no argument 'axs' here", ""),
    (unread, 1, "a statement that does something, got 'x [+] 1'", "is not used"),
    (attribute, X, "an attribute that can be compiled, got 'x.flat'", "x.shape"),
    (global_text, 1, "something that can be compiled, got '__name__'", "numbers, arrays"),
    (too_many, X, r"at most 2 places in f64\[2x3\], got 3", ""),
    (no_axis, X, "an axis of a tensor of rank 2, got 2", ""),
    (no_step, X, "a slice of integers, with a step other than 0", ""),
    (bits_of_floats, X, r"booleans or integers, got f64\[2x3\]", "compare with != 0"),
    (too_large, X, "a number from -128 to 127, got 300", ""),
    (by_float, 1.5, "a number that is known before", "that are given"),
    (half, X, r"one element kind, got i32 and f32\[\]", "convert one of them"),
    (strict, X, "what to loop over, by position", "no strict=True"),
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
    with pytest.raises(UserError, match=rf"test_program_refusals.py:\d+:\d+: .*{message}") as error:
        glowpy.function(backend="interpreter")(f)(argument)
    (diagnostic,) = error.value.diagnostics
    assert remedy in diagnostic.note
    assert "%" not in str(error.value)
    assert f.__code__.co_firstlineno <= diagnostic.loc.line <= f.__code__.co_firstlineno + 6
