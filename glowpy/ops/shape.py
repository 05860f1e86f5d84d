"""Rules of the operators that move elements, and of the instructions that manage memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import (
    concatenated,
    keeps_parameters,
    permuted,
    reshaped,
    resized,
    sliced,
)
from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcasts_to, is_same_shape, normalize_axis
from glowpy.core.tensor import Tensor, stored
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import (
    BitCastNode,
    BroadcastNode,
    ConcatNode,
    ExtentsNode,
    PadNode,
    ReshapeNode,
    SaveNode,
    SliceNode,
    SplatNode,
    TransposeNode,
)
from glowpy.graph.parts import is_inside, part_along
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import (
    BitCastInst,
    BroadcastInst,
    CopyInst,
    ExtentsInst,
    ExtractTensorInst,
    InsertTensorInst,
    SplatInst,
    TransposeInst,
)
from glowpy.irgen import IRGen, irgen
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, greatest, highest, least

__all__: list[str] = []


@irgen(SaveNode)
def _irgen_save(g: IRGen, n: SaveNode) -> None:
    """A variable that has more room gets the elements at the beginning along each axis."""
    memory, value = g.value(n.output).base, g.saved(n)
    if value is g.value(n.output):
        return  # it stays
    if memory.type == value.type:
        g.ir.create_copy(memory, value)
    else:
        g.ir.create_insert_tensor(memory, value, (0,) * value.type.rank)


@interpret(CopyInst)
def _copy(result: Tensor, input: Tensor) -> None:
    result.array[...] = input.array


@interpret(SplatInst)
def _splat(result: Tensor, *, value: float) -> None:
    result.array[...] = stored(result.type, value)


@verify(SplatNode)
def _verify_splat(n: SplatNode) -> Iterator[str]:
    """Raises UserError where no element of the result's type stands for the value."""
    stored(n.type, n.value)
    yield from ()


# Reshape: the same memory under another type.


@verify(ReshapeNode)
def _verify_reshape(n: ReshapeNode) -> Iterator[str]:
    if n.type.kind is not n.input.type.kind:
        yield f"result has kind {n.type.kind.value}, expected {n.input.type.kind.value}"
    if n.type.count != n.input.type.count:
        yield f"result {n.type} has {n.type.count} elements, expected {n.input.type.count}"
    elif not keeps_parameters(n.input.type, 0, n.type):
        yield f"result has type {n.type}, expected {reshaped(n.input.type, n.type.shape)}"


@irgen(ReshapeNode)
def _irgen_reshape(g: IRGen, n: ReshapeNode) -> None:
    g.define(n.result, g.ir.create_view(n.name, n.type, g.value(n.input), 0).value)


@derivative(ReshapeNode)
def _differentiate_reshape(f: Function, n: ReshapeNode, g: NodeValue) -> list[Operand | None]:
    return [f.create_reshape(n.name, n.input.type, g)]


# Extents.


@infer(ExtentsNode)
def _infer_extents(*, values: Sequence[Dim]) -> Type:
    return Type(ElemKind.I64, (len(values),))


@interpret(ExtentsInst)
def _extents(result: Tensor, *, values: Sequence[int]) -> None:
    result.array[...] = values


# Transpose.


@infer(TransposeNode)
def _infer_transpose(input: Type, *, shuffle: Sequence[int]) -> Type:
    if sorted(shuffle) != list(range(input.rank)):
        raise UserError(
            f"expected shuffle to be a permutation of {input.rank} dimensions, got {list(shuffle)}"
        )
    return permuted(input, shuffle)


@interpret(TransposeInst)
def _transpose(result: Tensor, input: Tensor, *, shuffle: Sequence[int]) -> None:
    result.array[...] = np.transpose(input.array, shuffle)


@derivative(TransposeNode)
def _differentiate_transpose(f: Function, n: TransposeNode, g: NodeValue) -> list[Operand | None]:
    return [f.create_transpose(n.name, g, tuple(int(axis) for axis in np.argsort(n.shuffle)))]


# Broadcast.


