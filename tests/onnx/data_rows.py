"""Operators that move, pick and arrange elements, and functions of one number, at every opset that changed them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from glowpy.core.tensor import Array
from tests.onnx.opset_rows import EVERY, TIES_1D, A, B, Row, X, i64, scalar

__all__ = ["DATA_ROWS"]

_ORDER = np.argsort(-A, 1)[:, :2]
_DESCENDING: list[Array] = [np.take_along_axis(A, _ORDER, 1), _ORDER]
_ASCENDING: list[Array] = [np.sort(X, 0), np.argsort(X, 0)]


def _scattered(reduction: str) -> Array:
    """A with updates at two places: twice at the first of them."""
    result: Array = A.copy()
    for place, update in (((0, 1), 2), ((0, 1), 3), ((2, 3), -4)):
        old = result[place]
        result[place] = {
            "none": update,
            "add": old + update,
            "mul": old * update,
            "max": max(old, update),
            "min": min(old, update),
        }[reduction]
    return result


_PLACES = i64(0, 1, 0, 1, -1, -1).reshape(3, 2)
_UPDATES = np.array([2, 3, -4], np.float32)
_COLUMNS = i64(1, 1, 0, 0, 0, -1).reshape(3, 2)
_MOVED = A.copy()
_MOVED[[0, 1, 2, 1, 2], [1, 0, 0, 0, 3]] = [12, 13, 14, 23, 25]
_PAIRS = np.array([[11, 12], [13, 23], [14, 25]], np.float32)
_ROWS = A.copy()
_ROWS[[2, 0]] = [[1, 2, 3, 4], [5, 6, 7, 8]]
_WHOLE = np.array([[1, -2, 3], [4, 5, -6], [-7, 8, 10]], np.int32)
_BITS = {"to": TensorProto.INT32}

_NEAR_ZERO: dict[str, Callable[[Array], Array]] = {
    "Acos": np.arccos,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cosh": np.cosh,
    "Sinh": np.sinh,
}

DATA_ROWS = [
    Row("TopK", (1,), [A], _DESCENDING, {"k": 2}),
    Row("TopK", (10, 11, 24), [A, i64(2)], _DESCENDING),
    Row("TopK", (11, 24), [X, i64(2)], _ASCENDING, {"axis": 0, "largest": 0, "sorted": 0}, "least"),
    Row("Scatter", EVERY, [A, i64(2, 0)[:, None].repeat(4, 1), _ROWS[[2, 0]]], [_ROWS]),
    Row("ScatterElements", EVERY, [A, _COLUMNS, _PAIRS], [_MOVED], {"axis": 1}, "axis"),
    Row("ScatterElements", EVERY, [A, i64(2, 0)[:, None].repeat(4, 1), _ROWS[[2, 0]]], [_ROWS]),
    Row("ScatterND", EVERY, [A, i64(2, 0)[:, None], _ROWS[[2, 0]]], [_ROWS], {}, "rows"),
    *[
        Row(
            "ScatterND",
            opsets,
            [A, _PLACES, _UPDATES],
            [_scattered(reduction)],
            attributes,
            reduction,
        )
        for opsets, reduction in (
            (EVERY, "none"),
            ((16, 18), "add"),
            ((16, 18), "mul"),
            ((18,), "max"),
            ((18,), "min"),
        )
        for attributes in ({"reduction": reduction} if reduction != "none" else {},)
    ],
    Row(
        "ScatterElements",
        (16, 18),
        [A, i64(1, 1, -1, 1).reshape(1, 4), A[:1]],
        [A + np.array([[0, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0]], np.float32) * A[0]],
        {"reduction": "add"},
        "add",
    ),
    Row("CumProd", EVERY, [A, scalar(1, np.int32)], [A.cumprod(1)]),
    Row(
        "CumProd",
        EVERY,
        [TIES_1D, i64(-1)],
        [np.array([[[2, 2, 1], [30, 6, 1]]], np.float32)],
        {"exclusive": 1, "reverse": 1},
        "turned",
    ),
    Row("Einsum", EVERY, [A, B], [A @ B], {"equation": "ij,jk->ik"}),
    Row("Einsum", EVERY, [X], [X.sum((0, 2))], {"equation": "a b c -> b"}, "sum"),
    *[Row(name, EVERY, [X / 8], [function(X / 8)]) for name, function in _NEAR_ZERO.items()],
    Row("Acosh", EVERY, [X * X + 1], [np.arccosh(X * X + 1)]),
    Row(
        "Gemm",
        (9, 11, 13),
        [_WHOLE, _WHOLE, _WHOLE[0]],
        [np.trunc(0.25 * (_WHOLE.T @ _WHOLE) + 1.5 * _WHOLE[0]).astype(np.int32)],
        {"transA": 1, "alpha": 0.25, "beta": 1.5},
        "integers",
    ),
    Row("BitCast", EVERY, [A], [A.view(np.int32)], _BITS),
]
