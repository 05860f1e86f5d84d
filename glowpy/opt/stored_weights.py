"""Turns known integers into floats where only floats are computed with; weights of products stay stored."""

from __future__ import annotations

import numpy as np

from glowpy.core.quantized import fits_4_bits, offsets_of, parameters, scales_of
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import DequantizeNode, FullyConnectedNode, MatMulNode

__all__ = ["known_numbers"]


def known_numbers(f: Function, n: DequantizeNode) -> NodeValue | None:
    """The numbers that known integers stand for; None if the integers are computed.

    Those of 8 bits that are the right side of a product, with one scale for each column at most, are one block of all
    its depth; others become floats, once.
    """
    constant, type = n.input.constant, n.input.type
    if constant is None or not constant.has_elements:
        return None
    columns = type.rank == 2 and parameters(type).axis in (None, 1) and type.kind.size == 1
    read = any(
        isinstance(user, MatMulNode | FullyConnectedNode) and user.inputs[1] is n.result
        for user in n.result.users
    )
    if columns and read and not type.is_empty:
        return _one_block(f, n, constant.tensor)

    def numbers(integers: Array) -> Array:
        steps = integers.astype(np.float32) - offsets_of(type).astype(np.float32)
        return np.asarray(steps * scales_of(type).astype(np.float32))

    operation = f"dequantize {type.quant}"
    tensor = Tensor.derived(n.type, operation, [constant.tensor], numbers)
    return f.module.create_constant(n.name, tensor, loc=n.loc).value


def _one_block(f: Function, n: DequantizeNode, integers: Tensor) -> NodeValue:
    type = integers.type
    rows, columns = type.extents
    row = (1, columns)
    zeros = Tensor.of(np.broadcast_to(offsets_of(type), row)).compact()
    scales = Tensor.of(np.broadcast_to(scales_of(type).astype(np.float32), row)).compact()
    plain = Tensor.derived(
        Type(type.kind, type.shape), "storage_cast", [integers], lambda array: array
    )
    stored, scale, zero = (
        f.module.create_constant(f"{n.name}_{part}", tensor, loc=n.loc)
        for part, tensor in (("stored", plain), ("scale", scales), ("zero", zeros))
    )
    bits = 4 if fits_4_bits(plain) and fits_4_bits(zeros) else 8
    return f.create_dequantize_blocks(
        n.name, stored, scale, zero, axis=0, block=rows, bits=bits
    ).result
