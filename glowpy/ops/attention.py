"""Rules of attention with a state of a fixed size."""

from __future__ import annotations

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import LinearAttentionNode
from glowpy.graph.work import largest_count, macs
from glowpy.ir.insts_gen import LinearAttentionInst
from glowpy.irgen import scratch
from glowpy.support.errors import UserError

__all__: list[str] = []


@infer(LinearAttentionNode)
def _infer_linear_attention(
    query: Type, key: Type, value: Type, factors: Type, rates: Type, initial: Type
) -> tuple[Type, Type]:
    if not query.kind.is_float or (query.rank, key.rank, value.rank) != (4, 4, 4):
        raise UserError(f"expected floats of rank 4, got {query}, {key} and {value}")
    batch, steps, heads, depth = query.shape
    shared, width = value.shape[2:]
    if not isinstance(heads, int) or not isinstance(shared, int) or not shared or heads % shared:
        raise UserError(
            f"expected heads of queries that are a multiple of those of keys, got {heads} and {shared}"
        )
    lead = batch, steps
    _expect("key", key, query.with_shape((*lead, shared, depth)))
    _expect("value", value, query.with_shape((*lead, shared, width)))
    _expect("initial", initial, query.with_shape((batch, shared, depth, width)))
    _expect("factors", factors, query, (0,), (*lead, shared, depth), (*lead, shared, 1))
    _expect("rates", rates, query, (0,), (*lead, shared), (*lead, 1))
    return query.with_shape((*lead, heads, width)), initial


def _expect(name: str, type: Type, like: Type, *shapes: Shape) -> None:
    allowed = shapes or (like.shape,)
    if type.kind is not like.kind or not any(is_same_shape(type.shape, shape) for shape in allowed):
        spelled = " or ".join(str(like.with_shape(shape)) for shape in allowed)
        raise UserError(f"expected {name} {spelled}, got {type}")


@macs(LinearAttentionNode)
def _macs(n: LinearAttentionNode) -> int:
    """A step adds to the state, multiplies it by queries, and by the key where there are rates."""
    lines = 1 if n.rates.type.is_empty else 2
    state = (*n.value.type.shape, n.key.type.shape[3])
    return lines * largest_count(state) + largest_count((*n.type.shape, n.key.type.shape[3]))


@scratch(LinearAttentionNode)
def _added(n: LinearAttentionNode) -> tuple[Type, ...]:
    """Returns the types of the addends of a step: a value for each sequence."""
    batch, _, _, width = n.value.type.shape
    return (n.value.type.with_shape((batch, width)),)


@interpret(LinearAttentionInst)
def _linear_attention(
    result: Tensor,
    last: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: Tensor,
    rates: Tensor,
    initial: Tensor,
    added: Tensor,
) -> None:
    """Halves are computed in f32."""
    del added

    def wide(tensor: Tensor) -> Array:
        return tensor.array.astype(np.float32) if tensor.type.kind.is_half else tensor.array

    queries, keys, values, state = wide(query), wide(key), wide(value), wide(initial).copy()
    group = queries.shape[2] // keys.shape[2]
    for step in range(queries.shape[1]):
        new = values[:, step]
        if factors.array.size:
            state *= wide(factors)[:, step, :, :, np.newaxis]
        if rates.array.size:
            new = wide(rates)[:, step, :, np.newaxis] * (
                new - np.einsum("bhkv,bhk->bhv", state, keys[:, step])
            )
        state += keys[:, step, :, :, np.newaxis] * new[:, :, np.newaxis]
        read = np.repeat(state, group, axis=1)
        result.array[:, step] = np.einsum("bhk,bhkv->bhv", queries[:, step], read)
    last.array[...] = state
