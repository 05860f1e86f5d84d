"""Shuffles of channels that become addresses: convolutions read channels where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode, ReshapeNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import known_tensor
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Expr, product

__all__ = ["FoldShufflePass"]

_MOST_CHANNELS = 1.1
"""The highest ratio by which channels may grow, where some are added: the products have as many more steps."""


@dataclass(frozen=True)
class FoldShufflePass(RewritePass):
    """Lets a convolution read channels in the order in which they lie, not in that of a shuffle before it.

    A shuffle (ShuffleNet) makes channels of `rows` times `cols` numbers those of `cols` times `rows`. Element-wise
    nodes and depthwise convolutions between it and the convolution treat each channel by itself, and can do so before
    it. A convolution of one group takes the channels of its constant filter in another order. One of 1 x 1 in
    several groups finds the channels of a group in `rows` places, at equal distances: these are the taps of a kernel
    in a row of pixels with fewer channels.

    Where the channels of a group are not equally many in each of these places, the convolution that computes them
    gives some of them twice, if the network has that one with a constant filter, and nobody else reads it. These are
    as finite as others, whatever is done with them, and their weights are zeros: where an input is infinite, the
    result may be NaN.

    Before:
        %x : f32[1x1x1x8]
        %out : f32[1x1x1x2]
        %w : f32[2x1x1x4] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %b : f32[2] = [0.5, 0.5]
        %r = reshape(%x) : f32[1x1x1x2x4]
        %t = transpose(%r) {shuffle=[0,1,2,4,3]} : f32[1x1x1x4x2]
        %s = reshape(%t) : f32[1x1x1x8]
        %c = convolution(%s, %w, %b)
            {dilation=[1,1], group=2, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x1x1x2]
        save(%c, %out)
    After:
        %x : f32[1x1x1x8]
        %out : f32[1x1x1x2]
        %w : f32[2x1x1x4] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        %b : f32[2] = [0.5, 0.5]
        %c_places : f32[2x1x2x2] = [1.0, 3.0, 2.0, 4.0, 5.0, 7.0, 6.0, 8.0]
        %r = reshape(%x) : f32[1x1x1x2x4]
        %s_1 = reshape(%r) : f32[1x1x1x8]
        %c_1 = reshape(%s_1) : f32[1x1x2x4]
        %c = convolution(%c_1, %c_places, %b)
            {dilation=[1,1], group=2, kernels=[1,2], pads=[0,0,0,0], strides=[1,2]} : f32[1x1x1x2]
        %c_3 = reshape(%c) : f32[1x1x1x2]
        save(%c_3, %out)
    """

    name: ClassVar[str] = "fold-shuffle"
    concerns = (TransposeNode,)

    @rule
    def read_shuffled(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """The convolution of what is not shuffled."""
        chain = _find_shuffle(n)
        if chain is None:
            return None
        between, shuffle = chain
        filter = known_tensor(n.filter)
        if filter is None:
            return why.no("the filter is computed")
        places = _Places.of(shuffle, n.group)
        if n.group == 1:
            places = _Places(np.arange(len(shuffle.order)), shuffle.order)
        elif prod(n.kernels) * prod(n.strides) > 1 or has_pads(n.pads):
            return why.no("a group reads several pixels")
        if places.in_order:
            source = shuffle.transpose.input
        else:
            if places.slots.size > _MOST_CHANNELS * len(shuffle.order):
                return why.no("a group has few channels in some places")
            moved = _laid_out(f, shuffle, places.slots)
            if moved is None:
                return why.no("nothing can lie between the channels before the shuffle")
            source = moved
        type = _with_channels(shuffle.result.type, places.slots)
        source = f.create_reshape(shuffle.result.name, type, source).result
        input = _rebuilt(f, between, source, shuffle.after(places.slots))
        if n.group == 1:
            return _with_inputs(f, n, input, filter, shuffle.after(places.slots))
        return _by_places(f, n, input, filter, places.inputs)


@dataclass(frozen=True)
class _Shuffle:
    """A shuffle of channels: they are `rows` times `cols` before it, and these transposed after it.

    Attributes:
        transpose: The node that moves the channels.
        result: The channels in their new order.
        rows: How many times `cols` neighbours there are before.
        cols: How many neighbours.
    """

    transpose: TransposeNode
    result: ReshapeNode
    rows: int
    cols: int

    @property
    def order(self) -> Array:
        """The channel before the shuffle, for each channel after it."""
        return np.arange(self.rows * self.cols).reshape(self.rows, self.cols).T.reshape(-1)

    def after(self, slots: Array) -> Array:
        """Returns the channels after the shuffle for those before it."""
        return np.argsort(self.order)[slots]


@dataclass(frozen=True)
class _Places:
    """Channels that each group of a convolution reads, in their places before a shuffle.

    Attributes:
        slots: Rows x groups x channels of a group in a row: the channels that lie there. Where a group has none, it is
            one of the same row, which the same group of the convolution before computes.
        inputs: The same, as numbers of the group's own channels; -1 for none.
    """

    slots: Array
    inputs: Array

    @classmethod
    def of(cls, shuffle: _Shuffle, groups: int) -> _Places:
        """The places for a convolution in so many groups."""
        order, cols = shuffle.order.reshape(groups, -1), shuffle.cols
        members = [
            [np.flatnonzero(channels // cols == row) for channels in order]
            for row in range(shuffle.rows)
        ]
        most = max(len(inputs) for row in members for inputs in row)
        inputs = np.full((shuffle.rows, groups, most), -1)
        slots = np.broadcast_to(np.arange(shuffle.rows)[:, None, None] * cols, inputs.shape).copy()
        for row, of_groups in enumerate(members):
            for group, numbers in enumerate(of_groups):
                inputs[row, group, : len(numbers)] = numbers
                slots[row, group, : len(numbers)] = order[group][numbers]
        return cls(slots.reshape(-1), inputs)

    @property
    def in_order(self) -> bool:
        """Whether all channels lie where they should."""
        return np.array_equal(self.slots, np.arange(self.slots.size))


def _find_shuffle(n: Node) -> tuple[list[Node], _Shuffle] | None:
    """The shuffle that computes what `n` reads, and what is between the two, the first one last."""
    between, value = _by_channels(n.inputs[0])
    result = value.node
    if not isinstance(result, ReshapeNode):
        return None
    transpose = result.input.node
    if not isinstance(transpose, TransposeNode):
        return None
    axes, channels = range(len(transpose.shuffle)), result.type.shape[-1]
    is_swap = transpose.shuffle == (*axes[:-2], axes[-1], axes[-2])
    if not is_swap or not _is_private(result) or not _is_private(transpose):
        return None
    rows, cols = transpose.input.type.shape[-2:]
    if isinstance(rows, Expr) or isinstance(cols, Expr) or rows * cols != channels:
        return None
    return between, _Shuffle(transpose, result, rows, cols)


def _by_channels(value: NodeValue) -> tuple[list[Node], NodeValue]:
    """The nodes that compute each channel of `value` from that channel of something, and that."""
    nodes: list[Node] = []
    while (node := value.node) is not None and _is_private(node):
        wide = [operand for operand in node.inputs if operand.type.count != 1]
        if isinstance(node, ConvolutionNode) and _is_depthwise(node):
            value = node.input
        elif Trait.ELEMENTWISE in node.SCHEMA.traits and len(wide) == 1:
            value = wide[0]
        else:
            break
        nodes.append(node)
    return nodes, value


def _is_private(node: Node) -> bool:
    """Whether a node of numbers has one user and may be replaced."""
    plain = len(node.results) == 1 and node.predicate is None and node.result.num_users == 1
    return plain and node.type.quant is None


def _is_depthwise(n: ConvolutionNode) -> bool:
    channels = n.input.type.shape[-1]
    return _is_known(n) and n.group == channels == n.type.shape[-1]


def _is_known(n: ConvolutionNode) -> bool:
    return known_tensor(n.filter) is not None and known_tensor(n.bias) is not None


def _laid_out(f: Function, shuffle: _Shuffle, slots: Array) -> NodeValue | None:
    """Returns the shuffle's input, computed with its channels in these slots; None if that cannot be."""
    value = shuffle.transpose.input
    while (node := value.node) is not None and isinstance(node, ReshapeNode) and _is_private(node):
        value = node.input
    if value.type.shape[-1] != shuffle.rows * shuffle.cols:
        return None
    nodes, value = _by_channels(value)
    layer = value.node
    if not isinstance(layer, ConvolutionNode) or not _is_private(layer) or not _is_known(layer):
        return None
    if shuffle.rows % layer.group:
        return None
    return _rebuilt(f, nodes, _with_outputs(f, layer, layer.input, slots, layer.group), slots)


