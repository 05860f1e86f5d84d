"""Element-wise operators: every declared kind, special values and broadcasting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph import nodes_gen as nodes
from glowpy.graph.node import Node
from glowpy.llvm.scalars_gen import SCALARS
from tests.ops.harness import (
    EXACT,
    HALVES,
    Case,
    Row,
    Tolerance,
    check_row,
    float_limits,
    on_every_backend,
    random_array,
    scalar_suffixes,
)

MATH = Tolerance(ulps=3)
"""Our kernels stay below 2 units in the last place; numpy's own functions below 1."""

Reference = TypeVar("Reference")


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))


def _scale_rounded(number: int, bits: int) -> int:
    """The factor is the float with these bits."""
    factor = np.array(bits, np.int32).view(np.float32)
    product = float(np.float32(number) * factor)
    return -(1 << 22) if math.isnan(product) else round(min(max(product, -(1 << 22)), 1 << 22))


INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _truncated,
    "max": max,
    "min": min,
    "neg": lambda a: -a,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "not": lambda a: 1 - a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "scale_rounded": _scale_rounded,
    "select": lambda c, a, b: a if c else b,
}
"""What operators mean for integers, in Python's unbounded ones; the result wraps."""


def _maximum(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a, b))


def _erf(a: Array) -> Array:
    return np.array([math.erf(x) for x in a.ravel()]).reshape(a.shape)


FLOATING: dict[str, tuple[Callable[..., Array], Tolerance]] = {
    "add": (lambda a, b: a + b, EXACT),
    "sub": (lambda a, b: a - b, EXACT),
    "mul": (lambda a, b: a * b, EXACT),
    "div": (lambda a, b: a / b, EXACT),
    "uncontracted_mul": (lambda a, b: a * b, EXACT),
    "uncontracted_add": (lambda a, b: a + b, EXACT),
    "pow": (lambda a, b: a**b, MATH),
    "max": (_maximum, Tolerance(zero_sign=False)),
    "min": (lambda a, b: -_maximum(-a, -b), Tolerance(zero_sign=False)),
    "neg": (lambda a: np.copysign(np.abs(a), -np.copysign(1, a)), EXACT),
    "abs": (lambda a: np.copysign(a, 1), EXACT),
    "sign": (lambda a: np.where(a > 0, 1, np.where(a < 0, -1, a)), Tolerance(zero_sign=False)),
    "floor": (np.floor, EXACT),
    "ceil": (np.ceil, EXACT),
    "round": (np.rint, EXACT),
    "sqrt": (np.sqrt, EXACT),
    "reciprocal": (lambda a: 1 / a, EXACT),
    "exp": (np.exp, MATH),
    "log": (np.log, MATH),
    "tanh": (np.tanh, MATH),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), MATH),
    "softplus": (lambda a: np.maximum(a, 0) + np.log1p(np.exp(-np.abs(a))), MATH),
    "erf": (_erf, MATH),
    "sin": (np.sin, MATH),
    "cos": (np.cos, MATH),
    "tan": (np.tan, MATH),
    "asin": (np.arcsin, MATH),
    "acos": (np.arccos, MATH),
    "atan": (np.arctan, MATH),
    "sinh": (np.sinh, MATH),
    "cosh": (np.cosh, MATH),
    "asinh": (np.arcsinh, MATH),
    "acosh": (np.arccosh, MATH),
    "atanh": (np.arctanh, MATH),
    "eq": (lambda a, b: a == b, EXACT),
    "lt": (lambda a, b: a < b, EXACT),
    "le": (lambda a, b: a <= b, EXACT),
    "is_nan": (lambda a: a != a, EXACT),
    "select": (lambda c, a, b: np.asarray(np.where(c, a, b)), EXACT),
}
"""What operators mean for floats, in a wider kind where the tolerance is not zero."""

CLASSES = {cls.SCHEMA.mnemonic: cls for cls in nodes.NODES}


def of_operator(references: Mapping[str, Reference], mnemonic: str) -> Reference:
    """The reference of an operator. Fails with what to do if there is none."""
    if mnemonic not in references:
        table = "INTEGERS" if references is INTEGERS else "FLOATING"
        pytest.fail(
            f"{mnemonic} has no reference: add one to {table} in tests/ops/test_elementwise.py"
        )
    return references[mnemonic]


def special_values(kind: ElemKind) -> Array:
    """The values at which something could go wrong."""
    if kind is ElemKind.BOOL:
        return np.array([False, True])
    if kind.is_integer:
        limits = np.iinfo(kind.dtype.name)
        picked = [limits.min, limits.min + 1, 0, 1, 2, 7, limits.max - 1, limits.max]
        return np.array(picked + ([-1, -2, -7] if kind.is_signed else [3]), kind.dtype)
    info = float_limits(kind.dtype)
    tiny, small, top = (float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.max))
    sizes = [0.0, tiny, small, 0.5, 1.0, 1.5, 2.5, 3.25, 100.0, top, math.inf]
    return np.array([*sizes, *(-size for size in sizes), math.nan], kind.dtype)


