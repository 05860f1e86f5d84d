"""Operators that no machine code has in any form: a session computes them, by the rules in `glowpy/session/host`."""

from __future__ import annotations

__all__ = ["SESSION_OPERATORS", "is_of_sessions"]

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
    ("com.microsoft", "Tokenizer"): 1,
}
"""The domain and the name of each, to the opset from which on a session computes it."""


def is_of_sessions(domain: str, op_type: str, opset: int) -> bool:
    """Whether a session computes an operator that the importer does not read."""
    since = SESSION_OPERATORS.get((domain, op_type))
    return since is not None and since <= opset
