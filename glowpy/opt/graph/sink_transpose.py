"""Transposes move down the graph, where they meet their opposites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.channel_axis import permuted, reshaped
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue, Operand
from glowpy.graph.nodes_gen import GatherNode, ReshapeNode, SplatNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.opt.graph.fold_transpose import merge
from glowpy.opt.permutation import inverse, is_identity, keeps_order
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim
from glowpy.support.text import Attr

__all__ = ["SinkTransposePass"]

_MOST_FOLLOWED = 16
"""Element-wise nodes after a reshape that are looked at."""


@dataclass(frozen=True)
class SinkTransposePass(RewritePass):
    """Moves transposes from the inputs of a node to its result.

    Element-wise nodes, concat, reductions, softmax, pad, slice, gathers and those reshapes that only split
    or merge neighbouring dimensions do not care about the order of dimensions. Constants are
    transposed at once; scalars need not be. A network imported from NCHW, where each convolution
    has a transpose on either side, keeps only those at its inputs and outputs.

    Before:
        %x, %out : f32[1x8x4x4]
        %scale : f32[8x1x1] = splat 2.0
        %n = exp(%x) : f32[1x8x4x4]
        %a = transpose(%n) {shuffle=[0,2,3,1]} : f32[1x4x4x8]
        %b = abs(%a) : f32[1x4x4x8]
        %c = reduce_add(%b) {axes=[3]} : f32[1x4x4x1]
        %d = sub(%b, %c) : f32[1x4x4x8]
        %e = transpose(%d) {shuffle=[0,3,1,2]} : f32[1x8x4x4]
        save(%e, %out)
    After:
        %x, %out : f32[1x8x4x4]
        %scale : f32[8x1x1] = splat 2.0
        %n = exp(%x) : f32[1x8x4x4]
        %b = abs(%n) : f32[1x8x4x4]
        %c = reduce_add(%b) {axes=[1]} : f32[1x1x4x4]
        %d = sub(%b, %c) : f32[1x8x4x4]
        save(%d, %out)
    """

    name: ClassVar[str] = "sink-transpose"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def meet(self, f: Function, n: TransposeNode, why: Why) -> Replacement:
        """Merges transposes that meet; the one below would overtake the other otherwise."""
        above = _above(n, n.inputs, why)
        return merge(f, above, n) if above is not None else None

    @rule_where(lambda schema: Trait.ELEMENTWISE in schema.traits)
    def pass_elementwise(self, f: Function, n: Node, why: Why) -> Replacement:
        """Takes all operands from before their transposes."""
        above = _above(n, n.inputs, why)
        if above is None:
            return None
        shuffle = above.shuffle
        inputs = _all_untransposed(f, n, n.inputs, shuffle, why)
        if inputs is None:
            return None
        return _transposed(f, n, _rebuilt(f, n, inputs, {}, shuffle), shuffle)

    @rule_where(lambda schema: Trait.AXES in schema.traits)
    def pass_axes(self, f: Function, n: Node, why: Why) -> Replacement:
        """Renumbers the axes; inputs after the data stay as they are."""
        data = n.inputs if n.SCHEMA.variadic else n.inputs[:1]
        above = _above(n, data, why)
        if above is None:
            return None
        shuffle = above.shuffle
        inputs = _all_untransposed(f, n, data, shuffle, why)
        if inputs is None:
            return None
        attrs: dict[str, Attr] = {}
        if "axis" in n.attrs:
            attrs["axis"] = shuffle[n.attrs["axis"]]
        if "axes" in n.attrs:
            attrs["axes"] = tuple(sorted(shuffle[axis] for axis in n.attrs["axes"]))
        moved = _rebuilt(f, n, [*inputs, *n.inputs[len(data) :]], attrs, shuffle)
        return _transposed(f, n, moved, shuffle)

    @rule_where(lambda schema: Trait.DIMENSIONWISE in schema.traits)
    def pass_dimensionwise(self, f: Function, n: Node, why: Why) -> Replacement:
        """Reorders what the attributes say of each dimension."""
        above = _above(n, n.inputs, why)
        if above is None:
            return None
        attrs: dict[str, Attr] = {
            spec.name: _placed(n.attrs[spec.name], above.shuffle)
            for spec in n.SCHEMA.attrs
            if spec.dimensions
        }
        return _transposed(f, n, _rebuilt(f, n, [above.input], attrs, above.shuffle), above.shuffle)

    @rule
    def pass_gather(self, f: Function, n: GatherNode, why: Why) -> Replacement:
        """Renumbers the axis of a gather that leaves the number of dimensions as it is."""
        above = _above(n, n.inputs[:1], why)
        if above is None or n.indices.type.rank != 1:
            return None
        attrs: dict[str, Attr] = {"axis": above.shuffle[n.axis]}
        moved = _rebuilt(f, n, [above.input, n.indices], attrs, above.shuffle)
        return _transposed(f, n, moved, above.shuffle)

    @rule
    def pass_reshape(self, f: Function, n: ReshapeNode, why: Why) -> Replacement:
        """Reshapes first, if dimensions that are merged are neighbours before the transpose too."""
        above = _above(n, n.inputs, why)
        return _past_reshape(f, n, above, why) if above is not None else None


def _above(n: Node, values: Sequence[NodeValue], why: Why) -> TransposeNode | None:
    """The first transpose that computes one of `values`, inputs of `n`, if `n` can be moved before it."""
    for value in values:
        above = value.node
        if isinstance(above, TransposeNode):
            if n.predicate is not None and n.predicate.type.count > 1:
                why.no("its predicate is not transposed")
                return None
            return above if len(n.results) == 1 else None
    return None


def _transposed(f: Function, n: Node, moved: Node, shuffle: Sequence[int]) -> Node:
    """The result of `n` from that of `moved`."""
    if is_identity(shuffle):
        return moved
    return f.create_transpose(n.name, moved, tuple(shuffle), result_type=n.type)


def _placed(values: Sequence[int], shuffle: Sequence[int]) -> tuple[int, ...]:
    """Reorders lists in `values`, with one element for each transposed dimension, for the untransposed dimensions."""
    back, rank = inverse(shuffle), len(shuffle)
    lists = range(0, len(values), rank) if rank else ()
    return tuple(values[begin + axis] for begin in lists for axis in back)


def _rebuilt(
    f: Function,
    node: Node,
    inputs: Sequence[Operand],
    attrs: dict[str, Attr],
    shuffle: Sequence[int],
) -> Node:
    type = permuted(node.type, inverse(shuffle))
    return f.create(node.__class__, node.name, inputs, {**node.attrs, **attrs}, type)


def _all_untransposed(
    f: Function, n: Node, values: Sequence[NodeValue], shuffle: Sequence[int], why: Why
) -> list[Operand] | None:
    """Returns untransposed operands in the place of `values`, inputs of `n`; None if that costs a transpose."""
    makers = [_untransposed(f, value, shuffle) for value in values]
    if None in makers or len(shuffle) != n.type.rank:
        why.no("not all inputs are transposed alike")
        return None
    return [make() for make in makers if make is not None]


def _untransposed(
    f: Function, value: NodeValue, shuffle: Sequence[int]
) -> Callable[[], Operand] | None:
    """Makes what stands for `value` among untransposed operands; None if that costs a transpose."""
    node, back = value.node, inverse(shuffle)
    if isinstance(node, TransposeNode) and node.shuffle == shuffle:
        return lambda: node.input
    if value.type.count == 1:
        return lambda: value
    if value.type.rank > len(shuffle):
        return None
    wide = reshaped(value.type, (1,) * (len(shuffle) - value.type.rank) + value.type.shape)
    type = permuted(wide, back)
    constant = value.constant
    if constant is not None and constant.has_elements:
        return lambda: _transposed_constant(f, constant, wide, back)
    if isinstance(node, SplatNode):
        return lambda: f.create_splat(node.name, type, node.value)
    if keeps_order(wide.shape, back):
        return lambda: f.create_reshape(value.name, type, value)
    return None


def _transposed_constant(
    f: Function, constant: Constant, wide: Type, shuffle: Sequence[int]
) -> Constant:
    # The constant may have let go of its elements when those of the new one are asked for.
    is_splat = constant.tensor.splat_value is not None

    def transposed(array: Array) -> Array:
        moved = array.reshape(wide.extents).transpose(shuffle)
        return moved if is_splat else np.ascontiguousarray(moved)

    operation = f"transpose {wide.shape} {tuple(shuffle)}"
    type = permuted(wide, shuffle)
    tensor = Tensor.derived(type, operation, [constant.tensor], transposed)
    return f.module.create_constant(constant.name, tensor, loc=constant.loc)


def _past_reshape(f: Function, n: ReshapeNode, above: TransposeNode, why: Why) -> Replacement:
    """The reshape of what is not transposed, transposed.

    If dimensions that are merged are no neighbours before the transpose, that is split in one that
    brings them together and one that can go below the reshape. That is done only where the latter
    meets transposes: a channel shuffle (ShuffleNet) ends so between two convolutions, and so does
    a DepthToSpace with its activation.
    """
    source, shape = above.input, n.type.shape
    orders = _orders_before(source.type.shape, above.shuffle, shape)
    if orders is None:
        return why.no("nothing is known of empty dimensions")
    first, order = orders
    if not keeps_order(source.type.shape, first):
        if is_identity(order) or not _meets_transposes(n.result):
            return why.no(
                "the reshape merges dimensions that are not neighbours before the transpose"
            )
        source = f.create_transpose(above.name, source, first).result
    below = f.create_reshape(n.name, permuted(n.type, order), source)
    return _transposed(f, n, below, inverse(order))


def _meets_transposes(value: NodeValue) -> bool:
    """Whether transposes follow a value, at once or after few element-wise nodes of it and of constants."""
    reached, nodes = [value], set[Node]()
    for before in reached:
        for user in before.users:
            if isinstance(user, TransposeNode) or user in nodes:
                continue
            if Trait.ELEMENTWISE not in user.SCHEMA.traits or len(user.results) != 1:
                return False
            nodes.add(user)
            reached.append(user.results[0])
        if len(nodes) > _MOST_FOLLOWED:
            return False
    operands = (operand for node in nodes for operand in node.inputs)
    return all(
        operand in reached or operand.constant is not None or operand.type.count == 1
        for operand in operands
    )


def _orders_before(
    source: Shape, shuffle: Sequence[int], result: Shape
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The dimensions of `source` with those together that the reshape to `result` merges.

    After them, the dimensions of `result` in the order they have if that is reshaped.
    """
    groups = _groups([source[axis] for axis in shuffle], result)
    if groups is None:
        return None
    placed = [([shuffle[part] for part in parts], axes) for parts, axes in groups]
    placed.sort(key=lambda group: min(group[0]))
    first = [axis for axis, size in enumerate(source) if size == 1]
    order = list(range(next((i for i, size in enumerate(result) if size != 1), len(result))))
    for parts, axes in placed:
        first += parts
        order += axes
    return tuple(first), tuple(order)


def _groups(before: Sequence[Dim], after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Pairs of runs of dimensions with equal products.

    A dimension of length 1 goes with the result dimension before it.
    """
    if 0 in before:
        return None
    lefts = [axis for axis, size in enumerate(before) if size != 1]
    rights = [axis for axis, size in enumerate(after) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while lefts:
        parts, axes = [lefts.pop(0)], [rights.pop(0)]
        left, right = before[parts[0]], after[axes[0]]
        while left != right:
            if left < right:
                parts.append(lefts.pop(0))
                left *= before[parts[-1]]
            else:
                axes.append(rights.pop(0))
                right *= after[axes[-1]]
        end = rights[0] if rights else len(after)
        groups.append((parts, list(range(axes[0], end))))
    return groups
