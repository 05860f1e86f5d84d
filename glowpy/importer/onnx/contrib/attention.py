"""Import of attention over all keys: Attention, which projects its input itself, and MultiHeadAttention."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import concat, convert, reshape, slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import (
    added,
    bias_term,
    causal_term,
    check_type,
    extended,
    masked_term,
    mixed,
    scores,
    scores_type,
    split,
)
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = ["attended"]


def _parts(n: OnnxNode, value: Value, sizes: Sequence[int]) -> list[Value]:
    """The value cut along its last dimension."""
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    axis = value.type.rank - 1
    return [
        slice_axis(n, value, axis, start, size, 1)
        for start, size in zip(starts, sizes, strict=True)
    ]


@from_onnx("Attention", domain=CONTRIB)
def _attention(n: OnnxNode) -> tuple[Result, ...]:
    """Query, key and value are one product of the input with weights that stand side by side."""
    if n.has(6):
        raise n.unsupported(f"input 6 ('{n.proto.input[6]}', past_sequence_length)")
    if n.type(0).rank != 3 or n.type(1).rank != 2:
        raise UserError(
            f"expected [batch, length, width] and weights, got {n.type(0)}, {n.type(1)}"
        )
    product = n.operand(standard(n, "MatMul", [n.value(0), n.value(1)]))
    if n.has(2):
        check_type(n, 2, product.type.shape[-1:])
        product = n.f.create_add(n.name, product, n.input(2)).result
    return attended(n, product, n.integers("qkv_hidden_sizes"), 3, 4, 5)


def attended(
    n: OnnxNode,
    product: NodeValue,
    sizes: Sequence[int] | None,
    mask: int,
    past: int,
    bias: int | None,
) -> tuple[Result, ...]:
    """Attention of query, key and value side by side, of `sizes`, equal if None; then all keys and values if wanted.

    `mask`, `past` and `bias` are the inputs that may say what is masked, earlier keys and values, and what is added
    to the scores.
    """
    for name in ("do_rotary", "past_present_share_buffer"):
        if n.flag(name):
            raise n.unsupported(f"{name} {n.integer(name, 0)}")
    width, heads = product.type.extent(-1), n.integer("num_heads", 0)
    sizes = sizes or (width // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != width or sizes[0] != sizes[1]:
        raise UserError(f"expected the sizes of query, key and value in {width}, got {list(sizes)}")
    query, key, value = (split(n, part, heads) for part in _parts(n, product, sizes))
    before: Dim = 0
    if n.has(past):
        old_key, old_value = _stacked(n, past)
        before = old_key.type.shape[2]
        key, value = extended(n, old_key, key), extended(n, old_value, value)
    type = scores_type(query, key)
    terms = [
        None if bias is None else bias_term(n, bias, type),
        masked_term(n, mask, type, starts=True),
        causal_term(n, type, before),
    ]
    weights, _ = _weights(n, query, key, terms)
    result = mixed(n, weights, value)
    return (result, _stack(n, key, value)) if n.wants(1) else (result,)


def _stacked(n: OnnxNode, index: int) -> list[Value]:
    """The halves of input `index`, [2, batch, heads, length, size]."""
    type = n.type(index)
    if type.rank != 5 or type.shape[0] != 2:
        raise UserError(f"expected keys and values in one tensor as input {index}, got {type}")
    halves = (slice_axis(n, n.value(index), 0, i, 1, 1) for i in (0, 1))
    return [reshape(n, half, type.shape[1:]) for half in halves]


def _stack(n: OnnxNode, key: NodeValue, value: NodeValue) -> Value:
    if key.type != value.type:
        raise UserError(f"expected keys and values of one size, got {key.type} and {value.type}")
    return concat(n, [reshape(n, item, (1, *item.type.shape)) for item in (key, value)], 0)


def _weights(
    n: OnnxNode, query: NodeValue, key: NodeValue, terms: Sequence[Value | None]
) -> tuple[NodeValue, NodeValue]:
    """How much each key counts for each query, which is the softmax of the scores with all terms, and those scores."""
    total = added(n, scores(n, query, key), terms)
    return n.f.create_softmax(n.name, total, 3).result, total


@from_onnx("MultiHeadAttention", domain=CONTRIB)
def _multi_head_attention(n: OnnxNode) -> tuple[Result, ...]:
    """Query, key and value come projected, but perhaps without the bias of the projections."""
    for index, name in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if n.has(index):
            raise n.unsupported(f"input {index} ('{n.proto.input[index]}', {name})")
    query, key, value = _projected(n)
    if n.has(6) != n.has(7):
        raise UserError("expected both past_key and past_value, or neither")
    new = key.type.shape[2]
    if n.has(6):
        key, value = extended(n, n.value(6), key), extended(n, n.value(7), value)
    type = scores_type(query, key)
    mask = masked_term(n, 4, type, starts=False)
    terms = [bias_term(n, 5, type), mask, causal_term(n, type, key.type.shape[2] - new)]
    weights, total = _weights(n, query, key, terms)
    return mixed(n, weights, value), key, value, convert(n, total, query.type.kind)


def _projected(n: OnnxNode) -> tuple[NodeValue, NodeValue, NodeValue]:
    """Query, key and value as [batch, heads, length, size], from any of the forms they may come in."""
    heads, forms = n.integer("num_heads", 0), [n.type(i).rank if n.has(i) else 0 for i in range(3)]
    match forms:
        case [5, 0, 0]:
            return _biased(n, [_unpacked(n, n.value(0), i, 3) for i in range(3)])
        case [3, 5, 0]:
            packed = [_unpacked(n, n.value(1), i, 2) for i in range(2)]
            return _biased(n, [n.value(0), *packed])
        case [3, 3, 3]:
            return _biased(n, [n.value(0), n.value(1), n.value(2)])
        case [3, 4, 4]:
            return split(n, _plain(n), heads), n.input(1), n.input(2)
        case _:
            types = ", ".join(str(n.type(i)) if n.has(i) else "none" for i in range(3))
            raise n.unsupported(f"query, key and value of {types}")


def _plain(n: OnnxNode) -> Value:
    """The query alone with its part of the bias: keys and values in heads have theirs already."""
    if not n.has(3):
        return n.value(0)
    width = n.type(0).extent(-1)
    check_type(n, 3, (3 * width,))
    bias = slice_axis(n, n.value(3), 0, 0, width, 1)
    return added(n, n.input(0), [bias])


def _unpacked(n: OnnxNode, value: Value, index: int, count: int) -> Value:
    """One of `count` tensors in [batch, length, heads, count, size], as [batch, length, heads * size]."""
    batch, length, heads, together, size = value.type.shape
    if together != count:
        raise UserError(f"expected {count} tensors in one, got {value.type}")
    return reshape(n, slice_axis(n, value, 3, index, 1, 1), (batch, length, heads * size))


def _biased(n: OnnxNode, values: Sequence[Value]) -> tuple[NodeValue, NodeValue, NodeValue]:
    """Query, key and value plus their parts of the bias, in heads."""
    sizes = [value.type.extent(-1) for value in values]
    biases: Sequence[Value | None] = [None] * 3
    if n.has(3):
        check_type(n, 3, (sum(sizes),))
        biases = _parts(n, n.value(3), sizes)
    query, key, value = (
        split(n, added(n, n.operand(value), [bias]), n.integer("num_heads", 0))
        for value, bias in zip(values, biases, strict=True)
    )
    return query, key, value
