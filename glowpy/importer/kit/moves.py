"""Moving elements at import: what is known moves in numpy at once, the rest becomes nodes.

These are shared by the import functions of all families: reshapes, transposes and slices of weights must leave
no nodes, and a splat must stay one, for it has no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcasts_to, permute
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue
from glowpy.graph.parts import part_along
from glowpy.importer.kit.importing import Importing
from glowpy.importer.kit.values import Value
from glowpy.ops import numeric
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, depends_on_symbols, static

__all__ = [
    "broadcast",
    "channels_first",
    "channels_last",
    "concat",
    "convert",
    "filled",
    "full",
    "reshape",
    "slice_axis",
    "transpose",
    "vector",
]


def full(type: Type, value: float) -> Tensor:
    """`value` in every element."""
    return Tensor.splat(type, value)


def filled(n: Importing, type: Type, value: float) -> Value:
    """The same of a type whose dimensions may be open."""
    return full(type, value) if type.is_static else n.f.create_splat(n.name, type, value).result


def vector(values: Sequence[int]) -> Tensor:
    """A vector of i64."""
    return Tensor.of(np.array(values, np.int64).reshape(len(values)))


def _moved(
    tensor: Tensor, shape: Sequence[Dim], operation: str, move: Callable[[Array], Array]
) -> Tensor:
    """Moves elements by `move`, which gives a view where it can: weights are copied once, when a backend packs them."""
    type = tensor.type.with_shape(shape)
    value = tensor.splat_value
    if value is not None:
        return Tensor.splat(type, value)
    return Tensor.derived(type, operation, [tensor], move)


def reshape(n: Importing, value: Value, shape: Sequence[Dim]) -> Value:
    """The same elements in another shape. Raises UserError if their number differs."""
    type = value.type.with_shape(shape)
    if type.count != value.type.count:
        raise UserError(f"expected {value.type.count} elements to reshape to, got {type}")
    if type == value.type:
        return value
    if isinstance(value, Tensor):
        return _moved(value, shape, "reshape", lambda array: array.reshape(type.extents))
    return n.f.create_reshape(n.name, type, value).result


def transpose(n: Importing, value: Value, shuffle: Sequence[int], suffix: str = "") -> Value:
    """Dimension i of the result is dimension shuffle[i] of the value; the node is named after `n`, plus the suffix."""
    if sorted(shuffle) != list(range(value.type.rank)):
        raise UserError(
            f"expected a permutation of {value.type.rank} dimensions, got {list(shuffle)}"
        )
    if list(shuffle) == sorted(shuffle):
        return value
    if isinstance(value, Tensor):
        shape = permute(value.type.shape, shuffle)
        order = tuple(shuffle)
        return _moved(value, shape, f"transpose {order}", lambda array: array.transpose(order))
    return n.f.create_transpose(f"{n.name}{suffix}", value, tuple(shuffle)).result


def channels_last(n: Importing, value: Value) -> Value:
    """N, C, spatial... to N, spatial..., C; filters O, I, spatial... to O, spatial..., I."""
    rank = value.type.rank
    return transpose(n, value, (0, *range(2, rank), 1), "_nhwc")


def channels_first(n: Importing, value: Value) -> Value:
    """N, spatial..., C to N, C, spatial..."""
    rank = value.type.rank
    return transpose(n, value, (0, rank - 1, *range(1, rank - 1)), "_nchw")


def broadcast(n: Importing, value: Value, shape: Shape) -> Value:
    """The value repeated as numpy broadcasts it to `shape`, of any rank that is at least its own."""
    padded = (1,) * (len(shape) - value.type.rank) + value.type.shape
    if not broadcasts_to(padded, shape):
        raise UserError(f"{value.type} does not broadcast to {list(shape)}")
    wide = reshape(n, value, padded)
    if wide.type.shape == shape:
        return wide
    type = wide.type.with_shape(shape)
    if isinstance(wide, Tensor) and wide.splat_value is not None and type.is_static:
        return Tensor.splat(type, wide.splat_value)
    return n.f.create_broadcast(n.name, type, n.operand(wide)).result


def slice_axis(n: Importing, value: Value, axis: int, start: Dim, count: Dim, step: int) -> Value:
    """`count` slices from `start` on along `axis`, `step` apart."""
    shape = list(value.type.shape)
    if start == 0 and count == shape[axis] and step == 1:
        return value
    if isinstance(value, Tensor) and not depends_on_symbols((start, count)):
        first, number = static((start, count))
        index = np.array([first + step * i for i in range(number)], np.int64)
        operation = f"slice {axis} {start} {count} {step}"
        shape[axis] = count
        return _moved(value, shape, operation, lambda array: array.take(index, axis))
    begin, stride = (start, step) if count != 0 else (0, 1)
    return part_along(n.f, n.name, n.operand(value), axis, begin, count, stride)


def concat(n: Importing, values: Sequence[Value], axis: int) -> Value:
    """The values one after the other along `axis`."""
    if len(values) == 1:
        return values[0]
    return n.f.create_concat(n.name, [n.operand(value) for value in values], axis).result


def convert(n: Importing, value: Value, kind: ElemKind) -> Value:
    """The value in another element kind; from codes and to them by way of f32, without limits."""
    source_kind = value.type.kind
    if source_kind is kind:
        return value
    if source_kind.is_code and kind is not ElemKind.F32:
        return convert(n, convert(n, value, ElemKind.F32), kind)
    if kind.is_code and source_kind is not ElemKind.F32:
        return convert(n, convert(n, value, ElemKind.F32), kind)
    type = value.type.with_kind(kind)
    if isinstance(value, NodeValue):
        create = (
            n.f.create_decode
            if source_kind.is_code
            else n.f.create_encode
            if kind.is_code
            else n.f.create_convert
        )
        return create(n.name, type, value).result
    compute = (
        _decoded if source_kind.is_code else numeric.encode if kind.is_code else numeric.convert
    )
    if value.splat_value is not None:
        single = compute(value.array[(slice(0, 1),) * type.rank], type)
        return Tensor(type, np.broadcast_to(single, type.extents))
    return Tensor.derived(type, "convert", [value], lambda array: compute(array, type))


def _decoded(array: Array, type: Type) -> Array:
    del type
    return numeric.decode(array)
