"""Products with right sides of 4 or 8 bits that are read as they are stored.

The left side is one of floats, or of numbers rounded to 8 bits in the same blocks: then integers are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glowpy.backends.cpu.block_weights import (
    WORD,
    block_columns,
    pack_integers,
    pack_words,
    packed_blocks,
    rounded_with,
    signed,
)
from glowpy.backends.cpu.nodes_gen import (
    CpuBlockMatmulNode,
    CpuByteBlockMatmulNode,
    CpuQuantizeBlocksNode,
    create_cpu_block_matmul,
    create_cpu_byte_block_matmul,
    create_cpu_quantize_blocks,
)
from glowpy.backends.cpu.packing import matrix_pieces, pack_matrix, packed_shape
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.four_bits import rows_of_columns
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, NodeValue
from glowpy.graph.nodes_gen import DequantizeBlocksNode, MatMulNode, RoundBlocksNode
from glowpy.opt.known import known, known_tensor
from glowpy.support.symbolic import ceil_div

__all__ = ["BlockProducts"]

_BYTES_OF_A_WORD = 4


@dataclass(frozen=True)
class BlockProducts:
    """Rewrites products with a right side that `packs_blocks` takes.

    Attributes:
        variant: The variant that weights are packed for.
    """

    variant: Variant

    def mat_mul(self, f: Function, n: MatMulNode) -> CpuBlockMatmulNode | CpuByteBlockMatmulNode:
        """The product with weights as they are stored."""
        source = n.rhs.node
        assert isinstance(source, DequantizeBlocksNode)
        rounding = rounded_with(n)
        if rounding is None:
            weights = self._weights(f, n, source, 1)
            return create_cpu_block_matmul(f, n.name, n.type, n.lhs, *weights, block=source.block)
        weights = self._weights(f, n, source, _BYTES_OF_A_WORD)
        rows = _quantized(f, rounding, source.bits)
        return create_cpu_byte_block_matmul(
            f, n.name, n.type, rows.result, rows.scales, rows.sums, *weights,
            block=ceil_div(source.block, WORD) * WORD,
        )  # fmt: skip

    def _weights(
        self, f: Function, n: MatMulNode, source: DequantizeBlocksNode, word: int
    ) -> tuple[Constant, Constant, Constant]:
        """Packed integers, of 8 bits `word` neighbours in depth together, scales, and zeros if there are any."""
        bits, columns = source.bits, block_columns(self.variant.machine_for(ElemKind.F32).lanes)
        type = packed_blocks(n.rhs.type.extents, bits, columns, word)
        several = packed_shape(source.scale.type.extents, columns)

        def packed(
            part: str, type: Type, value: NodeValue, pack: Callable[[Array], Any]
        ) -> Constant:
            tensor = known_tensor(value)
            assert tensor is not None
            rows = rows_of_columns(tensor)
            if rows is not None:
                depth, _ = tensor.type.extents
                tensor, pack = rows, lambda array: pack_words(array, depth, columns)
            derived = Tensor.derived(type, f"pack {part} of {bits} bits", [tensor], pack)
            return f.module.create_constant(f"{n.name}_{part}", derived, loc=n.loc)

        def integers(array: Array) -> Any:
            if bits == 4 or word == 1:
                return pack_integers(array, bits, columns)
            return matrix_pieces(signed(array, bits), columns, word)

        def zeros(array: Array) -> Array:
            return pack_matrix(signed(array, bits), columns)

        zero = known(source.zero)
        has_zeros = zero is not None and signed(zero, bits).any()
        nothing = f.module.create_constant(f"{n.name}_zeros", np.zeros(0, np.int8), loc=n.loc)
        name = "packed" if bits == 4 or word == 1 else "words"
        return (
            packed(name, type, source.input, integers),
            packed("scales", Type(ElemKind.F32, several), source.scale, lambda a: pack_matrix(a, columns)),
            packed("zeros", Type(ElemKind.I8, several), source.zero, zeros) if has_zeros else nothing,
        )  # fmt: skip


def _quantized(f: Function, rounding: RoundBlocksNode, bits: int) -> CpuQuantizeBlocksNode:
    """The integers of rounded rows: those that another product reads, or new ones."""
    for user in rounding.input.users:
        if isinstance(user, CpuQuantizeBlocksNode) and (user.block, user.bits) == (
            rounding.block,
            bits,
        ):
            return user
    return create_cpu_quantize_blocks(
        f, rounding.name, rounding.input, block=rounding.block, bits=bits
    )
