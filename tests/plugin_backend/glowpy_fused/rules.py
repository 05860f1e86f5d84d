"""What the backend's own operators mean: the type of the node's result, and the instructions in numpy."""

from __future__ import annotations

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.support.errors import UserError
from glowpy_fused.insts_gen import FusedScaledSoftmaxInst, HardSwishInst
from glowpy_fused.nodes_gen import FusedScaledSoftmaxNode

__all__: list[str] = []


@infer(FusedScaledSoftmaxNode)
def _infer_scaled_softmax(input: Type, *, scale: float) -> Type:
    del scale
    if input.rank == 0:
        raise UserError(f"expected at least one dimension, got {input}")
    return input


@interpret(FusedScaledSoftmaxInst)
def _scaled_softmax(result: Tensor, input: Tensor, *, scale: float) -> None:
    scaled = input.array * np.float32(scale)
    powers = np.exp(scaled - scaled.max(-1, keepdims=True, initial=-np.inf))
    result.array[...] = powers / powers.sum(-1, keepdims=True)


@interpret(HardSwishInst)
def _hard_swish(result: Tensor, input: Tensor) -> None:
    result.array[...] = input.array * np.clip(input.array / 6 + 0.5, 0, 1)
