"""Operators that generate text: with what they choose, and in which order, as onnxruntime does."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import glowpy
import glowpy.onnxruntime as drop_in
from glowpy.cli.main import run as run_command
from glowpy.core.tensor import Array
from glowpy.session.preparation import CompileEvent
from tests.onnx.generation_models import GPT, PAD, VOCABULARY, gpt, graph, t5, whisper

ort = pytest.importorskip("onnxruntime")

BEAMS = ("max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty")
MASKS = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask")
WORDS = ("attention_mask",)
STAMPS: dict[str, Any] = {
    "beginning_timestamp_token_id": 12,
    "no_timestamps_token_id": 11,
    "start_of_lm_token_id": 10,
    "transcribe_token_id": 9,
    "translate_token_id": 8,
    "vocab_size": VOCABULARY,
}


def feeds(
    model: onnx.ModelProto, *, batch: int = 1, length: int = 4, **given: Any
) -> dict[str, Array]:
    """Inputs for a model: what is given, and random ones."""
    rng = np.random.default_rng(batch + length)
    values: dict[str, Any] = {
        "input_ids": rng.integers(0, VOCABULARY, (batch, length)),
        "max_length": length + 8,
        "min_length": 0,
        "num_beams": 3,
        "num_return_sequences": 2,
        "length_penalty": 1.0,
        "repetition_penalty": 1.4,
        "vocab_mask": rng.random(VOCABULARY) < 0.8,
        "prefix_vocab_mask": rng.random((batch, VOCABULARY)) < 0.8,
        "attention_mask": rng.random((batch, length)) < 0.8,
        "presence_mask": rng.integers(0, 2, (batch, VOCABULARY)),
        "decoder_input_ids": rng.integers(3, VOCABULARY, (batch, 2)),
        "logits_processor": 1,
        "temperature": 0.7,
        "seed": 5,
    }
    values |= given
    kinds = {info.name: info.type.tensor_type for info in model.graph.input}
    if kinds["input_ids"].elem_type == onnx.TensorProto.FLOAT:
        values["input_ids"] = rng.standard_normal((batch, 4, length))
    return {
        name: np.asarray(values[name], helper.tensor_dtype_to_np_dtype(kind.elem_type))
        for name, kind in kinds.items()
    }


def theirs(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, feed)
    return outputs


def ours(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    return glowpy.InferenceSession(model, backend="interpreter").run(None, feed)


CASES: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "one beam": (gpt("BeamSearch", *BEAMS), {"num_beams": 1, "num_return_sequences": 1}),
    "beams": (gpt("BeamSearch", *BEAMS, outputs=3), {"batch": 3, "num_beams": 4}),
    "until no beam can improve": (
        gpt("BeamSearch", *BEAMS, early_stopping=0),
        {"batch": 3, "max_length": 24, "length_penalty": 2.0},
    ),
    "until as many have ended": (
        gpt("BeamSearch", *BEAMS, early_stopping=1),
        {"batch": 3, "max_length": 24, "length_penalty": 0.5},
    ),
    "lengths": (gpt("BeamSearch", *BEAMS), {"min_length": 11, "batch": 2}),
    "masks": (gpt("BeamSearch", *BEAMS, *MASKS, *WORDS, outputs=3), {"batch": 2}),
    "a token once": (gpt("BeamSearch", *BEAMS, no_repeat_ngram_size=1), {"batch": 2}),
    "pairs once": (gpt("BeamSearch", *BEAMS, no_repeat_ngram_size=2), {"max_length": 20}),
    "a first step of its own": (gpt("BeamSearch", *BEAMS, init=True), {"batch": 2}),
    "encoder that begins": (t5(*BEAMS, outputs=3), {"batch": 3}),
    "encoder alone": (t5(*BEAMS, *MASKS, old=False), {"batch": 2}),
    "whole texts": (t5(*BEAMS, *WORDS, texts=True), {"batch": 2, "num_beams": 2}),
    "sound": (whisper("BeamSearch", *BEAMS, outputs=3), {"batch": 2}),
    "begun": (whisper("BeamSearch", *BEAMS, "decoder_input_ids", hidden=False), {"batch": 2}),
    "temperature": (whisper("WhisperBeamSearch", *BEAMS, "temperature"), {"batch": 2}),
    "timestamps": (
        whisper("WhisperBeamSearch", *BEAMS, "decoder_input_ids", "logits_processor", **STAMPS),
        {"batch": 3, "length": 7, "num_beams": 4},
    ),
    "repeated timestamps": (
        whisper("WhisperBeamSearch", *BEAMS, "logits_processor", no_repeat_ngram_size=3, **STAMPS),
        {"batch": 2, "length": 5, "max_length": 20},
    ),
}


@pytest.mark.parametrize(("model", "given"), CASES.values(), ids=list(CASES))
def test_beams_are_those_of_onnxruntime(model: onnx.ModelProto, given: dict[str, Any]) -> None:
    feed = feeds(model, **given)
    expected, results = theirs(model, feed), ours(model, feed)
    np.testing.assert_array_equal(results[0], expected[0])
    assert [item.dtype for item in results] == [item.dtype for item in expected]
    np.testing.assert_allclose(results[1], expected[1], rtol=1e-4)
    if len(results) > 2:  # what follows the end of all texts is not written there, and zero here
        count = int(results[2].reshape(len(results[2]), -1).any(axis=1).sum())
        assert results[2].shape == expected[2].shape
        np.testing.assert_allclose(results[2][:count], expected[2][:count], rtol=1e-3, atol=1e-3)


def until_the_end(texts: Array, begun: int) -> Array:
    """The steps that were computed: in onnxruntime what follows the end of all texts is any memory."""
    ended = (texts[:, begun:] == PAD).all(axis=0)
    return texts[:, : begun + int(np.argmax(ended)) if ended.any() else texts.shape[1]]


@pytest.mark.parametrize("init", [False, True])
def test_greedy_search_is_that_of_onnxruntime(init: bool) -> None:
    model = gpt("GreedySearch", "max_length", "min_length", *MASKS, *WORDS, outputs=1, init=init)
    feed = feeds(model, batch=3, max_length=14, min_length=7)
    (expected,), (result,) = theirs(model, feed), ours(model, feed)
    texts = until_the_end(result, 4)
    np.testing.assert_array_equal(texts, expected[:, : texts.shape[1]])
    assert result.shape == expected.shape
    assert (result[:, texts.shape[1] :] == PAD).all()


SAMPLES: dict[str, dict[str, Any]] = {
    "most": {"top_p": 0.99},
    "likely": {"top_p": 0.8, "temperature": 2.0, "min_tokens_to_keep": 3},
    "from the two likeliest": {"min_tokens_to_keep": 2},
    "the likeliest": {"custom": 1},
    "custom": {"top_p": 0.8, "custom": 1, "temperature": 0.5, "filter_value": -1e10},
}


@pytest.mark.parametrize("attributes", SAMPLES.values(), ids=list(SAMPLES))
def test_samples_of_a_seed_are_those_of_onnxruntime(attributes: dict[str, Any]) -> None:
    """Random numbers are those of its C++ library on Linux."""
    model = gpt("Sampling", "max_length", "min_length", "seed", *MASKS, outputs=1, **attributes)
    for seed in (0, 5, 1234):
        feed = feeds(model, batch=2, seed=seed, min_length=9)
        (expected,), (result,) = theirs(model, feed), ours(model, feed)
        texts = until_the_end(result, 4)
        np.testing.assert_array_equal(texts, expected[:, : texts.shape[1]])


def test_presence_is_taken_from_the_scores_of_each_token() -> None:
    """In onnxruntime on CPUs it is taken from the first token's, whatever token it is for."""
    model = gpt(
        "Sampling", "max_length", "presence_mask", outputs=1, presence_penalty=1e9, top_p=0.9
    )
    mask = np.ones((1, VOCABULARY))
    mask[0, 7] = 0
    (texts,) = ours(model, feeds(model, presence_mask=mask))
    assert texts[0, 4:].tolist() == [7] * 8


