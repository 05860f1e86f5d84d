"""Import of support vector machines, as LIBSVM trains them.

What a support vector says of an example is a function of their product or of their distance. Both come of one matrix
product: |x - v|^2 = |x|^2 + |v|^2 - 2 x v.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.ml.scores import (
    DOMAIN,
    best,
    constant,
    labelled,
    opposites,
    plus,
    product,
    rows,
    transformed,
)
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


_MOST_WEIGHTS = 1 << 27
"""Every support vector has a weight for every two classes, most of them 0, which takes memory."""


class _Parameters(NamedTuple):
    """Parameters of a kernel function."""

    gamma: float
    summand: float
    degree: float


def _number(n: OnnxNode, like: NodeValue, value: float) -> NodeValue:
    return n.f.create_splat(f"{n.name}_number", Type(like.type.kind, ()), value).result


def _scaled(n: OnnxNode, x: NodeValue, vectors: Array, p: _Parameters) -> NodeValue:
    products = n.f.create_mul(n.name, product(n, x, vectors.T), _number(n, x, p.gamma))
    return n.f.create_add(n.name, products, _number(n, x, p.summand)).result


def _linear(n: OnnxNode, x: NodeValue, vectors: Array, p: _Parameters) -> NodeValue:
    del p
    return product(n, x, vectors.T)


def _poly(n: OnnxNode, x: NodeValue, vectors: Array, p: _Parameters) -> NodeValue:
    return n.f.create_pow(n.name, _scaled(n, x, vectors, p), _number(n, x, p.degree)).result


def _sigmoid(n: OnnxNode, x: NodeValue, vectors: Array, p: _Parameters) -> NodeValue:
    return n.f.create_tanh(n.name, _scaled(n, x, vectors, p)).result


def _rbf(n: OnnxNode, x: NodeValue, vectors: Array, p: _Parameters) -> NodeValue:
    """Distances in f64: in f32, too little may be left of the squares of numbers as large as some features are."""
    f, wide = n.f, n.operand(convert(n, x, ElemKind.F64))
    products = f.create_mul(n.name, product(n, wide, vectors.T), _number(n, wide, -2.0))
    example_squares = f.create_reduce_add(n.name, f.create_mul(n.name, wide, wide), (1,))
    vector_squares = constant(n, (vectors**2).sum(1), ElemKind.F64, "squares")
    squares = f.create_add(n.name, f.create_add(n.name, products, vector_squares), example_squares)
    exponents = f.create_mul(n.name, squares, _number(n, wide, -p.gamma)).result
    return f.create_exp(n.name, n.operand(convert(n, exponents, x.type.kind))).result


_KERNELS: dict[str, Callable[[OnnxNode, NodeValue, Array, _Parameters], NodeValue]] = {
    "LINEAR": _linear,
    "POLY": _poly,
    "RBF": _rbf,
    "SIGMOID": _sigmoid,
}


def _similarities(n: OnnxNode, vectors: int) -> NodeValue:
    """Computes the kernel of each example with so many support vectors: in f64, for the sums of these cancel."""
    name, parameters = n.text("kernel_type", "LINEAR"), n.reals("kernel_params") or (0.0, 0.0, 0.0)
    if name not in _KERNELS:
        expected = ", ".join(_KERNELS)
        raise UserError(f"attribute 'kernel_type': expected one of {expected}, got '{name}'")
    if len(parameters) != 3:
        raise UserError(f"attribute 'kernel_params': expected 3 numbers, got {len(parameters)}")
    numbers = _table(n, "support_vectors", vectors)
    similarities = _KERNELS[name](n, rows(n), numbers, _Parameters(*parameters))
    return n.operand(convert(n, similarities, ElemKind.F64))


def _table(n: OnnxNode, name: str, number: int) -> Array:
    """An attribute as so many rows, in f64."""
    array: Array = np.array(n.reals(name) or (), np.float64)
    if number < 1 or not array.size or array.size % number:
        raise UserError(f"attribute '{name}': expected a multiple of {number}, got {array.size}")
    return array.reshape(number, -1)


def _rho(n: OnnxNode, number: int) -> tuple[float, ...]:
    rho = n.reals("rho") or (0.0,)
    if len(rho) < number:
        raise UserError(f"attribute 'rho': expected {number} numbers, got {len(rho)}")
    return rho[:number]


@from_onnx("SVMRegressor", domain=DOMAIN)
def _svm_regressor(n: OnnxNode) -> Value:
    """Without support vectors it is linear. Of one class it says whether an example belongs to it: 1 or -1."""
    supports = n.integer("n_supports", 0)
    coefficients = _table(n, "coefficients", 1).T
    features = _similarities(n, supports) if supports else rows(n)
    score = plus(n, product(n, features, coefficients), _rho(n, 1))
    if n.flag("one_class"):
        inside = n.f.create_lt(n.name, _number(n, score, 0.0), score)
        signs = (_number(n, score, 1.0), _number(n, score, -1.0))
        score = n.f.create_select(n.name, inside, *signs).result
    return transformed(n, score)


@from_onnx("SVMClassifier", domain=DOMAIN)
def _svm_classifier(n: OnnxNode) -> tuple[Value, ...]:
    """Without support vectors it is linear: a score for each class, all with the same summand."""
    classes = len(n.integers("classlabels_ints") or n.texts("classlabels_strings")) or 1
    counts = n.integers("vectors_per_class") or ()
    if min(counts, default=0) < 0:
        raise UserError(f"attribute 'vectors_per_class': expected no {min(counts)}")
    if not sum(counts):
        coefficients = _table(n, "coefficients", classes)
        scores = plus(n, product(n, rows(n), coefficients.T), _rho(n, 1))
        return labelled(n, best(n, scores)), transformed(n, scores)
    if len(counts) != classes or classes < 2:
        raise UserError(
            f"attribute 'vectors_per_class': expected {classes} numbers, got {len(counts)}"
        )
    decisions = _decisions(n, counts)
    places = best(n, _votes(n, decisions, classes))
    scores = opposites(n, decisions) if classes == 2 else decisions
    if n.reals("prob_a"):
        scores = _chances(n, decisions)
    return labelled(n, places), transformed(n, scores)


def _decisions(n: OnnxNode, counts: tuple[int, ...]) -> NodeValue:
    """A number for every two classes, (0, 1), (0, 2) and so on: above 0 for the first. Only their own vectors count."""
    number, ends = sum(counts), [0, *itertools.accumulate(counts)]
    coefficients = _table(n, "coefficients", len(counts) - 1)
    if coefficients.shape[1] != number:
        raise UserError(
            f"attribute 'coefficients': expected {(len(counts) - 1) * number}, got {coefficients.size}"
        )
    rho = _rho(n, len(counts) * (len(counts) - 1) // 2)
    if number * len(rho) > _MOST_WEIGHTS:
        raise UserError(
            f"expected at most {_MOST_WEIGHTS} weights, got {len(rho)} for each of {number} vectors"
        )
    pairs = list(itertools.combinations(range(len(counts)), 2))
    weights = np.zeros((number, len(pairs)))
    for column, (a, b) in enumerate(pairs):
        weights[ends[a] : ends[a + 1], column] = coefficients[b - 1, ends[a] : ends[a + 1]]
        weights[ends[b] : ends[b + 1], column] = coefficients[a, ends[b] : ends[b + 1]]
    return plus(n, product(n, _similarities(n, number), weights), rho)


def _votes(n: OnnxNode, decisions: NodeValue, classes: int) -> NodeValue:
    """How many decisions each class wins: as the second of two, all but those that the first one wins."""
    pairs = list(itertools.combinations(range(classes), 2))
    change, lost = np.zeros((len(pairs), classes)), np.zeros(classes)
    for row, (a, b) in enumerate(pairs):
        change[row, a], change[row, b] = 1, -1
        lost[b] += 1
    won = n.f.create_lt(n.name, _number(n, decisions, 0.0), decisions).result
    numbers = n.operand(convert(n, won, ElemKind.F32))
    return plus(n, product(n, numbers, change), lost)


def _chances(n: OnnxNode, decisions: NodeValue) -> NodeValue:
    """Probabilities of all classes: those of every two (Platt 2000) are coupled."""
    f, kind, pairs = n.f, decisions.type.kind, decisions.type.shape[1]
    slopes, offsets = n.reals("prob_a") or (), n.reals("prob_b") or ()
    if len(slopes) != pairs or len(offsets) != pairs:
        raise UserError(
            f"attributes 'prob_a' and 'prob_b': expected {pairs} numbers, got {len(slopes)} and {len(offsets)}"
        )
    sloped = f.create_mul(n.name, decisions, constant(n, slopes, kind, "slopes"))
    against = f.create_add(n.name, sloped, constant(n, offsets, kind, "offsets"))
    chances = f.create_sigmoid(n.name, f.create_neg(n.name, against))
    inside = f.create_clip(n.name, chances, 1e-7, 1 - 1e-7).result
    return f.create_couple_pairs(n.name, inside).result
