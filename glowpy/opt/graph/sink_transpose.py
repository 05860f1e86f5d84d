"""Transposes move down the graph, where they meet their opposites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    BroadcastNode,
    PadNode,
    ReshapeNode,
    SliceNode,
    SplatNode,
    TransposeNode,
)
from glowpy.opt.graph.fold_transpose import merge
from glowpy.opt.permutation import inverse, is_identity, keeps_order, permuted
from glowpy.passes import RewritePass, Why
from glowpy.support.text import Attr

__all__ = ["SinkTransposePass"]


@dataclass(frozen=True)
class SinkTransposePass(RewritePass):
    """Moves transposes from the inputs of a node to its result.

    Element-wise nodes, concat, reductions, softmax, pad, slice and those reshapes that only split
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

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """One step: past `node`, if all its inputs agree.

        Transposes that meet are merged on the spot. The one below would overtake the other otherwise,
        and a pair a visit would meet.
        """
        above = [v.node for v in node.inputs if isinstance(v.node, TransposeNode)]
        if not above or len(node.results) != 1:
            return None
        if node.predicate is not None and node.predicate.type.count > 1:
            return why.no("its predicate is not transposed")
        if isinstance(node, TransposeNode):
            return merge(f, above[0], node)
        moved = self._moved(f, node, above[0], why)
        if moved is None:
            return None
        below, shuffle = moved
        if is_identity(shuffle):
            return below
        return f.create_transpose(node.name, below, tuple(shuffle), result_type=node.type)

    def _moved(
        self, f: Function, node: Node, above: TransposeNode, why: Why
    ) -> tuple[Node, Sequence[int]] | None:
        """The node without the transposes above it, and the shuffle to put behind it."""
        shuffle = above.shuffle
        if node.has(Trait.ELEMENTWISE):
            inputs = [_untransposed(f, value, shuffle) for value in node.inputs]
            if len(shuffle) != node.type.rank or None in inputs:
                why.no("not all inputs are transposed alike")
                return None
            return _rebuilt(f, node, [v for v in inputs if v is not None], {}, shuffle), shuffle
        if node.has(Trait.AXES):
            return _past_axes(f, node, shuffle, why)
        if isinstance(node, PadNode):
            begins, ends = node.pads[: len(shuffle)], node.pads[len(shuffle) :]
            pads = (*_placed(begins, shuffle), *_placed(ends, shuffle))
            return _rebuilt(f, node, [above.input], {"pads": pads}, shuffle), shuffle
        if isinstance(node, SliceNode):
            starts, steps = _placed(node.starts, shuffle), _placed(node.steps, shuffle)
            attrs: dict[str, Attr] = {"starts": starts, "steps": steps}
            return _rebuilt(f, node, [above.input], attrs, shuffle), shuffle
        if isinstance(node, BroadcastNode):
            return _rebuilt(f, node, [above.input], {}, shuffle), shuffle
        if isinstance(node, ReshapeNode):
            return _past_reshape(f, node, above, why)
        return None


def _placed(values: Sequence[int], shuffle: Sequence[int]) -> tuple[int, ...]:
    """What `values` say of transposed dimensions, said of the dimensions before the transpose."""
    return tuple(values[axis] for axis in inverse(shuffle))


def _rebuilt(
    f: Function,
    node: Node,
    inputs: Sequence[Operand],
    attrs: dict[str, Attr],
    shuffle: Sequence[int],
) -> Node:
    type = permuted(node.type, inverse(shuffle))
    return f.create(node.__class__, node.name, inputs, {**node.attrs, **attrs}, type)


