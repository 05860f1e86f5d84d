"""Rules of normalisation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.shape import broadcasts_to, is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import Constant, NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import (
    BatchNormalizationNode,
    LayerNormalizationNode,
    LocalResponseNormalizationNode,
    LogSoftmaxNode,
    SoftmaxNode,
)
from glowpy.ir.insts_gen import LocalResponseNormalizationInst, LogSoftmaxInst, SoftmaxInst
from glowpy.lower import lower
from glowpy.ops.elementwise import scalar
from glowpy.ops.operands import (
    accumulable,
    expect_axes,
    expect_axis,
    expect_floats,
    expect_same_kind,
    widened,
)
from glowpy.ops.term import Term
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


# Batch normalisation (ONNX BatchNormalization in inference mode).


@infer(BatchNormalizationNode)
def _infer_batch_normalization(
    input: Type, scale: Type, bias: Type, mean: Type, variance: Type, *, axis: int, epsilon: float
) -> Type:
    del epsilon
    expect_floats("input", input)
    expect_same_kind(input, scale=scale, bias=bias, mean=mean, variance=variance)
    channels = input.shape[expect_axis(axis, input.rank)]
    vectors = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    for name, vector in vectors.items():
        if not is_same_shape(vector.shape, (channels,)):
            raise UserError(f"expected {name} of shape [{channels}], got {vector}")
    return input


def _along(f: Function, name: str, vector: Operand, n: BatchNormalizationNode) -> Operand:
    """`vector` in a shape that broadcasts along dimension `axis` of the input."""
    trailing = n.input.type.rank - 1 - n.axis
    if trailing == 0:
        return vector
    type = value_of(vector).type
    return f.create_reshape(name, type.with_shape((*type.shape, *(1,) * trailing)), vector)


def _inverse_deviation(f: Function, n: BatchNormalizationNode, variance: Operand) -> Operand:
    type = value_of(variance).type
    raised = f.create_add(n.name, variance, scalar(f, f"{n.name}_epsilon", type, n.epsilon))
    return f.create_reciprocal(n.name, f.create_sqrt(n.name, raised))


@lower(BatchNormalizationNode)
def _lower_batch_normalization(f: Function, n: BatchNormalizationNode) -> Operand:
    """A product and a sum by vectors that fold to constants where the statistics are."""
    input, scale, bias, mean, variance = (widened(f, n.name, operand) for operand in n.inputs)
    factor = f.create_mul(n.name, scale, _inverse_deviation(f, n, variance))
    shift = f.create_sub(f"{n.name}_shift", bias, f.create_mul(n.name, mean, factor))
    scaled = f.create_mul(n.name, input, _along(f, f"{n.name}_factor", factor, n))
    result = f.create_add(n.name, scaled, _along(f, f"{n.name}_shift", shift, n))
    return result if result.type == n.type else f.create_convert(n.name, n.type, result)


@derivative(BatchNormalizationNode)
def _differentiate_batch_normalization(
    f: Function, n: BatchNormalizationNode, g: NodeValue
) -> list[Operand | None]:
    """Differentiates with the statistics as inputs of their own, as in inference."""
    others = tuple(axis for axis in range(n.type.rank) if axis != n.axis)

    def total(value: Operand) -> Operand:
        summed = f.create_reduce_add(n.name, value, others) if others else value
        return f.create_reshape(n.name, n.scale.type, summed)

    inverse = _inverse_deviation(f, n, n.variance)
    factor = f.create_mul(n.name, n.scale, inverse)
    centred = f.create_sub(n.name, n.input, _along(f, n.name, n.mean, n))
    by_bias = total(g)
    by_product = total(f.create_mul(n.name, g, centred))
    cubed = f.create_mul(n.name, factor, f.create_mul(n.name, inverse, inverse))
    by_variance = f.create_mul(
        n.name, f.create_mul(n.name, by_product, cubed), scalar(f, n.name, n.type, -0.5)
    )
    return [
        f.create_mul(n.name, g, _along(f, n.name, factor, n)),
        f.create_mul(n.name, by_product, inverse),
        by_bias,
        f.create_neg(n.name, f.create_mul(n.name, by_bias, factor)),
        by_variance,
    ]


# Layer normalisation.


@infer(LayerNormalizationNode)
def _infer_layer_normalization(
    input: Type, scale: Type, bias: Type, *, axes: tuple[int, ...], epsilon: float, centred: bool
) -> Type:
    del epsilon, centred
    expect_floats("input", input)
    expect_axes(axes, input.rank)
    expect_same_kind(input, scale=scale, bias=bias)
    for name, type in (("scale", scale), ("bias", bias)):
        if not broadcasts_to(type.shape, input.shape):
            raise UserError(f"expected {name} to broadcast to {input}, got {type}")
    return input


@lower(LayerNormalizationNode)
def _lower_layer_normalization(f: Function, n: LayerNormalizationNode) -> Operand:
    """The variance is that of centred elements: a difference of squares would cancel where the mean is large."""
    input, scale, bias = (widened(f, n.name, operand) for operand in n.inputs)
    mean = f.create_reduce_mean(n.name, input, n.axes)
    numbers = f.create_sub(n.name, input, mean).result if n.centred else value_of(input)
    square = f.create_reduce_mean(n.name, f.create_mul(n.name, numbers, numbers), n.axes)
    raised = f.create_add(n.name, square, scalar(f, n.name, square.type, n.epsilon))
    inverse = f.create_reciprocal(n.name, f.create_sqrt(n.name, raised))
    scaled = f.create_mul(n.name, f.create_mul(n.name, numbers, inverse), scale)
    result = f.create_add(n.name, scaled, bias)
    return result if result.type == n.type else f.create_convert(n.name, n.type, result)


# Local response normalisation (Krizhevsky et al. 2012; ONNX LRN).


@infer(LocalResponseNormalizationNode)
def _infer_local_response_normalization(
    input: Type, *, size: int, alpha: float, beta: float, k: float
) -> Type:
    del alpha, beta, k
    expect_floats("input", input)
    if input.rank < 1:
        raise UserError(f"expected input of a rank of at least 1, got {input}")
    if size < 1:
        raise UserError(f"expected a size of at least 1, got {size}")
    return input


@interpret(LocalResponseNormalizationInst)
def _local_response_normalization(
    result: Tensor, input: Tensor, *, size: int, alpha: float, beta: float, k: float
) -> None:
    """An even window reaches one channel further up than down."""
    if result.array.size == 0:
        return
    wide = accumulable(input.array)
    below, above = (size - 1) // 2, size // 2
    around = [(0, 0)] * (wide.ndim - 1) + [(below, above)]
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(wide**2, around), size, axis=-1)
    divisor = (k + alpha / size * squares.sum(axis=-1)) ** beta
    result.array[...] = (wide / divisor).astype(result.array.dtype)


@derivative(LocalResponseNormalizationNode)
def _differentiate_local_response_normalization(
    f: Function, n: LocalResponseNormalizationNode, g: NodeValue
) -> list[Operand | None]:
    """Sums over channels around are products by a matrix of ones in a band, which is transposed for the way back."""
    (channels,) = static(n.type.shape[-1:])
    at = np.arange(channels)
    away = at[:, None] - at
    band = (away >= -((n.size - 1) // 2)) & (away <= n.size // 2)
    near = Tensor.of(band.astype(n.type.kind.dtype))
    sums = f.module.create_constant(f"{n.name}_band", near)
    back = f.module.create_constant(f"{n.name}_band", Tensor.of(near.array.T.copy()))
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)

    def added(value: Term, matrix: Constant) -> Term:
        return Term(f, n.name, f.create_mat_mul(n.name, value.value, matrix))

    base = added(x * x, sums) * (n.alpha / n.size) + n.k
    exponent = scalar(f, n.name, n.type, -n.beta)
    power = Term(f, n.name, f.create_pow(n.name, base.value, exponent))
    spread = added(flow * x * power / base, back)
    return [(flow * power - x * spread * (2 * n.alpha * n.beta / n.size)).value]


# Softmax.


@infer(SoftmaxNode, LogSoftmaxNode)
def _infer_softmax(input: Type, *, axis: int) -> Type:
    expect_floats("input", input)
    expect_axis(axis, input.rank)
    return input


def _normalize(result: Tensor, input: Tensor, axis: int, finish: Callable[..., Array]) -> None:
    """Subtracts the maximum first, so that the exponentials do not overflow."""
    if result.array.size:
        wide = accumulable(input.array)
        shifted = wide - np.max(wide, axis=axis, keepdims=True)
        powers = np.exp(shifted)
        total = np.sum(powers, axis=axis, keepdims=True)
        result.array[...] = finish(shifted, powers, total).astype(result.array.dtype)


@interpret(SoftmaxInst)
def _softmax(result: Tensor, input: Tensor, *, axis: int) -> None:
    _normalize(result, input, axis, lambda _, powers, total: powers / total)


@interpret(LogSoftmaxInst)
def _log_softmax(result: Tensor, input: Tensor, *, axis: int) -> None:
    _normalize(result, input, axis, lambda shifted, _, total: shifted - np.log(total))


@derivative(SoftmaxNode)
def _differentiate_softmax(f: Function, n: SoftmaxNode, g: NodeValue) -> list[Operand | None]:
    weighted = f.create_mul(n.name, g, n.result)
    total = f.create_reduce_add(n.name, weighted, (n.axis,))
    return [f.create_sub(n.name, weighted, f.create_mul(n.name, n.result, total))]


@derivative(LogSoftmaxNode)
def _differentiate_log_softmax(
    f: Function, n: LogSoftmaxNode, g: NodeValue
) -> list[Operand | None]:
    total = f.create_reduce_add(n.name, g, (n.axis,))
    return [f.create_sub(n.name, g, f.create_mul(n.name, f.create_exp(n.name, n.result), total))]