def test_texts_of_many_lengths_are_computed_by_few_programs() -> None:
    """Caches grow and beams multiply within ranges for which the decoder is compiled once."""
    model = gpt("BeamSearch", *BEAMS)
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(model, on_compile=events.append)
    for batch, length, beams in ((1, 4, 4), (3, 9, 2), (2, 7, 3)):
        feed = feeds(model, batch=batch, length=length, num_beams=beams)
        for result, expected in zip(session.run(None, feed), theirs(model, feed), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4)
    assert len(events) <= 3


def test_drop_in_generates_text() -> None:
    model = t5(*BEAMS)
    feed = feeds(model, batch=2)
    session = drop_in.InferenceSession(model.SerializeToString())
    for result, expected in zip(session.run(None, feed), theirs(model, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_graphs_read_what_the_model_around_them_computes() -> None:
    model = gpt("BeamSearch", *BEAMS)
    (decoder,) = (a.g for a in model.graph.node[0].attribute if a.name == "decoder")
    (weights,) = (tensor for tensor in decoder.initializer if tensor.name == "out")
    decoder.initializer.remove(weights)
    weights.name = "stored"
    model.graph.initializer.append(weights)
    model.graph.input.append(helper.make_tensor_value_info("scale", 1, []))
    model.graph.node.insert(0, helper.make_node("Mul", ["stored", "scale"], ["out"]))
    values = {**feeds(gpt("BeamSearch", *BEAMS), batch=2), "scale": np.asarray(1.5, np.float32)}
    for result, expected in zip(ours(model, values), theirs(model, values), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_decoders_read_hidden_states() -> None:
    """In onnxruntime the memory for them has the right shape and any contents."""
    text = """
    decoder (int32[batch, 1] input_ids, float[batch, words, 8] encoder_hidden_states,
             float[batch, 2, seen, 4] a, float[batch, 2, seen, 4] b,
             float[batch, 2, words, 4] c, float[batch, 2, words, 4] d)
        => (float[batch, 1, 20] logits, float[batch, 2, seen, 4] e, float[batch, 2, seen, 4] f)
    {
        mean = ReduceMean<axes = [1]>(encoder_hidden_states)
        logits = MatMul(mean, out)
        e = Identity(a)
        f = Identity(b)
    }
    """
    model = whisper("BeamSearch", *BEAMS, outputs=1, eos_token_id=19)
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "decoder":
            attribute.g.CopyFrom(graph(text))
    given: dict[str, Any] = {"num_beams": 1, "num_return_sequences": 1, "length_penalty": 1.0}
    feed = feeds(model, batch=3, **given)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in graph(text).initializer}
    encoder = next(a.g for a in model.graph.node[0].attribute if a.name == "encoder")
    weights |= {t.name: onnx.numpy_helper.to_array(t) for t in encoder.initializer}
    hidden = feed["input_ids"].transpose(0, 2, 1) @ weights["sounds"]
    best = (hidden.mean(axis=1) @ weights["out"]).argmax(axis=1)
    assert 19 not in best
    (texts,) = ours(model, feed)
    assert (texts[:, 0, 2:] == best[:, np.newaxis]).all()


def test_chances_that_nobody_speaks() -> None:
    """They are those of the first token, before any rule; onnxruntime computes them on other devices only."""
    model = whisper("WhisperBeamSearch", *BEAMS, outputs=4, no_speech_token_id=6, vocab_size=20)
    feed = feeds(model, batch=3)
    *_, chances = ours(model, feed)
    plain = whisper("BeamSearch", *BEAMS, outputs=3)
    steps = ours(plain, feed)[2]
    np.testing.assert_allclose(chances, np.exp(steps[0, :, 0, 6]), rtol=1e-5)


def test_halves() -> None:
    """Scores are f32 on the way, and of the operands' kind in the end."""
    model = gpt("BeamSearch", *BEAMS)
    half = onnx.ModelProto()
    half.CopyFrom(model)
    (decoder,) = (a.g for a in half.graph.node[0].attribute if a.name == "decoder")
    infos = [*decoder.input, *decoder.output, *half.graph.input, *half.graph.output]
    for info in infos:
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in decoder.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            half_array = array.astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(half_array, tensor.name))
    for node in decoder.node:
        if node.op_type == "Cast":
            node.attribute[0].i = onnx.TensorProto.FLOAT16
    texts, scores = ours(half, feeds(half, batch=2))
    expected_texts, expected_scores = ours(model, feeds(model, batch=2))
    np.testing.assert_array_equal(texts, expected_texts)
    assert scores.dtype == np.float16
    np.testing.assert_allclose(scores, expected_scores, rtol=2e-2)


def wrong_decoder(find: str, replacement: str) -> onnx.ModelProto:
    model = gpt("BeamSearch", *BEAMS)
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "decoder":
            attribute.g.CopyFrom(graph(GPT.replace(find, replacement)))
    return model


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "shared caches": (
        wrong_decoder("past_0)\n", "past_0, int32[1] past_sequence_length)\n"),
        "decoder: the input 'past_sequence_length' is not supported",
    ),
    "other inputs": (
        wrong_decoder("position_ids", "places_of_tokens"),
        "decoder: expected the inputs input_ids, position_ids, attention_mask and the caches",
    ),
    "type": (gpt("BeamSearch", *BEAMS, model_type=3), "'model_type': expected 0, 1 or 2, got 3"),
    "no encoder": (gpt("BeamSearch", *BEAMS, model_type=1), "attribute 'encoder' is required"),
    "encoder's inputs": (
        t5(*BEAMS, model_type=2),
        "encoder: expected the inputs encoder_input_ids, decoder_input_ids, got",
    ),
    "greedy with an encoder": (
        gpt("GreedySearch", "max_length", model_type=1, outputs=1),
        "attribute 'model_type': only 0 is supported, got 1",
    ),
    "cross attention": (
        whisper("WhisperBeamSearch", *BEAMS, decoder_output_cross_qk=1),
        "the output cross_qk is not supported",
    ),
    "logits": (
        gpt("Sampling", "max_length", outputs=2),
        "the output filtered_logits is not supported",
    ),
    "no speech": (
        whisper("WhisperBeamSearch", *BEAMS, outputs=4),
        "attribute 'no_speech_token_id' is required",
    ),
}


