"""What the operators mean: their types, and what they compute in numpy."""

from __future__ import annotations

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.support.errors import UserError
from glowpy_series.insts_gen import SeriesRecordInst
from glowpy_series.nodes_gen import SeriesRecordNode


@infer(SeriesRecordNode)
def _infer_record(input: Type, *, reverse: bool) -> Type:
    del reverse
    if input.rank == 0:
        raise UserError(f"expected at least one dimension, got {input}")
    return input


@interpret(SeriesRecordInst)
def _record(result: Tensor, input: Tensor, reverse: bool) -> None:
    series = np.flip(input.array, -1) if reverse else input.array
    records = np.maximum.accumulate(series, axis=-1)
    result.array[...] = np.flip(records, -1) if reverse else records
