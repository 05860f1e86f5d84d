"""Import of operators that move elements or ask for shapes: Reshape, Concat, Slice, Pad, Split, Shape and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcast_shapes, is_same, is_same_shape, normalize_axis
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.parts import is_inside
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.computed import computed_slices
from glowpy.importer.kit.extents import slice_bounds
from glowpy.importer.kit.moves import (
    broadcast,
    concat,
    convert,
    filled,
    full,
    reshape,
    slice_axis,
    transpose,
    vector,
)
from glowpy.importer.kit.numbers import Number, Numbers, counted
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.ranges import imported_range
from glowpy.support.errors import UserError
from glowpy.support.symbolic import (
    Dim,
    Expr,
    UndecidedError,
    ceil_div,
    depends_on_symbols,
    greatest,
    highest,
    least,
    lowest,
    product,
    static,
)

__all__: list[str] = []


@from_onnx("Identity")
def _identity(n: OnnxNode) -> Result:
    return n.any_value(0)


@from_onnx("Constant")
def _constant(n: OnnxNode) -> Tensor:
    names = [attribute.name for attribute in n.proto.attribute]
    if len(names) != 1:
        raise UserError(f"expected exactly one attribute, got {', '.join(names) or 'none'}")
    match names[0]:
        case "value_float":
            return Tensor.of(np.array(n.real("value_float", 0.0), np.float32))
        case "value_floats":
            return Tensor.of(np.array(n.reals("value_floats"), np.float32))
        case "value_int":
            return Tensor.of(np.array(n.integer("value_int", 0), np.int64))
        case "value_ints":
            return vector(n.integers("value_ints") or ())
        case "value_string" | "value_strings":
            raise n.unsupported("a constant of strings")
        case name:
            tensor = n.tensor(name)
            assert tensor is not None  # it was given
            return tensor


@from_onnx("ConstantOfShape", since=9)
def _constant_of_shape(n: OnnxNode) -> Value:
    value = n.tensor("value") or Tensor.of(np.zeros(1, np.float32))
    if value.type.count != 1:
        raise UserError(f"expected one element as 'value', got {value.type}")
    # Not splat_value: it holds for arrays whose strides say so.
    item = value.array.reshape(-1)[0].item()
    type = Type(value.type.kind, n.dims(0))
    return filled(n, type, item)


@from_onnx("Shape")
def _shape(n: OnnxNode) -> Tensor | SymbolicTensor:
    shape = n.type(0).shape
    end = n.integer("end", len(shape))
    return _dims_vector(shape[slice(n.integer("start", 0), end)])


def _dims_vector(dims: Sequence[Dim]) -> Tensor | SymbolicTensor:
    """A vector of i64."""
    if depends_on_symbols(tuple(dims)):
        return SymbolicTensor(Type(ElemKind.I64, (len(dims),)), np.array(dims, object))
    return vector(static(dims))


@from_onnx("Size")
def _size(n: OnnxNode) -> Tensor | SymbolicTensor:
    count = n.type(0).count
    if isinstance(count, Expr):
        return SymbolicTensor(Type(ElemKind.I64, ()), np.array(count, object))
    return Tensor.of(np.array(count, np.int64))


@from_onnx("Reshape")
def _reshape_1(n: OnnxNode) -> Value:
    return reshape(n, n.value(0), _target(n, n.integers("shape") or (), False, is_fixed=True))


@from_onnx("Reshape", since=5)
def _reshape_5(n: OnnxNode) -> Value:
    sizes, targets = n.dims(1, signed=True), n.scope.targets
    is_fixed = targets is not None and n.input_name(1) in targets.fixed
    return reshape(n, n.value(0), _target(n, sizes, n.flag("allowzero"), is_fixed=is_fixed))


def _target(n: OnnxNode, sizes: Sequence[Dim], allowzero: bool, *, is_fixed: bool) -> Sequence[Dim]:
    """Computes the shape. Sizes that are fixed follow those of the model's inputs that are other than declared."""
    type, targets = n.type(0), n.scope.targets
    if targets is None:
        return _reshaped(type, sizes, allowzero)
    written = [] if allowzero else sizes
    resolved = partial(_reshaped, type, sizes, allowzero)
    return targets.target(n.proto.output[0], type.shape, written, resolved, is_fixed=is_fixed)


