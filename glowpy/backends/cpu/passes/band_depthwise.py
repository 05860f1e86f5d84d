"""Computes depthwise convolutions in bands of rows, each right after what it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from glowpy.backends.cpu.strategy.bands import Band, Window, bands
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.graph.parts import part_along
from glowpy.passes import GraphPass, PassContext
from glowpy.support.symbolic import Dim, static

__all__ = ["BandDepthwisePass"]

_MOST_FOLLOWING = 8
"""Element-wise nodes that go along with a convolution: activations have up to five."""

_ROWS = 1
"""The dimension of an image, and of attributes that begin with images, that bands cut."""

_SINCE_ROWS = 4 - _ROWS
"""The dimensions from that one on: operands with fewer have the same for each row."""


@dataclass(frozen=True)
class BandDepthwisePass(GraphPass):
    """Computes a widening convolution of 1 x 1 and the depthwise one that reads its result by turns, in bands of rows.

    All of a large image would leave the second-level cache before it is read, and take memory that a network needs
    nowhere else. Rows that two bands read are computed once: the second one copies them, in half of the time of
    computing them again. Element-wise nodes between them, and after the second, go along with each band.
    Here the second-level cache holds four of the nine rows of %c.

    Before:
        %x : f32[1x9x1400x1]
        %out : f32[1x4x1400x16]
        %w : f32[16x1x1x1] = splat 0.5
        %v : f32[16x3x1x1] = splat 0.25
        %b : f32[16] = splat 1.0
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x9x1400x16]
        %s = sigmoid(%c) : f32[1x9x1400x16]
        %d = convolution(%s, %v, %b)
            {dilation=[1,1], group=16, kernels=[3,1], pads=[1,0,0,0], strides=[2,1]} : f32[1x4x1400x16]
        save(%d, %out)
    After:
        %x : f32[1x9x1400x1]
        %out : f32[1x4x1400x16]
        %w : f32[16x1x1x1] = splat 0.5
        %v : f32[16x3x1x1] = splat 0.25
        %b : f32[16] = splat 1.0
        %x_1 = slice(%x) {starts=[0,0,0,0], steps=[1,1,1,1]} : f32[1x2x1400x1]
        %c_1 = convolution(%x_1, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x1400x16]
        %s_1 = sigmoid(%c_1) : f32[1x2x1400x16]
        %d_1 = convolution(%s_1, %v, %b)
            {dilation=[1,1], group=16, kernels=[3,1], pads=[1,0,0,0], strides=[2,1]} : f32[1x1x1400x16]
        %s_3 = slice(%s_1) {starts=[0,1,0,0], steps=[1,1,1,1]} : f32[1x1x1400x16]
        %x_2 = slice(%x) {starts=[0,2,0,0], steps=[1,1,1,1]} : f32[1x2x1400x1]
        %c_2 = convolution(%x_2, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x1400x16]
        %s_2 = sigmoid(%c_2) : f32[1x2x1400x16]
        %s_4 = concat(%s_3, %s_2) {axis=1} : f32[1x3x1400x16]
        %d_2 = convolution(%s_4, %v, %b)
            {dilation=[1,1], group=16, kernels=[3,1], pads=[0,0,0,0], strides=[2,1]} : f32[1x1x1400x16]
        %s_6 = slice(%s_4) {starts=[0,2,0,0], steps=[1,1,1,1]} : f32[1x1x1400x16]
        %x_3 = slice(%x) {starts=[0,4,0,0], steps=[1,1,1,1]} : f32[1x2x1400x1]
        %c_3 = convolution(%x_3, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x1400x16]
        %s_5 = sigmoid(%c_3) : f32[1x2x1400x16]
        %s_7 = concat(%s_6, %s_5) {axis=1} : f32[1x3x1400x16]
        %d_3 = convolution(%s_7, %v, %b)
            {dilation=[1,1], group=16, kernels=[3,1], pads=[0,0,0,0], strides=[2,1]} : f32[1x1x1400x16]
        %s_9 = slice(%s_7) {starts=[0,2,0,0], steps=[1,1,1,1]} : f32[1x1x1400x16]
        %x_4 = slice(%x) {starts=[0,6,0,0], steps=[1,1,1,1]} : f32[1x2x1400x1]
        %c_4 = convolution(%x_4, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x1400x16]
        %s_8 = sigmoid(%c_4) : f32[1x2x1400x16]
        %s_10 = concat(%s_9, %s_8) {axis=1} : f32[1x3x1400x16]
        %d_4 = convolution(%s_10, %v, %b)
            {dilation=[1,1], group=16, kernels=[3,1], pads=[0,0,0,0], strides=[2,1]} : f32[1x1x1400x16]
        %d_5 = concat(%d_1, %d_2, %d_3, %d_4) {axis=1} : f32[1x4x1400x16]
        save(%d_5, %out)
    """

    variant: Variant
    name: ClassVar[str] = "band-depthwise"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Cuts every pair; True iff there was any."""
        del ctx
        position = {node: index for index, node in enumerate(f.topological())}
        pairs = [pair for node in position if (pair := _pair(node, position)) is not None]
        written: set[Node] = set()
        for pair in pairs:
            nodes = {*pair.between, *pair.after}
            if written.isdisjoint(nodes) and (parts := self._bands(pair)):
                _write(f, pair, parts)
                written |= {pair.widening, *nodes}
        return bool(written)

    def _bands(self, pair: _Pair) -> list[Band]:
        depthwise, wide = pair.depthwise, pair.wide.type
        window = Window(
            size=wide.extents[_ROWS],
            reach=(depthwise.kernels[0] - 1) * depthwise.dilation[0] + 1,
            stride=depthwise.strides[0],
            before=static(depthwise.pads)[0],
        )
        machine = self.variant.machine_for(depthwise.type.kind)
        row_bytes = wide.room // window.size
        return bands(window, depthwise.type.extents[_ROWS], row_bytes, machine)


