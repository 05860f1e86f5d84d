"""The scalar kernels of SCALARS: C loops around each, what they are called with, and what they must answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access, InstSchema, Trait
from glowpy.core.tensor import Array
from glowpy.llvm.scalars_gen import SCALARS
from tests.libjit.code_cases import FORMATS, floats_to_encode
from tests.libjit.kernel_cases import DTYPES

HALVES = {kind: DTYPES[kind] for kind in ("f16", "bf16")}
"""Of these every number there is is tried; numpy knows bf16 as no float."""

_SAMPLES = 2000


@dataclass(frozen=True)
class Scalar:
    """One scalar kernel: the suffixes of its symbol, of its arguments and of its result."""

    mnemonic: str
    name: str
    inputs: tuple[str, ...]
    result: str

    @property
    def loop(self) -> str:
        """C: the kernel on each element of some arrays."""
        parameters = "".join(f", const {kind}_t *a{i}" for i, kind in enumerate(self.inputs))
        arguments = ", ".join(f"a{i}[n]" for i in range(len(self.inputs)))
        return (
            f"void loop_{self.name}(dim_t count, {self.result}_t *result{parameters}) {{\n"
            f"  for (dim_t n = 0; n < count; n++) result[n] = libjit_{self.name}({arguments});\n"
            "}\n"
        )


def scalars_of(schema: InstSchema) -> Iterator[Scalar]:
    """Every scalar kernel of an instruction."""
    mnemonic = schema.mnemonic
    inputs = sum(operand.access is Access.IN for operand in schema.operands)
    kinds_of_kernel, *kinds_of_result = (kinds for _, kinds in SCALARS[mnemonic].kinds)
    for kind in kinds_of_kernel:
        for result in kinds_of_result[0] if kinds_of_result else ():
            yield Scalar(mnemonic, f"{mnemonic}_{kind}_{result}", (kind,) * inputs, result)
        if kinds_of_result:
            continue
        kinds = (*(["b"] if mnemonic == "select" else []), *[kind] * inputs)[:inputs]
        yield Scalar(
            mnemonic,
            f"{mnemonic}_{kind}",
            kinds,
            "b" if Trait.BOOL_RESULT in schema.traits else kind,
        )


def loops(schemas: dict[str, InstSchema], mnemonics: Iterable[str] = SCALARS) -> str:
    """C: a loop for every scalar kernel of some mnemonics."""
    parts = [scalar.loop for mnemonic in mnemonics for scalar in scalars_of(schemas[mnemonic])]
    return '#include "elementwise_gen.c"\n' + "".join(parts)


def values(kind: str) -> Array:
    """The ends of the range, where something changes, and a sample of all bits."""
    dtype = DTYPES[kind]
    rng = np.random.default_rng(11)
    if kind == "b":
        return np.array([False, True])
    if kind in FORMATS:
        return np.arange(1 << 8, dtype=np.uint8).view(dtype)
    if kind in HALVES:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype)
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        some = [limits.min, limits.min + 1, limits.max - 1, limits.max, *range(12)]
        some += [-n for n in range(1, 12)] if limits.min else []
        near_powers = [(1 << bits) + n for bits in range(1, 64) for n in (-1, 0, 1)]
        some += [n for n in near_powers if n <= limits.max]
        return np.array(some, dtype)
    info = np.finfo(dtype)
    edges = [2.0**bits for bits in (7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64)]
    around = np.concatenate([np.array(edges, dtype), np.nextafter(np.array(edges, dtype), 0)])
    special = [0.0, np.inf, np.nan, float(info.max), float(info.tiny), float(info.tiny) / 4]
    ordinary = np.concatenate([np.arange(0, 12, 0.25), 3 * np.abs(rng.standard_normal(200))])
    positive = np.concatenate([np.array(special, dtype), around, ordinary.astype(dtype)])
    bits = rng.integers(0, np.iinfo(f"u{dtype.itemsize}").max, 300, f"u{dtype.itemsize}")
    return np.concatenate([positive, -positive, bits.view(dtype)])


def arguments(scalar: Scalar) -> list[Array]:
    """Every value of one input, or a sample of all combinations of two and more."""
    if scalar.mnemonic == "encode":
        return [floats_to_encode(scalar.result)]
    pools = [values(kind) for kind in scalar.inputs]
    if len(pools) == 1:
        return pools
    if scalar.mnemonic == "saturate":
        offsets = values(scalar.result).astype(np.float32)
        pools[1] = offsets[np.abs(offsets) <= (1 << 15)].astype(pools[0].dtype)
    rng = np.random.default_rng(12)
    if scalar.mnemonic == "scale_rounded":
        return _scaled_pairs(rng)
    return [rng.choice(pool, _SAMPLES) for pool in pools]


def _scaled_pairs(rng: np.random.Generator) -> list[Array]:
    """Sums and the bits of scales: any of them, and such whose product is next to the middle between two integers."""
    scales = np.concatenate([values("f32"), 2.0 ** rng.uniform(-24, 2, 2000)]).astype(np.float32)
    scale = rng.choice(scales, 10 * _SAMPLES)
    middle = np.exp2(rng.uniform(0, 23, scale.size)).astype(np.int32) + 0.5
    with np.errstate(all="ignore"):
        near = np.rint(middle / scale.astype(np.float64)) + rng.integers(-2, 3, scale.size)
    fits = np.abs(near) < 1 << 31
    lhs = np.where(fits, near, rng.choice(values("i32"), scale.size))
    power = rng.random(scale.size) < 0.25
    scale[power] = np.exp2(rng.integers(-24, 4, int(power.sum())))
    return [lhs.astype(np.int32), scale.view(np.int32)]


def _divide(lhs: Array, rhs: Array) -> Array:
    if lhs.dtype.kind == "f":
        return np.divide(lhs, rhs)
    pairs = zip(lhs.tolist(), rhs.tolist(), strict=True)
    exact = [(abs(a) // abs(b)) * (-1 if (a < 0) != (b < 0) else 1) if b else 0 for a, b in pairs]
    return _wrapped(exact, lhs.dtype)


def _wrapped(exact: list[int], dtype: np.dtype[Any]) -> Array:
    bits = 8 * dtype.itemsize
    return np.array([n % (1 << bits) for n in exact], np.uint64).astype(dtype)


def _convert(x: Array, dtype: np.dtype[Any]) -> Array:
    if x.dtype in HALVES.values() and dtype not in HALVES.values():
        x = x.astype(np.float32)
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if dtype in HALVES.values():
        return x.astype(dtype)
    if x.dtype.kind != "f" or dtype.kind == "f":
        return x.astype(dtype)
    limits = np.iinfo(dtype)

    def saturated(number: float) -> int:
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return int(limits.max if number > 0 else limits.min)
        return min(max(int(number), limits.min), limits.max)

    return np.array([saturated(number) for number in x.tolist()], dtype)


def _select(condition: Array, lhs: Array, rhs: Array) -> Array:
    return np.asarray(np.where(condition, lhs, rhs))


def _subtract_offset(lhs: Array, rhs: Array) -> Array:
    differences = [a - b for a, b in zip(lhs.tolist(), rhs.tolist(), strict=True)]
    wrapped = [(number + (1 << 31)) % (1 << 32) - (1 << 31) for number in differences]
    return np.array(wrapped, np.int64).astype(np.float32)


def _saturate(lhs: Array, rhs: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)

    def nearest(number: float, offset: float) -> int:
        if math.isnan(number):
            return int(limits.min)
        if math.isinf(number):
            return int(limits.max if number > 0 else limits.min)
        return min(max(round(number) + int(offset), limits.min), limits.max)

    pairs = zip(lhs.tolist(), rhs.tolist(), strict=True)
    return np.array([nearest(*pair) for pair in pairs], dtype)


def _scale_rounded(lhs: Array, rhs: Array) -> Array:
    """Without numpy's roundings to integers, which are not those of floats beyond 2^22."""
    scaled = lhs.astype(np.float32) * rhs.view(np.float32)
    limited = [max(-(1 << 22), min(number, 1 << 22)) for number in scaled.tolist()]
    return np.array(
        [round(number) if number == number else -(1 << 22) for number in limited], np.int32
    )


