"""Shape computations on symbolic extents: integers that depend on symbols, computed while importing as known ones are.

`Gather(Shape(x), 1) + 1` is the dimension `seq+1` where `x` is [1 x seq]. What is computed so is never larger than the
rank of some tensors, and an operator without a function here is computed at run time, of the extents as elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.importer.onnx.node import OnnxNode, Ratio, SymbolicTensor
from glowpy.importer.onnx.tensor import kind_of
from glowpy.support.symbolic import (
    Dim,
    Expr,
    Extreme,
    Quotient,
    UndecidedError,
    ceil_div,
    greatest,
    highest,
    is_at_most,
    least,
    lowest,
    static,
)

__all__ = ["computed_extents", "exact_ratio", "slice_bounds"]

_Function = Callable[[OnnxNode, list[Array]], Array]
"""Takes the inputs as arrays of Python numbers and expressions."""

_FUNCTIONS: dict[str, _Function] = {}

_MOST_ITEMS = 1 << 10
"""More numbers are computed at run time."""

_MOST_FACTORS = 1 << 8
"""Longer expressions are computed at run time, as are numbers that wrap: a model may square one again and again."""


def computed_extents(n: OnnxNode) -> Tensor | SymbolicTensor | None:
    """What a node computes of known inputs, some of them symbolic; None where that is left to run time."""
    function = _FUNCTIONS.get(n.proto.op_type)
    arrays = [n.known_array(index) for index in range(n.num_inputs) if n.has(index)]
    known = [array for array in arrays if array is not None and array.size <= _MOST_ITEMS]
    if function is None or len(known) < len(arrays):
        return None
    kind = _kind(n)
    if kind is None:
        return None
    try:
        result = np.asarray(function(n, known), object)
        if result.size > _MOST_ITEMS or not all(_is_small(item, kind) for item in result.flat):
            return None
        if any(isinstance(item, Expr | Ratio) for item in result.flat):
            return SymbolicTensor(Type(kind, result.shape), result)
        return Tensor(Type(kind, result.shape), result.astype(kind.dtype))
    except UndecidedError:
        return None
    except (IndexError, OverflowError, ValueError):  # the operator itself says what is wrong
        return None


def _is_small(item: object, kind: ElemKind) -> bool:
    """Whether the kind, and i64, hold a number, whatever its symbols are, and its expression is short."""
    dim = item.dividend if isinstance(item, Ratio) else item
    if isinstance(dim, bool) or not isinstance(dim, int | Expr):
        return True
    least, most = (kind if kind.is_integer else ElemKind.I64).limits
    return _factors(dim) <= _MOST_FACTORS and least <= lowest(dim) and highest(dim) <= most


def _factors(item: Dim) -> int:
    """How many factors an expression has, those in its quotients and extremes included."""
    if not isinstance(item, Expr):
        return 0
    total = 0
    for atom in [atom for atoms, _ in item.terms for atom in atoms]:
        match atom:
            case Quotient():
                total += _factors(atom.dividend) + _factors(atom.divisor)
            case Extreme():
                # Which bounds extremes of extremes have takes time that doubles with each.
                total += 2 * sum(map(_factors, atom.choices))
            case _:
                total += 1
    return total


def _kind(n: OnnxNode) -> ElemKind | None:
    name = n.proto.op_type
    if name in _COMPARISONS or name in _LOGIC:
        return ElemKind.BOOL
    if name == "Cast":
        kind = kind_of(n.integer("to", 0))
        return kind if kind.is_integer or kind in (ElemKind.BOOL, *_EXACT) else None
    return n.kind(1 if name == "Where" else 0)


def _extent_function(*names: str) -> Callable[[_Function], _Function]:
    def add(function: _Function) -> _Function:
        _FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return add


def _by_elements(function: Callable[..., object]) -> _Function:
    def compute(n: OnnxNode, arrays: list[Array]) -> Array:
        del n
        return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)

    return compute


_EXACT = {
    ElemKind.F16: 1 << 11,
    ElemKind.BF16: 1 << 8,
    ElemKind.F32: 1 << 24,
    ElemKind.F64: 1 << 53,
}
"""Up to where floats are all integers; quotients of what is less round to an integer only if they are one."""

_Real: TypeAlias = "Dim | float | Ratio"
"""A float: exact, or a quotient of what is exact, which rounds once."""


def _fraction(number: _Real) -> tuple[Dim, int]:
    """Dividend and divisor. Raises UndecidedError for what only rounding makes."""
    if isinstance(number, Ratio):
        return number.dividend, number.divisor
    if isinstance(number, int | Expr):
        return number, 1
    wide = float(number)  # halves come as scalars of numpy's
    if not math.isfinite(wide) or wide.as_integer_ratio()[1] > _MOST_DIVIDED:
        raise UndecidedError(f"{wide} is no simple fraction", [])
    return wide.as_integer_ratio()


def exact_ratio(number: _Real) -> tuple[Dim, int]:
    """Dividend and divisor of what no float has rounded yet: the divisor is a power of 2."""
    dividend, divisor = _fraction(number)
    if divisor & (divisor - 1):
        raise UndecidedError(f"{number} is rounded", [dividend])
    return dividend, divisor


_MOST_DIVIDED = 1 << 10
"""The largest divisor of a fraction."""


def _real(dividend: Dim, divisor: int) -> _Real:
    if isinstance(dividend, int):
        return dividend / divisor
    common = math.gcd(divisor, *(factor for _, factor in dividend.terms))
    dividend, divisor = dividend // common, divisor // common
    return dividend if divisor == 1 else Ratio(dividend, divisor)


def _of_fractions(compute: Callable[[Dim, int, Dim, int], _Real]) -> Callable[..., _Real]:
    return lambda left, right: compute(*exact_ratio(left), *exact_ratio(right))


def _real_quotient(a: Dim, b: int, c: Dim, d: int) -> _Real:
    if not isinstance(c, int) or c < 1:
        raise UndecidedError(f"expected a positive constant as divisor, got {c}", [a, c])
    return _real(a * d, b * c)


def _chosen(choose: Callable[..., Dim]) -> Callable[..., _Real]:
    """The least, or the greatest, of several."""

    def choice(*numbers: _Real) -> _Real:
        pairs = [exact_ratio(number) for number in numbers]
        divisor = max(divisor for _, divisor in pairs)
        return _real(choose(*(dim * (divisor // own) for dim, own in pairs)), divisor)

    return choice


_REAL: dict[str, Callable[..., _Real]] = {
    "Add": _of_fractions(lambda a, b, c, d: _real(a * d + c * b, b * d)),
    "Sub": _of_fractions(lambda a, b, c, d: _real(a * d - c * b, b * d)),
    "Mul": _of_fractions(lambda a, b, c, d: _real(a * c, b * d)),
    "Div": _of_fractions(_real_quotient),
    "Floor": lambda a: _rounded(a, lambda dividend, divisor: dividend // divisor),
    "Ceil": lambda a: _rounded(a, ceil_div),
    "Neg": lambda a: _real(-_fraction(a)[0], _fraction(a)[1]),
    "Min": _chosen(least),
    "Max": _chosen(greatest),
    "Identity": lambda a: a,
}
"""Arithmetic of floats that are exact."""


def _rounded(number: _Real, function: Callable[[Dim, int], Dim]) -> _Real:
    result = function(*_fraction(number))
    return float(result) if isinstance(result, int) else result


def _truncated(dividend: Dim, divisor: Dim) -> Dim:
    """A quotient without its fraction. The divisor is positive."""
    if divisor == 1 or lowest(dividend) >= 0:
        return dividend // divisor
    if highest(dividend) > 0:
        raise UndecidedError(f"{dividend} may be negative", [dividend])
    return -(-dividend // divisor)


@_extent_function("Cast")
def _cast(n: OnnxNode, arrays: list[Array]) -> Array:
    """From floats, towards zero; to floats that hold all that the extents may be."""
    kind = kind_of(n.integer("to", 0))
    limit = _EXACT.get(kind)

    def cast(number: _Real) -> _Real:
        dividend, divisor = _fraction(number)
        if kind is ElemKind.BOOL:
            return not _is_equal(dividend, 0)
        if limit is None:
            return _truncated(dividend, divisor)
        if not -limit < lowest(dividend) <= highest(dividend) < limit:
            raise UndecidedError(f"{dividend} may be too large for a float", [dividend])
        return dividend if divisor == 1 else number

    return np.asarray(np.frompyfunc(cast, 1, 1)(arrays[0]), object)


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    """Integers are divided towards zero, which is the floor of what is not negative."""
    if lowest(divisor) < 1:
        raise UndecidedError(f"{divisor} may be negative or zero", [dividend, divisor])
    return _truncated(dividend, divisor)


def _remainder(dividend: Dim, divisor: Dim) -> Dim:
    """That of a floor: it has the sign of the divisor."""
    if lowest(divisor) < 1:
        raise UndecidedError(f"{divisor} may be negative or zero", [dividend, divisor])
    return dividend % divisor


def _magnitude(dim: Dim) -> Dim:
    return dim if lowest(dim) >= 0 else greatest(dim, -dim, 0)


def _is_equal(left: Dim, right: Dim) -> bool:
    if left == right:
        return True
    if is_at_most(left + 1, right) or is_at_most(right + 1, left):
        return False
    raise UndecidedError(f"it is not known whether {left} is {right}", [left, right])


_COMPARISONS: dict[str, Callable[[Dim, Dim], bool]] = {
    "Equal": _is_equal,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
}

_ARITHMETIC: dict[str, Callable[..., Dim]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _quotient,
    "Mod": _remainder,
    "Neg": lambda a: -a,
    "Abs": _magnitude,
    "Min": lambda *dims: least(*dims),
    "Max": lambda *dims: greatest(*dims),
    "Identity": lambda a: a,
}


def _arithmetic(name: str) -> _Function:
    def compute(n: OnnxNode, arrays: list[Array]) -> Array:
        is_real = n.kind(0) in _EXACT
        function = (_REAL if is_real else _ARITHMETIC).get(name)
        if function is None:
            raise UndecidedError(f"{name} is not exact", [])
        if name == "Mod" and n.flag("fmod") and any(lowest(dim) < 0 for dim in arrays[0].flat):
            raise UndecidedError("expected a dividend that is not negative", [])
        results = np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)
        if is_real:
            limit = _EXACT[n.kind(0)]
            dividends = [_fraction(item)[0] for item in results.reshape(-1)]
            if not all(-limit < lowest(one) <= highest(one) < limit for one in dividends):
                raise UndecidedError("expected floats that are exact", dividends)
        return results

    return compute


_FUNCTIONS |= {name: _arithmetic(name) for name in {*_ARITHMETIC, *_REAL}}


def _comparison(compare: Callable[[Dim, Dim], bool]) -> _Function:
    def compared(left: _Real, right: _Real) -> bool:
        (a, b), (c, d) = _fraction(left), _fraction(right)
        return compare(a * d, c * b)

    return _by_elements(compared)


_FUNCTIONS |= {name: _comparison(function) for name, function in _COMPARISONS.items()}


def _numbers(array: Array) -> list[int]:
    """Numbers that say where elements go, and are constant. Raises UndecidedError for others."""
    return list(static(array.reshape(-1).tolist()))


_LOGIC: dict[str, Callable[..., bool]] = {
    "Not": lambda a: not a,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": lambda a, b: a != b,
}

_FUNCTIONS |= {name: _by_elements(function) for name, function in _LOGIC.items()}


@_extent_function("Where")
def _where(n: OnnxNode, arrays: list[Array]) -> Array:
    del n
    return np.where(arrays[0].astype(bool), arrays[1], arrays[2])


@_extent_function("Concat")
def _concat(n: OnnxNode, arrays: list[Array]) -> Array:
    return np.concatenate(arrays, n.axis(arrays[0].ndim, 0))


@_extent_function("Gather")
def _gather(n: OnnxNode, arrays: list[Array]) -> Array:
    return np.take(
        arrays[0], np.reshape(_numbers(arrays[1]), arrays[1].shape), n.axis(arrays[0].ndim, 0)
    )


@_extent_function("Transpose")
def _transpose(n: OnnxNode, arrays: list[Array]) -> Array:
    return np.transpose(arrays[0], n.integers("perm"))


@_extent_function("Expand")
def _expand(n: OnnxNode, arrays: list[Array]) -> Array:
    del n
    shape = np.broadcast_shapes(arrays[0].shape, tuple(_numbers(arrays[1])))
    return np.broadcast_to(arrays[0], shape)


@_extent_function("Squeeze")
def _squeeze(n: OnnxNode, arrays: list[Array]) -> Array:
    axes = _numbers(arrays[1]) if len(arrays) > 1 else n.integers("axes")
    return np.squeeze(arrays[0], None if axes is None else tuple(axes))


@_extent_function("Unsqueeze")
def _unsqueeze(n: OnnxNode, arrays: list[Array]) -> Array:
    axes = _numbers(arrays[1]) if len(arrays) > 1 else n.integers("axes") or ()
    return np.expand_dims(arrays[0], tuple(axes))


@_extent_function("Reshape")
def _reshape(n: OnnxNode, arrays: list[Array]) -> Array:
    shape = _numbers(arrays[1]) if len(arrays) > 1 else list(n.integers("shape") or ())
    if not n.flag("allowzero"):
        shape = [arrays[0].shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return arrays[0].reshape(shape)


@_extent_function("Slice")
def _slice(n: OnnxNode, arrays: list[Array]) -> Array:
    if len(arrays) > 1:
        starts, ends, *rest = (_numbers(array) for array in arrays[1:])
        axes = rest[0] if rest else list(range(len(starts)))
        steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    else:
        starts, ends = list(n.integers("starts") or ()), list(n.integers("ends") or ())
        axes, steps = list(n.integers("axes") or range(len(starts))), [1] * len(starts)
    index = [slice(None)] * arrays[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[normalize_axis(axis, arrays[0].ndim)] = slice(start, end, step)
    return arrays[0][tuple(index)]


def _reduced(function: Callable[..., Dim]) -> _Function:
    def compute(n: OnnxNode, arrays: list[Array]) -> Array:
        axes = _numbers(arrays[1]) if len(arrays) > 1 else n.integers("axes")
        if arrays[0].ndim != 1 or axes not in (None, [0], (0,), [-1], (-1,)):
            raise UndecidedError("only vectors are reduced", [])
        if n.kind(0) in _EXACT:
            raise UndecidedError("only integers are reduced", [])
        total = function(*arrays[0])
        return np.asarray([total] if n.flag("keepdims", True) else total, object)

    return compute


def _product_of(*dims: Dim) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


_FUNCTIONS |= {
    "ReduceProd": _reduced(_product_of),
    "ReduceSum": _reduced(lambda *dims: sum(dims, start=0)),
    "ReduceMax": _reduced(greatest),
    "ReduceMin": _reduced(least),
}


def slice_bounds(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim]:
    """The first element of a slice of `size` elements and how many it has, as ONNX clamps and counts.

    As in Python, but that a slice in reverse begins with the first element where it would begin before that.

    Raises UndecidedError where bounds of symbols do not say on which side of zero an end lies.
    """
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def clamped(place: Dim, lowest_place: Dim) -> Dim:
        place = place + size if place < 0 else place
        return greatest(least(place, high), lowest_place)

    first, last = clamped(start, least(0, high)), clamped(end, low)
    distance, stride = (last - first, step) if step > 0 else (first - last, -step)
    return first, greatest(-(-distance // stride), 0)
