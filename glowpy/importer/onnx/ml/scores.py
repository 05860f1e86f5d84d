"""Parts that classifiers and regressors share: rows of features, transforms of scores, labels of classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue, value_of
from glowpy.importer.kit.moves import convert, reshape
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__ = [
    "DOMAIN",
    "best",
    "constant",
    "labelled",
    "opposites",
    "plus",
    "product",
    "rows",
    "transformed",
]

DOMAIN = "ai.onnx.ml"


def rows(n: OnnxNode, index: int = 0) -> NodeValue:
    """An input as a matrix of floats, a row for each example; a vector is one row. Integers become f32."""
    value = n.value(index)
    if value.type.rank == 1:
        value = reshape(n, value, (1, *value.type.shape))
    if value.type.rank != 2:
        raise UserError(f"expected a matrix of features, got {value.type}")
    kind = ElemKind.F64 if value.type.kind is ElemKind.F64 else ElemKind.F32
    return n.operand(convert(n, value, kind), n.proto.input[index])


def constant(n: OnnxNode, array: Array | Sequence[float], kind: ElemKind, suffix: str) -> NodeValue:
    """Known numbers as an operand called after the node."""
    return n.operand(Tensor.of(np.asarray(array).astype(kind.dtype)), f"{n.name}_{suffix}")


def _scalar(n: OnnxNode, like: NodeValue, number: float) -> NodeValue:
    return n.f.create_splat(f"{n.name}_number", Type(like.type.kind, ()), number).result


def product(n: OnnxNode, features: NodeValue, matrix: Array) -> NodeValue:
    """Rows of features times a known matrix, which has a line for each feature. Raises UserError where it has not."""
    (number,) = static(features.type.shape[1:])
    if number != matrix.shape[0]:
        raise UserError(f"expected {matrix.shape[0]} features, got {features.type}")
    return n.f.create_mat_mul(
        n.name, features, constant(n, matrix, features.type.kind, "coefficients")
    ).result


def plus(n: OnnxNode, scores: NodeValue, base: Sequence[float] | Array | None) -> NodeValue:
    """Scores and a number for each of them, or one for all. Raises UserError for another number of these."""
    if base is None or len(base) == 0:
        return scores
    if len(base) not in (1, scores.type.shape[1]):
        raise UserError(
            f"expected {scores.type.shape[1]} numbers to add to scores, got {len(base)}"
        )
    return n.f.create_add(n.name, scores, constant(n, base, scores.type.kind, "base")).result


def opposites(n: OnnxNode, scores: NodeValue, *, chances: bool = False) -> NodeValue:
    """Two columns for the one of the second class: the score and its opposite, of `chances` what is missing to 1."""
    f, one = n.f, _scalar(n, scores, 1.0)
    other = f.create_sub(n.name, one, scores) if chances else f.create_neg(n.name, scores)
    return f.create_concat(n.name, [other, scores], 1).result


def transformed(n: OnnxNode, scores: NodeValue, name: str = "") -> Value:
    """Applies the attribute `post_transform` to rows of scores, in f32."""
    name = name or n.text("post_transform", "NONE")
    if name not in _TRANSFORMS:
        expected = ", ".join(_TRANSFORMS)
        raise UserError(f"attribute 'post_transform': expected one of {expected}, got '{name}'")
    narrow = n.operand(convert(n, scores, ElemKind.F32))
    return _TRANSFORMS[name](n, narrow)


def _softmax_zero(n: OnnxNode, scores: NodeValue) -> NodeValue:
    """A softmax in which scores near 0 stay 0, or so; each class has a half where all of them are."""
    f, name = n.f, n.name
    top = f.create_reduce_max(name, scores, (1,))
    powers = f.create_exp(name, f.create_sub(name, scores, top))
    shrunk = f.create_mul(name, scores, f.create_exp(name, f.create_neg(name, top)))
    large = f.create_lt(name, _scalar(n, scores, 1e-7), f.create_abs(name, scores))
    shares = f.create_select(name, large, powers, shrunk)
    total = f.create_reduce_add(name, shares, (1,))
    empty = f.create_eq(name, total, _scalar(n, scores, 0.0))
    return f.create_select(
        name, empty, _scalar(n, scores, 0.5), f.create_div(name, shares, total)
    ).result


def _probit(n: OnnxNode, scores: NodeValue) -> NodeValue:
    """The square root of 2 times the inverse of the error function at 2 * p - 1, as Winitzki (2008) approximates it."""
    f, name = n.f, n.name

    def number(x: float) -> NodeValue:
        return _scalar(n, scores, x)

    a = 0.147
    doubled = f.create_mul(name, scores, number(2.0))
    place = f.create_sub(name, doubled, number(1.0))
    inside = f.create_mul(name, f.create_sub(name, number(2.0), doubled), doubled)
    log = f.create_log(name, inside)
    half = f.create_mul(name, log, number(0.5))
    term = f.create_add(name, half, number(2 / (math.pi * a)))
    square = f.create_mul(name, term, term)
    root = f.create_sqrt(name, f.create_sub(name, square, f.create_mul(name, log, number(1 / a))))
    size = f.create_sqrt(name, f.create_sub(name, root, term))
    below = f.create_lt(name, place, number(0.0))
    signed = f.create_select(name, below, f.create_neg(name, size), size)
    return f.create_mul(name, signed, number(math.sqrt(2))).result


_TRANSFORMS: dict[str, Callable[[OnnxNode, NodeValue], NodeValue]] = {
    "NONE": lambda n, scores: scores,
    "SOFTMAX": lambda n, scores: n.f.create_softmax(n.name, scores, 1).result,
    "LOGISTIC": lambda n, scores: n.f.create_sigmoid(n.name, scores).result,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def best(n: OnnxNode, scores: Value) -> Value:
    """The column of the highest score in each row, the first of equal ones."""
    places = n.f.create_arg_max(n.name, n.operand(scores), 1, last=False).result
    return reshape(n, places, places.type.shape[:1])


def labelled(n: OnnxNode, places: Value, integers: str = "classlabels_ints") -> Value:
    """The labels of classes, which an attribute lists; their places if there are none."""
    labels = n.integers(integers)
    if n.texts("classlabels_strings"):
        note = "glowpy.InferenceSession gives texts; train with integers for machine code alone"
        raise n.unsupported("classlabels_strings", note)
    if labels is None or list(labels) == list(range(len(labels))):
        return places
    table = constant(n, labels, ElemKind.I64, "labels")
    return value_of(n.f.create_gather(n.name, table, n.operand(places), 0))