def _reshaped(type: Type, sizes: Sequence[Dim], allowzero: bool) -> list[Dim]:
    """The sizes with 0 copied from the input and -1 worked out, of what is not copied: there may be no elements."""
    shape: list[Dim] = list(sizes)
    copied = {index for index, size in enumerate(sizes) if size == 0 and not allowzero}
    if not allowzero:
        if any(size == 0 and index >= type.rank for index, size in enumerate(shape)):
            raise UserError(f"expected a dimension of {type} for every 0 in {list(sizes)}")
        shape = [type.shape[index] if size == 0 else size for index, size in enumerate(shape)]
    elif 0 in shape and -1 in shape:
        raise UserError(f"expected no -1 beside a 0 that stands for itself, got {list(sizes)}")
    if shape.count(-1) > 1 or any(highest(size) < -1 for size in shape):
        raise UserError(f"expected sizes and at most one -1, got {list(sizes)}")
    if -1 in shape:
        count = product(size for index, size in enumerate(type.shape) if index not in copied)
        rest = product(s for index, s in enumerate(shape) if s != -1 and index not in copied)
        shape[shape.index(-1)] = count // rest if rest != 0 else 0
    if not is_same(product(shape), type.count):
        raise UserError(
            f"expected a shape of {type.count} elements to reshape {type} to, got {list(sizes)}"
        )
    return shape


@from_onnx("Flatten")
def _flatten(n: OnnxNode) -> Value:
    shape = n.type(0).shape
    axis = n.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise UserError(f"expected an axis from {-len(shape)} to {len(shape)}, got {axis}")
    axis = axis % len(shape) if axis < 0 else axis
    return reshape(n, n.value(0), (product(shape[:axis]), product(shape[axis:])))


def _axes(n: OnnxNode, since_input: int) -> tuple[int, ...] | None:
    """The attribute `axes`, or from opset `since_input` on, input 1; None if not given."""
    if n.opset < since_input:
        return n.integers("axes")
    return n.known_ints(1) if n.has(1) else None


def _distinct(axes: Sequence[int], rank: int) -> list[int]:
    distinct = [normalize_axis(axis, rank) for axis in axes]
    if len(set(distinct)) != len(distinct):
        raise UserError(f"expected each axis once, got {list(axes)}")
    return distinct


@from_onnx("Unsqueeze")
def _unsqueeze(n: OnnxNode) -> Value:
    requested = _axes(n, 13) or ()
    rank = n.type(0).rank + len(requested)
    axes = _distinct(requested, rank)
    sizes = iter(n.type(0).shape)
    return reshape(n, n.value(0), [1 if i in axes else next(sizes) for i in range(rank)])


@from_onnx("Squeeze")
def _squeeze(n: OnnxNode) -> Value:
    shape = n.type(0).shape
    requested = _axes(n, 13)
    if requested is None:
        return reshape(n, n.value(0), [size for size in shape if size != 1])
    axes = _distinct(requested, len(shape))
    if not all(is_same(shape[axis], 1) for axis in axes):
        raise UserError(
            f"expected dimensions of 1 to squeeze, got {list(requested)} of {n.type(0)}"
        )
    return reshape(n, n.value(0), [size for i, size in enumerate(shape) if i not in axes])


@from_onnx("Transpose")
def _transpose(n: OnnxNode) -> Value:
    shuffle = n.integers("perm")
    return transpose(
        n, n.value(0), tuple(reversed(range(n.type(0).rank))) if shuffle is None else shuffle
    )


