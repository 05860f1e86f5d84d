"""The schemas of onnxruntime's own operators: the table that stands in for ONNX's for them.

An operand is written `name`, `name?` if it may be left out, `name*` if there may be any number of it, and `name:K`
unless it is a float. All floats of a node are of one kind, those of `:own` perhaps of another, those of `:stash` of the
one that the attribute `stash_type` says. Stored integers of `:bytes` are of one kind, and so are those of `:weights`,
of `:steps` and of `:codes`; a `:part` and `:zeros` may be floats as well, and a `:prompt` is i32 or a float.
`:u8`, `:f32`, `:i32`, `:i64`, `:bool` and `:text` are of that kind, `:ids` of either of two, `:any` of any.
An attribute that must be given ends in `!`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from onnx import defs

__all__ = ["CONTRIB", "NCHWC", "UNCHECKED", "contrib_schema", "contrib_schemas", "operator_schemas"]

CONTRIB, NCHWC = "com.microsoft", "com.microsoft.nchwc"

UNCHECKED = {("", "LayerNormalization"), ("", "SimplifiedLayerNormalization")}
"""Operators that may have attributes nobody knows, such as `epsion`: onnxruntime does not look at them."""

_Parameter = defs.OpSchema.FormalParameter
_Kinds = defs.OpSchema.AttrType

_FLOATS = ["tensor(float16)", "tensor(bfloat16)", "tensor(float)", "tensor(double)"]
_INTEGERS = [f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BYTES = ["tensor(int8)", "tensor(uint8)"]
_SETS = {
    "float": _FLOATS,
    "own": _FLOATS,
    "stash": _FLOATS,
    "ids": ["tensor(int32)", "tensor(int64)"],
    "any": [*_FLOATS, *_INTEGERS, "tensor(bool)"],
    "bytes": _BYTES,
    "weights": _BYTES,
    "steps": _BYTES,
    "codes": [*_BYTES, "tensor(int16)", "tensor(uint16)", "tensor(int32)"],
    "zeros": ["tensor(uint8)", *_FLOATS],
    "part": [*_BYTES, "tensor(float)"],
    "prompt": ["tensor(float)", "tensor(float16)", "tensor(int32)"],
}
_PLAIN = {
    "u8": "tensor(uint8)",
    "f32": "tensor(float)",
    "i32": "tensor(int32)",
    "i64": "tensor(int64)",
    "bool": "tensor(bool)",
    "text": "tensor(string)",
}


def _operands(text: str) -> Iterator[defs.OpSchema.FormalParameter]:
    for word in text.split():
        name, _, kind = word.partition(":")
        option = {"?": "Optional", "*": "Variadic"}.get(name[-1], "Single")
        yield _Parameter(
            name.rstrip("?*"),
            _PLAIN.get(kind, kind or "float"),
            param_option=getattr(defs.OpSchema.FormalParameterOption, option),
            is_homogeneous=option != "Variadic",
        )


def _schema(
    name: str,
    inputs: str,
    outputs: str,
    *,
    ints: str = "",
    floats: str = "",
    texts: str = "",
    int_lists: str = "",
    float_lists: str = "",
    text_lists: str = "",
    graphs: str = "",
    domain: str = CONTRIB,
) -> defs.OpSchema:
    lists = [
        (_Kinds.INT, ints),
        (_Kinds.FLOAT, floats),
        (_Kinds.STRING, texts),
        (_Kinds.INTS, int_lists),
        (_Kinds.FLOATS, float_lists),
        (_Kinds.STRINGS, text_lists),
        (_Kinds.GRAPH, graphs),
    ]
    attributes = [
        defs.OpSchema.Attribute(word.removesuffix("!"), kind, required=word.endswith("!"))
        for kind, text in lists
        for word in text.split()
    ]
    constraints = [(key, kinds, "") for key, kinds in _SETS.items()]
    return defs.OpSchema(
        name,
        domain,
        1,
        inputs=list(_operands(inputs)),
        outputs=list(_operands(outputs)),
        type_constraints=constraints,
        attributes=attributes,
    )


_CONV = {
    "ints": "group",
    "texts": "auto_pad activation",
    "int_lists": "kernel_shape strides pads dilations",
    "float_lists": "activation_params",
}
_POOL = {"texts": "auto_pad", "int_lists": "kernel_shape! strides pads dilations"}


def _activations() -> Iterator[defs.OpSchema]:
    yield _schema("Gelu", "X", "Y")
    yield _schema("FastGelu", "X bias?", "Y")
    yield _schema("QuickGelu", "X", "Y", floats="alpha")
    yield _schema("BiasGelu", "A B", "C")
    yield _schema("BiasSplitGelu", "X bias", "Y")
    yield _schema("BiasAdd", "X bias skip", "Y")


def _normalizations() -> Iterator[defs.OpSchema]:
    form = {"ints": "axis stash_type", "floats": "epsilon"}
    main_form = {**form, "domain": ""}
    yield _schema(
        "LayerNormalization", "X:own Scale B?", "Y Mean?:stash InvStdDev?:stash", **main_form
    )
    yield _schema(
        "SimplifiedLayerNormalization", "X:own scale", "Y inv_std_var?:stash", **main_form
    )
    results = "output mean? inv_std_var? input_skip_bias_sum?"
    yield _schema(
        "SkipLayerNormalization", "input skip gamma beta? bias?", results, floats="epsilon"
    )
    simplified = "SkipSimplifiedLayerNormalization"
    yield _schema(simplified, "input skip gamma bias?", results, floats="epsilon")
    yield _schema(
        "EmbedLayerNormalization",
        "input_ids:i32 segment_ids?:i32 word_embedding position_embedding segment_embedding? "
        "gamma beta mask?:i32 position_ids?:i32",
        "output mask_index?:i32 embedding_sum?",
        ints="mask_index_type",
        floats="epsilon",
    )
    group = {"ints": "channels_last groups! activation!", "floats": "epsilon"}
    yield _schema("GroupNorm", "X gamma:own beta:own", "Y", **group)
    yield _schema("SkipGroupNorm", "X gamma:own beta:own skip bias?", "Y S?", **group)


def _products() -> Iterator[defs.OpSchema]:
    turns = "transA transB"
    yield _schema("TransposeMatMul", "A B", "Y", ints=turns, floats="alpha")
    batched = f"{turns} transBatchA transBatchB"
    yield _schema("FusedMatMul", "A B", "Y", ints=batched, floats="alpha")
    yield _schema(
        "FusedGemm",
        "A B C?",
        "Y",
        ints=turns,
        floats="alpha beta activation_alpha activation_beta activation_gamma",
        texts="activation",
    )
    yield _schema("GemmFastGelu", "X W bias?", "Y")
    yield _schema("FusedConv", "X W B? Z?", "Y", **_CONV)
    yield _schema("NhwcFusedConv", "X W B? Z?", "Y", **_CONV)
    yield _schema("NhwcConv", "X W B?", "Y", **{**_CONV, "texts": "auto_pad", "float_lists": ""})
    yield _schema("Inverse", "X", "Y")


def _attentions() -> Iterator[defs.OpSchema]:
    yield _schema(
        "Attention",
        "input weights bias? mask_index?:i32 past? attention_bias? past_sequence_length?:i32",
        "output present?",
        ints="num_heads! unidirectional do_rotary rotary_embedding_dim past_present_share_buffer",
        floats="scale mask_filter_value",
        int_lists="qkv_hidden_sizes",
    )
    yield _schema(
        "MultiHeadAttention",
        "query key? value? bias? key_padding_mask?:i32 attention_bias? past_key? past_value? "
        "past_sequence_length?:i32 cache_indirection?:i32",
        "output present_key? present_value? qk?",
        ints="num_heads! unidirectional",
        floats="scale mask_filter_value",
    )
    yield _schema(
        "GroupQueryAttention",
        "query key? value? past_key? past_value? seqlens_k:i32 total_sequence_length:i32 "
        "cos_cache? sin_cache? position_ids?:i64 attention_bias? head_sink? k_scale?:own v_scale?:own "
        "q_norm_weight? k_norm_weight? query_seqlens?:i32",
        "output present_key? present_value? output_qk?",
        ints="num_heads! kv_num_heads! do_rotary rotary_interleaved causal local_window_size "
        "smooth_softmax qk_output kv_cache_bit_width sliding_window_cache",
        floats="scale softcap qk_norm_epsilon q_norm_epsilon k_norm_epsilon",
        texts="k_quant_type v_quant_type",
    )
    yield _schema(
        "DecoderMaskedMultiHeadAttention",
        "query key? value? mask_index?:i32 attention_bias? past_key? past_value? past_sequence_length?:i32 "
        "beam_width?:i32 cache_indirection?:i32 bias?",
        "output present_key? present_value? qk?:own",
        ints="num_heads! past_present_share_buffer output_qk",
        floats="scale mask_filter_value",
    )
    yield _schema(
        "RotaryEmbedding",
        "input position_ids:i64 cos_cache sin_cache",
        "output",
        ints="num_heads rotary_embedding_dim interleaved is_packed_batching",
        floats="scale",
    )


def _moves() -> Iterator[defs.OpSchema]:
    yield _schema("Trilu", "X:any k?:i64", "Y:any", ints="upper")
    yield _schema("GatherND", "data:any indices:ids", "output:any")
    yield _schema("ExpandDims", "X:any axis:i32", "Y:any")
    yield _schema("Pad", "data pads:i64 value?", "output", texts="mode")
    yield _schema("Range", "start:any limit:any delta?:any", "Y:any")


def _quantized() -> Iterator[defs.OpSchema]:
    yield _schema("QuantizeLinear", "x y_scale y_zero_point?:codes", "y:codes", ints="axis")
    yield _schema("DequantizeLinear", "x:codes x_scale x_zero_point?:codes", "y", ints="axis")
    x = "X:bytes X_scale:f32 X_zero_point?:bytes"
    sums = f"{x.replace('X', 'A')} {x.replace('X', 'B')} C_scale:f32 C_zero_point?:bytes"
    yield _schema("QLinearAdd", sums, "C:bytes")
    yield _schema("QLinearMul", sums, "C:bytes")
    y = "Y_scale:f32 Y_zero_point?:bytes"
    yield _schema("QLinearSigmoid", f"{x} {y}", "Y:bytes")
    yield _schema("QLinearLeakyRelu", f"{x} {y}", "Y:bytes", floats="alpha")
    softmax = "X:bytes X_scale:f32 x_zero_point?:bytes y_scale:f32 y_zero_point:bytes"
    yield _schema("QLinearSoftmax", softmax, "Y:bytes", ints="axis opset!")
    means = "X:bytes x_scale:f32 x_zero_point{0}:bytes y_scale:f32 y_zero_point{0}:bytes"
    ints = "ceil_mode channels_last count_include_pad"
    lists = "kernel_shape! pads strides"
    texts = "auto_pad"
    yield _schema(
        *("QLinearAveragePool", means.format("?"), "Y:bytes"),
        ints=ints,
        texts=texts,
        int_lists=lists,
    )
    yield _schema("QLinearGlobalAveragePool", means.format(""), "Y:bytes", ints="channels_last")
    yield _schema(
        "QLinearReduceMean",
        "data:bytes data_scale:f32 data_zero_point?:bytes reduced_scale:f32 reduced_zero_point?:bytes",
        "reduced:bytes",
        ints="keepdims!",
        int_lists="axes!",
    )
    yield _schema("NhwcMaxPool", "x:bytes", "y:bytes", **_POOL, ints="ceil_mode")
    yield _schema(
        "QLinearConcat", "Y_scale:f32 Y_zero_point:bytes inputs*:part", "Y:bytes", ints="axis!"
    )
    yield _schema(
        "QLinearWhere",
        "condition:bool X:bytes x_scale:f32 x_zero_point:bytes Y:bytes y_scale:f32 y_zero_point:bytes "
        "z_scale:f32 z_zero_point:bytes",
        "Z:bytes",
    )


def _integer_cells() -> Iterator[defs.OpSchema]:
    yield _schema(
        "DynamicQuantizeLSTM",
        "X:f32 W:weights R:steps B?:f32 sequence_lens?:i32 initial_h?:f32 initial_c?:f32 P?:f32 "
        "W_scale:f32 W_zero_point:weights R_scale:f32 R_zero_point:steps",
        "Y?:f32 Y_h?:f32 Y_c?:f32",
        ints="hidden_size input_forget",
        floats="clip",
        texts="direction",
        float_lists="activation_alpha activation_beta",
        text_lists="activations",
    )


def _integer_products() -> Iterator[defs.OpSchema]:
    conv = {**_CONV, "ints": "group channels_last", "texts": "auto_pad", "float_lists": ""}
    yield _schema(
        "QLinearConv",
        "x:bytes x_scale:f32 x_zero_point:bytes w:weights w_scale:f32 w_zero_point:weights y_scale:f32 "
        "y_zero_point:steps B?:i32",
        "y:steps",
        **conv,
    )
    yield _schema(
        "QGemm",
        "A:bytes a_scale:f32 a_zero_point:bytes B:weights b_scale:f32 b_zero_point:weights C?:i32 "
        "y_scale?:f32 y_zero_point?:steps",
        "Y:part",
        ints="transA transB",
        floats="alpha",
    )
    yield _schema(
        "MatMulIntegerToFloat",
        "A:bytes B:weights a_scale b_scale a_zero_point?:bytes b_zero_point?:weights bias?",
        "Y",
    )
    dynamic = "A:f32 B:weights b_scale:f32 b_zero_point?:weights bias?:f32"
    yield _schema("DynamicQuantizeMatMul", dynamic, "Y:f32")
    yield _schema(
        "QAttention",
        "input:bytes weight:weights bias input_scale weight_scale mask_index?:i32 "
        "input_zero_point?:bytes weight_zero_point?:weights past?",
        "output present?",
        ints="num_heads! unidirectional do_rotary past_present_share_buffer",
        floats="scale mask_filter_value",
    )


def _products_in_blocks() -> Iterator[defs.OpSchema]:
    yield _schema(
        "MatMulNBits",
        "A B:u8 scales zero_points?:zeros g_idx?:i32 bias?",
        "Y",
        ints="K! N! bits block_size! accuracy_level weight_prepacked",
    )
    yield _schema(
        "GatherBlockQuantized",
        "data:bytes indices:ids scales zero_points?:bytes",
        "output",
        ints="bits block_size gather_axis quantize_axis",
    )
    tables = ("word_embedding{}", "position_embedding{}", "segment_embedding?", "gamma{}", "beta{}")
    parts = [
        " ".join(f"{name.format('_quant')}:bytes" for name in tables),
        " ".join(_with(name, "_scale") + ":f32" for name in tables),
        " ".join(_with(name, "_zero_point") + ":bytes" for name in tables),
    ]
    yield _schema(
        "QEmbedLayerNormalization",
        f"input_ids:i32 segment_ids?:i32 {parts[0]} mask?:i32 {parts[1]} {parts[2]}",
        "layernorm_out:f32 mask_index_out:i32",
        floats="epsilon",
    )


def _with(name: str, ending: str) -> str:
    """A table's name with an ending, and `?` after it if it has one."""
    plain = name.format("")
    return plain.replace("?", f"{ending}?") if "?" in plain else plain + ending


