"""Import of matrix products with a factor, transposed operands or an activation."""

from __future__ import annotations

from glowpy.core.shape import is_same_shape
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import transpose
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.activation import activated
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("FusedMatMul", "TransposeMatMul", domain=CONTRIB)
def _fused_matmul(n: OnnxNode) -> Value:
    """The product of operands that may be transposed, times alpha."""
    product = standard(n, "MatMul", [_turned(n, 0, "A"), _turned(n, 1, "B")])
    alpha = n.real("alpha", 1.0)
    if alpha == 1.0:
        return product
    factor = n.f.create_splat(f"{n.name}_alpha", Type(product.type.kind, ()), alpha)
    return n.f.create_mul(n.name, n.operand(product), factor).result


def _turned(n: OnnxNode, index: int, letter: str) -> Value:
    """An operand with its first dimension after the batch if `transBatch` is set, then its last two exchanged."""
    value = n.value(index)
    order = list(range(value.type.rank))
    if n.flag(f"transBatch{letter}") and len(order) > 2:
        order = [*order[1:-1], 0, order[-1]]
    if n.flag(f"trans{letter}") and len(order) > 1:
        order[-2:] = order[-1], order[-2]
    return transpose(n, value, order)


@from_onnx("FusedGemm", domain=CONTRIB)
def _fused_gemm(n: OnnxNode) -> Value:
    product = standard(n, "Gemm", [n.value(0), n.value(1), n.value(2) if n.has(2) else None])
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [n.real(name, 0.0) for name in names if n.has_attribute(name)]
    return activated(n, product, parameters)


@from_onnx("GemmFastGelu", domain=CONTRIB)
def _gemm_fast_gelu(n: OnnxNode) -> NodeValue:
    product = n.operand(standard(n, "MatMul", [n.value(0), n.value(1)]))
    if n.has(2):
        if not is_same_shape(n.type(2).shape, product.type.shape[-1:]):
            raise UserError(f"expected a bias for the columns of {product.type}, got {n.type(2)}")
        product = n.f.create_add(n.name, product, n.input(2)).result
    return n.f.create_gelu(n.name, product, approximate=True).result
