"""Matrix products on integers without a profile: activations get the range that they have when the network runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import sum_type
from glowpy.core.tensor import Tensor
from glowpy.core.type import Quant, Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode, DynamicQuantizeNode, FullyConnectedNode
from glowpy.opt.products import Product, no_exact_sum
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.convert import integers_of
from glowpy.quantization.islands import chosen_to_keep, not_finite
from glowpy.quantization.optimized import optimize, optimized
from glowpy.quantization.schema import quant_of_weights
from glowpy.support.limits import within_limits

__all__ = ["quantize_dynamic"]

_ONE = Quant((1.0,), (0,))


@dataclass(frozen=True)
class _Stored:
    """Weights as integers, the sums of their columns, and the scale of each column."""

    integers: Constant
    sums: Constant
    scales: Constant


@within_limits
def quantize_dynamic(model: Module | Function, *, keep: tuple[str, ...] = ()) -> Conversion:
    """A network whose matrix products with known weights are exact sums of integers.

    The left side is quantized to u8 by the range that all of it has at run time, as ONNX's DynamicQuantizeLinear does;
    products that read the same value share that. Weights are i8, symmetric, with a scale for each column. All else
    stays in f32: convolutions, too, and weights with NaNs or infinities.

    Args:
        model: The function, or a module with one; not changed.
        keep: Products that stay in floats: their names in the optimized graph or in the user's model, or their kinds.

    Raises UserError for names in `keep` that no product has.
    """
    f = optimized(model)
    before = bytes_of_constants(f)
    products = {node: g for g, node in f.all_nodes if isinstance(node, Product)}
    reasons: dict[Node, str] = {node: reason for node in products if (reason := _refusal(node))}
    reasons |= chosen_to_keep(products, keep)
    ranges: dict[NodeValue, DynamicQuantizeNode] = {}
    stored: dict[Constant, _Stored] = {}
    for node, g in products.items():
        if node in reasons:
            continue
        value = node.inputs[0]
        with g.replacing(node):
            if value not in ranges:
                ranges[value] = g.create_dynamic_quantize(f"{value.name}_stored", value)
            constant = node.inputs[1].constant
            assert constant is not None
            if constant not in stored:
                stored[constant] = _stored(f.module, constant)
            result = _product(g, node, ranges[value], stored[constant])
        node.result.replace_all_uses_with(result)
    nodes = tuple(outcome_of(node, reasons.get(node, ""), g) for node, g in products.items())
    for g in (*f.called, f):
        g.erase_dead([node for node in g.nodes if node in products and node not in reasons])
    optimize(f)
    return Conversion(f.module, nodes, before, bytes_of_constants(f))


def _refusal(n: Product) -> str:
    """Why a product stays in floats; empty if it need not."""
    weights = n.inputs[1]
    if isinstance(n, ConvolutionNode):
        return "ranges of convolutions are not found at run time, but by --profile"
    if n.type.kind is not ElemKind.F32:
        return f"it computes with {n.type.kind.value}"
    if weights.constant is None or not weights.constant.has_elements or n.inputs[0].constant:
        return "it multiplies no known matrix by what is computed"
    if weights.type.rank != 2 or n.type.is_empty:
        return "its right side is no matrix, or it has no elements"
    data = Type(ElemKind.U8, n.inputs[0].type.shape, _ONE)
    stored = Type(ElemKind.I8, weights.type.shape, _ONE)
    return no_exact_sum(n, data, stored) or not_finite(weights)


def _stored(module: Module, weights: Constant) -> _Stored:
    """The integers of weights, their sums and their scales for each column."""
    matrix = weights.tensor.array
    quant = quant_of_weights(matrix, ElemKind.I8, axis=1)
    array = integers_of(Type(ElemKind.I8, matrix.shape, quant), matrix)
    right = module.create_constant(
        weights.name, Tensor(Type(ElemKind.I8, matrix.shape, _ONE), array)
    )
    totals = module.create_constant(f"{weights.name}_sums", array.sum(0, dtype=np.int32))
    scales = np.broadcast_to(np.array(quant.scales, np.float32), matrix.shape[-1])
    return _Stored(right, totals, module.create_constant(f"{weights.name}_scales", scales))


def _product(f: Function, n: Product, left: DynamicQuantizeNode, weights: _Stored) -> NodeValue:
    """Sums of stored integers, less the zero point times the sums of the weights, times both scales."""
    wide = Type(ElemKind.I32, n.type.shape)
    steps = f.create_storage_cast(n.name, Type(ElemKind.U8, left.type.shape, _ONE), left.result)
    sums = sum_type(steps.type, weights.integers.type, 1, n.type.shape)
    product = f.create_mat_mul(n.name, steps, weights.integers, result_type=sums)
    excess = f.create_mul(
        n.name, weights.sums, f.create_convert(n.name, Type(ElemKind.I32, ()), left.zero)
    )
    exact = f.create_sub(n.name, f.create_storage_cast(n.name, wide, product), excess)
    scale = f.create_mul(n.name, weights.scales, left.scale)
    floats = f.create_convert(n.name, Type(ElemKind.F32, n.type.shape), exact)
    result = f.create_mul(n.name, floats, scale).result
    if isinstance(n, FullyConnectedNode):
        return f.create_add(n.name, result, n.bias).result
    return result
