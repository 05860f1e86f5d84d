"""DecoderMaskedMultiHeadAttention against onnxruntime: masks, biases, beams, and steps that need no new code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.contrib_cases import Case, f32, i32
from tests.onnx.session_models import programs_of

F = TensorProto.FLOAT
RNG = np.random.default_rng(21)
BATCH, HEADS, SIZE, ROOM, PAST = 4, 3, 4, 8, 5
WIDTH = HEADS * SIZE


def bits(*shape: int) -> Array:
    return (RNG.random(shape) > 0.4).astype(np.int32)


def case(
    title: str, inputs: list[Array | None], outputs: Sequence[int | None], attributes: Any
) -> Case:
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"num_heads": HEADS, **attributes}
    return Case("DecoderMaskedMultiHeadAttention", inputs, attributes, title, outputs)


def step(
    title: str = "", mask: bool = False, terms: Sequence[int] = (), bias: bool = False,
    beams: int = 0, past: int = PAST, qk: bool = False, **attributes: Any,
) -> Case:  # fmt: skip
    """One step over a buffer of keys that has `past` of them."""
    total = past + 1
    inputs = [
        *(f32(BATCH, 1, WIDTH) for _ in range(3)),
        bits(BATCH, total) if mask else None,
        f32(*terms, 1, total) if terms else None,
        *(f32(BATCH, HEADS, ROOM, SIZE) for _ in range(2)),
        i32(past),
        i32(beams) if beams else None,
        RNG.integers(0, beams, (BATCH // beams, beams, ROOM), np.int32) if beams else None,
        f32(3 * WIDTH) if bias else None,
    ]
    known = {"past_present_share_buffer": 1, "output_qk": int(qk), **attributes}
    return case(title, inputs, (F, F, F, *([F] if qk else [])), known)


def cross(title: str = "", mask: bool = False, bias: bool = False, qk: bool = False) -> Case:
    """Over keys that are all there."""
    inputs = [
        f32(BATCH, 1, WIDTH),
        *(f32(BATCH, HEADS, 6, SIZE) for _ in range(2)),
        bits(BATCH, 6) if mask else None,
        *(None for _ in range(6)),
        f32(3 * WIDTH) if bias else None,
    ]
    return case(title, inputs, (F, None, None, F) if qk else (F,), {"output_qk": int(qk)})


CASES = [
    step("plain"),
    step("mask", mask=True),
    step("weak mask", mask=True, mask_filter_value=-2.0),
    step("bias", bias=True),
    step("terms", terms=(BATCH, HEADS)),
    step("terms for all", terms=(1, 1)),
    step("first", past=0),
    step("last", past=ROOM - 1),
    step("scores", mask=True, qk=True),
    step("scale", scale=0.3),
    step("beams", beams=2),
    step("beams, mask and biases", beams=4, mask=True, bias=True, terms=(1, HEADS)),
    step("beams and scores", beams=2, qk=True),
    cross("cross"),
    cross("cross, mask", mask=True),
    cross("cross, bias", bias=True),
    cross("cross, scores", mask=True, qk=True),
]


@pytest.mark.parametrize("node", CASES, ids=str)
def test_decoder_attention(node: Case) -> None:
    node.check("interpreter", node.expected())


@pytest.mark.parametrize("node", [CASES[1], CASES[11], CASES[16]], ids=str)
def test_decoder_attention_on_cpu(node: Case) -> None:
    node.check("cpu", node.expected())


def test_steps_need_no_new_code() -> None:
    """How many keys there are is an element of an input."""
    session = glowpy.InferenceSession(step().model())
    for past in (0, 3, ROOM - 1):
        node = step(past=past)
        results = session.run(None, node.feeds)
        for result, wanted in zip(results, node.expected(), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    assert len(programs_of(session).specialisations.functions) == 1


def without(node: Case, *places: int) -> Case:
    inputs = [None if i in places else array for i, array in enumerate(node.inputs)]
    return case("", inputs, node.outputs, node.attributes)


REFUSED = [
    (without(step(), 1, 2), "query, key and value in one input is not supported"),
    (step(past_present_share_buffer=0), "past_present_share_buffer 0 with a past"),
    (without(step(), 7), "expected past_sequence_length as input 7"),
    (without(step(), 6), "expected both past_key and past_value"),
]


@pytest.mark.parametrize(("node", "message"), REFUSED)
def test_decoder_attention_is_refused(node: Case, message: str) -> None:
    assert message in node.error()
