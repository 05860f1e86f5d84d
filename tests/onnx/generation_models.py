"""Small models whose one node generates text: a decoder as GPT-2 is one, and those of T5 and Whisper with encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from glowpy.importer.onnx.contrib.schemas import CONTRIB

__all__ = ["END", "PAD", "START", "VOCABULARY", "gpt", "graph", "operands", "t5", "whisper"]

VOCABULARY, END, PAD, START = 20, 2, 1, 3
_BEAM_OPERANDS = [
    "input_ids",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
    "decoder_input_ids",
    "logits_processor",
    "cross_qk_layer_head",
    "extra_decoding_ids",
    "temperature",
]
_GREEDY_OPERANDS = [
    "input_ids",
    "max_length",
    "min_length",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
    "presence_mask",
    "seed",
]
_FLOATS = {"length_penalty", "repetition_penalty", "temperature"}
_SHAPES: dict[str, list[str | int]] = {
    "input_ids": ["batch", "length"],
    "vocab_mask": [VOCABULARY],
    "prefix_vocab_mask": ["batch", VOCABULARY],
    "attention_mask": ["batch", "length"],
    "presence_mask": ["batch", VOCABULARY],
    "decoder_input_ids": ["batch", "begun"],
}


def _heads(*names: str) -> str:
    """Nodes that split the last dimension of some values in two heads."""
    lines = (
        f"{n}_split = Reshape({n}, split)\n{n}_heads = Transpose<perm = [0, 2, 1, 3]>({n}_split)"
        for n in names
    )
    return "\n".join(lines)


def _attend(keys: str, values: str, bias: str, to: str) -> str:
    """Nodes that attend with `q_heads`."""
    return f"""
        {to}_t = Transpose<perm = [0, 1, 3, 2]>({keys})
        {to}_s = MatMul(q_heads, {to}_t)
        {to}_b = Add({to}_s, {bias})
        {to}_p = Softmax<axis = -1>({to}_b)
        {to}_c = MatMul({to}_p, {values})
        {to}_m = Transpose<perm = [0, 2, 1, 3]>({to}_c)
        {to} = Reshape({to}_m, merge)
    """


def _bias(mask: str) -> str:
    """Nodes that make a number of what is masked that no softmax leaves anything of."""
    return f"""
        mask_f = Cast<to = 1>({mask})
        mask_n = Sub(mask_f, one)
        mask_b = Mul(mask_n, many)
        bias = Unsqueeze(mask_b, axes)
    """


GPT = f"""
decoder (int32[batch, length] input_ids, int32[batch, length] position_ids,
         int32[batch, total] attention_mask, float[2, batch, 2, seen, 4] past_0)
    => (float[batch, length, 20] logits, float[2, batch, 2, total, 4] present_0)
{{
    word = Gather(words, input_ids)
    place = Gather(places, position_ids)
    x = Add(word, place)
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    {_heads("q", "k", "v")}
    k_1 = Unsqueeze(k_heads, first)
    v_1 = Unsqueeze(v_heads, first)
    kv = Concat<axis = 0>(k_1, v_1)
    present_0 = Concat<axis = 3>(past_0, kv)
    keys = Gather<axis = 0>(present_0, number_0)
    values = Gather<axis = 0>(present_0, number_1)
    {_bias("attention_mask")}
    {_attend("keys", "values", "bias", "c")}
    y = Add(x, c)
    logits = MatMul(y, out)
}}
"""

_ENCODED = f"""
    ck = MatMul(hidden, wk)
    cv = MatMul(hidden, wv)
    {_heads("ck", "cv")}
    present_key_cross_0 = Identity(ck_heads)
    present_value_cross_0 = Identity(cv_heads)
"""
_CROSS = (
    "float[batch, 2, words, 4] present_key_cross_0, float[batch, 2, words, 4] present_value_cross_0"
)
_BEGUN = f"""
    x = Gather(words, decoder_input_ids)
    mean = ReduceMean<axes = [1]>(hidden)
    y = Add(x, mean)
    logits = MatMul(y, out)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    {_heads("k", "v")}
    present_key_self_0 = Identity(k_heads)
    present_value_self_0 = Identity(v_heads)
    encoder_hidden_states = Identity(hidden)
