"""Import of GroupQueryAttention: several heads of queries share keys and values, which are kept between runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    broadcast,
    concat,
    convert,
    full,
    reshape,
    slice_axis,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import (
    LOWEST,
    added,
    bias_term,
    check_type,
    joined,
    scores,
    split,
)
from glowpy.importer.onnx.contrib.rotary import gathered, rotated
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError

__all__: list[str] = []


@dataclass(frozen=True)
class _Lengths:
    """How long everything is.

    Attributes:
        new: Queries and keys that come now.
        total: Keys that there are then, in the longest batch.
        kept: Keys that are kept for the next run, zeros after the last one.
        past: Keys from before, of each batch [batch, 1, 1, 1], or for all batches.
        end: How many keys each batch has then, if its past and new ones do not tell: a first run fills up short
            batches on the right.
    """

    new: int
    total: int
    kept: int
    past: NodeValue | int
    end: NodeValue | None = None

    def positions(self, n: OnnxNode) -> NodeValue:
        """Where the new queries and keys are, [batch or 1, 1, new, 1]."""
        steps = np.arange(self.new, dtype=np.int64).reshape(1, 1, -1, 1)
        if isinstance(self.past, int):
            return n.operand(Tensor.of(steps + self.past), f"{n.name}_positions")
        return n.f.create_add(n.name, self.past, n.operand(Tensor.of(steps))).result


def _number(n: OnnxNode, value: int) -> NodeValue:
    return n.operand(full(Type(ElemKind.I64, ()), value), f"{n.name}_number")


@from_onnx("GroupQueryAttention", domain=CONTRIB)
def _group_query_attention(n: OnnxNode) -> tuple[Result, ...]:
    """The results are the attention, the kept keys and values and, as `qk_output` says, scores or weights."""
    _refuse(n)
    query, key, value = _normalized(n, *_projected(n))
    lengths = _lengths(n, key)
    if n.flag("do_rotary"):
        query, key = _turned(n, lengths, query, key)
    key, value = (_kept(n, i, new, lengths) for i, new in ((3, key), (4, value)))
    keys, values = (n.operand(slice_axis(n, kept, 2, 0, lengths.total, 1)) for kept in (key, value))
    if n.scope.shares_caches and not isinstance(lengths.past, int):
        values = _cut(n, values, lengths.past, lengths.new)
    seen = _seen(
        n, lengths
    )  # before the scores, which are then changed where the product stores them
    total = _total(n, _grouped_scores(n, query, keys))
    weights = _weights(n, total, seen)
    shown = weights
    if n.integer("qk_output", 0) == 1:
        zero = n.operand(full(Type(total.type.kind, ()), 0), f"{n.name}_zero")
        shown = n.f.create_select(n.name, seen, total, zero).result
    return _mixed(n, weights, values), key, value, convert(n, shown, query.type.kind)


def _refuse(n: OnnxNode) -> None:
    for name in ("kv_cache_bit_width", "sliding_window_cache"):
        if n.flag(name):
            raise n.unsupported(f"{name} {n.integer(name, 0)}")
    for name in ("k_quant_type", "v_quant_type"):
        if n.text(name, "NONE") != "NONE":
            raise n.unsupported(f"{name} {n.text(name, 'NONE')}")
    for index, name in ((12, "k_scale"), (13, "v_scale"), (16, "query_seqlens")):
        if n.has(index):
            raise n.unsupported(f"input {index} ('{n.proto.input[index]}', {name})")
    for first, second in ((1, 2), (3, 4), (7, 8), (14, 15)):
        if n.has(first) != n.has(second):
            raise UserError(f"expected both inputs {first} and {second}, or neither")
    if n.wants(3) != (n.integer("qk_output", 0) in (1, 2)):
        raise UserError(
            f"expected a fourth output iff qk_output is 1 or 2, got {n.integer('qk_output', 0)}"
        )


def _projected(n: OnnxNode) -> tuple[NodeValue, NodeValue, NodeValue]:
    """Query, key and value in heads; they may come side by side as the query."""
    heads, groups = n.integer("num_heads", 0), n.integer("kv_num_heads", 0)
    if min(heads, groups) < 1 or heads % groups:
        raise UserError(f"expected num_heads as a multiple of kv_num_heads, got {heads}, {groups}")
    for index in range(3):
        if n.has(index) and n.type(index).rank != 3:
            raise UserError(
                f"expected [batch, length, width] as input {index}, got {n.type(index)}"
            )
    if n.has(1):
        query = split(n, n.value(0), heads)
        return query, split(n, n.value(1), groups), split(n, n.value(2), groups)
    packed = split(n, n.value(0), heads + 2 * groups)
    query, key, value = (
        n.operand(slice_axis(n, packed, 1, start, count, 1))
        for start, count in ((0, heads), (heads, groups), (heads + groups, groups))
    )
    return query, key, value


def _normalized(
    n: OnnxNode, query: NodeValue, key: NodeValue, value: NodeValue
) -> tuple[NodeValue, NodeValue, NodeValue]:
    """Queries and keys divided by the root of their mean squares, if there are weights for that."""
    if not n.has(14):
        return query, key, value
    both = n.real("qk_norm_epsilon", 1e-6)
    results = []
    for index, x, own in ((14, query, "q_norm_epsilon"), (15, key, "k_norm_epsilon")):
        check_type(n, index, x.type.extents[3:])
        epsilon = n.real(own, both)
        normal = standard(n, "RMSNormalization", [x, n.value(index)], axis=-1, epsilon=epsilon)
        results.append(n.operand(normal))
    return results[0], results[1], value


def _lengths(n: OnnxNode, key: NodeValue) -> _Lengths:
    """Each batch has the length that input 5 says, perhaps less than input 6; all begin with a first run."""
    batch, _, new, _ = key.type.extents
    check_type(n, 5, (batch,))
    total, room = (
        int(n.known_scalar(6)),
        n.type(3).extents[2] if n.has(3) and n.type(3).rank == 4 else 0,
    )
    past, kept = total - new, max(total, room)
    if not 0 <= past <= room:
        raise UserError(f"expected a total length from {new} to {room + new}, got {total}")
    last = convert(n, reshape(n, n.value(5), (batch, 1, 1, 1)), ElemKind.I64)
    if isinstance(last, Tensor) and bool((last.array == total - 1).all()):
        return _Lengths(new, total, kept, past)
    if not past:
        end = n.f.create_add(n.name, n.operand(last), _number(n, 1)).result
        return _Lengths(new, total, kept, past, end)
    begins = n.f.create_add(n.name, n.operand(last), _number(n, 1 - new)).result
    return _Lengths(new, total, kept, begins)


def _turned(
    n: OnnxNode, lengths: _Lengths, query: NodeValue, key: NodeValue
) -> tuple[NodeValue, NodeValue]:
    """Queries and keys, turned by the angles of their positions."""
    if not n.has(7):
        raise UserError("expected inputs 7 and 8 (cos_cache, sin_cache) where do_rotary is 1")
    places = lengths.positions(n)
    positions = reshape(n, places, (places.type.extents[0], lengths.new))
    if n.has(9):
        check_type(n, 9, (key.type.extents[0], lengths.new))
        positions = n.value(9)
        if lengths.past == 0:  # the first run takes the first position, and counts from there
            first = slice_axis(n, slice_axis(n, positions, 0, 0, 1, 1), 1, 0, 1, 1)
            steps = Tensor.of(np.arange(lengths.new, dtype=np.int64)[None])
            positions = n.f.create_add(n.name, n.operand(first), n.operand(steps)).result
    cosine, sine = (gathered(n, index, positions) for index in (7, 8))
    interleaved = n.flag("rotary_interleaved")
    turned = [rotated(n, x, cosine, sine, interleaved=interleaved) for x in (query, key)]
    return turned[0], turned[1]


def _kept(n: OnnxNode, index: int, new: NodeValue, lengths: _Lengths) -> NodeValue:
    """Keys or values of the past and new ones after them, then zeros."""
    batch, groups, count, size = new.type.extents
    past: list[Value] = []
    if n.has(index):
        check_type(n, index, (batch, groups, *n.type(index).extents[2:3], size))
        past = [n.value(index)]
    if not isinstance(lengths.past, int):
        return _written(n, past[0], new, lengths, lengths.past)
    parts = [slice_axis(n, item, 2, 0, lengths.past, 1) for item in past]
    rest = lengths.kept - lengths.past - count
    tail: Value = full(new.type.with_shape((batch, groups, rest, size)), 0)
    if rest and n.scope.shares_caches:
        tail = slice_axis(n, past[0], 2, lengths.past + count, rest, 1)
    tails = [tail] if rest else []
    return n.operand(concat(n, [*parts, new, *tails] if lengths.past else [new, *tails], 2))


def _written(
    n: OnnxNode, past: Value, new: NodeValue, lengths: _Lengths, ends: NodeValue
) -> NodeValue:
    """The same where it is known only when the network runs where the past of each batch `ends`."""
    batch, groups, count, size = new.type.extents
    room, f = past.type.extents[2], n.f
    zero = f.create_splat(f"{n.name}_zero", Type(new.type.kind, ()), 0.0).result
    # One new row is chosen where it belongs, in one pass over memory; several are written after it.
    row = new if count == 1 else zero
    parts = []
    for first, stop, old in ((0, room, n.operand(past)), (room, lengths.kept, zero)):
        if first == stop:
            continue
        numbers = np.arange(first, stop, dtype=np.int64).reshape(1, 1, -1, 1)
        places = n.operand(Tensor.of(numbers), f"{n.name}_places")
        rest = old if n.scope.shares_caches else zero
        after = f.create_select(n.name, f.create_eq(n.name, places, ends), row, rest).result
        kept = f.create_select(n.name, f.create_lt(n.name, places, ends), old, after).result
        parts.append(broadcast(n, kept, (batch, groups, stop - first, size)))
    result = n.operand(concat(n, parts, 2))
    return result if count == 1 else _with_rows(n, result, new, ends)


def _with_rows(n: OnnxNode, kept: NodeValue, new: NodeValue, begins: NodeValue) -> NodeValue:
    """Keys or values with new rows, in each batch from another one on."""
    batch, groups, room, size = kept.type.extents
    count, f = new.type.extents[2], n.f
    starts = np.arange(batch * groups, dtype=np.int64).reshape(batch, groups, 1, 1) * room
    steps = np.arange(count, dtype=np.int64).reshape(1, 1, -1, 1)
    last = f.create_min(n.name, begins, _number(n, room - count))
    begin = f.create_max(n.name, last, _number(n, 0))
    index = f.create_add(n.name, begin, n.operand(Tensor.of(starts + steps), f"{n.name}_steps"))
    lines = n.operand(reshape(n, kept, (batch * groups * room, size)))
    places = n.operand(reshape(n, index.result, (batch * groups * count,)))
    updates = n.operand(reshape(n, new, (batch * groups * count, size)))
    result = f.create_scatter(n.name, lines, places, updates).result
    return n.operand(reshape(n, result, (batch, groups, room, size)))


def _cut(n: OnnxNode, values: NodeValue, past: NodeValue, new: int) -> NodeValue:
    """Values with zeros after the last one: nobody knows what is there, and NaN times a weight of 0 would be NaN."""
    numbers = np.arange(values.type.extents[2], dtype=np.int64).reshape(1, 1, -1, 1) - new
    places = n.operand(Tensor.of(numbers), f"{n.name}_places")
    zero = n.f.create_splat(f"{n.name}_zero", Type(values.type.kind, ()), 0.0)
    return n.f.create_select(n.name, n.f.create_lt(n.name, places, past), values, zero).result


def _grouped_scores(n: OnnxNode, query: NodeValue, key: NodeValue) -> NodeValue:
    """Scores [batch, heads, queries, keys]: the heads of a group are one product with its keys."""
    batch, heads, length, size = query.type.extents
    groups = key.type.extents[1]
    stacked = reshape(n, query, (batch, groups, heads // groups * length, size))
    plain = scores(n, n.operand(stacked), key)
    return n.operand(reshape(n, plain, (batch, heads, length, key.type.extents[2])))


def _mixed(n: OnnxNode, weights: NodeValue, value: NodeValue) -> Value:
    """The values, weighed: [batch, queries, heads * size]."""
    batch, heads, length, keys = weights.type.extents
    groups, size = value.type.extents[1], value.type.extents[3]
    stacked = n.operand(reshape(n, weights, (batch, groups, heads // groups * length, keys)))
    wide = n.operand(convert(n, value, weights.type.kind))
    product = convert(n, n.f.create_mat_mul(n.name, stacked, wide).result, value.type.kind)
    return joined(n, reshape(n, product, (batch, heads, length, size)))


def _total(n: OnnxNode, plain: NodeValue) -> NodeValue:
    """The scores within a soft limit, plus a bias."""
    f, softcap = n.f, n.real("softcap", 0.0)
    if softcap:
        cap = f.create_splat(f"{n.name}_softcap", Type(plain.type.kind, ()), softcap)
        limited = f.create_tanh(n.name, f.create_div(n.name, plain, cap))
        plain = f.create_mul(n.name, limited, cap).result
    return added(n, plain, [bias_term(n, 10, plain.type)])


def _weights(n: OnnxNode, total: NodeValue, seen: NodeValue) -> NodeValue:
    """The softmax of the scores that a query sees."""
    f, type = n.f, total.type
    hidden = f.create_splat(f"{n.name}_hidden", Type(type.kind, ()), LOWEST)
    visible = f.create_select(n.name, seen, total, hidden).result
    sink = _sink(n, type)
    if sink is None:
        return f.create_softmax(n.name, visible, 3).result
    weights = f.create_softmax(n.name, n.operand(concat(n, [visible, sink], 3)), 3).result
    return n.operand(slice_axis(n, weights, 3, 0, type.extents[3], 1))


def _seen(n: OnnxNode, lengths: _Lengths) -> NodeValue:
    """Which keys a query sees: those up to itself, or within the window. It broadcasts to the scores."""
    f, window, causal = n.f, n.integer("local_window_size", -1), n.flag("causal", True)
    if window != -1 and (not causal or window < 1):
        expected = "-1, or at least 1" if causal else "-1 without causal"
        raise UserError(f"attribute 'local_window_size': expected {expected}, got {window}")
    steps = np.arange(lengths.new)[:, None] if causal else np.array([[lengths.new - 1]])
    # Where a key is if the query is the first new one: at most at the end of the past, then.
    places = np.arange(lengths.total, dtype=np.int64) - steps
    if isinstance(lengths.past, int):
        inside = (places <= lengths.past) & ((window == -1) | (places > lengths.past - window))
        seen = n.operand(Tensor.of(inside), f"{n.name}_seen")
    else:
        keys = n.operand(Tensor.of(places), f"{n.name}_places")
        seen = f.create_le(n.name, keys, lengths.past).result
        if window != -1:
            first = f.create_sub(n.name, lengths.past, _number(n, window))
            seen = f.create_and(n.name, seen, f.create_lt(n.name, first, keys)).result
    if lengths.end is not None:
        keys = n.operand(Tensor.of(np.arange(lengths.total, dtype=np.int64)), f"{n.name}_keys")
        seen = f.create_and(n.name, seen, f.create_lt(n.name, keys, lengths.end)).result
    return seen


def _sink(n: OnnxNode, type: Type) -> Value | None:
    """One more score for each query, of a key without a value: 0, or that of its head."""
    batch, heads, queries, _ = type.extents
    shape = (batch, heads, queries, 1)
    if n.has(11):
        check_type(n, 11, (heads,))
        sink = convert(n, n.value(11), type.kind)
        return broadcast(n, reshape(n, sink, (1, heads, 1, 1)), shape)
    return full(type.with_shape(shape), 0) if n.integer("smooth_softmax", 0) == 1 else None
