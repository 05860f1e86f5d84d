"""Makes one product of those of one left side, such as those for queries, keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import AddNode, MatMulNode, SaveNode
from glowpy.graph.parts import part_along
from glowpy.opt.known import known
from glowpy.passes import GraphPass, PassContext
from glowpy.support.symbolic import Dim, likely_extent, product, static

__all__ = ["MergeProductsPass"]

_MOST_ROWS = 512
"""Rows of the left side, if they are known. Attention reads longer keys and values again and again, which takes longer
where rows lie apart: 1.4 % of a Whisper encoder's time, with 1,500 of them."""


@dataclass(frozen=True)
class MergeProductsPass(GraphPass):
    """Multiplies a left side by all constants that it meets at once, where the results are read by strides.

    A bias goes along. A product whose result goes through element-wise nodes stays, since these are its epilogue, and
    so does one whose weights others use as well, which would have them twice, and one of many rows.

    Before:
        %x : f32[2x1]
        %a, %b : f32[2]
        %v : f32[1x2] = [1.0, 2.0]
        %w : f32[1x2] = [3.0, 4.0]
        %c : f32[2] = [5.0, 6.0]
        %p = mat_mul(%x, %v) : f32[2x2]
        %q = mat_mul(%x, %w) : f32[2x2]
        %d = add(%q, %c) : f32[2x2]
        %s = reduce_max(%p) {axes=[1]} : f32[2x1]
        %r = reshape(%s) : f32[2]
        save(%r, %a)
        %t = reduce_max(%d) {axes=[1]} : f32[2x1]
        %u = reshape(%t) : f32[2]
        save(%u, %b)
    After:
        %x : f32[2x1]
        %a, %b : f32[2]
        %v : f32[1x2] = [1.0, 2.0]
        %w : f32[1x2] = [3.0, 4.0]
        %c : f32[2] = [5.0, 6.0]
        %p_merged : f32[1x4] = [1.0, 2.0, 3.0, 4.0]
        %p_bias : f32[4] = [0.0, 0.0, 5.0, 6.0]
        %p_1 = mat_mul(%x, %p_merged) : f32[2x4]
        %p_2 = add(%p_1, %p_bias) : f32[2x4]
        %p_3 = slice(%p_2) {starts=[0,0], steps=[1,1]} : f32[2x2]
        %s = reduce_max(%p_3) {axes=[1]} : f32[2x1]
        %r = reshape(%s) : f32[2]
        save(%r, %a)
        %d_1 = slice(%p_2) {starts=[0,2], steps=[1,1]} : f32[2x2]
        %t = reduce_max(%d_1) {axes=[1]} : f32[2x1]
        %u = reshape(%t) : f32[2]
        save(%u, %b)
    """

    small: bool = False
    name: ClassVar[str] = "merge-products"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Merges every group; True iff there was any."""
        del ctx
        if self.small:
            return False
        groups: dict[tuple[NodeValue, int], list[_Member]] = {}
        for node in f.topological():
            member = _member(node)
            if member is not None:
                groups.setdefault((member.product.lhs, member.product.type.rank), []).append(member)
        several = [members for members in groups.values() if len(members) > 1]
        for members in several:
            _merge(f, members)
        return bool(several)


@dataclass(frozen=True)
class _Member:
    """A product with a constant, and what is added to its rows, if anything is."""

    product: MatMulNode
    weights: Constant
    bias: Array | None
    result: NodeValue

    @property
    def columns(self) -> int:
        """The number of columns of the result."""
        (columns,) = static(self.weights.type.shape[-1:])
        return columns


def _member(node: Node) -> _Member | None:
    if not isinstance(node, MatMulNode) or node.type.kind is not ElemKind.F32 or node.predicate:
        return None
    weights = node.rhs.constant
    if likely_extent(product(node.type.shape[:-1])) > _MOST_ROWS:
        return None
    if weights is None or weights.type.rank != 2 or node.rhs.num_users != 1:
        return None
    result, bias = node.result, None
    users = node.result.users
    if len(users) == 1 and isinstance(users[0], AddNode):
        total = users[0]
        added = total.rhs if total.lhs is node.result else total.lhs
        if total.type == node.type and _is_row(added.type, node.type.shape[-1]):
            bias = known(added)
            result = result if bias is None else total.result
    if any(user.has(Trait.ELEMENTWISE) or isinstance(user, SaveNode) for user in result.users):
        return None
    return _Member(node, weights, bias, result)


def _is_row(type: Type, columns: Dim) -> bool:
    """Whether there is an element for each column, and no more."""
    return type.rank > 0 and type.count == type.shape[-1] == columns


def _merge(f: Function, members: Sequence[_Member]) -> None:
    first = members[0].product
    (depth,) = static(members[0].weights.type.shape[:1])
    columns = sum(member.columns for member in members)
    tensor = Tensor.derived(
        Type(ElemKind.F32, (depth, columns)),
        "concat columns",
        [member.weights.tensor for member in members],
        lambda *matrices: np.concatenate(matrices, 1),
    )
    weights = f.module.create_constant(f"{first.name}_merged", tensor, loc=first.loc)
    result = f.create_mat_mul(first.name, first.lhs, weights).result
    if any(member.bias is not None for member in members):
        parts = [
            np.zeros(member.columns, np.float32) if member.bias is None else member.bias.reshape(-1)
            for member in members
        ]
        bias = f.module.create_constant(f"{first.name}_bias", np.concatenate(parts), loc=first.loc)
        result = f.create_add(first.name, result, bias).result
    start = 0
    for member in members:
        part = part_along(f, member.result.name, result, -1, start, member.columns)
        member.result.replace_all_uses_with(part)
        start += member.columns
    f.erase_dead([member.result.node for member in members if member.result.node is not None])
