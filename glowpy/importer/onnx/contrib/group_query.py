"""Import of GroupQueryAttention: several heads of queries share keys and values, which are kept between runs."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import (
    broadcast,
    concat,
    convert,
    filled,
    full,
    reshape,
    slice_axis,
)
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import SymbolicTensor, Value
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
from glowpy.importer.onnx.indices import check_places
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import UNBOUNDED, Dim, Expr, greatest, highest, lowest

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
        is_first: Whether this is a first run, if only the run can tell.
    """

    new: Dim
    total: Dim
    kept: Dim
    past: NodeValue | int
    end: NodeValue | None = None
    is_first: Numbers | None = None

    def positions(self, n: OnnxNode) -> NodeValue:
        """Where the new queries and keys are, [batch or 1, 1, new, 1]."""
        steps = counted(n, self.new).reshaped(1, 1, self.new, 1)
        if isinstance(self.past, int):
            return n.operand((steps + self.past).value, f"{n.name}_positions")
        return (Numbers(n, self.past) + steps).operand


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
        check_type(n, index, x.type.shape[3:])
        epsilon = n.real(own, both)
        normal = standard(n, "RMSNormalization", [x, n.value(index)], axis=-1, epsilon=epsilon)
        results.append(n.operand(normal))
    return results[0], results[1], value


def _lengths(n: OnnxNode, key: NodeValue) -> _Lengths:
    """Each batch has the length that input 5 says, perhaps less than input 6; all begin with a first run."""
    batch, _, new, _ = key.type.shape
    check_type(n, 5, (batch,))
    room = n.type(3).shape[2] if n.has(3) and n.type(3).rank == 4 else 0
    total = _total_length(n, new, room)
    past, kept = total - new, greatest(total, room)
    last = convert(n, reshape(n, n.value(5), (batch, 1, 1, 1)), ElemKind.I64)
    known = last.array if isinstance(last, Tensor) and isinstance(total, int) else None
    if isinstance(past, int) and known is not None and bool((known == total - 1).all()):
        return _Lengths(new, total, kept, past)
    if past == 0:
        end = n.f.create_add(n.name, n.operand(last), _number(n, 1)).result
        return _Lengths(new, total, kept, 0, end)
    begins = Numbers(n, last) + (1 - new)
    if lowest(past) > 0:
        return _Lengths(new, total, kept, begins.operand)
    is_first = Numbers.of(n, total, ElemKind.I64) <= new
    begins = Numbers.of(n, 0, ElemKind.I64).where(is_first, begins)
    ends = (Numbers(n, last) + 1).operand
    return _Lengths(new, total, kept, begins.operand, ends, is_first)


def _total_length(n: OnnxNode, new: Dim, room: Dim) -> Dim:
    """Input 6, which the network finds if it is neither known nor an extent."""
    value = n.value(6)
    if value.type.count != 1:
        raise UserError(f"expected one element as input 6, got {value.type}")
    count = convert(n, reshape(n, value, (1,)), ElemKind.I64)
    if isinstance(count, SymbolicTensor | Tensor):
        total: Dim = count.array.reshape(-1)[0]
        total = total if isinstance(total, Expr) else int(total)
        if highest(total - new) < 0 or lowest(total - new - room) > 0:
            raise UserError(f"expected a total length from {new} to {room + new}, got {total}")
        return total
    check_places(n, count, new, room + new)
    if room == 0:
        return new
    most = highest(room + new)
    found = Numbers(n, count).at_least(new).at_most(room + new)
    return n.found(
        found.value, f"{n.name}_total", None if most == UNBOUNDED else most, lowest(new), source=6
    )


def _turned(
    n: OnnxNode, lengths: _Lengths, query: NodeValue, key: NodeValue
) -> tuple[NodeValue, NodeValue]:
    """Queries and keys, turned by the angles of their positions."""
    if not n.has(7):
        raise UserError("expected inputs 7 and 8 (cos_cache, sin_cache) where do_rotary is 1")
    places = lengths.positions(n)
    positions = reshape(n, places, (places.type.shape[0], lengths.new))
    if n.has(9):
        check_type(n, 9, (key.type.shape[0], lengths.new))
        positions = n.value(9)
        if lengths.past == 0 or lengths.is_first is not None:
            # the first run takes the first position, and counts from there
            first = slice_axis(n, slice_axis(n, positions, 0, 0, 1, 1), 1, 0, 1, 1)
            counting = Numbers(n, first) + counted(n, lengths.new).reshaped(1, lengths.new)
            if lengths.is_first is not None:
                counting = counting.where(lengths.is_first, Numbers(n, positions))
            positions = counting.value
    cosine, sine = (gathered(n, index, positions) for index in (7, 8))
    interleaved = n.flag("rotary_interleaved")
    turned = [rotated(n, x, cosine, sine, interleaved=interleaved) for x in (query, key)]
    return turned[0], turned[1]


def _kept(n: OnnxNode, index: int, new: NodeValue, lengths: _Lengths) -> NodeValue:
    """Keys or values of the past and new ones after them, then zeros."""
    batch, groups, count, size = new.type.shape
    past: list[Value] = []
    if n.has(index):
        check_type(n, index, (batch, groups, *n.type(index).shape[2:3], size))
        past = [n.value(index)]
    if not isinstance(lengths.past, int):
        return _written(n, past[0], new, lengths, lengths.past)
    parts = [slice_axis(n, item, 2, 0, lengths.past, 1) for item in past]
    rest = lengths.kept - lengths.past - count
    if rest == 0:
        tails = []
    elif n.scope.shares_caches:
        tails = [slice_axis(n, past[0], 2, lengths.past + count, rest, 1)]
    else:
        tails = [filled(n, new.type.with_shape((batch, groups, rest, size)), 0)]
    return n.operand(concat(n, [*parts, new, *tails] if lengths.past else [new, *tails], 2))


