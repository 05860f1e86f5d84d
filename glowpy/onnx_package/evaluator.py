"""The evaluator of the onnx package, which defines what operators compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from glowpy.core.tensor import Array

__all__ = ["evaluate_reference"]


def evaluate_reference(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Runs onnx's reference evaluator; returns outputs by name. Slow: it is written in numpy."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - heavy, and seldom asked for

    evaluator = ReferenceEvaluator(str(path))
    outputs = evaluator.run(None, dict(inputs))
    return dict(zip(evaluator.output_names, outputs, strict=True))
