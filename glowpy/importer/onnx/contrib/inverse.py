"""Import of Inverse: small matrices by elimination, one step for each row."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import broadcast, concat, convert, full, reshape, slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

__all__: list[str] = []

MAX_ROWS = 16
"""Larger matrices are refused: the steps are nodes, about a dozen for each row."""


@from_onnx("Inverse", domain=CONTRIB)
def _inverse(n: OnnxNode) -> Value:
    """Halves in f32."""
    type = n.type(0)
    if type.rank < 2 or not is_same_shape(type.shape[-1:], type.shape[-2:-1]):
        raise UserError(f"expected square matrices, got {type}")
    rows = type.extent(-1)
    if rows > MAX_ROWS:
        raise n.unsupported(f"the inverse of matrices of more than {MAX_ROWS} rows ({type})")
    kind = ElemKind.F32 if type.kind.is_half else type.kind
    batch = product(type.shape[:-2])
    left = reshape(n, convert(n, n.value(0), kind), (batch, rows, rows))
    right = broadcast(n, Tensor.of(np.eye(rows, dtype=kind.dtype)), (batch, rows, rows))
    both = n.operand(concat(n, [left, right], 2))
    for step in range(rows):
        both = _eliminated(n, both, step)
    return convert(n, reshape(n, slice_axis(n, both, 2, rows, rows, 1), type.shape), type.kind)


def _eliminated(n: OnnxNode, both: NodeValue, step: int) -> NodeValue:
    """Column `step` turned into a unit vector by that of the rows left whose element in it is the largest.

    Gauss-Jordan elimination with partial pivoting, of the matrices and the identity beside them.
    """
    f, rows = n.f, both.type.extent(1)
    zero = n.operand(full(Type(both.type.kind, ()), 0), f"{n.name}_zero")
    none = n.operand(full(Type(both.type.kind, ()), -1), f"{n.name}_none")
    numbers = np.arange(rows, dtype=np.int64).reshape(1, rows, 1)
    left = n.operand(Tensor.of(numbers >= step), f"{n.name}_left")
    column = n.operand(slice_axis(n, both, 2, step, 1, 1))
    sizes = f.create_select(n.name, left, f.create_abs(n.name, column), none)
    place = f.create_arg_max(n.name, sizes, 1).result
    chosen = f.create_eq(n.name, n.operand(Tensor.of(numbers), f"{n.name}_rows"), place)
    pivot = f.create_reduce_add(n.name, f.create_select(n.name, chosen, both, zero), (1,)).result
    unit = f.create_div(n.name, pivot, n.operand(slice_axis(n, pivot, 2, step, 1, 1)))
    row = n.operand(slice_axis(n, both, 1, step, 1, 1))
    swapped = f.create_select(n.name, chosen, row, both).result
    factor = n.operand(slice_axis(n, swapped, 2, step, 1, 1))
    rest = f.create_sub(n.name, swapped, f.create_mul(n.name, factor, unit))
    own = n.operand(Tensor.of(numbers == step), f"{n.name}_own")
    return f.create_select(n.name, own, unit, rest).result