def _experts() -> Iterator[defs.OpSchema]:
    routed = (
        "k normalize_routing_weights use_sparse_mixer swiglu_fusion swiglu_limit_after_activation"
    )
    numbers = "swiglu_limit activation_alpha activation_beta"
    layers = [f"fc{i}_experts_weights{{}} {{}}fc{i}_experts_bias?" for i in (1, 2, 3)]
    plain = " ".join(text.format("?" * (i == 2), "") for i, text in enumerate(layers))
    yield _schema(
        "MoE",
        f"input router_probs {plain}",
        "output",
        ints=routed,
        floats=numbers,
        texts="activation_type",
    )
    stored = " ".join(
        text.format(":u8" if i < 2 else "?:u8", f"fc{i + 1}_scales?:own ")
        for i, text in enumerate(layers)
    )
    zeros = " ".join(f"fc{i}_zero_points?:u8" for i in (1, 2, 3))
    scales = "fc1_global_scale?:f32 fc2_global_scale?:f32 fc1_act_scale?:f32 fc2_act_scale?:f32"
    yield _schema(
        "QMoE",
        f"input router_probs {stored} {zeros} router_weights? {scales} "
        "fc1_act_block_scale?:own fc2_act_block_scale?:own",
        "output",
        ints=f"{routed} expert_weight_bits fc1_expert_weight_bits fc2_expert_weight_bits "
        "fc3_expert_weight_bits block_size weights_prepacked accuracy_level",
        floats=numbers,
        texts="activation_type quant_type",
    )
    yield _schema(
        "MatMulBnb4",
        "A B:u8 absmax",
        "Y",
        ints="K! N! block_size! quant_type! training_mode transB",
    )


