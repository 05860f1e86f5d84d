"""Rules of indexed access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import gathered
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import DynamicSliceNode, GatherNode
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import DynamicSliceInst, GatherInst
from glowpy.ops.operands import expect_axis
from glowpy.support.errors import UserError

__all__: list[str] = []

INDEX_KINDS = (ElemKind.I32, ElemKind.I64)


@infer(GatherNode)
def _infer_gather(input: Type, indices: Type, *, axis: int) -> Type:
    size = input.shape[expect_axis(axis, input.rank)]
    if indices.kind not in INDEX_KINDS:
        raise UserError(f"expected indices of kind i32 or i64, got {indices}")
    if size == 0 and indices.count:
        raise UserError(f"expected elements to gather along dimension {axis}, got {input}")
    return gathered(input, axis, indices.shape)


@interpret(GatherInst)
def _gather(result: Tensor, input: Tensor, indices: Tensor, *, axis: int) -> None:
    if result.array.size == 0:
        return
    size = input.type.extents[axis]
    if size == 0:  # of an open dimension
        result.array[...] = 0
        return
    wide = indices.array.astype(np.int64)
    inside = np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)
    result.array[...] = np.take(input.array, inside, axis=axis)


@verify(DynamicSliceNode)
def _verify_dynamic_slice(n: DynamicSliceNode) -> Iterator[str]:
    input, axis = n.input.type, expect_axis(n.axis, n.input.type.rank)
    if n.start.type != Type(ElemKind.I64, (1,)):
        yield f"expected start of type i64[1], got {n.start.type}"
    shape = (*input.shape[:axis], *n.type.shape[axis : axis + 1], *input.shape[axis + 1 :])
    if n.type != Type(input.kind, shape):
        yield f"result has type {n.type}, expected that of {input} but for dimension {axis}"
    if n.step == 0:
        yield "expected a step other than 0"


@interpret(DynamicSliceInst)
def _dynamic_slice(result: Tensor, input: Tensor, start: Tensor, *, axis: int, step: int) -> None:
    if result.array.size == 0:
        return
    last, count = input.type.extents[axis] - 1, result.type.extents[axis]
    if last < 0:
        result.array[...] = 0
        return
    first = min(max(int(start.array[0]), 0), last)
    places = np.clip(first + step * np.arange(count), 0, last)
    result.array[...] = np.take(input.array, places, axis=axis)