def _wide(function: Callable[..., Array]) -> Callable[..., Array]:
    """In extended precision."""
    return lambda *inputs: np.asarray(function(*[x.astype(np.longdouble) for x in inputs]))


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1) / (1 + power))


def _erf(x: Array) -> Array:
    return np.array([math.erf(number) for number in x.tolist()])


def _decode(codes: Array) -> Array:
    format = FORMATS[ElemKind.of(codes.dtype).suffix]
    return np.array([format.number(code) for code in codes.view(np.uint8).tolist()], np.float32)


def _encode(x: Array, dtype: np.dtype[Any]) -> Array:
    return FORMATS[ElemKind.of(dtype).suffix].nearest(x).view(dtype)


TO_ANOTHER_KIND: dict[str, Callable[..., Array]] = {"saturate": _saturate, "encode": _encode}
"""Of other operators with a result of a given kind it is `_convert`."""

EXACT: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "is_nan": np.isnan,
    "not": np.logical_not,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "select": _select,
    "storage_cast": np.copy,
    "high_byte": lambda x: np.floor(x / 256).astype(np.int8),
    "uncontracted_mul": np.multiply,
    "uncontracted_add": np.add,
    "scale_rounded": _scale_rounded,
    "subtract_offset": _subtract_offset,
    "decode": _decode,
}
"""What must come out to the last bit."""