@verify(BroadcastNode)
def _verify_broadcast(n: BroadcastNode) -> Iterator[str]:
    if n.type.kind is not n.input.type.kind or n.type.rank != n.input.type.rank:
        yield f"result has type {n.type}, expected the kind and rank of {n.input.type}"
        return
    if not broadcasts_to(n.input.type.shape, n.type.shape):
        yield f"{n.input.type} does not broadcast to {n.type}"
    elif n.type.quant != n.input.type.quant:
        yield f"result has type {n.type}, expected {resized(n.input.type, n.type.shape)}"


@interpret(BroadcastInst)
def _broadcast(result: Tensor, input: Tensor) -> None:
    result.array[...] = input.array


@derivative(BroadcastNode)
def _differentiate_broadcast(f: Function, n: BroadcastNode, g: NodeValue) -> list[Operand | None]:
    return [g]


# Concat: every input is inserted at its place.


@infer(ConcatNode)
def _infer_concat(inputs: Sequence[Type], *, axis: int) -> Type:
    if not inputs:
        raise UserError("expected at least one input")
    first = inputs[0]
    axis = normalize_axis(axis, first.rank)
    for other in inputs:
        same = other.kind is first.kind and other.rank == first.rank
        if not same or not is_same_shape(_beside(first, axis), _beside(other, axis)):
            raise UserError(
                f"expected inputs that differ only in dimension {axis}, got {first} and {other}"
            )
    return concatenated(inputs, axis)


def _beside(type: Type, axis: int) -> Shape:
    """The other dimensions."""
    return (*type.shape[:axis], *type.shape[axis + 1 :])


@irgen(ConcatNode)
def _irgen_concat(g: IRGen, n: ConcatNode) -> None:
    """Each input writes its part. A pass removes the splat, which the parts cover."""
    result = g.alloc(n.result)
    g.ir.create_splat(result, 0.0)
    offsets: list[Dim] = [0] * n.type.rank
    for operand in n.inputs:
        g.ir.create_insert_tensor(result, g.value(operand), tuple(offsets))
        offsets[n.axis] += operand.type.shape[n.axis]


@interpret(InsertTensorInst)
def _insert_tensor(result: Tensor, input: Tensor, *, offsets: Sequence[int]) -> None:
    window = tuple(
        slice(start, start + size) for start, size in zip(offsets, input.type.shape, strict=True)
    )
    result.array[window] = input.array


@derivative(ConcatNode)
def _differentiate_concat(f: Function, n: ConcatNode, g: NodeValue) -> list[Operand | None]:
    gradients: list[Operand | None] = []
    start: Dim = 0
    for operand in n.inputs:
        count = operand.type.shape[n.axis]
        gradients.append(part_along(f, n.name, g, n.axis, start, count))
        start += count
    return gradients


# Slice.


@verify(SliceNode)
def _verify_slice(n: SliceNode) -> Iterator[str]:
    ranks = {n.input.type.rank, n.type.rank, len(n.starts), len(n.steps)}
    if len(ranks) > 1 or n.type.kind is not n.input.type.kind:
        yield f"result {n.type}, starts and steps do not have the kind and rank of {n.input.type}"
        return
    inside = True
    for axis, (size, count, start, step) in enumerate(
        zip(n.input.type.shape, n.type.shape, n.starts, n.steps, strict=True)
    ):
        if not is_inside(size, start, count, step):
            inside = False
            last = start + (count - 1) * step
            yield f"elements {start} to {last} lie outside dimension {axis} of {n.input.type}"
    if inside and n.type != (expected := sliced(n.input.type, n.starts, n.type.shape, n.steps)):
        yield f"result has type {n.type}, expected {expected}"


@irgen(SliceNode)
def _irgen_slice(g: IRGen, n: SliceNode) -> None:
    g.ir.create_extract_tensor(g.alloc(n.result), g.value(n.input), n.starts, n.steps)


@interpret(ExtractTensorInst)
def _extract_tensor(
    result: Tensor, input: Tensor, *, offsets: Sequence[int], steps: Sequence[int]
) -> None:
    indices = [
        start + step * np.arange(count)
        for start, step, count in zip(offsets, steps, result.type.extents, strict=True)
    ]
    result.array[...] = input.array[np.ix_(*indices)] if indices else input.array