def _written(
    n: OnnxNode, past: Value, new: NodeValue, lengths: _Lengths, ends: NodeValue
) -> NodeValue:
    """The same where it is known only when the network runs where the past of each batch `ends`."""
    batch, groups, count, size = new.type.shape
    room, f = past.type.shape[2], n.f
    zero = f.create_splat(f"{n.name}_zero", Type(new.type.kind, ()), 0.0).result
    # One new row is chosen where it belongs, in one pass over memory; several are written after it.
    row = new if count == 1 else zero
    parts = []
    for first, length, old in ((0, room, n.operand(past)), (room, lengths.kept - room, zero)):
        if length == 0:
            continue
        numbers = counted(n, length).reshaped(1, 1, length, 1) + first
        places = n.operand(numbers.value, f"{n.name}_places")
        rest = old if n.scope.shares_caches else zero
        after = f.create_select(n.name, f.create_eq(n.name, places, ends), row, rest).result
        cache = f.create_select(n.name, f.create_lt(n.name, places, ends), old, after).result
        parts.append(broadcast(n, cache, (batch, groups, length, size)))
    result = n.operand(concat(n, parts, 2))
    return result if count == 1 else _with_rows(n, result, new, ends)


def _with_rows(n: OnnxNode, kept: NodeValue, new: NodeValue, begins: NodeValue) -> NodeValue:
    """Keys or values with new rows, in each batch from another one on."""
    batch, groups, room, size = kept.type.shape
    count = new.type.shape[2]
    starts = counted(n, batch * groups).reshaped(batch, groups, 1, 1) * room
    steps = starts + counted(n, count).reshaped(1, 1, count, 1)
    begin = Numbers(n, begins).at_most(room - count).at_least(0)
    index = begin + Numbers(n, n.operand(steps.value, f"{n.name}_steps"))
    lines = n.operand(reshape(n, kept, (batch * groups * room, size)))
    places = index.reshaped(batch * groups * count).operand
    updates = n.operand(reshape(n, new, (batch * groups * count, size)))
    result = n.f.create_scatter(n.name, lines, places, updates).result
    return n.operand(reshape(n, result, (batch, groups, room, size)))


def _cut(n: OnnxNode, values: NodeValue, past: NodeValue, new: Dim) -> NodeValue:
    """Values with zeros after the last one: nobody knows what is there, and NaN times a weight of 0 would be NaN."""
    total = values.type.shape[2]
    numbers = counted(n, total).reshaped(1, 1, total, 1) - new
    places = n.operand(numbers.value, f"{n.name}_places")
    zero = n.f.create_splat(f"{n.name}_zero", Type(values.type.kind, ()), 0.0)
    return n.f.create_select(n.name, n.f.create_lt(n.name, places, past), values, zero).result


def _grouped_scores(n: OnnxNode, query: NodeValue, key: NodeValue) -> NodeValue:
    """Scores [batch, heads, queries, keys]: the heads of a group are one product with its keys."""
    batch, _, length, size = query.type.shape
    heads, groups = query.type.extent(1), key.type.extent(1)
    stacked = reshape(n, query, (batch, groups, heads // groups * length, size))
    plain = scores(n, n.operand(stacked), key)
    return n.operand(reshape(n, plain, (batch, heads, length, key.type.shape[2])))


def _mixed(n: OnnxNode, weights: NodeValue, value: NodeValue) -> Value:
    """The values, weighed: [batch, queries, heads * size]."""
    batch, _, length, keys = weights.type.shape
    heads, groups, size = weights.type.extent(1), value.type.extent(1), value.type.shape[3]
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
    return n.operand(slice_axis(n, weights, 3, 0, type.shape[3], 1))


def _seen(n: OnnxNode, lengths: _Lengths) -> NodeValue:
    """Which keys a query sees: those up to itself, or within the window. It broadcasts to the scores."""
    window, causal = n.integer("local_window_size", -1), n.flag("causal", True)
    if window != -1 and (not causal or window < 1):
        expected = "-1, or at least 1" if causal else "-1 without causal"
        raise UserError(f"attribute 'local_window_size': expected {expected}, got {window}")
    new: Dim = lengths.new
    steps = counted(n, new).reshaped(new, 1) if causal else Numbers.of(n, new - 1, ElemKind.I64)
    # Where a key is if the query is the first new one: at most at the end of the past, then.
    keys = counted(n, lengths.total)
    places = keys - steps
    past = lengths.past if isinstance(lengths.past, int) else Numbers(n, lengths.past)
    seen = places <= past
    if window != -1:
        seen &= places > past - window
    if lengths.end is not None:
        seen &= keys < Numbers(n, lengths.end)
    return n.operand(seen.value, f"{n.name}_seen")


def _sink(n: OnnxNode, type: Type) -> Value | None:
    """One more score for each query, of a key without a value: 0, or that of its head."""
    batch, heads, queries, _ = type.shape
    shape = (batch, heads, queries, 1)
    if n.has(11):
        check_type(n, 11, (heads,))
        sink = convert(n, n.value(11), type.kind)
        return broadcast(n, reshape(n, sink, (1, heads, 1, 1)), shape)
    return filled(n, type.with_shape(shape), 0) if n.integer("smooth_softmax", 0) == 1 else None
