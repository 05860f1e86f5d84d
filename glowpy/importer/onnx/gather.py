"""Import of indexed access: slices, elements, and slices by vectors of indices."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import Node
from glowpy.importer.onnx.data_movement import convert, reshape, slice_axis
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

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


def _linear(n: OnnxNode, index: Value, size: int, stride: int) -> Node:
    """How far index steps of `stride` lead; negative indices count from the end of `size`. In i64."""
    wide = n.operand(convert(n, index, ElemKind.I64))

    def number(value: int) -> Node:
        return n.f.create_splat(f"{n.name}_size", Type(ElemKind.I64, ()), float(value))

    negative = n.f.create_lt(n.name, wide, number(0))
    shifted = n.f.create_add(n.name, wide, number(size))
    return n.f.create_mul(
        n.name, n.f.create_select(n.name, negative, shifted, wide), number(stride)
    )


@from_onnx("GatherElements", since=11)
def _gather_elements(n: OnnxNode) -> Value:
    """One element for each index: its place in the data, with the coordinate along the axis replaced by the index."""
    data, indices = n.value(0), n.value(1)
    axis = n.axis(data.type.rank, 0)
    shape, picked = data.type.extents, indices.type.extents
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
            steps = np.arange(size, dtype=np.int64) * strides[i]
            column = steps.reshape([size if j == i else 1 for j in range(len(picked))])
            place = n.f.create_add(n.name, place, n.operand(Tensor.of(column), f"{n.name}_steps"))
    flat = n.operand(reshape(n, data, (data.type.count,)))
    return n.f.create_gather(n.name, flat, place, 0).result


@from_onnx("GatherND", since=11)
def _gather_nd(n: OnnxNode) -> Value:
    """Slices picked by the vectors in the last dimension of the indices, which index what follows the batch."""
    data, indices = n.value(0), n.value(1)
    batch = n.integer("batch_dims", 0)
    shape, rows = data.type.extents, indices.type.extents
    depth = rows[-1] if rows else 0
    if not 0 <= batch < min(len(shape), len(rows)) or not 1 <= depth <= len(shape) - batch:
        raise UserError(f"expected indices that lead into {data.type}, got {indices.type}")
    if shape[:batch] != rows[:batch]:
        raise UserError(
            f"expected {batch} batch dimensions alike, got {data.type} and {indices.type}"
        )
    inner = product(shape[batch + depth :])
    lead = rows[:-1]
    place: Node | None = None
    for i in range(depth):
        column = reshape(n, slice_axis(n, indices, len(rows) - 1, i, 1, 1), lead)
        stride = product(shape[batch + i + 1 : batch + depth])
        step = _linear(n, column, shape[batch + i], stride)
        place = step if place is None else n.f.create_add(n.name, place, step)
    assert place is not None  # depth is at least 1
    block = product(shape[batch : batch + depth])
    steps = np.arange(product(shape[:batch]), dtype=np.int64) * block
    offsets = steps.reshape((*shape[:batch], *(1,) * (len(lead) - batch)))
    place = n.f.create_add(n.name, place, n.operand(Tensor.of(offsets), f"{n.name}_batch"))
    flat = n.operand(reshape(n, data, (block * len(steps), inner)))
    slices = n.f.create_gather(n.name, flat, place, 0).result
    return reshape(n, slices, (*lead, *shape[batch + depth :]))
