"""Weights of few bits: computation stays in floats, and reads an eighth or a quarter of the bytes.

Each block of neighbours along the dimension that is summed has a scale. To decode a text token by token is to read all
weights for each of them, so that the time it takes follows from their size.
"""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode, FullyConnectedNode, GatherNode, MatMulNode
from glowpy.opt.known import is_known
from glowpy.quantization.blocks import BlockForm, decoded, integers_in_blocks
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.islands import chosen_to_keep, not_finite
from glowpy.quantization.optimized import optimize, optimized
from glowpy.support.errors import UserError
from glowpy.support.limits import within_limits

__all__ = ["quantize_weights"]

_BITS = (4, 8)
_BLOCKS = (32, 64, 128)


@within_limits
def quantize_weights(
    model: Module | Function,
    *,
    bits: int = 4,
    block: int = 32,
    symmetric: bool = True,
    keep: tuple[str, ...] = (),
) -> Conversion:
    """A network whose weights are integers of few bits with a scale for each block, and which computes in f32.

    These are the right sides of matrix products (blocks lie along the dimension that is summed), and tables of which
    rows are gathered. Of each block the scale is taken that gives the least squared error. Weights with NaNs or
    infinities stay as they are.

    Args:
        model: The function, or a module with one; not changed.
        bits: The bits of an integer: 4 or 8.
        block: How many neighbours have a scale in common: 32, 64 or 128.
        symmetric: Whether zero is stored as 0; else each block has a zero of its own, too.
        keep: Nodes that stay as they are: their names in the optimized graph or in the user's model, or their kinds.

    Raises UserError for other numbers of bits or blocks, and for names in `keep` that no node has.
    """
    for what, number, choices in (("bits", bits, _BITS), ("a block", block, _BLOCKS)):
        if number not in choices:
            expected = ", ".join(map(str, choices))
            raise UserError(f"expected {what} of {expected}, got {number}")
    f, form = optimized(model), BlockForm(bits, block, symmetric)
    before = bytes_of_constants(f)
    weights = list(_weights(f))
    places = {node: g for g, node in f.all_nodes}
    reasons: dict[Node, str] = {
        node: "weights of convolutions stay as they are"
        for node in places
        if isinstance(node, ConvolutionNode) and is_known(node.filter)
    }
    outcomes = [outcome_of(node, reason, places[node]) for node, reason in reasons.items()]
    reasons |= {node: not_finite(node.inputs[index]) for node, index, _ in weights}
    reasons |= chosen_to_keep(list(reasons), keep)
    stored: dict[tuple[NodeValue, int], tuple[Constant, Constant, Constant]] = {}
    numbers: dict[tuple[Function, NodeValue, int], NodeValue] = {}
    for node, index, axis in weights:
        reason, value, g = reasons[node], node.inputs[index], places[node]
        outcomes.append(outcome_of(node, reason, g))
        if not reason:
            if (value, axis) not in stored:
                stored[value, axis] = integers_in_blocks(f.module, value, axis, form)
            if (g, value, axis) not in numbers:
                numbers[g, value, axis] = decoded(g, value, axis, form, stored[value, axis])
            node.set_input(index, numbers[g, value, axis])
    optimize(f)
    sizes = before, bytes_of_constants(f)
    return Conversion(f.module, tuple(outcomes), *sizes, weights_only=True)


def _weights(f: Function) -> Iterator[tuple[Node, int, int]]:
    """Every node that reads a matrix of weights, as which input, and the dimension along which blocks lie."""
    for _, node in f.all_nodes:
        if isinstance(node, MatMulNode | FullyConnectedNode):
            index, axis = 1, 0
        elif isinstance(node, GatherNode) and node.axis == 0:
            index, axis = 0, 1
        else:
            continue
        value = node.inputs[index]
        is_matrix = (
            value.type.rank == 2 and value.type.kind is ElemKind.F32 and not value.type.is_empty
        )
        if value.constant is not None and value.constant.has_elements and is_matrix:
            yield node, index, axis
