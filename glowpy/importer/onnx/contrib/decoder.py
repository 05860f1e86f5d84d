"""Import of DecoderMaskedMultiHeadAttention: one query of each batch, over keys in a buffer that is filled by steps.

How many keys there are is an element of an input: nothing has to be compiled anew for the next step, since all rows of
the buffer take part, and those that are not there yet are hidden.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import broadcast, convert, full, reshape, slice_axis
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.heads import (
    LOWEST,
    added,
    check_type,
    masked_term,
    mixed,
    scores,
    scores_type,
    split,
)
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.standard import results_as, standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__: list[str] = []

_WITH_SCATTER = 24
"""The opset that brought TensorScatter."""


@from_onnx("DecoderMaskedMultiHeadAttention", domain=CONTRIB)
def _decoder_attention(n: OnnxNode) -> tuple[Result, ...]:
    if n.type(0).rank != 3 or n.type(0).shape[1] != 1:
        raise UserError(f"expected queries [batch, 1, width], got {n.type(0)}")
    if not n.has(1) or not n.has(2):
        raise n.unsupported("query, key and value in one input")
    if n.has(5) != n.has(6):
        raise UserError("expected both past_key and past_value, or neither")
    return _own(n) if n.has(5) else _cross(n)


def _part(n: OnnxNode, index: int, place: int) -> NodeValue:
    """Input `index` in heads, plus its part of the bias."""
    width = n.type(index).extent(-1)
    bias: Value | None = None
    if n.has(10):
        check_type(n, 10, (2 * n.type(0).extent(-1) + n.type(2).extent(-1) * _heads(n),))
        bias = slice_axis(n, n.value(10), 0, place * n.type(0).extent(-1), width, 1)
    return split(n, added(n, n.input(index), [bias]), n.integer("num_heads", 0))


def _heads(n: OnnxNode) -> int:
    """How many heads the values' last dimension is one of: 1 where they are not cut into heads yet."""
    return n.integer("num_heads", 0) if n.type(2).rank == 4 else 1


def _weighed(n: OnnxNode, total: NodeValue, values: NodeValue) -> Value:
    """Sums the values, weighted by the softmax of the scores."""
    return mixed(n, n.f.create_softmax(n.name, total, 3).result, values)


def _cross(n: OnnxNode) -> tuple[Result, ...]:
    """Keys and values come in heads, and are all there; nothing is kept."""
    if n.wants(1) or n.wants(2):
        raise n.unsupported("present keys and values without a past")
    if n.has(4):
        raise n.unsupported(f"input 4 ('{n.proto.input[4]}', a bias of the scores) without a past")
    if n.type(1).rank != 4 or n.type(2).rank != 4:
        raise UserError(f"expected keys and values in heads, got {n.type(1)} and {n.type(2)}")
    query, key, value = _part(n, 0, 0), n.input(1), n.input(2)
    mask = masked_term(n, 3, scores_type(query, key), starts=False)
    total = added(n, scores(n, query, key), [mask])
    result = _weighed(n, total, value)
    return result, key, value, convert(n, total, query.type.kind)


def _own(n: OnnxNode) -> tuple[Result, ...]:
    """Keys and values of this step are written into the buffers, whose rows before them count as well."""
    if not n.flag("past_present_share_buffer"):
        raise n.unsupported("past_present_share_buffer 0 with a past")
    query, key, value = (_part(n, index, index) for index in range(3))
    batch, heads, _, size = key.type.shape
    room = n.type(5).shape[2] if n.type(5).rank == 4 else 0
    for index in (5, 6):
        if not is_same_shape(n.type(index).shape, (batch, heads, room, size)):
            raise UserError(
                f"expected a buffer for {key.type} as input {index}, got {n.type(index)}"
            )
    if not n.has(7):
        raise UserError("expected past_sequence_length as input 7 beside a past")
    past = Numbers(n, convert(n, reshape(n, n.value(7), (1,)), ElemKind.I64))
    keys, values = (_kept(n, index, new, past) for index, new in ((5, key), (6, value)))
    seen_keys, seen_values = (_followed(n, item, past) for item in (keys, values))
    plain = scores(n, query, seen_keys)
    total = added(n, plain, [_spread(n, 4, 3, room), _mask(n, plain.type, room)])
    places = counted(n, room)
    hidden = n.f.create_splat(f"{n.name}_hidden", Type(total.type.kind, ()), LOWEST)
    seen = (places <= past).operand
    visible = n.f.create_select(n.name, seen, total, hidden).result
    results: tuple[Result, ...] = (_weighed(n, visible, seen_values), keys, values)
    if not n.flag("output_qk"):
        return results
    bounds = Tensor.of(np.zeros(1, np.int64)), (past + 1).value, Tensor.of(np.array([3]))
    return *results, convert(n, standard(n, "Slice", [total, *bounds]), query.type.kind)


