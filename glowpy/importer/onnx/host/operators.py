"""Operators that a session computes, by the rules in `glowpy/session/host`: this package knows no session.

`tests/unit/session/test_host_operators.py` holds the tables to the rules.
"""

from __future__ import annotations

from glowpy.support.errors import UnsupportedError

__all__ = ["HOSTED_OPERATORS", "SESSION_OPERATORS", "SHARED_OPERATORS", "is_of_sessions", "refusal"]

SESSION_OPERATORS: dict[tuple[str, str], int] = {
    ("", "Optional"): 15,
    ("", "RegexFullMatch"): 20,
    ("", "SequenceMap"): 17,
    ("", "StringConcat"): 20,
    ("", "StringNormalizer"): 10,
    ("", "StringSplit"): 20,
    ("ai.onnx.ml", "CastMap"): 1,
    ("ai.onnx.ml", "CategoryMapper"): 1,
    ("ai.onnx.ml", "DictVectorizer"): 1,
    ("ai.onnx.ml", "ZipMap"): 1,
    ("com.microsoft", "BeamSearch"): 1,
    ("com.microsoft", "GreedySearch"): 1,
    ("com.microsoft", "Sampling"): 1,
    ("com.microsoft", "Tokenizer"): 1,
    ("com.microsoft", "WhisperBeamSearch"): 1,
}
"""Those that no machine code has in any form: the domain and the name of each, to the opset that they begin with."""

SHARED_OPERATORS: dict[tuple[str, str], int] = {
    ("", "Cast"): 6,
    ("", "CastLike"): 15,
    ("", "ConcatFromSequence"): 11,
    ("", "Gather"): 1,
    ("", "Identity"): 1,
    ("", "If"): 1,
    ("", "Loop"): 1,
    ("", "OptionalGetElement"): 15,
    ("", "OptionalHasElement"): 15,
    ("", "Scan"): 9,
    ("", "SequenceAt"): 11,
    ("", "SequenceConstruct"): 11,
    ("", "SequenceEmpty"): 11,
    ("", "SequenceErase"): 11,
    ("", "SequenceInsert"): 11,
    ("", "SequenceLength"): 11,
    ("", "SplitToSequence"): 11,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): 1,
    ("ai.onnx.ml", "LabelEncoder"): 1,
}
"""Those that machine code has for numbers, and a session for all else."""

HOSTED_OPERATORS = dict(sorted((SESSION_OPERATORS | SHARED_OPERATORS).items()))
"""All that a session computes."""


def is_of_sessions(domain: str, op_type: str, opset: int) -> bool:
    """Whether a session computes an operator that the importer does not read."""
    since = SESSION_OPERATORS.get((domain, op_type))
    return since is not None and since <= opset


def refusal(domain: str, op_type: str, opset: int) -> UnsupportedError | None:
    """The error for an operator that a session does not compute where its values are no tensors of numbers."""
    since = HOSTED_OPERATORS.get((domain, op_type))
    if since is None or (domain and since > opset):
        return UnsupportedError(
            f"{op_type} (opset {opset}) of strings, sequences, optionals or maps is not supported"
        )
    if since > opset:
        return UnsupportedError(
            f"{op_type} (opset {opset}) is not supported in what a session computes of a model",
            note=f"export the model at opset {since} or later",
        )
    return None
