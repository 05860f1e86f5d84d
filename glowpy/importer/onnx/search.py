"""Import of operators that find elements, of which it is known only at run time how many there are."""

from __future__ import annotations

import math

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape, slice_axis, transpose
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, highest, product

__all__: list[str] = []

_HALVES = (ElemKind.F16, ElemKind.BF16)


def _wide(n: OnnxNode, value: Value) -> NodeValue:
    """Converts narrow floats to 32 bits, which kernels compare."""
    return n.operand(convert(n, value, ElemKind.F32) if value.type.kind in _HALVES else value)


def _places(n: OnnxNode, value: Value) -> Value:
    """Where elements are not zero: a row of indices for each."""
    node = n.f.create_non_zero(n.name, _wide(n, value))
    count = n.found(node.results[1], f"{n.name}_count", highest(value.type.count))
    return slice_axis(n, node.result, 0, 0, count, 1)


@from_onnx("NonZero", since=9)
def _non_zero(n: OnnxNode) -> Value:
    """A column for each element; that of a scalar has one index."""
    value = n.value(0)
    return transpose(n, _places(n, value if value.type.rank else reshape(n, value, (1,))), (1, 0))


@from_onnx("Compress", since=9)
def _compress(n: OnnxNode) -> Value:
    """Slices where a condition holds, which is false where it has ended."""
    value, condition = n.value(0), n.value(1)
    if condition.type.rank != 1:
        raise UserError(f"expected a vector as the condition, got {condition.type}")
    if n.has_attribute("axis"):
        axis = n.axis(value.type.rank, 0)
    else:
        axis, value = 0, reshape(n, value, (value.type.count,))
    size = value.type.shape[axis]
    if condition.type.shape[0] > size:
        raise UserError(f"expected a condition of at most {size} elements, got {condition.type}")
    places = _places(n, condition)
    indices = n.operand(reshape(n, places, places.type.shape[:1]))
    return n.f.create_gather(n.name, n.operand(value), indices, axis).result


@from_onnx("Unique", since=11)
def _unique(n: OnnxNode) -> tuple[Value, ...]:
    """Different slices along an axis, or different elements: where they are first, which each is, and how often."""
    value = n.value(0)
    if n.has_attribute("axis"):
        axis = n.axis(value.type.rank, 0)
        axes = [other for other in range(value.type.rank) if other != axis]
        moved = transpose(n, value, (axis, *axes))
    else:
        axis, value = 0, reshape(n, value, (value.type.count,))
        moved = value
    size = value.type.shape[axis]
    rows = reshape(n, moved, (size, product(moved.type.shape[1:])))
    node = n.f.create_unique(n.name, _wide(n, rows), n.flag("sorted", True))
    first, inverse, counts, number = node.results
    count = n.found(number, f"{n.name}_count", highest(size))
    first, counts = (n.operand(slice_axis(n, result, 0, 0, count, 1)) for result in (first, counts))
    return n.f.create_gather(n.name, n.operand(value), first, axis).result, first, inverse, counts


@from_onnx("TopK")
def _top_k(n: OnnxNode) -> tuple[NodeValue, NodeValue]:
    """The k most extreme elements along an axis and where they are; sorted, whether that is asked for or not.

    Below opset 10, k is an attribute; below 11, always the largest.
    """
    (k,) = (n.integer("k", 0),) if n.opset < 10 else n.dims(1)
    node = n.f.create_top_k(
        n.name, n.input(0), n.axis(n.type(0).rank, -1), k, n.flag("largest", True)
    )
    return node.results[0], node.results[1]


@from_onnx("NonMaxSuppression", since=10)
def _non_max_suppression(n: OnnxNode) -> Value:
    boxes, scores = n.input(0), n.input(1)
    if boxes.type.rank != 3 or scores.type.rank != 3:
        raise UserError(f"expected boxes and scores of rank 3, got {boxes.type} and {scores.type}")
    images, classes, number = scores.type.shape
    limit = n.value(2) if n.has(2) else Tensor.of(np.zeros(1, np.int64))
    most: Dim = highest(number)
    if isinstance(limit, Tensor):
        most = min(most, max(int(limit.array.reshape(-1)[0]), 0))
    overlap = _number(n, 3, 0.0)
    if isinstance(overlap, Tensor) and not 0 <= overlap.array[0] <= 1:
        raise UserError(f"expected an iou_threshold from 0 to 1, got {overlap.array[0]}")
    node = n.f.create_non_max_suppression(
        n.name,
        boxes,
        scores,
        n.operand(reshape(n, convert(n, limit, ElemKind.I64), (1,)), f"{n.name}_limit"),
        n.operand(overlap, f"{n.name}_overlap"),
        # Nothing is less than NaN: without a threshold, all boxes are candidates.
        n.operand(_number(n, 4, math.nan), f"{n.name}_threshold"),
        n.flag("center_point_box"),
        highest(images * classes * most),
    )
    count = n.found(node.results[1], f"{n.name}_count", highest(images * classes * most))
    return slice_axis(n, node.result, 0, 0, count, 1)


def _number(n: OnnxNode, index: int, default: float) -> Value:
    """Input `index`, one f32."""
    if not n.has(index):
        return Tensor.of(np.array([default], np.float32))
    return reshape(n, n.value(index), (1,))
