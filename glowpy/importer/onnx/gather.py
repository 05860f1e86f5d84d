"""Import of indexed access: Gather."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Tensor
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("Gather")
def _gather(n: OnnxNode) -> Value:
    """Indices that are known are checked; others are clamped when the model runs."""
    data, indices = n.value(0), n.value(1)
    axis = n.axis(data.type.rank, 0)
    if data.type.rank == 0:
        raise UserError(f"expected data of rank 1 or more, got {data.type}")
    if isinstance(indices, Tensor):
        size, array = data.type.shape[axis], indices.array
        if array.size and not bool(((array >= -size) & (array < size)).all()):
            raise UserError(
                f"expected indices from {-size} to {size - 1}, got {array.min()} to {array.max()}"
            )
        if isinstance(data, Tensor) and data.type.size < 1 << 16:
            return Tensor.of(np.asarray(data.array.take(array.astype(np.int64), axis)))
    return n.f.create_gather(n.name, n.input(0), n.input(1), axis).result