def _kept(n: OnnxNode, index: int, new: NodeValue, past: Numbers) -> NodeValue:
    """A buffer with the rows of this step in place of those after the past."""
    batch = n.operand(broadcast(n, past.reshaped(1).value, new.type.shape[:1]))
    (cache,) = results_as(
        n,
        "",
        "TensorScatter",
        _WITH_SCATTER,
        [n.value(index), new, batch],
        {"axis": 2, "mode": "linear"},
    )
    assert isinstance(cache, NodeValue)
    return cache


def _followed(n: OnnxNode, kept: NodeValue, past: Numbers) -> NodeValue:
    """The buffer as each beam sees it: where rows come from that other beams have computed is input 9, if given."""
    if not n.has(9):
        return kept
    batch, heads, room, size = kept.type.shape
    type = n.type(9)
    if type.rank != 3 or not is_same_shape((type.shape[0] * type.shape[1],), (batch,)):
        raise UserError(f"expected [batch, beams, length] for {kept.type} as input 9, got {type}")
    places, beams = counted(n, room), type.shape[1]
    inside = places.at_most(type.shape[2] - 1).value
    origins = Numbers(
        n, convert(n, standard(n, "Gather", [n.value(9), inside], axis=2), ElemKind.I64)
    )
    beam_numbers = counted(n, beams).reshaped(1, beams, 1)
    first = counted(n, type.shape[0]).reshaped(type.shape[0], 1, 1) * beams
    beam = origins.where(places < past, beam_numbers) + first
    head = counted(n, heads).reshaped(1, heads, 1)
    row = (beam.reshaped(batch, 1, room) * heads + head) * room + places
    flat = reshape(n, kept, (batch * heads * room, size))
    picked = n.f.create_gather(n.name, n.operand(flat), row.operand, 0).result
    return n.operand(reshape(n, picked, (batch, heads, room, size)))


def _spread(n: OnnxNode, index: int, axis: int, room: Dim) -> Value | None:
    """Input `index` for all rows of the buffer: what it does not have is that of the last row, which is hidden."""
    if not n.has(index):
        return None
    value = n.value(index)
    places = counted(n, room).at_most(value.type.shape[axis] - 1).value
    return standard(n, "Gather", [value, places], axis=axis)


def _mask(n: OnnxNode, type: Type, room: Dim) -> Value | None:
    """The term of the scores that keeps the query from keys that input 3 masks."""
    mask = _spread(n, 3, 1, room)
    if mask is None:
        return None
    batch = type.shape[0]
    if n.type(3).rank != 2 or n.type(3).shape[0] != batch:
        raise n.unsupported(f"a mask of {n.type(3)}")
    zero = n.operand(full(Type(mask.type.kind, ()), 0), f"{n.name}_zero")
    is_visible = n.f.create_lt(n.name, zero, n.operand(reshape(n, mask, (batch, 1, 1, room))))
    scalar = Type(type.kind, ())
    lowest = full(scalar, n.real("mask_filter_value", -10000.0))
    return n.f.create_select(
        n.name, is_visible, n.operand(full(scalar, 0), f"{n.name}_zero"), n.operand(lowest)
    ).result
