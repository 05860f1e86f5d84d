"""Integers for the range that floats have when the network runs: bit for bit as ONNX defines DynamicQuantizeLinear.

Nothing but zeros has steps of 1, as in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import DynamicQuantizeNode
from tests.ops.harness import Case, Row, check_row, on_every_backend


def quantized(x: Array) -> list[Array]:
    """Stored integers, scale and zero point; each operation is rounded to f32."""
    nothing, steps = np.float32(0), np.float32(255)
    low, high = np.minimum(x.min(), nothing), np.maximum(x.max(), nothing)
    scale = (high - low) / steps if high > low else np.float32(1)
    zero = np.clip(np.rint(nothing - low / scale), 0, 255)
    stored = np.clip(np.rint(x / scale) + zero, 0, 255)
    return [stored.astype(np.uint8), np.asarray(scale), np.asarray(zero, np.uint8)]


def _cases(kind: ElemKind) -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for shape in ((6, 7), (), (2, 3, 5), (1, 300)):
        for low, high in ((-1, 2), (3, 9), (-5, -1e-3), (0, 0), (-1e30, 1e30)):
            x = rng.uniform(low, high, shape).astype(kind.dtype)
            yield Case([x], quantized(x))


ROWS = [Row(DynamicQuantizeNode, (ElemKind.F32,), _cases)]


@on_every_backend(ROWS)
def test_dynamic_quantize(row: Row, backend: str) -> None:
    check_row(row, backend)
