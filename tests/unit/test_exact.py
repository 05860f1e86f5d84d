"""Results are judged by f64: what cancellation makes of rounding is no difference, what rounding cannot make is."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.support.symbolic import symbol
from tools.exact import DifferenceError, compare, judged


def normalised() -> Module:
    """Numbers around -280,000 by the root of their variance less 0.001, which leaves little of it."""
    module = Module()
    n = symbol("n", 1, 4)
    x = module.create_placeholder("x", Type(ElemKind.F32, (3, n, 5)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (3, n, 5)))
    f = module.create_function("main")
    far = f.create_add(
        "far", x.value, module.create_constant("c", np.array(-280_000, np.float32)).value
    )
    apart = f.create_sub("apart", far, f.create_reduce_mean("mean", far, (0,)))
    variance = f.create_reduce_mean("variance", f.create_mul("square", apart, apart), (0,))
    less = f.create_sub(
        "less", variance, module.create_constant("e", np.array(0.001, np.float32)).value
    )
    f.create_save("save", f.create_div("div", apart, f.create_sqrt("root", less)), y)
    return module


def image() -> dict[str, Array]:
    return {"x": np.random.default_rng(0).standard_normal((3, 2, 5)).astype(np.float32)}


def test_cancellation_is_no_difference() -> None:
    """What is off by what rounding x - 280,000 explains is right, whoever rounded; ten times as much is not."""
    judge = cache(partial(judged, normalised, image()))
    exact, spread = (part["y"] for part in judge())
    right = exact.astype(np.float32)
    place = np.unravel_index(np.argmax(np.nan_to_num(spread)), spread.shape)
    assert spread[place] > 0.01 * abs(exact[place])

    def check(factor: float) -> None:
        moved = right.copy()
        moved[place] += np.float32(factor * spread[place])
        compare({"y": moved}, {"y": right}, judge)

    check(0.5)
    with pytest.raises(DifferenceError, match=r"y\[3, 2, 5\] at .*; 1 of 30 are wrong"):
        check(10)


def gathered() -> Module:
    """Rows by index, and where the largest of each is."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (4, 6)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (4, 6)))
    at = module.create_placeholder("at", Type(ElemKind.I64, (4, 1)))
    f = module.create_function("main")
    f.create_save("save", f.create_exp("exp", x.value), y)
    f.create_save("save_at", f.create_arg_max("top", x.value, 1, False), at)
    return module


def test_differences_are_found() -> None:
    """One element is enough, of floats and of integers; NaN and infinity are none that rounding makes."""
    x = {"x": np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)}
    judge = cache(partial(judged, gathered, x))
    right = {"y": np.exp(x["x"]), "at": x["x"].argmax(1, keepdims=True)}
    compare(right, right, judge)
    for name, wrong in (("y", 1.01), ("y", np.nan), ("y", np.inf), ("at", 5)):
        array = right[name].copy()
        array[2, 0] = (array[2, 0] + 1) % 6 if name == "at" else array[2, 0] * wrong
        with pytest.raises(DifferenceError, match=f"^{name}"):
            compare({**right, name: array}, right, judge)
    with pytest.raises(DifferenceError, match="is float32"):
        compare({**right, "y": right["y"][:2]}, right, judge)


def test_a_number_in_place_of_what_is_none_is_found() -> None:
    x = {"x": np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)}
    x["x"][1, 2] = np.nan
    right = {"y": np.exp(x["x"]), "at": x["x"].argmax(1, keepdims=True)}
    array = np.nan_to_num(right["y"], nan=5.0)
    with pytest.raises(DifferenceError, match=r"^y\[4, 6\] at \(1, 2\): 5.0, not nan"):
        compare({**right, "y": array}, right, cache(partial(judged, gathered, x)))