@pytest.mark.parametrize(("model", "message"), REFUSED.values(), ids=list(REFUSED))
def test_graphs_that_are_no_decoders_are_refused(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.InferenceSession(model, backend="interpreter")
    assert message in str(caught.value)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too short": ({"max_length": 4}, "expected a max_length from 5 to 4096, got 4"),
    "no beams": ({"num_beams": 0}, "expected num_beams from 1 to 128, got 0"),
    "results": ({"num_return_sequences": 4}, "expected num_return_sequences from 1 to 3, got 4"),
    "penalty": ({"repetition_penalty": 0}, "expected a repetition_penalty above 0, got 0"),
    "mask": ({"vocab_mask": [1, 0]}, "vocab_mask: expected the shape [20], got [2]"),
    "words": ({"attention_mask": [[1]]}, "attention_mask: expected the shape [1, 4], got [1, 1]"),
    "prompt": ({"input_ids": [[]]}, "expected input_ids of rank 2 with elements, got [1, 0]"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=list(WRONG))
def test_calls_are_checked(given: dict[str, Any], message: str) -> None:
    model = gpt("BeamSearch", *BEAMS, *MASKS, *WORDS)
    del model.graph.input[1:]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, 1 if "penalty" in name else 6, None)
        for name in (*BEAMS, *MASKS, *WORDS)
    )
    with pytest.raises(glowpy.UserError) as caught:
        ours(model, feeds(model, **given))
    assert message in str(caught.value)


