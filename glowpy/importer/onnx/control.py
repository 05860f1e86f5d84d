"""Import of sequences: they exist only while importing, as lists whose lengths and positions are known."""

from __future__ import annotations

import reprlib

import numpy as np

from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Tensor
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.moves import concat, reshape, slice_axis
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.node import OnnxNode, TensorSequence, from_onnx
from glowpy.importer.onnx.source import MAX_NODES
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("SequenceEmpty", since=11)
def _empty(n: OnnxNode) -> TensorSequence:
    if n.has_attribute("dtype"):
        kind_of(n.integer("dtype", 0))
    return TensorSequence(())


@from_onnx("SequenceConstruct", since=11)
def _construct(n: OnnxNode) -> TensorSequence:
    return TensorSequence(tuple(n.value(index) for index in range(n.num_inputs)))


def _position(n: OnnxNode, index: int, default: int, length: int) -> int:
    """Input `index`, a position below `length`; negative ones count from the end."""
    position = int(n.known_scalar(index)) if n.has(index) else default
    if not -length <= position < length:
        raise UserError(f"expected a position from {-length} to {length - 1}, got {position}")
    return position % length


@from_onnx("SequenceInsert", since=11)
def _insert(n: OnnxNode) -> TensorSequence:
    items = n.sequence(0).items
    if items and items[0].type.kind is not n.type(1).kind:
        raise UserError(f"expected an element of kind {items[0].type.kind.value}, got {n.type(1)}")
    position = int(n.known_scalar(2)) if n.has(2) else len(items)
    if not -len(items) <= position <= len(items):
        raise UserError(f"expected a position from {-len(items)} to {len(items)}, got {position}")
    position = position + len(items) if position < 0 else position
    return TensorSequence((*items[:position], n.value(1), *items[position:]))


@from_onnx("SequenceErase", since=11)
def _erase(n: OnnxNode) -> TensorSequence:
    items = n.sequence(0).items
    position = _position(n, 1, -1, len(items))
    return TensorSequence((*items[:position], *items[position + 1 :]))


@from_onnx("SequenceAt", since=11)
def _at(n: OnnxNode) -> Value:
    items = n.sequence(0).items
    return items[_position(n, 1, 0, len(items))]


@from_onnx("SequenceLength", since=11)
def _length(n: OnnxNode) -> Tensor:
    return Tensor.of(np.array(len(n.sequence(0).items), np.int64))


@from_onnx("OptionalHasElement", since=15)
def _has_element(n: OnnxNode) -> Tensor:
    """Decides for a tensor, which is there, or for nothing: a session computes it for optionals."""
    return Tensor.of(np.array(n.has(0)))


@from_onnx("OptionalGetElement", since=15)
def _element(n: OnnxNode) -> Value | SymbolicTensor | TensorSequence:
    """Passes a tensor or a sequence on: a session computes it for optionals."""
    return n.any_value(0)


@from_onnx("ConcatFromSequence", since=11)
def _concat_from_sequence(n: OnnxNode) -> Value:
    items = n.sequence(0).items
    if not items:
        raise UserError("expected a sequence of at least one tensor")
    rank = items[0].type.rank
    if not n.flag("new_axis"):
        return concat(n, items, n.axis(rank, 0))
    axis = n.axis(rank + 1, 0)
    wide = [
        reshape(n, item, (*item.type.shape[:axis], 1, *item.type.shape[axis:])) for item in items
    ]
    return concat(n, wide, axis)


@from_onnx("SplitToSequence", since=11)
def _split_to_sequence(n: OnnxNode) -> TensorSequence:
    """Without `split`, slices of 1; a scalar gives equal parts, the last of which may be smaller."""
    value = n.value(0)
    axis = normalize_axis(n.integer("axis", 0), value.type.rank)
    size = value.type.extents[axis]
    if not n.has(1):
        sizes = [1] * size
    elif n.type(1).rank == 0:
        part = int(n.known_scalar(1))
        if part < 1:
            raise UserError(f"expected parts of at least 1, got {part}")
        sizes = [min(part, size - start) for start in range(0, size, part)]
    else:
        sizes = list(n.known_ints(1))
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise UserError(f"expected sizes with the sum {size}, got {reprlib.repr(sizes)}")
    if len(sizes) > MAX_NODES:
        raise UserError(
            f"expected at most {MAX_NODES} parts, each of which is a node, got {len(sizes)}"
        )
    items, start = [], 0
    for count in sizes:
        item = slice_axis(n, value, axis, start, count, 1)
        if not n.has(1) and not n.flag("keepdims", True):
            shape = item.type.shape
            item = reshape(n, item, (*shape[:axis], *shape[axis + 1 :]))
        items.append(item)
        start += count
    return TensorSequence(tuple(items))