def _image(n: OnnxNode) -> Shape:
    if n.type(0).rank != 4:
        raise UserError(f"expected an input of rank 4, got {n.type(0)}")
    return n.type(0).shape


def _block(n: OnnxNode, fits: Callable[[int], bool]) -> tuple[int, bool]:
    """The side of a block, and whether it is spread over the channels before their depth (DCR) or after it (CRD)."""
    size, mode = n.integer("blocksize", 0), n.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise UserError(f"attribute 'mode': expected DCR or CRD, got '{mode}'")
    if size < 1 or not fits(size):
        raise UserError(f"attribute 'blocksize': expected a size that fits {n.type(0)}, got {size}")
    return size, mode == "DCR"


@from_onnx("DepthToSpace")
def _depth_to_space(n: OnnxNode) -> Value:
    """Blocks of pixels from channels."""
    batch, channels, height, width = _image(n)
    size, outer = _block(n, lambda side: is_same(channels % side**2, 0))
    depth = channels // size**2
    split = (size, size, depth) if outer else (depth, size, size)
    shuffle = (0, 3, 4, 1, 5, 2) if outer else (0, 1, 4, 2, 5, 3)
    blocks = reshape(n, n.value(0), (batch, *split, height, width))
    return reshape(n, transpose(n, blocks, shuffle), (batch, depth, height * size, width * size))


@from_onnx("SpaceToDepth")
def _space_to_depth(n: OnnxNode) -> Value:
    """Channels from blocks of pixels: what DepthToSpace undoes."""
    batch, depth, height, width = _image(n)
    size, outer = _block(n, lambda side: is_same_shape((height % side, width % side), (0, 0)))
    rows, columns = height // size, width // size
    shuffle = (0, 3, 5, 1, 2, 4) if outer else (0, 1, 3, 5, 2, 4)
    blocks = reshape(n, n.value(0), (batch, depth, rows, size, columns, size))
    return reshape(n, transpose(n, blocks, shuffle), (batch, depth * size**2, rows, columns))


@from_onnx("Concat")
def _concat(n: OnnxNode) -> Value:
    values = [n.value(index) for index in range(n.num_inputs)]
    return concat(n, values, n.axis(values[0].type.rank, 1))


@from_onnx("Expand", since=8)
def _expand(n: OnnxNode) -> Value:
    shape = broadcast_shapes(n.type(0).shape, n.dims(1))
    return broadcast(n, n.value(0), shape)


@from_onnx("Tile")
def _tile_1(n: OnnxNode) -> Value:
    axis = normalize_axis(int(n.known_scalar(2)), n.type(0).rank)
    return _tiled(n, n.value(0), axis, int(n.known_scalar(1)))


@from_onnx("Tile", since=6)
def _tile_6(n: OnnxNode) -> Value:
    value, repeats = n.value(0), n.dims(1)
    if len(repeats) != value.type.rank:
        raise UserError(f"expected {value.type.rank} repeats, got {len(repeats)}")
    for axis, count in enumerate(repeats):
        value = _tiled(n, value, axis, count)
    return value