def test_vocabulary_may_be_smaller_than_the_logits() -> None:
    """In onnxruntime rows of logits are taken to be as long as the vocabulary."""
    model = gpt("BeamSearch", *BEAMS, vocab_size=16, outputs=3)
    texts, _, steps = ours(model, feeds(model, batch=2, num_beams=2))
    assert texts[..., 4:].max() < 16
    assert steps.shape[-1] == 16
    larger = gpt("BeamSearch", *BEAMS, vocab_size=21)
    with pytest.raises(glowpy.UserError, match=r"'vocab_size': expected at most 20, .* got 21"):
        ours(larger, feeds(larger))


def command(*argv: str) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    code = run_command(argv, io.StringIO(), output, errors)
    return code, output.getvalue(), errors.getvalue()


def test_what_needs_machine_code_names_the_session(tmp_path: Path) -> None:
    model = t5(*BEAMS)
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.load(model)
    assert "only a session computes it\nnote: glowpy.InferenceSession" in str(caught.value)
    path = tmp_path / "text.onnx"
    onnx.save(model, path)
    code, _, errors = command("bundle", str(path), "-o", str(tmp_path / "bundle"))
    assert code == 1
    assert "only a session computes it" in errors


def test_command_line_generates_text(tmp_path: Path) -> None:
    model = t5(*BEAMS)
    path = tmp_path / "text.onnx"
    onnx.save(model, path)
    arguments = []
    for name, array in feeds(model, batch=2).items():
        np.save(tmp_path / f"{name}.npy", array)
        arguments += ["--input", f"{name}={tmp_path / name}.npy"]
    options = ["--backend", "interpreter", "--check-with", "onnxruntime"]
    code, output, errors = command("run", str(path), *options, *arguments)
    assert code == 0, errors
    assert "sequences          i32[2x2x12]" in output


