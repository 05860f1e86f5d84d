"""Rules of indexed access."""

from __future__ import annotations

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import gathered
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import GatherNode
from glowpy.ir.insts_gen import GatherInst
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
    wide = indices.array.astype(np.int64)
    inside = np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)
    result.array[...] = np.take(input.array, inside, axis=axis)
