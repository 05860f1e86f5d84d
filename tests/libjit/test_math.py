"""The mathematics of libjit against numpy's extended precision, and mpmath where numpy has no such function.

The bound of a function is the one that the comment above it states: the tests read it from the header.
Every function is tried compiled for the oldest processor of the host's family (no fused operations, rounding
in software), for the host itself, and with square roots in software.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

mpmath = pytest.importorskip("mpmath", reason="the reference of erf is mpmath's")

Array = npt.NDArray[Any]
Call = Callable[..., Array]

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "libjit" / "include"
FLAGS = ["-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-sanitize=all"]
BUILDS = {
    "baseline": ["-mcpu=baseline"],
    "native": ["-mcpu=native"],
    "software-sqrt": ["-mcpu=native", "-DSQRT_F32_IN_HARDWARE=0", "-DSQRT_F64_IN_HARDWARE=0"],
}
EXACT = {
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
}
KINDS = [pytest.param(np.float32, id="f32"), pytest.param(np.float64, id="f64")]
SAMPLES = 150_000

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None,
        reason="the compiler, ziglang, is not installed",
    ),
    pytest.mark.skipif(
        np.finfo(np.longdouble).nmant < 63, reason="numpy has no extended precision here"
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture(scope="module", params=list(BUILDS))
def call(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Calls a function of the driver, compiled in one of several ways, by name."""
    library = tmp_path_factory.mktemp("math") / "math_driver.so"
    driver = Path(__file__).with_name("math_driver.c")
    command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *BUILDS[request.param]]
    command += [
        "-shared",
        "-nostdlib",
        "-fPIC",
        "-I",
        str(INCLUDE),
        str(driver),
        "-o",
        str(library),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    driver_library = ctypes.CDLL(str(library))

    def run(function: str, *inputs: Array) -> Array:
        kind = inputs[0].dtype
        result = np.empty_like(inputs[0])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (result, *inputs)]
        entry = getattr(driver_library, f"{function}_f{kind.itemsize * 8}")
        entry(*pointers, ctypes.c_ssize_t(result.size))
        return result

    return run


def stated_bound(function: str, kind: type) -> float:
    """The error in ULP that the header states for a function."""
    suffix = f"f{np.dtype(kind).itemsize * 8}"
    header = (INCLUDE / f"math_{suffix}.h").read_text(encoding="utf-8")
    pattern = rf"^/// ([\d.]+) ULP(?:[^\n]*\n///)*[^\n]*\nINLINE \w+ math_{function}_{suffix}\("
    match = re.search(pattern, header, re.MULTILINE)
    assert match is not None, f"no bound is stated for math_{function}_{suffix}"
    return float(match[1])


def special_values(kind: type) -> Array:
    """Values at which something changes."""
    info = np.finfo(kind)
    digits = float(2**info.nmant)
    some = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, np.inf, np.nan, float(info.max)]
    some += [float(info.tiny), float(info.smallest_subnormal), float(info.tiny) / 3]
    some += [float(np.nextafter(kind(1), kind(0))), float(np.nextafter(kind(1), kind(2)))]
    some += [digits, digits + 1, digits / 2 + 0.5, 2 * digits, 2 * digits + 2, 1e30, 1e-30]
    some += [88.7, 88.73, 89.0, 103.9, 104.0, 709.7, 709.79, 745.1, 745.2, 746.0, 0.625]
    one_sign: Array = np.array(some, np.float64).astype(kind)
    return np.concatenate([one_sign, -one_sign])


def any_bits(rng: np.random.Generator, kind: type, count: int = SAMPLES) -> Array:
    """Numbers of every magnitude, infinities and NaN too."""
    unsigned = np.uint32 if kind is np.float32 else np.uint64
    values: Array = rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True)
    return values.view(kind)


def ulps(result: Array, expected: Array) -> Array:
    """Distance from a result to what it should be, in units of the last place of the latter.

    Where both are NaN, or rounded to the same value (which counts infinities), the distance is at most a half.
    """
    kind = result.dtype.type
    rounded = expected.astype(kind)
    step = np.spacing(np.minimum(np.abs(rounded), np.finfo(kind).max))
    distance = np.abs(result.astype(np.longdouble) - expected) / step
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    # An overflow within the bound is right: measure it as if the exponent had no limit.
    overflow = np.isinf(result) & np.isfinite(expected)
    limit = np.longdouble(2.0) ** np.finfo(kind).maxexp
    beyond = np.abs(np.copysign(limit, result) - expected) / step
    distance = np.where(overflow, beyond, distance)
    near = np.minimum(np.nan_to_num(distance), 0.5)
    errors: Array = np.where(same, near, np.nan_to_num(distance, nan=np.inf))
    return errors


def assert_close(result: Array, expected: Array, bound: float, *inputs: Array) -> None:
    """Fails with the worst argument."""
    errors = ulps(result, expected)
    worst = int(errors.argmax())
    at = [float(values[worst]).hex() for values in inputs]
    assert errors[worst] <= bound, f"{errors[worst]:.3f} ULP at {at}: {result[worst]!r}"
    zero = (result == 0) & (expected == 0)
    wrong = zero & (np.signbit(result) != np.signbit(expected))
    assert not wrong.any(), f"wrong sign of zero at {[values[wrong][:5] for values in inputs]}"


def sigmoid(x: Array) -> Array:
    """The logistic function; no intermediate result overflows."""
    e = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, e, 1) / (1 + e)
    return result


def erf(x: Array) -> Array:
    """mpmath's error function, rounded to extended precision."""
    with mpmath.workprec(100):
        exact = [mpmath.erf(mpmath.mpf(float(value))) for value in x]
        high = np.array([float(value) for value in exact], np.longdouble)
        low = [float(value - float(value)) for value in exact]
    result: Array = np.copysign(high + np.array(low, np.longdouble), x)  # mpmath has no -0
    return result