def _tiled(n: OnnxNode, value: Value, axis: int, count: Dim) -> Value:
    """The value repeated `count` times: one more dimension, broadcast, and merged with the next."""
    if count == 1:
        return value
    if lowest(count) < 0:
        raise UserError(f"expected repeats of at least 0, got {count}")
    shape = value.type.shape
    before, after = product(shape[:axis]), product(shape[axis:])
    wide = broadcast(n, reshape(n, value, (before, 1, after)), (before, count, after))
    return reshape(n, wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


@from_onnx("Slice")
def _slice_1(n: OnnxNode) -> Value:
    starts, ends = n.integers("starts") or (), n.integers("ends") or ()
    axes = n.integers("axes")
    return _sliced(n, starts, ends, axes, None)


@from_onnx("Slice", since=10)
def _slice_10(n: OnnxNode) -> Value:
    axes = n.known_ints(3) if n.has(3) else None
    steps = n.known_ints(4) if n.has(4) else None
    if any(isinstance(n.any_value(index), NodeValue) for index in (1, 2)):
        return computed_slices(n, n.value(0), n.value(1), n.value(2), axes, steps)
    starts, ends = n.known_dims(1), n.known_dims(2)
    try:
        return _sliced(n, starts, ends, axes, steps)
    except UndecidedError:  # on which side of zero a place lies is seen when the network runs
        return computed_slices(n, n.value(0), n.value(1), n.value(2), axes, steps)


def _sliced(
    n: OnnxNode,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    """Starts and ends count from the end if negative, and are clamped into the dimension."""
    value = n.value(0)
    axes = _distinct(range(len(starts)) if axes is None else axes, value.type.rank)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise UserError(
            f"expected as many starts, ends, axes and steps, got {len(starts)}, {len(ends)}, "
            f"{len(axes)} and {len(steps)}"
        )
    if 0 in steps:
        raise UserError("expected steps other than 0")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first, count = slice_bounds(start, end, step, value.type.shape[axis])
        value = _part(n, value, axis, first, count, step)
    return value


def _part(n: OnnxNode, value: Value, axis: int, first: Dim, count: Dim, step: int) -> Value:
    """A slice, or what indices pick where bounds do not prove that it lies inside: these are clamped."""
    if is_inside(value.type.shape[axis], first, count, step):
        return slice_axis(n, value, axis, first, count, step)
    places = (counted(n, count) * step + first).operand
    return n.f.create_gather(n.name, n.operand(value), places, axis).result


@from_onnx("Split")
def _split_1(n: OnnxNode) -> tuple[Result, ...]:
    sizes = n.integers("split")
    if sizes is None and n.has(1):
        # In opset 1 sizes are of the element type of what is split.
        sizes = tuple(int(size) for size in n.known(1).array.reshape(-1))
    return _split(n, sizes)


@from_onnx("Split", since=13)
def _split_13(n: OnnxNode) -> tuple[Result, ...]:
    sizes = n.known_dims(1) if n.has(1) else None
    if sizes is not None and n.has_attribute("num_outputs"):
        raise UserError("expected either the input 'split' or the attribute 'num_outputs'")
    return _split(n, sizes)


def _split(n: OnnxNode, sizes: Sequence[Dim] | None) -> tuple[Result, ...]:
    """Without sizes, equal parts; from opset 18 on, the last may be smaller."""
    value = n.value(0)
    axis = n.axis(value.type.rank, 0)
    size, parts = value.type.shape[axis], n.num_outputs
    if n.integer("num_outputs", parts) != parts:
        raise UserError(f"expected {n.integer('num_outputs', parts)} outputs, got {parts}")
    if sizes is None:
        if n.opset < 18 and not is_same(size % parts, 0):
            raise UserError(
                f"expected a dimension that splits into {parts} equal parts, got {size}"
            )
        part = ceil_div(size, parts)
        ends = [least(index * part, size) for index in range(parts + 1)]
        sizes = [end - begin for begin, end in pairwise(ends)]
    else:
        fits = len(sizes) == parts and all(highest(part) >= 0 for part in sizes)
        if not fits or not is_same(sum(sizes, start=0), size):
            raise UserError(f"expected {parts} sizes with the sum {size}, got {list(sizes)}")
    results: list[Result] = []
    start: Dim = 0
    for count in sizes:
        results.append(_part(n, value, axis, start, count, 1))
        start += count
    return tuple(results)


@from_onnx("Pad")
def _pad_1(n: OnnxNode) -> Value:
    pads = n.integers("paddings") or n.integers("pads") or ()
    return _padded(n, pads, n.real("value", 0.0))


@from_onnx("Pad", since=11)
def _pad_11(n: OnnxNode) -> Value:
    rank = n.type(0).rank
    amounts = n.dims(1, signed=True)
    axes = _distinct(n.known_ints(3) if n.has(3) else range(rank), rank)
    if len(amounts) != 2 * len(axes):
        raise UserError(f"expected {2 * len(axes)} pads, got {len(amounts)}")
    pads: list[Dim] = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        pads[axis], pads[rank + axis] = amounts[index], amounts[len(axes) + index]
    return _padded(n, pads, n.known_scalar(2) if n.has(2) else 0.0)


_REPEATING = ("reflect", "edge", "wrap")
"""Modes of pads that have elements of what is padded."""


def _padded(n: OnnxNode, pads: Sequence[Dim], value: float) -> Value:
    type, rank = n.type(0), n.type(0).rank
    if len(pads) != 2 * rank:
        raise UserError(f"expected {2 * rank} pads, got {len(pads)}")
    mode = n.text("mode", "constant")
    if mode == "constant":
        if isinstance(value, int) and int(float(value)) != value:
            raise n.unsupported(f"a pad value that needs more than 53 bits ({value})")
        return _filled(n, pads, float(value))
    if mode not in _REPEATING:
        raise n.unsupported(f"mode '{mode}'")
    result: Value = n.value(0)
    for axis in range(type.rank):
        result = _repeated(n, result, axis, pads[axis], pads[rank + axis], mode)
    return result


def _filled(n: OnnxNode, pads: Sequence[Dim], fill: float) -> Value:
    """Pads of one number. What is cropped where nobody can prove that the rest lies inside is picked by indices."""
    result, remaining_pads = n.value(0), list(pads)
    for axis, size in enumerate(result.type.shape):
        begin, end = pads[axis], pads[len(pads) // 2 + axis]
        first, count = greatest(-begin, 0), size + least(begin, 0) + least(end, 0)
        if not is_inside(size, first, count, 1) and highest(count) >= 0:
            result = _part(n, result, axis, first, greatest(count, 0), 1)
            remaining_pads[axis], remaining_pads[len(pads) // 2 + axis] = (
                greatest(begin, 0),
                greatest(end, 0),
            )
    operand = n.operand(result, n.proto.input[0])
    return n.f.create_pad(n.name, operand, tuple(remaining_pads), fill).result


def _repeated(n: OnnxNode, value: Value, axis: int, begin: Dim, end: Dim, mode: str) -> Value:
    """Pads of existing elements: slices picked by indices. Negative pads crop first."""
    size = value.type.shape[axis]
    num_kept = size + least(begin, 0) + least(end, 0)
    value = _part(n, value, axis, greatest(-begin, 0), greatest(num_kept, 0), 1)
    begin, end = greatest(begin, 0), greatest(end, 0)
    if begin == end == 0:
        return value
    if highest(num_kept) <= 0:
        raise UserError(f"expected something to repeat in dimension {axis} of {n.type(0)}")
    if highest(begin + end) > 1 << 24:
        raise n.unsupported(f"a pad of {begin + end} elements with mode '{mode}'")
    parts: list[Operand] = []
    for start, count in ((-begin, begin), (0, num_kept), (num_kept, end)):
        if count == 0:
            continue
        part = value
        if start != 0:
            indices = _indices(n, start, count, num_kept, mode)
            picked = n.operand(indices.value, f"{n.name}_indices")
            part = n.f.create_gather(n.name, n.operand(value), picked, axis).result
        parts.append(n.operand(part))
    return n.f.create_concat(n.name, parts, axis).result


def _indices(n: OnnxNode, start: Dim, count: Dim, kept: Dim, mode: str) -> Numbers:
    """Which of `kept` elements the places outside of them have, `count` from `start` on."""
    places = counted(n, count)
    if mode == "edge":
        return (places + start).at_least(0).at_most(kept - 1)
    # Counted from a whole number of periods before the first element, so that nothing is negative.
    period = kept if mode == "wrap" else greatest(2 * (kept - 1), 1)
    indices = (places + start + count * period) % period
    return indices.at_most(-indices + period) if mode == "reflect" else indices


@from_onnx("Range", since=11)
def _range(n: OnnxNode) -> Value:
    for index in range(3):
        n.settle(index)
    return imported_range(n)


@from_onnx("Trilu", since=14)
def _trilu(n: OnnxNode) -> Value:
    """The triangle on and above diagonal k (or on and below it) of the last two dimensions; zeros elsewhere."""
    type = n.type(0)
    if type.rank < 2:
        raise UserError(f"expected an input of rank 2 or more, got {type}")
    zero = n.operand(full(Type(type.kind, ()), 0), f"{n.name}_zero")
    rows, columns = (counted(n, size) for size in type.shape[-2:])
    row = rows.reshaped(type.shape[-2], 1) + (_diagonal(n) if n.has(1) else 0)
    is_kept = row <= columns if n.flag("upper", True) else columns <= row
    return n.f.create_select(n.name, is_kept.operand, n.input(0), zero).result


def _diagonal(n: OnnxNode) -> Number:
    """Input 1, an integer, within limits beyond which no matrix reaches: sums with places do not wrap."""
    most = 1 << 40
    if isinstance(n.any_value(1), SymbolicTensor):
        (dim,) = n.known_dims(1)
        return dim
    if n.type(1).count != 1:
        raise UserError(f"expected one element as input 1, got {n.type(1)}")
    return Numbers(n, n.value(1)).reshaped().at_least(-most).at_most(most)


@from_onnx("EyeLike", since=9)
def _eye_like(n: OnnxNode) -> Value:
    """Ones on diagonal k, zeros elsewhere, in the shape of the input."""
    type = n.type(0)
    if type.rank != 2 or type.room > 1 << 28:
        raise n.unsupported(f"an identity like {type}")
    kind = kind_of(n.integer("dtype", 0)) if n.has_attribute("dtype") else type.kind
    rows, columns = type.shape
    first = counted(n, rows).reshaped(rows, 1) + n.integer("k", 0)
    return first.equals(counted(n, columns)).to(kind).value


def _depth(n: OnnxNode) -> tuple[Dim, ...]:
    """The depth of a one-hot tensor, which may be a float."""
    if n.kind(1).is_integer and not isinstance(n.any_value(1), Tensor):
        return n.dims(1)
    return (int(n.known_scalar(1)),)


@from_onnx("OneHot", since=9)
def _one_hot(n: OnnxNode) -> Value:
    """The second value where the position along a new axis is the index, else the first; indices may be negative."""
    f, indices, (depth,) = n.f, n.value(0), _depth(n)
    axis = n.axis(indices.type.rank + 1, -1)
    if highest(depth) < 1:
        raise UserError(f"expected a depth of at least 1, got {depth}")
    if not is_same_shape(n.type(2).shape, (2,)):
        raise UserError(f"expected two values, got {n.type(2)}")
    shape = indices.type.shape
    wide = reshape(n, convert(n, indices, ElemKind.I64), (*shape[:axis], 1, *shape[axis:]))
    index = n.operand(wide, n.proto.input[0])
    scalar = Type(ElemKind.I64, ())
    negative = f.create_lt(n.name, index, n.operand(full(scalar, 0), f"{n.name}_zero"))
    shifted = f.create_add(n.name, index, Numbers.of(n, depth, ElemKind.I64).operand)
    places = counted(n, depth).reshaped(depth, *(1,) * (len(shape) - axis))
    hot = f.create_eq(
        n.name,
        f.create_select(n.name, negative, shifted, index),
        n.operand(places.value, f"{n.name}_places"),
    )
    off, on = (reshape(n, slice_axis(n, n.value(2), 0, i, 1, 1), ()) for i in (0, 1))
    return f.create_select(n.name, hot, n.operand(on), n.operand(off)).result