def _operands(cls: type[Node], kind: ElemKind) -> list[Array]:
    """Every combination of special values, one array for each input."""
    special = special_values(kind)
    if len(cls.SCHEMA.inputs) == 1:
        return [np.concatenate([special, random_array(kind, (37,))])]
    if len(cls.SCHEMA.inputs) == 2:
        pairs = list(itertools.product(special, special))
        return [np.array([pair[side] for pair in pairs], kind.dtype) for side in (0, 1)]
    shift = np.roll(special, 1)
    condition = np.arange(2 * len(special)) < len(special)
    return [condition, np.concatenate([special, special]), np.concatenate([shift, shift])]


def reference(mnemonic: str, kind: ElemKind, inputs: list[Array]) -> tuple[Array, Tolerance]:
    """What the operator means, and how precisely a backend has to compute it."""
    if not kind.is_float:
        whole = of_operator(INTEGERS, mnemonic)
        results = [
            whole(*(int(item) for item in items))
            for items in zip(*(array.ravel() for array in inputs), strict=True)
        ]
        shape = inputs[0].shape
        wrapped = np.array([item & ((1 << 64) - 1) for item in results], np.uint64)
        return wrapped.astype(kind.dtype).reshape(shape), EXACT
    function, tolerance = of_operator(FLOATING, mnemonic)
    wide = np.longdouble if tolerance is MATH else np.float64
    if kind is ElemKind.F64 and tolerance is not MATH:
        wide = np.float64
    with np.errstate(all="ignore"):
        widened = [array if array.dtype == np.bool_ else array.astype(wide) for array in inputs]
        return np.asarray(function(*widened)), tolerance


def _broadcast_shapes(arity: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((7,), ()),
        ((), (2, 3)),
        ((2, 3, 5), (5,)),
        ((2, 3, 5), (3, 1)),
        ((2, 1, 5), (3, 1)),
        ((1,), (1, 1, 13)),
        ((0, 3), (3,)),
        ((2, 0), (1, 1)),
        ((1, 2, 1, 3, 1), (2, 1, 2, 1, 17)),
    ]
    if arity == 2:
        yield from pairs
    elif arity == 3:
        yield from [
            ((2, 3), (3,), ()),
            ((), (2, 3), (2, 1)),
            ((1, 3), (2, 1), (1, 1)),
            ((0,), (), ()),
        ]
    else:
        yield from [((),), ((0, 2),), ((2, 1, 3),)]


def cases(cls: type[Node], kind: ElemKind) -> Iterator[Case]:
    """Special values in every kind; broadcasting in one, as only scalar kernels differ."""
    mnemonic = cls.SCHEMA.mnemonic
    inputs = _operands(cls, kind)
    expected, tolerance = reference(mnemonic, kind, inputs)
    yield Case(inputs, [expected], tolerance=tolerance)
    if kind not in (ElemKind.F32, ElemKind.BOOL):
        return
    for shapes in _broadcast_shapes(len(cls.SCHEMA.inputs)):
        arrays = [random_array(kind, shape, seed) for seed, shape in enumerate(shapes)]
        if len(arrays) == 3:
            arrays[0] = random_array(ElemKind.BOOL, shapes[0])
        wide = [array.copy() for array in np.broadcast_arrays(*arrays)]
        expected, tolerance = reference(mnemonic, kind, wide)
        yield Case(arrays, [expected], tolerance=tolerance)


def _row(mnemonic: str) -> Row:
    cls = CLASSES[mnemonic]
    declared = tuple(kind for kind in ElemKind if kind.suffix in scalar_suffixes(mnemonic))
    halves = HALVES if ElemKind.F32 in declared else ()
    return Row(cls, (*declared, *halves), lambda kind: cases(cls, kind))


TYPED = {"convert", "decode", "encode", "high_byte", "saturate", "storage_cast", "subtract_offset"}
"""Their results have a kind of their own: test_codes.py, test_convert.py and test_quantized_arithmetic.py have them."""

ROWS = [_row(mnemonic) for mnemonic in SCALARS if mnemonic not in TYPED]


@on_every_backend(ROWS)
def test_elementwise(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize("mnemonic", sorted(set(SCALARS) - TYPED))
def test_reference_exists_for_every_kind(mnemonic: str) -> None:
    suffixes = set(scalar_suffixes(mnemonic))
    if suffixes & {"f32", "f64"}:
        of_operator(FLOATING, mnemonic)
    if suffixes - {"f32", "f64"}:
        of_operator(INTEGERS, mnemonic)
