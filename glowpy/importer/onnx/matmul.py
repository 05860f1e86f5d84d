"""Import of matrix products: MatMul and Gemm."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcasts_to, is_same, is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape, transpose
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__: list[str] = []


@from_onnx("MatMul")
def _matmul(n: OnnxNode) -> Value:
    """As numpy: a vector is a row on the left, a column on the right, and its dimension vanishes."""
    lhs, rhs = n.value(0), n.value(1)
    if 0 in (lhs.type.rank, rhs.type.rank):
        raise UserError(f"expected inputs of rank 1 or more, got {lhs.type} and {rhs.type}")
    wide_lhs = reshape(n, lhs, (1, *lhs.type.shape)) if lhs.type.rank == 1 else lhs
    wide_rhs = reshape(n, rhs, (*rhs.type.shape, 1)) if rhs.type.rank == 1 else rhs
    product = n.f.create_mat_mul(
        n.name, n.operand(wide_lhs, n.proto.input[0]), n.operand(wide_rhs, n.proto.input[1])
    )
    *batch, rows, columns = product.type.shape
    rows_kept = [rows] if lhs.type.rank > 1 else []
    columns_kept = [columns] if rhs.type.rank > 1 else []
    return reshape(n, product.result, (*batch, *rows_kept, *columns_kept))


@from_onnx("Gemm")
def _gemm(n: OnnxNode) -> Value:
    """The product times alpha plus C times beta; a fully connected layer where C is a row and both factors are 1."""
    for index in (0, 1):
        if n.type(index).rank != 2:
            raise UserError(f"expected a matrix as input {index}, got {n.type(index)}")
    lhs = transpose(n, n.value(0), (1, 0)) if n.flag("transA") else n.value(0)
    rhs = transpose(n, n.value(1), (1, 0)) if n.flag("transB") else n.value(1)
    if not is_same(lhs.type.shape[1], rhs.type.shape[0]):
        raise UserError(f"expected matrices that fit, got {lhs.type} times {rhs.type}")
    shape = (lhs.type.shape[0], rhs.type.shape[1])
    alpha, beta = n.real("alpha", 1.0), n.real("beta", 1.0)
    left, right = n.operand(lhs, n.proto.input[0]), n.operand(rhs, n.proto.input[1])
    kind = left.type.kind
    if kind.is_integer and not (alpha.is_integer() and beta.is_integer()):
        return _gemm_of_integers(n, left, right, alpha, beta)
    row = _row(n, shape)
    if row is not None and alpha == beta == 1.0:
        return n.f.create_fully_connected(
            n.name, left, right, n.operand(row, n.proto.input[2])
        ).result
    product = _scaled(n, n.f.create_mat_mul(n.name, left, right).result, alpha)
    if not n.has(2) or beta == 0.0:
        return product
    _check_addend(n, shape)
    return n.f.create_add(n.name, product, _scaled(n, n.input(2), beta)).result


def _gemm_of_integers(
    n: OnnxNode, lhs: NodeValue, rhs: NodeValue, alpha: float, beta: float
) -> Value:
    """Factors that are no integers: their products are computed in f64, and the sum is truncated."""
    product = n.operand(convert(n, n.f.create_mat_mul(n.name, lhs, rhs).result, ElemKind.F64))
    total = _scaled(n, product, alpha)
    if n.has(2) and beta:
        _check_addend(n, (product.type.shape[0], product.type.shape[1]))
        addend = n.operand(convert(n, n.value(2), ElemKind.F64))
        total = n.f.create_add(n.name, total, _scaled(n, addend, beta)).result
    return convert(n, total, lhs.type.kind)


def _check_addend(n: OnnxNode, shape: tuple[Dim, Dim]) -> None:
    """C broadcasts; below opset 7 only if the attribute `broadcast` says so."""
    type = n.type(2)
    if n.opset < 7 and not n.flag("broadcast") and not is_same_shape(type.shape, shape):
        raise UserError(f"expected C of shape {list(shape)} without 'broadcast', got {type}")
    if not broadcasts_to(type.shape, shape):
        raise UserError(f"expected C to broadcast to {list(shape)}, got {type}")


def _row(n: OnnxNode, shape: tuple[Dim, Dim]) -> Value | None:
    """C as a vector, if it is the same for every row."""
    if not n.has(2):
        return None
    value = n.value(2)
    _check_addend(n, shape)
    if value.type.shape in ((shape[1],), (1, shape[1])):
        return reshape(n, value, (shape[1],))
    if isinstance(value, Tensor) and value.splat_value is not None:
        return Tensor.splat(value.type.with_shape((shape[1],)), value.splat_value)
    return None


def _scaled(n: OnnxNode, value: NodeValue, factor: float) -> NodeValue:
    if factor == 1.0:
        return value
    scale = n.f.create_splat(f"{n.name}_scale", Type(value.type.kind, ()), factor)
    return n.f.create_mul(n.name, value, scale).result


@from_onnx("Det", since=11)
def _det(n: OnnxNode) -> Value:
    return n.f.create_determinant(n.name, n.input(0)).result
