"""Powers with simple exponents: the values of IEEE 754's pow, at least as exactly as pow computes them."""

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compilation, evaluate
from glowpy.graph.function import Module

EXPONENTS = (2.0, 0.5, -1.0, 1.0, 0.0, -0.0)


def bases(kind: ElemKind) -> Array:
    """Special values, subnormal ones, and random ones of all sizes and both signs; an odd number."""
    limits = (6e-8, 6e4) if kind is ElemKind.F16 else (1e-40, 1e38)
    if kind is ElemKind.F64:
        limits = (1e-310, 1e308)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, *limits]
    low, high = (float(np.log(limit)) for limit in limits)
    sizes = np.random.default_rng(1).uniform(low, high, 120)
    return np.array([*special, *np.exp(sizes), *-np.exp(sizes)]).astype(kind.dtype)


def power(x: Array, exponent: float) -> Array:
    """By the C library, in f64."""
    with np.errstate(all="ignore"):
        result: Array = np.power(x.astype(np.float64), np.full(x.shape, exponent))
        return result


def network(kind: ElemKind, count: int) -> Module:
    """One output for each exponent, which is broadcast to the base's shape."""
    m = Module()
    x = m.create_placeholder("x", Type(kind, (count,)))
    f = m.create_function("main")
    for number, exponent in enumerate(EXPONENTS):
        scalar = f.create_splat("e", Type(kind, (1,)), exponent)
        y = f.create_pow("p", x, f.create_broadcast("b", x.type, scalar))
        f.create_save("s", y, m.create_placeholder(f"y{number}", y.type))
    return m


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        *(("interpreter", kind) for kind in ElemKind if kind.is_float),
        ("cpu", ElemKind.F32),
        ("cpu", ElemKind.F64),
    ],
)
def test_values_are_those_of_pow(backend: str, kind: ElemKind) -> None:
    x = bases(kind)
    stages = compilation(network(kind, x.size), backend)
    compiled = stages.compiled
    mnemonics = {inst.SCHEMA.mnemonic for inst in stages.program.ir.instructions}
    assert "pow" not in mnemonics
    assert {"mul", "reciprocal", "sqrt"} <= mnemonics
    with np.errstate(all="ignore"):
        results = compiled({"x": x})
        for number, exponent in enumerate(EXPONENTS):
            result, name = results[f"y{number}"], f"x ** {exponent}"
            exact = power(x, exponent)
            expected = exact.astype(kind.dtype).astype(np.float64)
            wide = result.astype(np.float64)
            # numpy's own power is not rounded correctly in f64.
            rtol = 2.0**-52 if kind is ElemKind.F64 else 0
            np.testing.assert_allclose(wide, expected, rtol=rtol, atol=0, err_msg=name)
            present = ~np.isnan(wide)
            signs = np.signbit(wide) == np.signbit(expected)
            assert signs[present].all(), name


@pytest.mark.parametrize("kind", [kind for kind in ElemKind if kind.is_float])
def test_the_reference_is_pow_for_exponents_that_broadcast(kind: ElemKind) -> None:
    m = Module()
    f, x = m.create_function("main"), bases(kind)
    base, half = m.create_constant("x", x), m.create_constant("half", np.array(0.5, kind.dtype))
    y = f.create_pow("y", base, half)
    with np.errstate(all="ignore"):
        result = evaluate([y.result])[0].array.astype(np.float64)
        expected = power(x, 0.5).astype(kind.dtype).astype(np.float64)
    np.testing.assert_allclose(result, expected, rtol=2.0**-7 if kind.size == 2 else 1e-7)
    assert not np.signbit(result[~np.isnan(result)]).any()
