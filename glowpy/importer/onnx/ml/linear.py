"""Import of linear models."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.ml.scores import (
    DOMAIN,
    best,
    labelled,
    opposites,
    plus,
    product,
    rows,
    transformed,
)
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


def _scores(n: OnnxNode, number: int) -> NodeValue:
    """Computes so many scores: products with rows of coefficients, plus the intercepts.

    A row has as many as there are features; what follows the last row is not read, as in onnxruntime.
    """
    coefficients: Array = np.array(n.reals("coefficients") or (), np.float32)
    matrix = rows(n)
    (width,) = static(matrix.type.shape[1:])
    if number < 1 or coefficients.size < number * width:
        raise UserError(
            f"attribute 'coefficients': expected {number} rows of {width} numbers, got {coefficients.size}"
        )
    used = coefficients[: number * width].reshape(number, width)
    return plus(n, product(n, matrix, used.T), n.reals("intercepts"))


@from_onnx("LinearRegressor", domain=DOMAIN)
def _linear_regressor(n: OnnxNode) -> Value:
    return transformed(n, _scores(n, n.integer("targets", 1)))


@from_onnx("LinearClassifier", domain=DOMAIN)
def _linear_classifier(n: OnnxNode) -> tuple[Value, ...]:
    """There is a score for each intercept, or for each label; a single one is that of the second of two classes."""
    labels = len(n.integers("classlabels_ints") or n.texts("classlabels_strings"))
    scores = _scores(n, len(n.reals("intercepts") or ()) or labels)
    if scores.type.shape[1] == 1 and labels in (0, 2):
        scores = opposites(n, scores)
    if labels not in (0, scores.type.shape[1]):
        raise UserError(f"expected a label for each score, got {labels} for {scores.type}")
    return labelled(n, best(n, scores)), transformed(n, scores)