def _rebuilt(f: Function, nodes: Sequence[Node], value: NodeValue, slots: Array) -> NodeValue:
    """Rebuilds `nodes`, the first one last, for channels that come from `slots`."""
    for node in reversed(nodes):
        if isinstance(node, ConvolutionNode):
            value = _with_outputs(f, node, value, slots, slots.size)
        else:
            inputs = [operand if operand.type.count == 1 else value for operand in node.inputs]
            type = _with_channels(node.type, slots)
            value = f.create(node.__class__, node.name, inputs, node.attrs, type).result
    return value


def _with_outputs(
    f: Function, n: ConvolutionNode, input: NodeValue, slots: Array, group: int
) -> NodeValue:
    """A convolution whose channels come from `slots`."""

    def constant(value: NodeValue) -> Constant:
        tensor = known_tensor(value)
        assert tensor is not None
        shape = (slots.size, *tensor.type.extents[1:])
        moved = Tensor.derived(
            tensor.type.with_shape(shape), f"channels from {slots.tolist()}", [tensor],
            lambda array: _picked(array, slots, 0),
        )  # fmt: skip
        return f.module.create_constant(f"{value.producer.name}_moved", moved, loc=n.loc)

    return f.create_convolution(
        n.name, input, constant(n.filter), constant(n.bias), n.kernels, n.strides, n.pads,
        n.dilation, group,
    ).result  # fmt: skip


