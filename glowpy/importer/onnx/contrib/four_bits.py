"""Import of products with weights of 4 bits that name one of 16 levels: those of bitsandbytes, FP4 and NF4.

The levels of NF4 are quantiles of the normal distribution (Dettmers et al. 2023); FP4 has a sign, two bits of exponent
and one of mantissa, divided by its largest number.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.importer.kit.moves import convert
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import ceil_div

__all__ = ["FOUR_BIT_LEVELS"]

_FP4 = [0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip

FOUR_BIT_LEVELS = (
    np.array([*_FP4, *(-level for level in _FP4)], np.float32),
    np.array(_NF4, np.float32),
)
"""The number for each code, in parts of the largest magnitude of its block: by the attribute `quant_type`."""


@from_onnx("MatMulBnb4", domain=CONTRIB)
def _matmul_bnb4(n: OnnxNode) -> Value:
    """A times the transpose of N rows of K weights, in blocks across rows; the first of two is in the high bits."""
    depth, columns, block = (n.integer(name, 0) for name in ("K", "N", "block_size"))
    form = n.integer("quant_type", 0)
    n.integer("training_mode", 0)  # says what a gradient needs
    if not n.flag("transB", True):
        raise n.unsupported("transB 0")
    if form not in (0, 1) or block < 16 or block & (block - 1):
        raise UserError(
            f"expected quant_type 0 or 1 and a power of two from 16 on as block_size, got {form}, {block}"
        )
    if min(depth, columns) < 1:
        raise UserError(f"expected K and N of at least 1, got {depth} and {columns}")
    codes, largest, count = n.known(1), n.known(2), depth * columns
    expected = ceil_div(count, 2), ceil_div(count, block)
    if (codes.type.count, largest.type.count) != expected or codes.type.kind is not ElemKind.U8:
        raise UserError(
            f"expected {expected[0]} bytes and {expected[1]} magnitudes, got {codes.type} and {largest.type}"
        )
    levels = FOUR_BIT_LEVELS[form]

    def weights(packed: Array, magnitudes: Array) -> Array:
        pairs = np.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], 1)
        factors = np.repeat(magnitudes.reshape(-1).astype(np.float32), block)[:count]
        rows = (levels[pairs.reshape(-1)[:count]] * factors).reshape(columns, depth)
        return np.ascontiguousarray(rows.T)

    type = Type(ElemKind.F32, (depth, columns))
    tensor = Tensor.derived(type, f"bnb4 {form} {block}", [codes, largest], weights)
    product = standard(n, "MatMul", [convert(n, n.value(0), ElemKind.F32), tensor])
    return convert(n, product, n.type(0).kind)
