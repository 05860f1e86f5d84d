"""Weighted sums of gathers, which are what resizing to more or fewer pixels is, in one pass over memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.nodes_gen import create_cpu_weighted_gather
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import AddNode, GatherNode, MulNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import known
from glowpy.passes import RewritePass
from glowpy.support.symbolic import lowest

__all__ = ["FuseResizePass"]


@dataclass(frozen=True)
class FuseResizePass(RewritePass):
    """Makes one instruction of a sum of gathers along one dimension, each times weights for its slices.

    Resize comes as such a sum for each dimension: two gathers for lines, four for cubics. One by one, they write and
    read as many tensors of the result's size. Indices and weights have to be known.

    Before:
        %x : f32[2x4]
        %out : f32[3x4]
        %i : i64[3] = [0, 0, 1]
        %j : i64[3] = [0, 1, 1]
        %v : f32[3x1] = [1.0, 0.5, 0.0]
        %w : f32[3x1] = [0.0, 0.5, 1.0]
        %a = gather(%x, %i) {axis=0} : f32[3x4]
        %b = mul(%a, %v) : f32[3x4]
        %c = gather(%x, %j) {axis=0} : f32[3x4]
        %d = mul(%c, %w) : f32[3x4]
        %e = add(%b, %d) : f32[3x4]
        save(%e, %out)
    After:
        %x : f32[2x4]
        %out : f32[3x4]
        %i : i64[3] = [0, 0, 1]
        %j : i64[3] = [0, 1, 1]
        %v : f32[3x1] = [1.0, 0.5, 0.0]
        %w : f32[3x1] = [0.0, 0.5, 1.0]
        %e_places : i64[3x2] = [0, 0, 0, 1, 1, 1]
        %e_factors : f32[3x2] = [1.0, 0.0, 0.5, 0.5, 0.0, 1.0]
        %e = cpu_weighted_gather(%x, %e_places, %e_factors) {axis=0} : f32[3x4]
        save(%e, %out)
    """

    name: ClassVar[str] = "fuse-resize"
    concerns = (GatherNode,)

    @rule
    def weigh(self, f: Function, n: AddNode, why: Why) -> Replacement:
        """The whole sum, at its last addition."""
        if n.type.kind not in (ElemKind.F32, ElemKind.F64) or _is_summand(n):
            return None
        terms = _terms(n)
        if not terms:
            return None
        input, axis = terms[0].gather.input, terms[0].gather.axis
        if any((term.gather.input, term.gather.axis) != (input, axis) for term in terms):
            return why.no("the gathers are not of one tensor along one dimension")
        if any(term.gather.type != n.type for term in terms):
            return why.no("slices of one gather are repeated for another, or for weights")
        if axis == n.type.rank - 1 or lowest(input.type.shape[axis]) < 1:
            return why.no("slices have single elements, or there may be none")
        indices = np.stack([term.indices.astype(np.int64) for term in terms], 1)
        weights = np.stack([term.weights for term in terms], 1)
        places = f.module.create_constant(f"{n.name}_places", indices, loc=n.loc)
        factors = f.module.create_constant(f"{n.name}_factors", weights, loc=n.loc)
        return create_cpu_weighted_gather(f, n.name, n.type, input, places, factors, axis=axis)


@dataclass(frozen=True)
class _Term:
    """A gather by known indices, and a weight for each of its slices."""

    gather: GatherNode
    indices: Array
    weights: Array


def _is_summand(n: AddNode) -> bool:
    """Whether a node is part of a larger sum that would do if this one does."""
    larger = n.result.users[0] if _is_private(n) else None
    if not isinstance(larger, AddNode):
        return False
    return _term(larger.rhs if larger.lhs is n.result else larger.lhs) is not None


def _terms(n: AddNode) -> list[_Term]:
    """Returns the terms of a sum, in order; none where some of it is anything else."""
    terms: list[_Term] = []
    value = n.result
    while isinstance(node := value.node, AddNode):
        if node is not n and not _is_private(node):
            return []
        last, value = _term(node.rhs), node.lhs
        if last is None:  # a sum of more is on either side
            last, value = _term(node.lhs), node.rhs
        if last is None:
            return []
        terms.append(last)
    first = _term(value)
    return [first, *reversed(terms)] if first is not None else []


def _term(value: NodeValue) -> _Term | None:
    node, weights = value.node, None
    if isinstance(node, MulNode) and _is_private(node):
        sides = (node.lhs, node.rhs), (node.rhs, node.lhs)
        for gathered, factor in sides:
            if isinstance(gathered.node, GatherNode) and known(factor) is not None:
                node, weights = gathered.node, known(factor)
                break
    if not isinstance(node, GatherNode) or not _is_private(node):
        return None
    indices, axis, rank = known(node.indices), node.axis, node.type.rank
    if indices is None or indices.ndim != 1 or not indices.size:
        return None
    ones = np.ones(indices.size, node.type.kind.dtype)
    if weights is None:
        return _Term(node, indices, ones)
    full = weights.reshape((1,) * (rank - weights.ndim) + weights.shape)
    if full.ndim != rank or full.size != full.shape[axis]:
        return None
    return _Term(node, indices, ones * full.reshape(-1))


def _is_private(node: Node) -> bool:
    return node.predicate is None and node.result.num_users == 1 and node.type.quant is None