ROUNDED: dict[str, Callable[..., Array]] = {
    "pow": _wide(np.power),
    "exp": _wide(np.exp),
    "log": _wide(np.log),
    "tanh": _wide(np.tanh),
    "sigmoid": _wide(_sigmoid),
    "softplus": _wide(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    "erf": _erf,
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "asin": _wide(np.arcsin),
    "acos": _wide(np.arccos),
    "atan": _wide(np.arctan),
    "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh),
    "asinh": _wide(np.arcsinh),
    "acosh": _wide(np.arccosh),
    "atanh": _wide(np.arctanh),
}
"""What may be some units in the last place off; test_math.py measures how many."""

_ULPS = 4
_EITHER_ZERO = frozenset({"max", "min", "sign"})


def mismatch(scalar: Scalar, inputs: list[Array], result: Array) -> str:
    """What is wrong with the results of a scalar kernel; empty if nothing is."""
    mnemonic = scalar.mnemonic
    with np.errstate(all="ignore"):
        if mnemonic in ROUNDED:
            exact = ROUNDED[mnemonic](*inputs)
            expected = exact.astype(result.dtype)
            top = np.finfo(result.dtype).max
            step = np.spacing(np.minimum(np.abs(expected), top))
            distance = np.abs(np.clip(result, -top, top) - np.clip(exact, -top, top))
            wrong = ~(distance <= _ULPS * step)
        else:
            rounding = TO_ANOTHER_KIND.get(mnemonic, _convert)
            expected = EXACT.get(mnemonic, partial(rounding, dtype=result.dtype))(*inputs)
            if mnemonic == "encode":
                expected, result = expected.view(np.uint8), result.view(np.uint8)
            if result.dtype in HALVES.values():
                expected, result = expected.astype(np.float32), result.astype(np.float32)
            wrong = expected != result
            if result.dtype.kind == "f" and mnemonic not in _EITHER_ZERO:
                wrong |= np.signbit(expected) != np.signbit(result)
        if result.dtype.kind == "f":
            wrong &= ~(np.isnan(expected) & np.isnan(result))
            wrong |= np.isnan(expected) != np.isnan(result)
    if not wrong.any():
        return ""
    place = int(np.flatnonzero(wrong)[0])
    at = ", ".join(repr(x[place]) for x in inputs)
    return (
        f"libjit_{scalar.name}({at}): expected {expected[place]!r}, got {result[place]!r}; "
        f"{int(wrong.sum())} of {wrong.size} are wrong"
    )