def test_text_may_be_generated_in_a_branch() -> None:
    """By a model that does not say where the operator comes from, from integers of rank 1 and padded prompts."""
    model = gpt("BeamSearch", *BEAMS, pad_token_id=2)
    for info in model.graph.input[1:]:
        info.type.tensor_type.shape.dim.add().dim_value = 1
    generated = helper.make_graph([model.graph.node[0]], "generated", [], model.graph.output)
    given = [helper.make_tensor_value_info("given_ids", 6, [2, 2, 12])]
    nodes = [
        helper.make_node("Identity", ["given_ids"], ["sequences_given"]),
        helper.make_node("Identity", ["length_penalty"], ["scores_given"]),
    ]
    names = {"sequences_given": 6, "scores_given": 1}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in names.items()]
    branches = {
        "then_branch": generated,
        "else_branch": helper.make_graph(nodes, "given", [], outputs),
    }
    node = helper.make_node("If", ["generates"], ["text", "text_scores"], **branches)
    condition = helper.make_tensor_value_info("generates", onnx.TensorProto.BOOL, [])
    outputs = [
        helper.make_tensor_value_info(n, k, None) for n, k in (("text", 6), ("text_scores", 1))
    ]
    net = helper.make_graph([node], "net", [*model.graph.input, condition, *given], outputs)
    whole = helper.make_model(net, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    values = feeds(model, input_ids=[[2, 2, 5, 6], [3, 4, 5, 6]], batch=2)
    feed = {name: a if name == "input_ids" else a.reshape(1) for name, a in values.items()}
    feed["given_ids"] = np.ones((2, 2, 12), np.int32)
    for generates in (True, False):
        feed["generates"] = np.asarray(generates)
        for result, expected in zip(ours(whole, feed), theirs(whole, feed), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_text_of_one_step() -> None:
    """Which the encoder gives all of, so that onnxruntime has nothing to give the decoder."""
    model = t5(*BEAMS)
    longer, shorter = (ours(model, feeds(model, max_length=length)) for length in (9, 2))
    assert shorter[0].shape == (1, 2, 2)
    plain = ours(t5(*BEAMS, outputs=3), feeds(model, max_length=2))
    first = plain[2][0, 0, 0]
    assert shorter[0][0, :, 1].tolist() == np.argsort(-first)[:2].tolist()
    assert longer[0].shape == (1, 2, 9)
