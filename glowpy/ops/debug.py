"""Rules of operators that look at values."""

from __future__ import annotations

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.histogram import Histogram
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import QuantizationProfileNode
from glowpy.ir.insts_gen import QuantizationProfileInst
from glowpy.support.errors import UserError

__all__: list[str] = []


@infer(QuantizationProfileNode)
def _infer_quantization_profile(input: Type, *, bins: int) -> tuple[Type, Type, Type]:
    if input.kind is not ElemKind.F32:
        raise UserError(f"expected input of kind f32, got {input}")
    if bins < 2 or bins & (bins - 1):
        raise UserError(f"expected a power of two bins, at least 2, got {bins}")
    return Type(ElemKind.I64, (bins,)), Type(ElemKind.F32, (2,)), Type(ElemKind.I64, (4,))


@interpret(QuantizationProfileInst)
def _quantization_profile(
    result: Tensor, range: Tensor, grid: Tensor, input: Tensor, *, bins: int
) -> None:
    finite = input.array[np.isfinite(input.array)]
    histogram = Histogram.of(finite, bins)
    result.array[...] = histogram.counts
    low, high = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    range.array[...] = low + 0.0, high + 0.0  # of both zeros the positive one
    counts = np.count_nonzero(np.isnan(input.array)), np.count_nonzero(np.isinf(input.array))
    grid.array[...] = histogram.exponent, histogram.first, *counts
