"""Type rules of instructions: operands have the types that inference finds for the node declared with an instruction.

Instructions without a node, and those of typed nodes, whose result type cannot be inferred, have rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from glowpy.core.channel_axis import resized, sliced
from glowpy.core.schema import Access, Quantized, Trait
from glowpy.core.shape import broadcast_shapes
from glowpy.core.tensor import stored
from glowpy.core.type import Shape, Type
from glowpy.graph.infer import infer_types
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import NODES
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    INSTS,
    BroadcastInst,
    ConvertInst,
    ExtractTensorInst,
    InsertTensorInst,
    SplatInst,
)
from glowpy.ir.verifier import verify_inst
from glowpy.support.symbolic import is_at_most

__all__ = ["verify_as_declared"]


def _inferred(node: type[Node], inst: Instruction) -> Iterator[str]:
    """Raises UserError where the inputs do not fit together."""
    read = [ref.value.type for ref in inst.operands if ref.access is Access.IN]
    written = [ref.value for ref in inst.operands if ref.access is Access.OUT]
    stated = inst.SCHEMA.quant is Quantized.NUMBERS and written[0].type.quant is not None
    result_type = written[0].type if stated else None
    types = infer_types(node, read, inst.attrs, result_type)
    for value, expected in zip(written, types, strict=True):
        if value.type != expected:
            yield f"%{value.name} has type {value.type}, expected {expected}"


@verify_inst(BroadcastInst, ConvertInst)
def _expanded(inst: BroadcastInst | ConvertInst) -> Iterator[str]:
    result, source = inst.result.type, inst.input.type
    if broadcast_shapes(result.shape, source.shape) != result.shape:
        yield f"{source} does not broadcast to {result}"
    elif isinstance(inst, BroadcastInst):
        yield from _keeps("result", result, resized(source, result.shape))


@verify_inst(SplatInst)
def _splat(inst: SplatInst) -> Iterator[str]:
    """Raises UserError where no element of the result's type stands for the value."""
    stored(inst.result.type, inst.value)
    yield from ()


@verify_inst(ExtractTensorInst)
def _extract(inst: ExtractTensorInst) -> Iterator[str]:
    result, source = inst.result.type, inst.input.type
    messages = list(_box(result.shape, source.shape, inst.offsets, inst.steps))
    yield from messages or _keeps(
        "result", result, sliced(source, inst.offsets, result.shape, inst.steps)
    )


@verify_inst(InsertTensorInst)
def _insert(inst: InsertTensorInst) -> Iterator[str]:
    part, whole = inst.input.type, inst.result.type
    messages = list(_box(part.shape, whole.shape, inst.offsets, (1,) * len(inst.offsets)))
    yield from messages or _keeps("input", part, sliced(whole, inst.offsets, part.shape))


def _keeps(name: str, type: Type, expected: Type) -> Iterator[str]:
    """Whether the quantization parameters are those of the elements that are moved."""
    if not type.is_empty and type.quant != expected.quant:
        yield f"{name} has type {type}, expected {expected}"


def _box(part: Shape, whole: Shape, offsets: Shape, steps: tuple[int, ...]) -> Iterator[str]:
    """Whether the elements at offset + step * index lie inside the larger tensor in every dimension."""
    if not len(part) == len(whole) == len(offsets) == len(steps):
        yield f"expected {len(whole)} dimensions, got {len(part)}, {len(offsets)} offsets and {len(steps)} steps"
        return
    for axis, (count, size, offset, step) in enumerate(
        zip(part, whole, offsets, steps, strict=True)
    ):
        if count == 0:
            continue
        last = offset + step * (count - 1)
        low, high = (offset, last) if step > 0 else (last, offset)
        if not (is_at_most(0, low) and is_at_most(high + 1, size)):
            yield f"elements {low} to {high} lie outside dimension {axis} of size {size}"


def verify_as_declared(
    nodes: Sequence[type[Node]], instructions: Sequence[type[Instruction]]
) -> None:
    """Adds the rule of every instruction that was declared with a node whose type can be inferred.

    What calls functions is checked against these, by the verifier.

    A backend's own instruction may be that of a node that all backends know, and most lower. Those with a rule keep it.
    """
    by_mnemonic = {cls.SCHEMA.mnemonic: cls for cls in (*NODES, *nodes)}
    for inst in instructions:
        node = by_mnemonic.get(inst.SCHEMA.mnemonic)
        inferred = (
            node is not None and node.SCHEMA.results and Trait.TYPED not in node.SCHEMA.traits
        )
        if node is not None and inferred and not node.SCHEMA.functions and inst not in verify_inst:
            verify_inst(inst)(partial(_inferred, node))


verify_as_declared(NODES, INSTS)
