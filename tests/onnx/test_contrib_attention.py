"""Attention in onnxruntime's forms, one node at a time: masks, biases, keys and values of the past, positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import glowpy
import glowpy.onnxruntime as glow_onnxruntime
from glowpy.core.tensor import Array
from tests.onnx.contrib_cases import RNG, Case, case, f32, i32

F = TensorProto.FLOAT
BATCH, LENGTH, KEYS, PAST, WIDTH, HEADS = 2, 5, 7, 3, 12, 3
SIZE = WIDTH // HEADS


def bits(*shape: int) -> Array:
    return (RNG.random(shape) > 0.4).astype(np.int32)


def named(title: str, node: Case, outputs: int = 1) -> Case:
    return replace(node, title=title, outputs=(F,) * outputs)


# Attention, which projects its input.

X, WEIGHTS, BIAS = f32(BATCH, LENGTH, WIDTH), f32(WIDTH, 3 * WIDTH) / 3, f32(3 * WIDTH)
CACHE = f32(2, BATCH, HEADS, PAST, SIZE)
RAW = i32([1, 1, 1, 0, 0], [0, 0, 2, -1, 1])


def attention(title: str, *rest: Array | None, outputs: int = 1, **attributes: Any) -> Case:
    node = case("Attention", X, WEIGHTS, BIAS, *rest, num_heads=HEADS, **attributes)
    return named(title, node, outputs)


SELF = [
    attention("plain"),
    attention("lengths", i32(5, 3)),
    attention("no keys left", i32(5, 0)),
    attention("ends and starts", i32(5, 4, 0, 2)),
    attention("keys", RAW),
    attention("queries and keys", bits(BATCH, LENGTH, LENGTH)),
    attention("dummy mask", i32([0], [1])),
    attention("dummy mask for all", i32([0])),
    attention("dummy mask, causal", i32([0], [0]), unidirectional=1),
    attention("dummy mask, past", i32([0]), CACHE, outputs=2),
    attention("causal", unidirectional=1),
    attention("causal, keys", RAW, unidirectional=1),
    attention("causal, no keys left", i32([1] * 5, [0] * 5), unidirectional=1),
    attention("weak mask", RAW, mask_filter_value=-2.0),
    attention("weak mask, causal", RAW, mask_filter_value=-2.0, unidirectional=1),
    attention("past", None, CACHE, outputs=2),
    attention("past, causal", None, CACHE, outputs=2, unidirectional=1),
    attention("past, keys", bits(BATCH, LENGTH + PAST), CACHE, outputs=2, unidirectional=1),
    attention("past, lengths", i32(8, 6), CACHE, outputs=2),
    attention("present", outputs=2),
    attention("bias", None, None, f32(BATCH, HEADS, LENGTH, LENGTH)),
    attention("bias for all", None, None, f32(1, 1, LENGTH, LENGTH)),
    attention("bias, lengths", i32(5, 3), None, f32(BATCH, 1, LENGTH, LENGTH)),
    attention("scale", scale=0.7),
    replace(
        attention("narrow values", qkv_hidden_sizes=[12, 12, 6]),
        inputs=[X, f32(WIDTH, 30) / 3, f32(30)],
    ),
]

# MultiHeadAttention, whose operands are projected.

QUERY, KEY, VALUE = f32(BATCH, LENGTH, WIDTH), f32(BATCH, KEYS, WIDTH), f32(BATCH, KEYS, 6)
WIDE = f32(BATCH, KEYS, WIDTH)
OLD = f32(BATCH, HEADS, PAST, SIZE), f32(BATCH, HEADS, PAST, SIZE)
IN_HEADS = f32(BATCH, HEADS, KEYS, SIZE), f32(BATCH, HEADS, KEYS, SIZE)
SAME = KEY[:, :LENGTH], WIDE[:, :LENGTH]


def multi(title: str, *inputs: Array | None, outputs: int = 1, **attributes: Any) -> Case:
    node = case("MultiHeadAttention", *inputs, num_heads=HEADS, **attributes)
    return named(title, node, outputs)


MULTI = [
    multi("plain", QUERY, KEY, VALUE),
    multi("projection bias", QUERY, KEY, VALUE, f32(2 * WIDTH + 6)),
    multi("lengths", QUERY, KEY, VALUE, None, i32(7, 3)),
    multi("keys", QUERY, KEY, VALUE, None, bits(BATCH, KEYS)),
    multi("queries and keys", QUERY, KEY, VALUE, None, bits(BATCH, LENGTH, KEYS)),
    multi("bias", QUERY, KEY, VALUE, None, None, f32(1, HEADS, LENGTH, KEYS)),
    multi("bias, lengths", QUERY, KEY, VALUE, None, i32(6, 4), f32(BATCH, 1, LENGTH, KEYS)),
    multi("past", QUERY, KEY, WIDE, f32(3 * WIDTH), None, None, *OLD, outputs=3),
    multi("past, keys", QUERY, KEY, WIDE, None, bits(BATCH, 10), None, *OLD, outputs=3),
    multi("causal", QUERY, *SAME, unidirectional=1),
    multi("causal, past", QUERY, *SAME, None, None, None, *OLD, outputs=3, unidirectional=1),
    multi("scores", QUERY, *SAME, outputs=4, unidirectional=1),
    multi("in heads", QUERY, *IN_HEADS, f32(3 * WIDTH), i32(7, 3), outputs=3),
    multi("weak mask", QUERY, KEY, VALUE, None, i32(6, 3), mask_filter_value=-1.5, scale=0.3),
]

# RotaryEmbedding.

PLACES = RNG.integers(0, 11, (BATCH, LENGTH))
FULL, PARTIAL = (f32(11, 2), f32(11, 2)), (f32(11, 1), f32(11, 1))
HALF: dict[str, Any] = {"num_heads": HEADS, "rotary_embedding_dim": 2}
BY_HEADS = f32(BATCH, HEADS, LENGTH, SIZE)


def rotary(title: str, *inputs: Array, **attributes: Any) -> Case:
    return named(title, case("RotaryEmbedding", *inputs, **attributes))


ROTARY = [
    rotary("plain", X, PLACES, *FULL),
    rotary("first position", X, np.array([2]), *FULL),
    rotary("one position", X[:1, :1], np.array([[3]]), *FULL),
    rotary("heads", BY_HEADS, PLACES, *FULL),
    rotary("heads, first position", BY_HEADS, np.array([2]), *FULL, interleaved=1),
    rotary("interleaved", X, PLACES, *FULL, interleaved=1, num_heads=HEADS),
    rotary("partial", X, PLACES, *PARTIAL, **HALF),
    rotary("partial, heads", BY_HEADS, PLACES, *PARTIAL, **HALF, interleaved=1),
    rotary("packed", X, PLACES, *FULL, is_packed_batching=1),
]

# GroupQueryAttention.

QUERIES, GROUPS, DEPTH, NEW, ROOM = 4, 2, 16, 4, 8
TABLES = f32(20, DEPTH // 2), f32(20, DEPTH // 2)
NORMS = f32(DEPTH), f32(DEPTH)


def projected(batch: int, count: int) -> list[Array]:
    return [f32(batch, count, heads * DEPTH) for heads in (QUERIES, GROUPS, GROUPS)]


def packed(batch: int, count: int) -> list[Array | None]:
    return [f32(batch, count, (QUERIES + 2 * GROUPS) * DEPTH), None, None]


def cache(batch: int, count: int) -> list[Array]:
    return [f32(batch, GROUPS, count, DEPTH) for _ in range(2)]


FRESH: list[Array | None] = [None, None, i32(NEW - 1, NEW - 1), np.array(NEW, np.int32)]
"""No past, and the lengths of two batches in their first run."""


def lengths(total: int, *batches: int) -> list[Array]:
    return [i32(*(length - 1 for length in batches)), np.array(total, np.int32)]


def group(
    title: str,
    inputs: Sequence[Array | None],
    *rest: Array | None,
    outputs: int = 3,
    **attributes: Any,
) -> Case:
    node = case(
        "GroupQueryAttention", *inputs, *rest, num_heads=QUERIES, kv_num_heads=GROUPS, **attributes
    )
    return replace(named(title, node, outputs), known=[6])


FIRST = [*projected(2, NEW), *FRESH]
STEP = [*projected(2, 1), *cache(2, PAST), *lengths(PAST + 1, PAST + 1, PAST - 1)]
ROOMY = [*projected(2, 1), *cache(2, ROOM), *lengths(PAST + 1, PAST + 1, PAST - 1)]
FULL_ROOM = [*ROOMY[:5], *lengths(PAST + 1, PAST + 1, PAST + 1)]
TERM = f32(1, QUERIES, NEW, NEW)
NO_TABLES = (None, None, None)

GROUP = [
    group("first", FIRST),
    group("first, filled up", [*projected(2, NEW), None, None, *lengths(NEW, NEW, 2)]),
    group("first of one", [*projected(1, NEW), None, None, *lengths(NEW, NEW)]),
    group("first, room", [*projected(1, NEW), *cache(1, ROOM), *lengths(NEW, NEW)]),
    group("first, empty past", [*projected(1, NEW), *cache(1, 0), *lengths(NEW, NEW)]),
    group("step", STEP),
    group("step of one", [*projected(1, 1), *cache(1, PAST), *lengths(PAST + 1, PAST + 1)]),
    group("step, room", ROOMY),
    group("step of one, room", [*projected(1, 1), *cache(1, ROOM), *lengths(4, 4)]),
    group("two steps", [*projected(1, 2), *cache(1, PAST), *lengths(PAST + 2, PAST + 2)]),
    group("packed", [*packed(2, NEW), *FRESH]),
    group("rotary", FIRST, *TABLES, do_rotary=1),
    group("rotary, interleaved", FIRST, *TABLES, do_rotary=1, rotary_interleaved=1),
    group("rotary, packed", [*packed(2, NEW), *FRESH], *TABLES, do_rotary=1),
    group("rotary, step", STEP, *TABLES, do_rotary=1),
    group(
        "positions", FIRST, *TABLES, i32([3, 2, 1, 0], [5, 6, 7, 8]).astype(np.int64), do_rotary=1
    ),
    group("positions, step", STEP, *TABLES, np.array([[7], [2]]), do_rotary=1),
    group("bias", FIRST, *NO_TABLES, TERM),
    group("bias, step", STEP, *NO_TABLES, f32(2, 1, 1, PAST + 1)),
    group("bias, room", FULL_ROOM, *NO_TABLES, f32(2, 4, 1, PAST + 1), outputs=4, qk_output=2),
    group("soft limit, bias", FIRST, *NO_TABLES, TERM, softcap=1.5),
    group("window", FIRST, local_window_size=2),
    group("window of one", FIRST, local_window_size=1),
    group("window, step", STEP, local_window_size=2),
    group("smooth", FIRST, smooth_softmax=1),
    group("sink", FIRST, *NO_TABLES, None, f32(QUERIES), local_window_size=2),
    group("scores", FIRST, *NO_TABLES, TERM, softcap=1.5, outputs=4, qk_output=1),
    group("weights", FIRST, outputs=4, qk_output=2),
    group("all keys", FIRST, causal=0),
    group("all keys, filled up", [*projected(2, NEW), None, None, *lengths(NEW, NEW, 2)], causal=0),
    group("all keys, step", STEP, causal=0, scale=0.2),
]

CASES = [*SELF, *MULTI, *ROTARY, *GROUP]
ON_CPU = [
    "past, keys",
    "causal, past",
    "interleaved",
    "rotary, packed",
    "rotary, step",
    "sink",
    "bias, room",
]


@pytest.mark.parametrize("node", CASES, ids=str)
def test_attention(node: Case) -> None:
    node.check("interpreter", node.expected())


@pytest.mark.parametrize("node", [node for node in CASES if node.title in ON_CPU], ids=str)
def test_attention_on_cpu(node: Case) -> None:
    node.check("cpu", node.expected())


@pytest.mark.parametrize("node", [GROUP[0], GROUP[14], ROTARY[0]], ids=str)
def test_halves(node: Case) -> None:
    inputs = [
        a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in node.inputs
    ]
    half = (TensorProto.FLOAT16,) * len(node.outputs)
    node = replace(node, inputs=inputs, outputs=half, rtol=5e-3, atol=5e-3)
    node.check("interpreter", node.expected())


@pytest.mark.parametrize("node", [SELF[2], SELF[7], SELF[8]], ids=str)
def test_scores_of_halves_are_not_rounded(node: Case) -> None:
    """-10000 would round away what sets keys apart; where all are masked, that decides."""
    rounded = [
        a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in node.inputs
    ]
    wide = [a.astype(np.float32) if a is not None and a.dtype == np.float16 else a for a in rounded]
    expected = [a.astype(np.float16) for a in replace(node, inputs=wide).expected()]
    half = (TensorProto.FLOAT16,) * len(node.outputs)
    node = replace(node, inputs=rounded, outputs=half, rtol=5e-3, atol=2e-2)
    for backend in ("interpreter", "cpu"):
        node.check(backend, expected)


# What onnxruntime computes on other processors only.


def same(node: Case, plain: Case) -> None:
    node.check("interpreter", plain.expected())


def test_attention_without_a_bias() -> None:
    plain = replace(SELF[6], inputs=[X, WEIGHTS, np.zeros_like(BIAS)])
    same(replace(plain, inputs=[X, WEIGHTS]), plain)


def test_packed_operands() -> None:
    """Keys and values side by side in each head, or queries as well."""
    parts = [f32(BATCH, KEYS, HEADS, SIZE) for _ in range(3)]
    query, key, value = (part.reshape(BATCH, KEYS, WIDTH) for part in parts)
    bias = f32(3 * WIDTH)
    plain = multi("", query, key, value, bias)
    same(replace(plain, inputs=[np.stack(parts, 3), None, None, bias]), plain)
    same(replace(plain, inputs=[query, np.stack(parts[1:], 3), None, bias]), plain)


def test_several_steps_of_several_batches() -> None:
    """As each batch alone."""
    both = group("", [*projected(2, 2), *cache(2, PAST), *lengths(PAST + 2, PAST + 2, PAST)])
    rows = []
    for batch, past in ((0, PAST), (1, PAST - 2)):
        inputs = [a[batch : batch + 1] for a in both.inputs[:5] if a is not None]
        inputs[3:] = [old[:, :, :past] for old in inputs[3:]]
        rows.append(replace(both, inputs=[*inputs, *lengths(past + 2, past + 2)]).expected())
    output, *kept = zip(*rows, strict=True)
    filled = [np.concatenate([a, np.pad(b, ((0, 0), (0, 0), (0, 2), (0, 0)))]) for a, b in kept]
    both.check("interpreter", [np.concatenate(output), *filled])


def test_normalized_queries_and_keys() -> None:
    query, key, value = projected(2, NEW)

    def normal(x: Array, weight: Array) -> Array:
        heads = x.reshape(2, NEW, -1, DEPTH)
        root = np.sqrt((heads * heads).mean(-1, keepdims=True) + 0.1)
        return np.asarray((heads / root * weight).reshape(x.shape), np.float32)

    plain = group(
        "", [normal(query, NORMS[0]), normal(key, NORMS[1]), value, *FRESH], *TABLES, do_rotary=1
    )
    rest = [*TABLES, *[None] * 5, *NORMS]
    node = group("", [query, key, value, *FRESH], *rest, do_rotary=1, qk_norm_epsilon=0.1)
    same(replace(node, rtol=1e-4, atol=1e-5), plain)
    own: dict[str, Any] = {"qk_norm_epsilon": 9.0, "q_norm_epsilon": 0.1, "k_norm_epsilon": 0.1}
    node = group("", [query, key, value, *FRESH], *rest, do_rotary=1, **own)
    same(replace(node, rtol=1e-4, atol=1e-5), plain)


# What is refused.


def without(node: Case, *indices: int) -> Case:
    inputs = [None if i in indices else array for i, array in enumerate(node.inputs)]
    return replace(node, inputs=inputs)


REFUSED = [
    (attention("", do_rotary=1), "do_rotary 1 is not supported"),
    (attention("", None, CACHE, past_present_share_buffer=1), "past_present_share_buffer 1 is not"),
    (attention("", None, None, None, i32(1)), "input 6 ('in6', past_sequence_length) is not supported"),
    (attention("", i32(5, 3, 0, 5, 8, 0, 5, 8)), "a mask of i32[8] as input 3 ('in3') of scores"),
    (attention("", bits(BATCH, 1, LENGTH, LENGTH)), "a mask of i32[2x1x5x5] as input 3 ('in3')"),
    (attention("", None, None, f32(LENGTH, PAST)), "broadcasts to scores f32[2x3x5x5] as input 5"),
    (attention("", None, CACHE[0]), "keys and values in one tensor as input 4"),
    (attention("", None, CACHE[:, :1]), "a past that fits f32[2x3x5x4]"),
    (attention("", qkv_hidden_sizes=[12, 12, 6]), "sizes of query, key and value in 36, got [12, 12, 6]"),
    (replace(SELF[-1], outputs=(F, F)), "keys and values of one size"),
    (replace(attention(""), attributes={"num_heads": 5}), "12 elements in equal heads, got 5"),
    (replace(attention(""), attributes={}), "attribute 'num_heads' is required"),
    (multi("", QUERY), "query, key and value of f32[2x5x12], none, none is not supported"),
    (multi("", BY_HEADS, *IN_HEADS), "query, key and value of f32[2x3x5x4], f32[2x3x7x4]"),
    (multi("", QUERY, KEY, VALUE, None, i32(7, 3, 0, 0)), "a mask of i32[4] as input 4"),
    (multi("", QUERY, KEY, WIDE, None, bits(2, 7), None, *OLD), "a mask of i32[2x7] as input 4"),
    (multi("", QUERY, KEY, VALUE, None, None, None, OLD[0]), "both past_key and past_value"),
    (multi("", QUERY, KEY, VALUE, *[None] * 5, i32(1)), "input 8 ('in8', past_sequence_length)"),
    (multi("", QUERY, KEY, VALUE, *[None] * 6, bits(2, 1, 9)), "input 9 ('in9', cache_indirection)"),
    (multi("", QUERY, KEY, VALUE, unidirectional=1), "unidirectional 1 for 5 queries and 7 keys"),
    (multi("", QUERY, KEY, VALUE, f32(36)), "the shape [30] as input 3 ('in3'), got f32[36]"),
    (multi("", QUERY, KEY[:, :, :6], VALUE), "keys that fit queries of f32[2x3x5x4]"),
    (multi("", QUERY, KEY, VALUE[:, :4]), "values for 7 keys, got f32[2x3x4x2]"),
    (multi("", f32(2, 7, 3, 2, 4)), "expected 3 tensors in one, got f32[2x7x3x2x4]"),
    (rotary("", X, PLACES, *FULL, scale=2.0), "scale 2 is not supported"),
    (rotary("", X, PLACES, *FULL, num_heads=2), "expected 3 columns as input 2, got f32[11x2]"),
    (rotary("", X, PLACES, *PARTIAL, rotary_embedding_dim=2), "'num_heads': expected it beside"),
    (rotary("", X, PLACES[:1], *FULL), "the shape [2, 5] as input 1"),
    (rotary("", X[0], PLACES, *FULL), "an input of rank 3 or 4"),
    (group("", FIRST, sliding_window_cache=1), "sliding_window_cache 1 is not supported"),
    (group("", FIRST, kv_cache_bit_width=8), "kv_cache_bit_width 8 is not supported"),
    (group("", FIRST, k_quant_type="PER_TENSOR"), "k_quant_type PER_TENSOR is not supported"),
    (group("", FIRST, *[None] * 5, f32(1)), "input 12 ('in12', k_scale) is not supported"),
    (group("", FIRST, *[None] * 9, np.ones(2, np.int32)), "input 16 ('in16', query_seqlens) is not supported"),
    (group("", FIRST, qk_output=1), "a fourth output iff qk_output is 1 or 2, got 1"),
    (group("", FIRST, causal=0, local_window_size=2), "'local_window_size': expected -1 without"),
    (group("", FIRST, local_window_size=0), "'local_window_size': expected -1, or at least 1, got 0"),
    (group("", FIRST, do_rotary=1), "inputs 7 and 8 (cos_cache, sin_cache) where do_rotary is 1"),
    (group("", FIRST, TABLES[0], do_rotary=1), "both inputs 7 and 8, or neither"),
    (without(STEP_NODE := group("", STEP), 4), "both inputs 3 and 4, or neither"),
    (without(STEP_NODE, 3, 4), "a total length from 1 to 1, got 4"),
    (replace(STEP_NODE, attributes={"num_heads": 3, "kv_num_heads": 2}), "a multiple of kv_num_heads, got 3, 2"),
    (group("", [*FIRST[:3], *[a.astype(np.int8) for a in cache(2, 1)], *FIRST[5:]]), "as input 3 ('in3'), got int8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "message"), REFUSED, ids=lambda v: v if isinstance(v, str) else v.op_type
)
def test_attention_is_refused(node: Case, message: str) -> None:
    assert message in node.error()


@pytest.mark.parametrize("node", GROUP, ids=str)
def test_total_lengths_that_the_network_finds(node: Case) -> None:
    replace(node, known=[]).check("interpreter", node.expected())


def test_a_total_length_beyond_the_room_is_told() -> None:
    node = replace(group("", STEP), known=[])
    session = glowpy.InferenceSession(node.model(), backend="interpreter", check_indices=True)
    session.run(None, node.feeds)
    with pytest.raises(glowpy.UserError, match=f"expected indices from 1 to {PAST + 1}, got 9"):
        session.run(None, {**node.feeds, "in6": np.array(9, np.int32)})


# Lengths that differ from the total, and caches in one memory.


SHORT = [
    group("short step of one", [*projected(1, 1), *cache(1, ROOM), *lengths(ROOM, 5)]),
    group("short step, less room", [*projected(1, 1), *cache(1, ROOM), *lengths(6, 3)]),
    group("short step, growing", [*projected(1, 1), *cache(1, ROOM), *lengths(ROOM + 1, 4)]),
    group("short steps", [*projected(1, 3), *cache(1, ROOM), *lengths(ROOM, 5)]),
    group("short steps, growing", [*projected(1, 3), *cache(1, ROOM), *lengths(ROOM + 3, 7)]),
    group("short first of one", [*projected(1, NEW), None, None, *lengths(NEW, 2)]),
    group("short first, room", [*projected(1, NEW), *cache(1, ROOM), *lengths(NEW, 3)]),
    group(
        "short, rotary",
        [*projected(1, 1), *cache(1, ROOM), *lengths(ROOM, 5)],
        *TABLES,
        do_rotary=1,
    ),
    group(
        "short, window",
        [*projected(1, 1), *cache(1, ROOM), *lengths(ROOM, 5)],
        local_window_size=2,
    ),
    group("short steps of two", [*projected(2, 1), *cache(2, ROOM), *lengths(ROOM, 5, 7)]),
]


@pytest.mark.parametrize("node", SHORT, ids=str)
def test_lengths_are_those_of_the_batches(node: Case) -> None:
    """Whatever the total is, also of one batch, and whether they are known or not."""
    expected = node.expected()
    node.check("interpreter", expected)
    node.check("cpu", expected)
    replace(node, known=[5, 6]).check("interpreter", expected)
    replace(node, known=[]).check("interpreter", expected)


@pytest.mark.parametrize("total", [5, ROOM])
@pytest.mark.parametrize(("batch", "new"), [(1, 1), (1, 3), (2, 1)])
def test_caches_in_the_memory_of_their_past(batch: int, total: int, new: int) -> None:
    """What is behind the last key stays as it is, whatever it is; else there are zeros."""
    node = group("", [*projected(batch, new), *cache(batch, ROOM), *lengths(total, *[5] * batch)])
    results = []
    for module in (onnxruntime, glow_onnxruntime):
        session = module.InferenceSession(node.model().SerializeToString())
        feeds = {name: array.copy() for name, array in node.feeds.items()}
        zeroed = session.run(None, feeds)[1]
        assert not zeroed[:, :, 5:].any()
        for name in ("in3", "in4"):
            feeds[name][:, :, 6:] = np.nan
        binding = session.io_binding()
        values = {name: module.OrtValue.ortvalue_from_numpy(a) for name, a in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_output("out0")
        binding.bind_ortvalue_output("out1", values["in3"])
        binding.bind_ortvalue_output("out2", values["in4"])
        session.run_with_iobinding(binding)
        output = binding.copy_outputs_to_cpu()[0].copy()
        results.append([output, *(values[name].numpy().copy() for name in ("in3", "in4"))])
    for got, expected in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(results[1][1][:, :, 6:]).all()