"""
_FIRST = """float[batch, begun, 20] logits, float[batch, words, 8] encoder_hidden_states,
    float[batch, 2, begun, 4] present_key_self_0, float[batch, 2, begun, 4] present_value_self_0"""


def _encoder(inputs: str, hidden: str, *, begins: bool) -> str:
    outputs = f"{_FIRST}, {_CROSS}" if begins else _CROSS
    return f"encoder ({inputs}) => ({outputs}) {{ {hidden} {_ENCODED} {_BEGUN if begins else ''} }}"


def _decoder(inputs: str, mask: str, ids: str = "int32[batch, 1] input_ids") -> str:
    """A decoder that attends to its past, and to what an encoder has read."""
    bias = _bias(mask) if mask else "bias = Identity(zero)"
    return f"""
    decoder ({ids}, {inputs}
             float[batch, 2, seen, 4] past_key_self_0, float[batch, 2, seen, 4] past_value_self_0,
             float[batch, 2, words, 4] past_key_cross_0, float[batch, 2, words, 4] past_value_cross_0)
        => (float[batch, 1, 20] logits, float[batch, 2, total, 4] present_key_self_0,
            float[batch, 2, total, 4] present_value_self_0)
    {{
        last = Gather<axis = 1>(input_ids, ending)
        x = Gather(words, last)
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        {_heads("q", "k", "v")}
        present_key_self_0 = Concat<axis = 2>(past_key_self_0, k_heads)
        present_value_self_0 = Concat<axis = 2>(past_value_self_0, v_heads)
        {_attend("present_key_self_0", "present_value_self_0", "zero", "c")}
        {bias}
        {_attend("past_key_cross_0", "past_value_cross_0", "bias", "d")}
        e = Add(x, c)
        y = Add(e, d)
        logits = MatMul(y, out)
    }}
    """


def graph(text: str, seed: int = 0) -> onnx.GraphProto:
    """A graph with the weights that it reads."""
    rng = np.random.default_rng(seed)
    weights: dict[str, Any] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in [("words", (VOCABULARY, 8)), ("places", (32, 8)), ("sounds", (4, 8))]
    }
    weights |= {name: rng.standard_normal((8, 8)).astype(np.float32) for name in ("wq", "wk", "wv")}
    weights["out"] = rng.standard_normal((8, VOCABULARY)).astype(np.float32) / 2
    rows = {"split": [0, 0, 2, 4], "merge": [0, 0, 8], "axes": [1, 2], "first": [0], "ending": [-1]}
    weights |= {name: np.array(row, np.int64) for name, row in rows.items()}
    weights |= {"number_0": np.int64(0), "number_1": np.int64(1)}
    weights |= {"zero": np.float32(0), "one": np.float32(1), "many": np.float32(1e4)}
    proto = parser.parse_graph(text)
    read = {name for node in proto.node for name in node.input}
    proto.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in weights.items()
        if name in read
    )
    return proto


def operands(operator: str) -> Sequence[str]:
    """The names of the operands of an operator."""
    beams = _BEAM_OPERANDS if operator == "WhisperBeamSearch" else _BEAM_OPERANDS[:12]
    greedy = _GREEDY_OPERANDS if operator == "Sampling" else _GREEDY_OPERANDS[:7]
    return beams if "Beam" in operator else greedy


def _model(
    operator: str,
    given: Sequence[str],
    graphs: dict[str, onnx.GraphProto],
    outputs: int,
    attributes: dict[str, Any],
) -> onnx.ModelProto:
    """A model of one node, whose operands `given` are inputs of the model: numbers of rank 0 and masks."""
    names = [name if name in given else "" for name in operands(operator)]
    results = ["sequences", "sequences_scores", "scores", "cross_qk", "non_speech_probs"]
    results = [*results[: min(outputs, 3)], *["", "non_speech_probs"] * (outputs > 3)]
    tokens = {"eos_token_id": END, "pad_token_id": PAD} | attributes
    node = helper.make_node(operator, names, results, domain=CONTRIB, **tokens, **graphs)
    whisper = attributes.get("model_type") == 2
    inputs = []
    for name in filter(None, names):
        kind = TensorProto.FLOAT if name in _FLOATS else TensorProto.INT32
        shape = _SHAPES.get(name, [])
        if whisper and name == "input_ids":
            kind, shape = TensorProto.FLOAT, ["batch", 4, "frames"]
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT if i else TensorProto.INT32, None)
        for i, name in enumerate(results)
        if name
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    net = helper.make_graph([node], "text", inputs, infos)
    return helper.make_model(net, opset_imports=opsets, ir_version=9)


def gpt(
    operator: str = "BeamSearch",
    *given: str,
    outputs: int = 2,
    init: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """A decoder alone; with `init` the first step is another network's."""
    graphs = {"decoder": graph(GPT)}
    if init:
        graphs["init_decoder"] = graph(GPT, seed=1)
    return _model(operator, ("input_ids", *given), graphs, outputs, attributes)


def t5(*given: str, old: bool = True, texts: bool = False, **attributes: Any) -> onnx.ModelProto:
    """An encoder of tokens: an `old` one begins the text as well. The decoder may take all `texts` at every step."""
    tokens = "int32[batch, words] encoder_input_ids, int32[batch, words] encoder_attention_mask"
    tokens += ", int32[batch, 1] decoder_input_ids" if old else ""
    encoder = _encoder(tokens, "hidden = Gather(words, encoder_input_ids)", begins=old)
    fixed = "int32[batch, words] encoder_attention_mask,"
    if old:
        fixed = f"int32[batch, words] encoder_input_ids, {fixed} float[batch, words, 8] encoder_hidden_states,"
    ids = "int32[batch, length] input_ids" if texts else "int32[batch, 1] input_ids"
    graphs = {
        "encoder": graph(encoder),
        "decoder": graph(_decoder(fixed, "encoder_attention_mask", ids)),
    }
    tokens_of = {"decoder_start_token_id": START, "model_type": 1} | attributes
    outputs = tokens_of.pop("outputs", 2)
    return _model("BeamSearch", ("input_ids", *given), graphs, outputs, tokens_of)


def whisper(operator: str, *given: str, hidden: bool = True, **attributes: Any) -> onnx.ModelProto:
    """An encoder of sound, which begins the text as well."""
    sound = "float[batch, 4, frames] encoder_input_ids, int32[batch, begun] decoder_input_ids"
    read = """
        turned = Transpose<perm = [0, 2, 1]>(encoder_input_ids)
        hidden = MatMul(turned, sounds)
    """
    fixed = "float[batch, words, 8] encoder_hidden_states," if hidden else ""
    graphs = {
        "encoder": graph(_encoder(sound, read, begins=True)),
        "decoder": graph(_decoder(fixed, "")),
    }
    tokens = {"decoder_start_token_id": START, "model_type": 2} | attributes
    outputs = tokens.pop("outputs", 2)
    return _model(operator, ("input_ids", *given), graphs, outputs, tokens)