@derivative(SliceNode)
def _differentiate_slice(f: Function, n: SliceNode, g: NodeValue) -> list[Operand | None]:
    """The gradient where it was taken from, with zeros around, and between for steps."""
    sizes, counts, rank = n.input.type.shape, n.type.shape, n.type.rank
    # An empty slice may begin anywhere.
    starts = [0 if c == 0 else s for s, c in zip(n.starts, counts, strict=True)]
    if any(step < 0 for step in n.steps):
        last = [
            c - 1 if step < 0 and c != 0 else 0 for step, c in zip(n.steps, counts, strict=True)
        ]
        turns = [1 if step > 0 else -1 for step in n.steps]
        g = f.create_slice(n.name, g.type, g, tuple(last), tuple(turns)).result
        starts = [s + step * end for s, step, end in zip(starts, n.steps, last, strict=True)]
    spans = [count * abs(step) for count, step in zip(counts, n.steps, strict=True)]
    if any(abs(step) != 1 for step in n.steps):
        columns = [extent for count in counts for extent in (count, 1)]
        gaps = [gap for step in n.steps for gap in (0, abs(step) - 1)]
        column = f.create_reshape(n.name, g.type.with_shape(tuple(columns)), g)
        spread = f.create_pad(n.name, column, (*[0] * 2 * rank, *gaps), 0.0)
        g = f.create_reshape(n.name, g.type.with_shape(tuple(spans)), spread).result
    ends = [size - s - span for size, s, span in zip(sizes, starts, spans, strict=True)]
    return [f.create_pad(n.name, g, (*starts, *ends), 0.0)]


# Pad: a splat with the input inserted, or a slice where pads are negative.


@infer(PadNode)
def _infer_pad(input: Type, *, pads: Sequence[Dim], value: float) -> Type:
    if len(pads) != 2 * input.rank:
        raise UserError(f"expected {2 * input.rank} pads, got {len(pads)}")
    shape = [size + pads[i] + pads[input.rank + i] for i, size in enumerate(input.shape)]
    if any(highest(size) < 0 for size in shape):
        raise UserError(f"expected pads that leave something of {input}, got {list(pads)}")
    result = resized(_kept(input, pads), shape)
    stored(result, value)
    return result


def _kept(input: Type, pads: Sequence[Dim]) -> Type:
    """Returns the type of the part of `input` that negative pads leave."""
    begins, ends = pads[: input.rank], pads[input.rank :]
    shape = [
        size + least(b, 0) + least(e, 0)
        for size, b, e in zip(input.shape, begins, ends, strict=True)
    ]
    return sliced(input, [greatest(-b, 0) for b in begins], shape)


@irgen(PadNode)
def _irgen_pad(g: IRGen, n: PadNode) -> None:
    rank = n.type.rank
    begins = n.pads[:rank]
    source, inside = g.value(n.input), _kept(n.input.type, n.pads)
    if inside != n.input.type:
        source = g.ir.create_alloc(f"{n.name}_kept", inside).value
        g.ir.create_extract_tensor(
            source, g.value(n.input), tuple(greatest(-b, 0) for b in begins), (1,) * rank
        )
    result = g.alloc(n.result)
    g.ir.create_splat(result, n.value)
    if not inside.is_empty:
        g.ir.create_insert_tensor(result, source, tuple(greatest(b, 0) for b in begins))


@derivative(PadNode)
def _differentiate_pad(f: Function, n: PadNode, g: NodeValue) -> list[Operand | None]:
    """Cropping what was padded, padding what was cropped."""
    return [f.create_pad(n.name, g, tuple(-pad for pad in n.pads), 0.0)]


# The same bits in another kind (ONNX BitCast).


@verify(BitCastNode)
def _verify_bit_cast(n: BitCastNode) -> Iterator[str]:
    if n.type.shape != n.input.type.shape or n.type.kind.size != n.input.type.kind.size:
        yield f"result has type {n.type}, expected elements as wide as those of {n.input.type}"
    if ElemKind.BOOL in (n.type.kind, n.input.type.kind):
        yield f"expected numbers, got {n.input.type} and {n.type}"


@interpret(BitCastInst)
def _bit_cast(result: Tensor, input: Tensor) -> None:
    result.array[...] = input.array.reshape(-1).view(result.array.dtype).reshape(input.array.shape)