def _blocked() -> Iterator[defs.OpSchema]:
    yield _schema("ReorderInput", "X", "Y", ints="channels_last", domain=NCHWC)
    yield _schema("ReorderOutput", "X", "Y", ints="channels channels_last", domain=NCHWC)
    yield _schema("Conv", "X W B? Sum?", "Y", **_CONV, domain=NCHWC)
    yield _schema("MaxPool", "X", "Y", **_POOL, ints="storage_order ceil_mode", domain=NCHWC)
    ints = "count_include_pad ceil_mode"
    yield _schema("AveragePool", "X", "Y", **_POOL, ints=ints, domain=NCHWC)
    yield _schema("GlobalMaxPool", "X", "Y", domain=NCHWC)
    yield _schema("GlobalAveragePool", "X", "Y", domain=NCHWC)
    texts = "mode coordinate_transformation_mode"
    yield _schema("Upsample", "X", "Y", texts=texts, int_lists="scales", domain=NCHWC)


def _texts() -> Iterator[defs.OpSchema]:
    numbers = "mark! mincharnum!"
    texts = {"texts": "pad_value! tokenexp", "text_lists": "separators"}
    yield _schema("Tokenizer", "X:text", "Y:text", ints=numbers, **texts)


def _generation() -> Iterator[defs.OpSchema]:
    tokens = "eos_token_id! pad_token_id! decoder_start_token_id no_repeat_ngram_size model_type vocab_size"
    graphs = "encoder init_decoder decoder!"
    lengths = "max_length:i32 min_length?:i32"
    masks = "vocab_mask?:i32 prefix_vocab_mask?:i32 attention_mask?:i32"
    penalties = "length_penalty? repetition_penalty?"
    beams = (
        f"{lengths} num_beams:i32 num_return_sequences:i32 {penalties} {masks} "
        "decoder_input_ids?:i32 logits_processor?:i32"
    )
    results = "sequences:i32 sequences_scores? scores?"
    yield _schema(
        "BeamSearch",
        f"input_ids:prompt {beams}",
        results,
        ints=f"{tokens} early_stopping",
        graphs=graphs,
    )
    yield _schema(
        "WhisperBeamSearch",
        f"input_ids:prompt {beams} cross_qk_layer_head?:i32 extra_decoding_ids?:i32 temperature?",
        f"{results} cross_qk?:f32 non_speech_probs?",
        ints=f"{tokens} early_stopping translate_token_id transcribe_token_id start_of_lm_token_id "
        "no_speech_token_id no_timestamps_token_id beginning_timestamp_token_id decoder_output_cross_qk",
        graphs=graphs,
    )
    greedy = f"input_ids:i32 {lengths} repetition_penalty?:f32 {masks}"
    yield _schema("GreedySearch", greedy, "sequences:i32", ints=tokens, graphs=graphs)
    yield _schema(
        "Sampling",
        f"{greedy} presence_mask?:i32 seed?:i32",
        "sequences:i32 filtered_logits?:f32",
        ints=f"{tokens} min_tokens_to_keep custom",
        floats="temperature top_p filter_value presence_penalty",
        graphs=graphs,
    )


@cache
def contrib_schemas() -> tuple[defs.OpSchema, ...]:
    """The whole table."""
    families = (
        *(_activations, _normalizations, _products, _attentions, _moves, _blocked),
        *(
            _quantized,
            _integer_cells,
            _integer_products,
            _products_in_blocks,
            _experts,
            _texts,
            _generation,
        ),
    )
    return tuple(schema for family in families for schema in family())


def operator_schemas() -> list[defs.OpSchema]:
    """ONNX's operators at every opset that changed them, and those of the table."""
    return [*defs.get_all_schemas_with_history(), *contrib_schemas()]


@cache
def _table() -> dict[tuple[str, str], defs.OpSchema]:
    return {(schema.domain, schema.name): schema for schema in contrib_schemas()}


def contrib_schema(domain: str, op_type: str) -> defs.OpSchema | None:
    """Looks up an operator in the table; None if it does not have it."""
    return _table().get((domain, op_type))