def _untransposed(f: Function, value: NodeValue, shuffle: Sequence[int]) -> Operand | None:
    """What stands for `value` among untransposed operands; None if that costs a transpose."""
    node, back = value.node, inverse(shuffle)
    if isinstance(node, TransposeNode) and node.shuffle == shuffle:
        return node.input
    if value.type.count == 1:
        return value
    if value.type.rank > len(shuffle) or value.type.quant is not None:
        return None
    wide = value.type.with_shape((1,) * (len(shuffle) - value.type.rank) + value.type.shape)
    type = permuted(wide, back)
    constant = value.constant
    if constant is not None and constant.has_elements:
        array = constant.array.reshape(wide.shape).transpose(back)
        made = array if constant.tensor.splat_value is not None else np.ascontiguousarray(array)
        return f.module.create_constant(constant.name, Tensor(type, made), loc=constant.loc)
    if isinstance(node, SplatNode):
        return f.create_splat(node.name, type, node.value)
    if keeps_order(wide.shape, back):
        return f.create_reshape(value.name, type, value)
    return None


def _past_axes(
    f: Function, node: Node, shuffle: Sequence[int], why: Why
) -> tuple[Node, Sequence[int]] | None:
    """Renumbers the axes; inputs behind the data stay as they are."""
    data = node.inputs if node.SCHEMA.variadic else node.inputs[:1]
    inputs = [_untransposed(f, v, shuffle) if v.type.rank == len(shuffle) else None for v in data]
    if None in inputs:
        why.no("not all inputs are transposed alike")
        return None
    attrs: dict[str, Attr] = {}
    if "axis" in node.attrs:
        attrs["axis"] = shuffle[node.attrs["axis"]]
    if "axes" in node.attrs:
        attrs["axes"] = tuple(sorted(shuffle[axis] for axis in node.attrs["axes"]))
    kept = [v for v in inputs if v is not None]
    return _rebuilt(f, node, [*kept, *node.inputs[len(data) :]], attrs, shuffle), shuffle


def _past_reshape(
    f: Function, node: ReshapeNode, above: TransposeNode, why: Why
) -> tuple[Node, Sequence[int]] | None:
    """Reshapes first, if dimensions that are merged are neighbours before the transpose too.

    If they are not, the transpose is split in one that brings them together and one that can go
    behind the reshape. That is done only where the latter meets transposes: a channel shuffle
    (ShuffleNet) ends so between two convolutions.
    """
    source, shape = above.input, node.type.shape
    found = _orders_before(source.type.shape, above.shuffle, shape)
    if found is None or node.type.quant is not None:
        why.no("nothing is known of empty dimensions and of quantized reshapes")
        return None
    first, order = found
    if not keeps_order(source.type.shape, first):
        meets = all(isinstance(user, TransposeNode) for user in node.result.users)
        if is_identity(order) or not meets:
            why.no("the reshape merges dimensions that are not neighbours before the transpose")
            return None
        source = f.create_transpose(above.name, source, first).result
    type = Type(node.type.kind, tuple(shape[axis] for axis in order))
    return f.create_reshape(node.name, type, source), inverse(order)


def _orders_before(
    source: Shape, shuffle: Sequence[int], result: Shape
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The dimensions of `source` with those together that the reshape to `result` merges.

    Behind them, the dimensions of `result` in the order they have if that is reshaped.
    """
    groups = _groups([source[axis] for axis in shuffle], result)
    if groups is None:
        return None
    placed = sorted(([shuffle[part] for part in parts], made) for parts, made in groups)
    placed.sort(key=lambda group: min(group[0]))
    first = [axis for axis, size in enumerate(source) if size == 1]
    order = list(range(next((i for i, size in enumerate(result) if size != 1), len(result))))
    for parts, made in placed:
        first += parts
        order += made
    return tuple(first), tuple(order)


def _groups(before: Sequence[int], behind: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Pairs of runs of dimensions with equal products.

    A dimension of length 1 goes with the result dimension before it.
    """
    if 0 in before or 0 in behind:
        return None
    lefts = [axis for axis, size in enumerate(before) if size != 1]
    rights = [axis for axis, size in enumerate(behind) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while lefts:
        parts, made = [lefts.pop(0)], [rights.pop(0)]
        left, right = before[parts[0]], behind[made[0]]
        while left != right:
            if left < right:
                parts.append(lefts.pop(0))
                left *= before[parts[-1]]
            else:
                made.append(rights.pop(0))
                right *= behind[made[-1]]
        end = rights[0] if rights else len(behind)
        groups.append((parts, list(range(made[0], end))))
    return groups
