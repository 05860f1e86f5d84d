"""Import of indexed access: slices, elements, and slices by vectors of indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape
from glowpy.graph.function import Function
from glowpy.importer.kit.moves import convert, reshape, slice_axis
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.indices import check_indices, check_places
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, product, static

__all__: list[str] = []


@from_onnx("Gather")
def _gather(n: OnnxNode) -> Value:
    """Indices that are known are in range, whatever the extents; others are clamped when the model runs, or checked."""
    data, indices = n.value(0), n.value(1)
    if data.type.rank == 0:
        raise UserError(f"expected data of rank 1 or more, got {data.type}")
    axis = n.axis(data.type.rank, 0)
    if not isinstance(indices, Tensor):
        check_indices(n, indices, data.type.shape[axis])
    else:
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


def _element_places(n: OnnxNode) -> Numbers:
    """Where in the data the element for each index lies: at its place, with the coordinate along the axis replaced."""
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
    check_indices(n, indices, shape[axis])
    strides = [product(shape[i + 1 :]) for i in range(len(shape))]
    place = _linear(n, indices, shape[axis], strides[axis])
    for i, size in enumerate(picked):
        if i != axis:
            column = [size if j == i else 1 for j in range(len(picked))]
            place = place + (counted(n, size) * strides[i]).reshaped(*column)
    return place


@from_onnx("GatherElements", since=11)
def _gather_elements(n: OnnxNode) -> Value:
    """One element for each index."""
    data = n.value(0)
    flat = n.operand(reshape(n, data, (data.type.count,)))
    return n.f.create_gather(n.name, flat, _element_places(n).operand, 0).result


@dataclass(frozen=True)
class _Slices:
    """Which slices of the data, as rows of a matrix, vectors of indices pick; `lead` is how these are arranged."""

    rows: Dim
    inner: Shape
    lead: Shape
    place: Numbers


def _slices(n: OnnxNode, batch: int) -> _Slices:
    """Slices picked by the vectors in the last dimension of the indices, which index what follows the batch."""
    data, indices = n.value(0), n.value(1)
    shape, rows = data.type.shape, indices.type.shape
    (depth,) = static(rows[-1:] or (0,))
    if not 0 <= batch < min(len(shape), len(rows)) or not 1 <= depth <= len(shape) - batch:
        raise UserError(f"expected indices that lead into {data.type}, got {indices.type}")
    if not is_same_shape(shape[:batch], rows[:batch]):
        raise UserError(
            f"expected {batch} batch dimensions alike, got {data.type} and {indices.type}"
        )
    lead = rows[:-1]
    batches = product(shape[:batch])
    block = product(shape[batch : batch + depth])
    trailing = (1,) * (len(lead) - batch)
    place = (counted(n, batches) * block).reshaped(*shape[:batch], *trailing)
    for i in range(depth):
        column = reshape(n, slice_axis(n, indices, len(rows) - 1, i, 1, 1), lead)
        check_indices(n, column, shape[batch + i])
        stride = product(shape[batch + i + 1 : batch + depth])
        place = place + _linear(n, column, shape[batch + i], stride)
    return _Slices(block * batches, shape[batch + depth :], lead, place)


@from_onnx("GatherND", since=11)
def _gather_nd(n: OnnxNode) -> Value:
    picked = _slices(n, n.integer("batch_dims", 0))
    flat = n.operand(reshape(n, n.value(0), (picked.rows, product(picked.inner))))
    slices = n.f.create_gather(n.name, flat, picked.place.operand, 0).result
    return reshape(n, slices, (*picked.lead, *picked.inner))


@from_onnx("ReverseSequence", since=10)
def _reverse_sequence(n: OnnxNode) -> Value:
    """Slices along two dimensions, time and batch: those of a sequence from its end, then what comes after it."""
    value, shape = n.value(0), n.type(0).shape
    time, batch = n.integer("time_axis", 0), n.integer("batch_axis", 1)
    if value.type.rank < 2 or {time, batch} != {0, 1}:
        raise UserError(
            f"expected time and batch to be the first two dimensions of {value.type}, got {time} and {batch}"
        )
    if not is_same_shape(n.type(1).shape, (shape[batch],)):
        raise UserError(f"expected a length for each of {shape[batch]} sequences, got {n.type(1)}")
    check_places(n, n.value(1), 0, shape[time])
    step = counted(n, shape[time]).reshaped(
        *(shape[time] if axis == time else 1 for axis in (0, 1))
    )
    row = counted(n, shape[batch]).reshaped(
        *(shape[batch] if axis == batch else 1 for axis in (0, 1))
    )
    length = Numbers(n, convert(n, n.value(1), ElemKind.I64)).reshaped(*row.value.type.shape)
    length = length.at_least(0).at_most(shape[time])
    source = (length - 1 - step).where(step < length, step)
    place = source * shape[1] + row if time == 0 else row * shape[1] + source
    flat = n.operand(reshape(n, value, (shape[0] * shape[1], *shape[2:])))
    return n.f.create_gather(n.name, flat, place.operand, 0).result


@from_onnx("Scatter", since=9)
@from_onnx("ScatterElements", since=11)
def _scatter_elements(n: OnnxNode) -> Value:
    """The data, but for one element for each index."""
    indices, updates = n.type(1), n.type(2)
    if not is_same_shape(indices.shape, updates.shape):
        raise UserError(f"expected an update for each index, got {indices} and {updates}")
    return _scattered(n, n.type(0).count, (), _element_places(n))


@from_onnx("ScatterND", since=11)
def _scatter_nd(n: OnnxNode) -> Value:
    """The data, but for the slices that vectors of indices pick."""
    picked = _slices(n, 0)
    shape, updates = (*picked.lead, *picked.inner), n.type(2)
    if not is_same_shape(updates.shape, shape):
        raise UserError(f"expected updates of shape {list(shape)}, got {updates}")
    return _scattered(n, picked.rows, picked.inner, picked.place)


def _scattered(n: OnnxNode, rows: Dim, inner: Shape, place: Numbers) -> Value:
    """The data as rows of a matrix, some of them updated as `reduction` says."""
    data, updates = n.value(0), n.value(2)
    reduction = n.text("reduction", "none")
    if reduction not in _SCATTERS:
        raise UserError(
            f"attribute 'reduction': expected one of {', '.join(_SCATTERS)}, got '{reduction}'"
        )
    kind = data.type.kind
    if kind is ElemKind.BOOL and reduction != "none":
        # Or is the larger of two bytes, and the lesser.
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
        data, updates = (convert(n, value, ElemKind.U8) for value in (data, updates))
    width, places = product(inner), place.value.type.count
    matrix = n.operand(reshape(n, data, (rows, width)))
    indices = n.operand(reshape(n, place.value, (places,)))
    lines = n.operand(reshape(n, updates, (places, width)))
    result = _SCATTERS[reduction](n.f)(n.name, matrix, indices, lines).result
    return reshape(n, convert(n, result, kind), data.type.shape)


_SCATTERS: dict[str, Callable[[Function], Callable[..., Any]]] = {
    "none": lambda f: f.create_scatter,
    "add": lambda f: f.create_scatter_add,
    "mul": lambda f: f.create_scatter_mul,
    "max": lambda f: f.create_scatter_max,
    "min": lambda f: f.create_scatter_min,
}