def arguments(function: str, rng: np.random.Generator, kind: type) -> Array:
    """Where a function is difficult, and a sample of all numbers."""
    top = np.log(float(np.finfo(kind).max))
    low = np.log(float(np.finfo(kind).smallest_subnormal))
    near_one = 1 + rng.normal(size=SAMPLES) * 1e-3
    magnitudes = np.exp(rng.uniform(-40, 5, SAMPLES))
    difficult = {
        "exp": [rng.uniform(low, top, SAMPLES), rng.normal(size=SAMPLES)],
        "log": [rng.uniform(0.3, 3, SAMPLES), near_one],
        "log1p": [rng.uniform(-0.9, 3, SAMPLES), magnitudes, -magnitudes],
        "tanh": [rng.uniform(-1, 1, SAMPLES), rng.uniform(-20, 20, SAMPLES)],
        "sigmoid": [rng.uniform(low, -low, SAMPLES), rng.uniform(-8, 8, SAMPLES)],
        "softplus": [rng.uniform(low, -low, SAMPLES), rng.uniform(-20, 20, SAMPLES)],
        "sin": [rng.uniform(-4, 4, SAMPLES), rng.uniform(-1e5, 1e5, SAMPLES)],
        "erf": [rng.uniform(-1.2, 1.2, 4000), rng.uniform(-7, 7, 4000)],
    }
    difficult["cos"] = difficult["tan"] = difficult["sin"]
    difficult["asin"] = difficult["acos"] = [rng.uniform(-1, 1, SAMPLES), 1 - magnitudes]
    difficult["atan"] = [rng.uniform(-3, 3, SAMPLES), magnitudes, -magnitudes]
    difficult["sinh"] = difficult["cosh"] = [*difficult["tanh"], *difficult["exp"]]
    difficult["asinh"] = difficult["atan"]
    difficult["acosh"] = [rng.uniform(1, 3, SAMPLES), 1 + magnitudes]
    difficult["atanh"] = difficult["asin"]
    others = any_bits(rng, kind, 2000 if function == "erf" else SAMPLES)
    chosen: list[Array] = [values.astype(kind) for values in difficult[function]]
    return np.concatenate([special_values(kind), *chosen, others])


REFERENCES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "erf": erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", list(REFERENCES))
def test_error_is_within_the_stated_bound(call: Call, function: str, kind: type) -> None:
    rng = np.random.default_rng(7)
    x = arguments(function, rng, kind)
    bound = stated_bound(function, kind)
    assert bound <= 2
    assert_close(call(function, x), REFERENCES[function](x.astype(np.longdouble)), bound, x)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_the_numbers_nearest_to_multiples_of_half_pi(call: Call, kind: type) -> None:
    # Best rational approximations p / q of pi / 2 with p < 2^digits: nothing small is nearer. And the double that is
    # nearest to any multiple, whatever its exponent (Kahan's example).
    with mpmath.workprec(400):
        rest, before, now = mpmath.pi / 2, (0, 1), (1, 0)
        near = [6381956970095103 * 2.0**797] if kind is np.float64 else [16367173 * 2.0**72]
        while now[0] < 2 ** (np.finfo(kind).nmant + 1):
            if now[0]:
                near.append(float(now[0]))
            term = int(mpmath.floor(rest))
            before, now = now, (term * now[0] + before[0], term * now[1] + before[1])
            rest = 1 / (rest - term)
        x: Array = np.array(near, kind)
        for function, exact in (("sin", mpmath.sin), ("cos", mpmath.cos), ("tan", mpmath.tan)):
            values = [exact(mpmath.mpf(float(value))) for value in x]
            expected = np.array([float(value) for value in values], np.longdouble)
            expected += np.array([float(v - float(v)) for v in values], np.longdouble)
            assert_close(call(function, x), expected, stated_bound(function, kind), x)


@pytest.mark.parametrize("kind", KINDS)
def test_pow_is_within_the_stated_bound(call: Call, kind: type) -> None:
    rng = np.random.default_rng(8)
    base: Array = np.concatenate(
        [np.exp(rng.uniform(-5, 5, SAMPLES)), 1 + rng.normal(size=SAMPLES) * 1e-4]
    ).astype(kind)
    base = np.concatenate([base, np.abs(any_bits(rng, kind))])
    top = np.log(float(np.finfo(kind).max))
    exponent: Array = (rng.uniform(-1.1 * top, 1.1 * top, base.size) / np.log(base)).astype(kind)
    bound = stated_bound("pow", kind)
    assert bound <= 2
    for x, y in (
        (base, exponent),
        (-base, rng.integers(-40, 40, base.size).astype(kind)),
        (base, rng.normal(size=base.size).astype(kind)),
    ):
        expected = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        assert_close(call("pow", x, y), expected, bound, x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_pow_of_every_pair_of_special_values(call: Call, kind: type) -> None:
    x, y = (grid.ravel().copy() for grid in np.meshgrid(special_values(kind), special_values(kind)))
    expected = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert_close(call("pow", x, y), expected, stated_bound("pow", kind), x, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", list(EXACT))
def test_exact_functions_are_exact(call: Call, function: str, kind: type) -> None:
    rng = np.random.default_rng(9)
    halves = np.arange(-2000, 2000) / 4
    x = np.concatenate([special_values(kind), halves.astype(kind), any_bits(rng, kind)])
    result, expected = call(function, x), EXACT[function](x)
    same = (result == expected) & (np.signbit(result) == np.signbit(expected))
    same |= np.isnan(result) & np.isnan(expected)
    assert same.all(), f"{function} of {x[~same][:5]}: {result[~same][:5]}"
