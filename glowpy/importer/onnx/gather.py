"""Import of indexed access: slices, elements, and slices by vectors of indices."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.importer.onnx.data_movement import convert, reshape, slice_axis
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.importer.onnx.numbers import Numbers, counted
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, product, static

__all__: list[str] = []


@from_onnx("Gather")
def _gather(n: OnnxNode) -> Value:
    """Indices that are known are checked; others are clamped when the model runs."""
    data, indices = n.value(0), n.value(1)
    if data.type.rank == 0:
        raise UserError(f"expected data of rank 1 or more, got {data.type}")
    axis = n.axis(data.type.rank, 0)
    if isinstance(indices, Tensor):
        size, array = data.type.shape[axis], indices.array
        if array.size and not bool(((array >= -size) & (array < size)).all()):
            raise UserError(
                f"expected indices from {-size} to {size - 1}, got {array.min()} to {array.max()}"
            )
        if isinstance(data, Tensor) and data.type.size < 1 << 16:
            return Tensor.of(np.asarray(data.array.take(array.astype(np.int64), axis)))
    return n.f.create_gather(n.name, n.input(0), n.input(1), axis).result


def _linear(n: OnnxNode, index: Value, size: Dim, stride: Dim) -> Numbers:
    """How far index steps of `stride` lead; negative indices count from the end of `size`. In i64."""
    wide = Numbers(n, convert(n, index, ElemKind.I64))
    return (wide + size).where(wide < 0, wide) * stride


@from_onnx("GatherElements", since=11)
def _gather_elements(n: OnnxNode) -> Value:
    """One element for each index: its place in the data, with the coordinate along the axis replaced by the index."""
    data, indices = n.value(0), n.value(1)
    axis = n.axis(data.type.rank, 0)
    shape, picked = data.type.shape, indices.type.shape
    fits = len(shape) == len(picked) and all(
        p <= s for i, (p, s) in enumerate(zip(picked, shape, strict=True)) if i != axis
    )
    if not fits:
        raise UserError(
            f"expected indices that fit {data.type} beside axis {axis}, got {indices.type}"
        )
    strides = [product(shape[i + 1 :]) for i in range(len(shape))]
    place = _linear(n, indices, shape[axis], strides[axis])
    for i, size in enumerate(picked):
        if i != axis:
            column = [size if j == i else 1 for j in range(len(picked))]
            place = place + (counted(n, size) * strides[i]).reshaped(*column)
    flat = n.operand(reshape(n, data, (data.type.count,)))
    return n.f.create_gather(n.name, flat, place.operand, 0).result


@from_onnx("GatherND", since=11)
def _gather_nd(n: OnnxNode) -> Value:
    """Slices picked by the vectors in the last dimension of the indices, which index what follows the batch."""
    data, indices = n.value(0), n.value(1)
    batch = n.integer("batch_dims", 0)
    shape, rows = data.type.shape, indices.type.shape
    (depth,) = static(rows[-1:] or (0,))
    if not 0 <= batch < min(len(shape), len(rows)) or not 1 <= depth <= len(shape) - batch:
        raise UserError(f"expected indices that lead into {data.type}, got {indices.type}")
    if not is_same_shape(shape[:batch], rows[:batch]):
        raise UserError(
            f"expected {batch} batch dimensions alike, got {data.type} and {indices.type}"
        )
    inner, lead = shape[batch + depth :], rows[:-1]
    batches = product(shape[:batch])
    block = product(shape[batch : batch + depth])
    trailing = (1,) * (len(lead) - batch)
    place = (counted(n, batches) * block).reshaped(*shape[:batch], *trailing)
    for i in range(depth):
        column = reshape(n, slice_axis(n, indices, len(rows) - 1, i, 1, 1), lead)
        stride = product(shape[batch + i + 1 : batch + depth])
        place = place + _linear(n, column, shape[batch + i], stride)
    flat = n.operand(reshape(n, data, (block * batches, product(inner))))
    slices = n.f.create_gather(n.name, flat, place.operand, 0).result
    return reshape(n, slices, (*lead, *inner))
