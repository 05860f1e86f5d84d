"""Moves numbers that are stored in blocks of integers by moving the integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.shape import permute
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import DequantizeBlocksNode, GatherNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import known_tensor
from glowpy.passes import RewritePass

__all__ = ["FoldBlocksPass"]


@dataclass(frozen=True)
class FoldBlocksPass(RewritePass):
    """Moves stored integers with their scales and zeros, before they become floats.

    * What is known is transposed as it is stored: products read it so.
    * Of a table only the rows that are asked for become floats.

    Before:
        %rows : i64[2]
        %out : f32[2x4]
        %q : i8[3x4] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        %s : f32[3x2] = [0.5, 0.25, 0.5, 0.25, 2.0, 1.0]
        %z : i8[3x2] = [0, 1, 0, 1, 0, 1]
        %t = dequantize_blocks(%q, %s, %z) {axis=1, block=2, bits=8} : f32[3x4]
        %y = gather(%t, %rows) {axis=0} : f32[2x4]
        save(%y, %out)
    After:
        %rows : i64[2]
        %out : f32[2x4]
        %q : i8[3x4] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        %s : f32[3x2] = [0.5, 0.25, 0.5, 0.25, 2.0, 1.0]
        %z : i8[3x2] = [0, 1, 0, 1, 0, 1]
        %t_1 = gather(%q, %rows) {axis=0} : i8[2x4]
        %t_scale = gather(%s, %rows) {axis=0} : f32[2x2]
        %t_zero = gather(%z, %rows) {axis=0} : i8[2x2]
        %y = dequantize_blocks(%t_1, %t_scale, %t_zero) {axis=1, bits=8, block=2} : f32[2x4]
        save(%y, %out)
    """

    name: ClassVar[str] = "fold-blocks"

    @rule
    def transposed(self, f: Function, n: TransposeNode, why: Why) -> Replacement:
        """Transposes weights."""
        source = n.input.node
        if not isinstance(source, DequantizeBlocksNode):
            return None
        tensors = [known_tensor(value) for value in source.inputs]
        if any(tensor is None for tensor in tensors):
            return why.no("the integers are computed")
        parts = [
            f.module.create_constant(value.name, _transposed(tensor, n.shuffle), loc=n.loc)
            for value, tensor in zip(source.inputs, tensors, strict=True)
            if tensor is not None
        ]
        return _rebuilt(f, n.name, source, parts, n.shuffle.index(source.axis))

    @rule
    def gathered(self, f: Function, n: GatherNode, why: Why) -> Replacement:
        """Gathers along another dimension than that of the blocks."""
        source = n.input.node
        if not isinstance(source, DequantizeBlocksNode):
            return None
        if n.axis == source.axis:
            return why.no("it takes blocks apart")
        names = (source.name, f"{source.name}_scale", f"{source.name}_zero")
        parts = [
            f.create_gather(name, value, n.indices, n.axis)
            for name, value in zip(names, source.inputs, strict=True)
        ]
        more = n.indices.type.rank - 1 if n.axis < source.axis else 0
        return _rebuilt(f, n.name, source, parts, source.axis + more)


def _transposed(tensor: Tensor, shuffle: Sequence[int]) -> Tensor:
    type = tensor.type.with_shape(permute(tensor.type.shape, shuffle))

    def transpose(array: Array) -> Array:
        return array.transpose(shuffle)

    return Tensor.derived(type, f"transpose {tuple(shuffle)}", [tensor], transpose)


def _rebuilt(
    f: Function, name: str, source: DequantizeBlocksNode, parts: Sequence[Operand], axis: int
) -> NodeValue:
    input, scale, zero = parts
    return f.create_dequantize_blocks(
        name, input, scale, zero, axis=axis, block=source.block, bits=source.bits
    ).result
