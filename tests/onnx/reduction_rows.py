"""One row for every reduction of ONNX, before and after its axes became an input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from tests.onnx.opset_rows import EMPTY, EVERY, VERSIONS, Row, X, i64

__all__ = ["REDUCTION_ROWS"]


def _log_sum_exp(x: Array, **options: Any) -> Array:
    return np.asarray(np.log(np.exp(x).sum(**options)))


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "L1": lambda x, **options: np.abs(x).sum(**options),
    "L2": lambda x, **options: np.sqrt((x * x).sum(**options)),
    "LogSum": lambda x, **options: np.log(x.sum(**options)),
    "LogSumExp": _log_sum_exp,
    "Max": np.max,
    "Mean": np.mean,
    "Min": np.min,
    "Prod": np.prod,
    "Sum": np.sum,
    "SumSquare": lambda x, **options: (x * x).sum(**options),
}
REDUCTION_ROWS: list[Row] = []
for _name, _function in REDUCTIONS.items():
    _op, _until = f"Reduce{_name}", 13 if _name == "Sum" else 18
    _old = [since for since in VERSIONS[_op] if since < _until]
    _new = [since for since in VERSIONS[_op] if since >= _until]
    _x = np.abs(X)
    _kept, _all = _function(_x, axis=(0, 2), keepdims=True), _function(_x, keepdims=True)
    _gone, _elements = _function(_x, axis=1), _function(_x[..., None], axis=3)
    REDUCTION_ROWS += [
        Row(_op, _old, [_x], [_kept], {"axes": [0, -1]}, "attribute"),
        Row(_op, _old, [_x], [_gone], {"axes": [1], "keepdims": 0}, "dropped"),
        Row(_op, EVERY, [_x], [_all], {}, "all"),
        Row(_op, _new, [_x, i64(0, -1)], [_kept], {}, "input"),
        Row(_op, _new, [_x, i64(1)], [_gone], {"keepdims": 0}, "dropped input"),
        Row(_op, _new, [_x, EMPTY.astype(np.int64)], [_all], {}, "empty"),
        Row(_op, _new, [_x], [_elements], {"noop_with_empty_axes": 1}, "none"),
    ]
