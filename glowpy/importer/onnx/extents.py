"""Shape computations on symbolic extents: integers that depend on symbols, computed while importing as known ones are.

`Gather(Shape(x), 1) + 1` is the dimension `seq+1` where `x` is [1 x seq]. What is computed so is never larger than the
rank of some tensors, and an operator without a function here is computed at run time, of the extents as elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.extents import (
    EXACT,
    Real,
    chosen,
    fraction,
    is_equal,
    is_small,
    magnitude,
    of_fractions,
    quotient,
    real,
    real_quotient,
    remainder,
    rounded,
    truncated,
)
from glowpy.importer.kit.values import Ratio, SymbolicTensor
from glowpy.importer.onnx.node import OnnxNode
from glowpy.support.symbolic import (
    Dim,
    Expr,
    UndecidedError,
    ceil_div,
    greatest,
    highest,
    least,
    lowest,
    static,
)

__all__ = ["computed_extents"]

_Function = Callable[[OnnxNode, list[Array]], Array]
"""Takes the inputs as arrays of Python numbers and expressions."""

_FUNCTIONS: dict[str, _Function] = {}

_MOST_ITEMS = 1 << 10
"""More numbers are computed at run time."""


def computed_extents(n: OnnxNode) -> Tensor | SymbolicTensor | None:
    """Computes a node of known inputs, some of them symbolic; None where that is left to run time."""
    function = _FUNCTIONS.get(n.proto.op_type)
    arrays = [n.known_array(index) for index in range(n.num_inputs) if n.has(index)]
    small_arrays = [array for array in arrays if array is not None and array.size <= _MOST_ITEMS]
    if function is None or len(small_arrays) < len(arrays):
        return None
    kind = _kind(n)
    if kind is None:
        return None
    try:
        result = np.asarray(function(n, small_arrays), object)
        if result.size > _MOST_ITEMS or not all(is_small(item, kind) for item in result.flat):
            return None
        if any(isinstance(item, Expr | Ratio) for item in result.flat):
            return SymbolicTensor(Type(kind, result.shape), result)
        return Tensor(Type(kind, result.shape), result.astype(kind.dtype))
    except UndecidedError:
        return None
    except (IndexError, OverflowError, ValueError):  # the operator itself says what is wrong
        return None


def _kind(n: OnnxNode) -> ElemKind | None:
    name = n.proto.op_type
    if name in _COMPARISONS or name in _LOGIC:
        return ElemKind.BOOL
    if name == "Cast":
        kind = kind_of(n.integer("to", 0))
        return kind if kind.is_integer or kind in (ElemKind.BOOL, *EXACT) else None
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


_REAL: dict[str, Callable[..., Real]] = {
    "Add": of_fractions(lambda a, b, c, d: real(a * d + c * b, b * d)),
    "Sub": of_fractions(lambda a, b, c, d: real(a * d - c * b, b * d)),
    "Mul": of_fractions(lambda a, b, c, d: real(a * c, b * d)),
    "Div": of_fractions(real_quotient),
    "Floor": lambda a: rounded(a, lambda dividend, divisor: dividend // divisor),
    "Ceil": lambda a: rounded(a, ceil_div),
    "Neg": lambda a: real(-fraction(a)[0], fraction(a)[1]),
    "Min": chosen(least),
    "Max": chosen(greatest),
    "Identity": lambda a: a,
}
"""Arithmetic of floats that are exact."""


@_extent_function("Cast")
def _cast(n: OnnxNode, arrays: list[Array]) -> Array:
    """From floats, towards zero; to floats that hold all that the extents may be."""
    kind = kind_of(n.integer("to", 0))
    limit = EXACT.get(kind)

    def cast(number: Real) -> Real:
        dividend, divisor = fraction(number)
        if kind is ElemKind.BOOL:
            return not is_equal(dividend, 0)
        if limit is None:
            return truncated(dividend, divisor)
        if not -limit < lowest(dividend) <= highest(dividend) < limit:
            raise UndecidedError(f"{dividend} may be too large for a float", [dividend])
        return dividend if divisor == 1 else number

    return np.asarray(np.frompyfunc(cast, 1, 1)(arrays[0]), object)


_COMPARISONS: dict[str, Callable[[Dim, Dim], bool]] = {
    "Equal": is_equal,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
}

_ARITHMETIC: dict[str, Callable[..., Dim]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": quotient,
    "Mod": remainder,
    "Neg": lambda a: -a,
    "Abs": magnitude,
    "Min": lambda *dims: least(*dims),
    "Max": lambda *dims: greatest(*dims),
    "Identity": lambda a: a,
}


def _arithmetic(name: str) -> _Function:
    def compute(n: OnnxNode, arrays: list[Array]) -> Array:
        is_real = n.kind(0) in EXACT
        function = (_REAL if is_real else _ARITHMETIC).get(name)
        if function is None:
            raise UndecidedError(f"{name} is not exact", [])
        if name == "Mod" and n.flag("fmod") and any(lowest(dim) < 0 for dim in arrays[0].flat):
            raise UndecidedError("expected a dividend that is not negative", [])
        results = np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)
        if is_real:
            limit = EXACT[n.kind(0)]
            dividends = [fraction(item)[0] for item in results.reshape(-1)]
            if not all(
                -limit < lowest(dividend) <= highest(dividend) < limit for dividend in dividends
            ):
                raise UndecidedError("expected floats that are exact", dividends)
        return results

    return compute


_FUNCTIONS |= {name: _arithmetic(name) for name in {*_ARITHMETIC, *_REAL}}


def _comparison(compare: Callable[[Dim, Dim], bool]) -> _Function:
    def compared(left: Real, right: Real) -> bool:
        (a, b), (c, d) = fraction(left), fraction(right)
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
        if n.kind(0) in EXACT:
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
