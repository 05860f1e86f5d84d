"""Products: the nodes whose quantized form is an exact sum."""

from __future__ import annotations

from glowpy.graph.nodes_gen import ConvolutionNode, FullyConnectedNode, MatMulNode

__all__ = ["Product", "columns_of"]

Product = ConvolutionNode | FullyConnectedNode | MatMulNode


def columns_of(n: Product) -> int:
    """The dimension of the weights that is the last one of the sums."""
    return 0 if isinstance(n, ConvolutionNode) else n.inputs[1].type.rank - 1
