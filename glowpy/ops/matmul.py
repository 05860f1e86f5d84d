"""Rules of matrix products, and of determinants."""

from __future__ import annotations

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.shape import broadcast_shapes, is_same, is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import DeterminantNode, FullyConnectedNode, MatMulNode
from glowpy.graph.work import largest_count, macs
from glowpy.ir.insts_gen import DeterminantInst, MatMulInst
from glowpy.irgen import scratch
from glowpy.lower import lower
from glowpy.ops.operands import (
    accumulable,
    as_stored,
    expect_floats,
    expect_numbers,
    expect_same_kind,
    factors,
    widened,
)
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


@infer(MatMulNode)
def _infer_mat_mul(lhs: Type, rhs: Type) -> Type:
    expect_numbers("lhs", lhs)
    expect_same_kind(lhs, rhs=rhs)
    for name, type in (("lhs", lhs), ("rhs", rhs)):
        if type.rank < 2:
            raise UserError(f"expected {name} of a rank of at least 2, got {type}")
    if not is_same(lhs.shape[-1], rhs.shape[-2]):
        raise UserError(
            f"lhs has {lhs.shape[-1]} columns, expected as many as rhs has rows, {rhs.shape[-2]}"
        )
    batch = broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    return Type(lhs.kind, (*batch, lhs.shape[-2], rhs.shape[-1]))


@macs(MatMulNode)
def _macs(n: MatMulNode) -> int:
    return largest_count((*n.type.shape, n.lhs.type.shape[-1]))


@macs(FullyConnectedNode)
def _fully_connected_macs(n: FullyConnectedNode) -> int:
    return largest_count((*n.type.shape, n.weights.type.shape[0]))


@interpret(MatMulInst)
def _mat_mul(result: Tensor, lhs: Tensor, rhs: Tensor) -> None:
    product = np.matmul(factors(lhs), factors(rhs))
    result.array[...] = as_stored(product, result.type.kind)


def _transposed(f: Function, name: str, value: NodeValue) -> Operand:
    """`value` with its last two dimensions swapped."""
    rank = value.type.rank
    return f.create_transpose(name, value, (*range(rank - 2), rank - 1, rank - 2))


@derivative(MatMulNode)
def _differentiate_mat_mul(f: Function, n: MatMulNode, g: NodeValue) -> list[Operand | None]:
    return [
        f.create_mat_mul(n.name, g, _transposed(f, n.name, n.rhs)),
        f.create_mat_mul(n.name, _transposed(f, n.name, n.lhs), g),
    ]


@infer(FullyConnectedNode)
def _infer_fully_connected(input: Type, weights: Type, bias: Type) -> Type:
    expect_numbers("input", input)
    expect_same_kind(input, weights=weights, bias=bias)
    for name, type in (("input", input), ("weights", weights)):
        if type.rank != 2:
            raise UserError(f"expected {name} of rank 2, got {type}")
    if not is_same(input.shape[1], weights.shape[0]):
        raise UserError(
            f"input has {input.shape[1]} columns, expected as many as weights has rows, "
            f"{weights.shape[0]}"
        )
    if not is_same_shape(bias.shape, (weights.shape[1],)):
        raise UserError(f"expected bias of shape [{weights.shape[1]}], got {bias}")
    return Type(input.kind, (input.shape[0], weights.shape[1]))


@lower(FullyConnectedNode)
def _lower_fully_connected(f: Function, n: FullyConnectedNode) -> Operand:
    if n.type.quant is not None:
        return _sums_with_bias(f, n)
    input, weights, bias = (widened(f, n.name, operand) for operand in n.inputs)
    total = f.create_add(n.name, f.create_mat_mul(n.name, input, weights), bias)
    return f.create_convert(n.name, n.type, total) if n.type.kind.is_half else total


def _sums_with_bias(f: Function, n: FullyConnectedNode) -> Operand:
    """Exact sums of quantized operands: what is added counts in the same steps."""
    sums = f.create_mat_mul(n.name, n.input, n.weights, result_type=n.type)
    plain = Type(n.type.kind, n.type.shape)
    steps = f.create_storage_cast(n.name, plain, sums)
    bias = f.create_storage_cast(n.name, plain.with_shape(n.bias.type.shape), n.bias)
    return f.create_storage_cast(n.name, n.type, f.create_add(n.name, steps, bias))


@derivative(FullyConnectedNode)
def _differentiate_fully_connected(
    f: Function, n: FullyConnectedNode, g: NodeValue
) -> list[Operand | None]:
    return [
        f.create_mat_mul(n.name, g, _transposed(f, n.name, n.weights)),
        f.create_mat_mul(n.name, _transposed(f, n.name, n.input), g),
        g,
    ]


# Determinants.


@infer(DeterminantNode)
def _infer_determinant(input: Type) -> Type:
    expect_floats("input", input)
    if input.rank < 2 or not is_same(input.shape[-1], input.shape[-2]):
        raise UserError(f"expected square matrices, got {input}")
    return input.with_shape(input.shape[:-2])


@scratch(DeterminantNode)
def _scratch_determinant(n: DeterminantNode) -> tuple[Type, ...]:
    """A matrix, of which elimination leaves a triangle."""
    return (n.type.with_shape(n.input.type.shape[-2:]),)


@interpret(DeterminantInst)
def _determinant(result: Tensor, input: Tensor, work: Tensor) -> None:
    del work
    result.array[...] = np.linalg.det(accumulable(input.array)).astype(result.array.dtype)


@derivative(DeterminantNode)
def _differentiate_determinant(
    f: Function, n: DeterminantNode, g: NodeValue
) -> list[Operand | None]:
    """The cofactors (Jacobi's formula), which singular matrices have as well, unlike inverses."""
    input = n.input.type
    rank, (size,) = input.rank, static(input.shape[-1:])
    if size == 0:
        return [None]
    ones = f.create_splat(n.name, input, 1)
    cofactors: Operand = ones
    if size > 1:
        others = [[other for other in range(size) if other != at] for at in range(size)]
        kept = f.module.create_constant(f"{n.name}_kept", np.array(others, np.int64))
        rows = f.create_gather(n.name, n.input, kept, rank - 2)
        minors = f.create_gather(n.name, rows, kept, rank)
        batch = tuple(range(rank - 2))
        shuffle = (*batch, rank - 2, rank, rank - 1, rank + 1)
        determinants = f.create_determinant(n.name, f.create_transpose(n.name, minors, shuffle))
        signs = np.fromfunction(lambda i, j: (-1.0) ** (i + j), (size, size))
        factors = Tensor.of(signs.astype(input.kind.dtype))
        sign = f.module.create_constant(f"{n.name}_signs", factors)
        cofactors = f.create_mul(n.name, f.create_reshape(n.name, input, determinants), sign)
    flow = f.create_reshape(n.name, g.type.with_shape((*input.shape[:-2], 1, 1)), g)
    return [f.create_mul(n.name, cofactors, flow)]
