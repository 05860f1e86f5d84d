"""Verdicts: what onnxruntime says of a node that is refused, from the name of its status on.

Programs that were written for onnxruntime look for these words; `Diagnostic.verdict` holds them.
"""

from __future__ import annotations

import onnx
from onnx import defs

from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.source import domain_of

__all__ = ["different_types", "refused_operator", "wrong_structure", "wrong_type"]

_INVALID = "INVALID_GRAPH : This is an invalid model."

_OWN_NAMES = """
    AttnLSTM BiasDropout BiasSoftmax BifurcationDetector BitmaskBiasDropout BitmaskDropout BranchwiseRMSNorm CDist
    CausalConvWithState ComplexMul ComplexMulConj ConvStateReplay ConvTransposeWithDynamicPads CropAndResize
    DecoderAttention DecoderMaskedSelfAttention DequantizeBFP DequantizeWithOrder DynamicSparseAttention
    DynamicTimeWarping EPContext EngramGate FusedMatMulActivation GatedAdd GatedDeltaNet GatedDeltaNetStateReplay
    GatedRMSNorm GatedRelativePositionBias GatherPacked GemmFloat8 GemmaRotaryEmbedding GridSample
    HyperConnectionLowRankMix HyperConnectionPostMix HyperConnectionPreMix Irfft IsAllFinite LinearAttention
    LinearAttentionGate LongformerAttention MRotaryEmbedding Mamba2Verify MatMulBlockQuantizedFp4Weight
    MatMulBlockQuantizedFp8Weight MatMulFpQ4 MatMulInteger16 MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv
    MatMulPacked MaxpoolWithMask MoEGroupRouter MoEPacked MulInteger MurmurHash3 NGramHashMapping NGramRepeatBlock
    PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer PackedSparseAttentionIndexerMerge
    PagedAttention QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention
    QOrderedMatMul QuantizeBFP QuantizeWithOrder RMSNormRotary ReduceSumInteger RelativePositionBias RemovePadding
    RestorePadding Rfft RouterGateUpProj SampleOp ScaledSiLU Snpe SparseAttention SparseAttentionIndexer
    SparsePagedAttention SparseToDenseMatMul SpeculativePrefixCommit SwiGLU TorchEmbedding UnfoldTensor Unique
    VarlenCausalConvWithState VarlenNGramHashMapping WordConvEmbedding
"""
_OWN_OPERATORS = frozenset(_OWN_NAMES.split())
"""The operators of onnxruntime's own domain that it registers, and glowpy does not have."""


def refused_operator(
    node: onnx.NodeProto,
    opset: int | None,
    schema: defs.OpSchema | None,
    *,
    is_standard: bool,
) -> str:
    """The verdict on an operator that cannot be imported; `is_standard` if ONNX knows its domain."""
    domain = domain_of(node.domain)
    if opset is None:
        return _invalid(node, f"No opset import for domain '{domain}'")
    version = f"domain_version of {opset}"
    if schema is None:
        if is_standard:
            return _invalid(node, f"No Op registered for {node.op_type} with {version}")
        if domain == CONTRIB and node.op_type in _OWN_OPERATORS:
            return _unimplemented(node, opset)
        return f"FAIL : Fatal error: {domain}:{node.op_type}(-1) is not a registered function/op"
    if schema.deprecated:
        return _invalid(node, f"Op registered for {node.op_type} is deprecated in {version}")
    unknown = [a.name for a in node.attribute if a.name not in schema.attributes]
    if unknown:
        return _invalid(node, f"Unrecognized attribute: {unknown[0]} for operator {node.op_type}")
    return _unimplemented(node, schema.since_version)


def wrong_structure(node: onnx.NodeProto, schema: defs.OpSchema) -> str:
    """The verdict on a node with too many inputs or outputs, too few, or without an attribute."""
    who = f"Node with schema({schema.domain}::{schema.name}:{schema.since_version})"
    for what, got, least, most in (
        ("input", len(node.input), schema.min_input, schema.max_input),
        ("output", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= got <= most:
            bounds = f"[min={least}, max={most}]"
            return _invalid(node, f"{who} has {what} size {got} not in range {bounds}.")
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            return _invalid(node, f"Required attribute '{name}' is missing.")
    return ""


def wrong_type(node: onnx.NodeProto, name: str, got: str) -> str:
    """The verdict on an input called `name` of a type that the operator does not take."""
    return (
        f"{_INVALID} Type Error: Type '{got}' of input parameter ({name}) of operator ({node.op_type}) "
        f"in node ({node.name}) is invalid."
    )


def different_types(node: onnx.NodeProto, parameter: str, first: str, second: str) -> str:
    """The verdict on inputs of which ONNX says that they are of one type."""
    return (
        f"FAIL : Type Error: Type parameter ({parameter}) of Optype ({node.op_type}) bound to different types "
        f"({first} and {second} in node ({node.name})."
    )


def _invalid(node: onnx.NodeProto, what: str) -> str:
    return f'{_INVALID} In Node, ("{node.name}", {node.op_type}, "{domain_of(node.domain)}", -1) , Error {what}'


def _unimplemented(node: onnx.NodeProto, version: int) -> str:
    return (
        f"NOT_IMPLEMENTED : Could not find an implementation for {node.op_type}({version}) node with name "
        f"'{node.name}'"
    )