def _with_inputs(
    f: Function, n: ConvolutionNode, input: NodeValue, filter: Tensor, places: Array
) -> Node:
    """The convolution of its channels in another order, `places`, with its filter in that one."""
    tensor = Tensor.derived(
        filter.type, f"inputs {places.tolist()}", [filter], lambda array: _picked(array, places, -1)
    )
    weights = f.module.create_constant(f"{n.name}_ordered", tensor, loc=n.loc)
    return f.create_convolution(
        n.name, input, weights, n.bias, n.kernels, n.strides, n.pads, n.dilation, 1
    )


def _by_places(
    f: Function, n: ConvolutionNode, input: NodeValue, filter: Tensor, inputs: Array
) -> NodeValue:
    """The convolution with a tap for each row of channels, over all pixels in one line."""
    rows, groups, most = inputs.shape
    outputs = filter.type.extents[0]

    def compute(array: Array) -> Array:
        return np.concatenate(
            [
                np.stack([_picked(part, row, -1) for row in inputs[:, group]], axis=-2)
                for group, part in enumerate(array.reshape(groups, outputs // groups, 1, -1))
            ]
        )

    tensor = Tensor.derived(
        filter.type.with_shape((outputs, 1, rows, most)), f"places {inputs.tolist()}", [filter],
        compute,
    )  # fmt: skip
    weights = f.module.create_constant(f"{n.name}_places", tensor, loc=n.loc)
    pixels = product(n.type.shape[:-1])
    type = input.type.with_shape((1, 1, pixels * rows, groups * most))
    line = f.create_convolution(
        n.name, f.create_reshape(n.name, type, input), weights, n.bias,
        (1, rows), (1, rows), (0, 0, 0, 0), (1, 1), groups,
    )  # fmt: skip
    return f.create_reshape(n.name, n.type, line).result


def _with_channels(type: Type, slots: Array) -> Type:
    return type.with_shape((*type.shape[:-1], slots.size))


def _picked(array: Array, places: Array, axis: int) -> Array:
    """Elements from some places along an axis, 0 for place -1."""
    shape = [1] * array.ndim
    shape[axis] = -1
    taken = np.take(array, np.maximum(places, 0), axis)
    return np.where((places >= 0).reshape(shape), taken, np.zeros((), array.dtype))