@dataclass(frozen=True)
class _Pair:
    """A widening convolution and a depthwise one, each with the element-wise nodes that follow it.

    Attributes:
        widening: The convolution of 1 x 1.
        between: The nodes that follow it.
        wide: The result of these, which only the next one reads.
        depthwise: Reads that.
        after: The nodes that follow the second.
        result: The result of the last one.
    """

    widening: ConvolutionNode
    between: Sequence[Node]
    wide: NodeValue
    depthwise: ConvolutionNode
    after: Sequence[Node]
    result: NodeValue


def _pair(node: Node, position: Mapping[Node, int]) -> _Pair | None:
    if not isinstance(node, ConvolutionNode) or not _is_pointwise(node):
        return None
    between, wide = _following(node, position)
    if wide.num_users != 1:
        return None
    (user,) = wide.users
    if not isinstance(user, ConvolutionNode) or user.input is not wide or not _is_depthwise(user):
        return None
    return _Pair(node, between, wide, user, *_following(user, position))


def _is_cut(n: ConvolutionNode) -> bool:
    """Whether it is one of floats over images of known extents, with weights that are packed once."""
    floats = n.type.kind in (ElemKind.F32, ElemKind.F64) and n.filter.constant is not None
    is_static = n.type.is_static and n.input.type.is_static and not n.type.is_empty
    is_static = is_static and all(isinstance(pad, int) for pad in n.pads)
    return floats and is_static and len(n.kernels) == 2 and n.predicate is None


def _is_pointwise(n: ConvolutionNode) -> bool:
    return _is_cut(n) and {*n.kernels, *n.strides, n.group} == {1} and set(n.pads) == {0}


def _is_depthwise(n: ConvolutionNode) -> bool:
    return _is_cut(n) and 1 < n.group == n.input.type.shape[-1] == n.type.shape[-1]


def _following(n: Node, position: Mapping[Node, int]) -> tuple[Sequence[Node], NodeValue]:
    """The element-wise nodes after a node, in order, as far as all of them come to one value, and that value."""
    nodes, count = [n], 1
    pending = set(n.results[0].users)
    while pending and len(nodes) <= _MOST_FOLLOWING:
        node = min(pending, key=position.__getitem__)
        if not node.has(Trait.ELEMENTWISE) or node.predicate is not None:
            break
        if len(node.results) != 1 or node.results[0].type.shape != n.results[0].type.shape:
            break
        pending.remove(node)
        nodes.append(node)
        if not pending:
            count = len(nodes)
        pending.update(node.results[0].users)
    return nodes[1:count], nodes[count - 1].results[0]


def _write(f: Function, pair: _Pair, parts: Sequence[Band]) -> None:
    results: list[NodeValue] = []
    wide, before = pair.wide, None
    for band in parts:
        low = band.low if before is None else max(before.high, band.low)
        source = _rows(f, pair.widening.input, low, band.high)
        computed = {pair.widening.input: source}
        image = _copied(f, [pair.widening, *pair.between], computed, low, band.high, {})
        if before is not None and band.low < low:
            rows = _rows(f, wide, band.low - before.low, low - before.low)
            image = f.create_concat(pair.wide.name, [rows, image], _ROWS).result
        wide, before = image, band
        _, left, _, right = pair.depthwise.pads
        pads: dict[str, tuple[Dim, ...]] = {"pads": (band.above, left, band.below, right)}
        nodes = [pair.depthwise, *pair.after]
        results.append(_copied(f, nodes, {pair.wide: wide}, band.first, band.last, pads))
    assert pair.result.node is not None
    f.replace(pair.result.node, [f.create_concat(pair.result.name, results, _ROWS)])


def _copied(
    f: Function,
    nodes: Sequence[Node],
    computed: Mapping[NodeValue, NodeValue],
    first: int,
    last: int,
    attrs: Mapping[str, tuple[Dim, ...]],
) -> NodeValue:
    """The result of copies of nodes that compute the rows from `first` to before `last`; `attrs` are the head's."""
    copies = dict(computed)
    head = nodes[0]
    for node in nodes:
        rows = _of_rows(node.results[0].type, last - first)
        inputs = [
            copies[value] if value in copies else _part(f, value, first, last, head=node is head)
            for value in node.inputs
        ]
        node_attrs = {**node.attrs, **attrs} if node is head else node.attrs
        copy = f.create(type(node), node.name, inputs, node_attrs, rows, node.loc)
        copies[node.results[0]] = copy.results[0]
    return copies[nodes[-1].results[0]]


def _part(f: Function, value: NodeValue, first: int, last: int, *, head: bool) -> NodeValue:
    """Returns these rows of another operand; all of it where it is alike for each row, and of a filter and a bias."""
    if head or value.type.rank < _SINCE_ROWS or value.type.shape[-_SINCE_ROWS] == 1:
        return value
    return _rows(f, value, first, last)


def _of_rows(type: Type, count: int) -> Type:
    return type.with_shape((*type.shape[:_ROWS], count, *type.shape[_ROWS + 1 :]))


def _rows(f: Function, value: NodeValue, first: int, last: int) -> NodeValue:
    """The rows from `first` to before `last` of an image."""
    return part_along(f, value.name, value, -_SINCE_ROWS, first, last - first)
