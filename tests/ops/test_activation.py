"""Activation functions against their formulas in a wider kind, at special values and around the bends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import BACKENDS, evaluate
from glowpy.graph import nodes_gen as nodes
from glowpy.graph.node import Node
from glowpy.lower import LowerPass
from glowpy.passes import PassContext
from tests.ops.harness import (
    EXACT,
    FLOATS,
    INTS,
    Case,
    Row,
    Tolerance,
    check_row,
    normal_array,
    on_every_backend,
    random_array,
)
from tests.ops.test_elementwise import special_values

Formula = Callable[..., Array]

BENT = Tolerance(ulps=2, epsilons=2)
"""A sum and a product, which may cancel."""
CURVED = Tolerance(ulps=8)
"""exp(x) - 1, also close to 0."""
GATED = Tolerance(ulps=8, epsilons=1, scale=1e-34)
"""Of x times something, which may have lost digits below the normal numbers."""
SMOOTH = Tolerance(ulps=8, epsilons=1)
"""exp, a few products and a division; nothing but 1 + erf(x) cancels."""


def _probability(x: Array) -> Array:
    """The normal distribution's, from the complement, which does not cancel."""
    halves = [math.erfc(-float(item) / math.sqrt(2)) / 2 for item in x.ravel()]
    return np.array(halves).reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    line = alpha * x + beta
    return np.where(np.isnan(line), np.nan, np.fmin(np.fmax(line, 0), 1))


def _gelu(x: Array, approximate: bool) -> Array:
    if not approximate:
        return x * _probability(x)
    return np.asarray(x * _sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)))


def _shrink(x: Array, lambd: float, bias: float) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


FORMULAS: list[tuple[type[Node], Formula, Tolerance, Mapping[str, Any]]] = [
    (nodes.ReluNode, lambda x: np.where(x < 0, 0, x), Tolerance(zero_sign=False), {}),
    (nodes.LeakyReluNode, lambda x, alpha: np.where(x < 0, alpha * x, x), EXACT, {"alpha": 0.125}),
    (
        nodes.ThresholdedReluNode,
        lambda x, alpha: np.where(x > alpha, x, 0),
        EXACT,
        {"alpha": 1.5},
    ),
    (nodes.ShrinkNode, _shrink, EXACT, {"lambd": 1.5, "bias": 0.25}),
    (
        nodes.EluNode,
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
        CURVED,
        {"alpha": 0.75},
    ),
    (
        nodes.SeluNode,
        lambda x, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x),
        CURVED,
        {"alpha": 1.5, "gamma": 1.25},
    ),
    (
        nodes.CeluNode,
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x),
        CURVED,
        {"alpha": 0.5},
    ),
    (nodes.SoftsignNode, lambda x: x / (1 + np.abs(x)), Tolerance(ulps=1), {}),
    (nodes.HardSigmoidNode, _hard_sigmoid, BENT, {"alpha": 0.25, "beta": 0.5}),
    (nodes.HardSwishNode, lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5), BENT, {}),
    (
        nodes.SwishNode,
        lambda x, alpha: x * _sigmoid(alpha * x),
        SMOOTH,
        {"alpha": 1.5},
    ),
    (nodes.MishNode, lambda x: x * np.tanh(_softplus(x)), GATED, {}),
    (nodes.GeluNode, _gelu, SMOOTH, {"approximate": False}),
    (nodes.GeluNode, _gelu, Tolerance(ulps=16, epsilons=1), {"approximate": True}),
]


def _inputs(kind: ElemKind) -> Array:
    """Special values, ordinary ones, and those at which exponentials vanish beside 1."""
    small = np.array([-11, -17.5, -40, -80, -1e-3, -3e-7], kind.dtype)
    ordinary = normal_array(kind, (61,)) * kind.dtype.type(3)
    return np.concatenate([special_values(kind), ordinary, small])


def _cases(
    formula: Formula, tolerance: Tolerance, attrs: Mapping[str, Any], kind: ElemKind
) -> Iterator[Case]:
    x = _inputs(kind)
    with np.errstate(all="ignore"):
        expected = np.asarray(formula(x.astype(np.longdouble), **attrs))
    yield Case([x], [expected], attrs, tolerance=tolerance)


def _clip(kind: ElemKind) -> Iterator[Case]:
    x = special_values(kind)
    expected = np.clip(x, kind.dtype.type(1), kind.dtype.type(3))
    yield Case([x], [expected], {"min": 1.0, "max": 3.0})


def _clip_outside(kind: ElemKind) -> Iterator[Case]:
    """Limits that no element has: the integers are compared with the numbers themselves."""
    low, high = kind.limits
    x = special_values(kind)
    for least, most in [
        (-math.inf, math.inf),
        (low - 1.0, high + 1.0),
        (-1.0, 2.0**70),
        (2.0**70, math.inf),
        (-0.75, 5.5),
    ]:
        limits = (max(low, min(limit, high)) for limit in (least, most))
        below, above = (int(limit) for limit in limits)
        numbers = [min(max(int(item), below), above) for item in x.ravel()]
        yield Case([x], [np.array(numbers, kind.dtype)], {"min": least, "max": most})


def _prelu(kind: ElemKind) -> Iterator[Case]:
    """A slope for each element, each column, each row, and all."""
    special = special_values(kind)
    shapes = [((3, 5), (5,)), ((3, 5), (3, 1)), ((2, 3, 17), ()), ((0, 3), (3,))]
    pairs = [(random_array(kind, a), random_array(kind, b, 1)) for a, b in shapes]
    for x, slope in [(np.repeat(special, len(special)), np.tile(special, len(special))), *pairs]:
        wide = np.float64 if kind.is_float else np.int64
        with np.errstate(all="ignore"):
            product = (x.astype(wide) * slope.astype(wide)) if kind.is_float else x * slope
            yield Case([x, slope], [np.where(x < 0, product, x)])


WHOLE = (ElemKind.I8, ElemKind.I32, ElemKind.I64, ElemKind.U8)
ROWS = [
    *(
        Row(cls, FLOATS, partial(_cases, formula, tolerance, attrs))
        for cls, formula, tolerance, attrs in FORMULAS
    ),
    Row(nodes.ClipNode, (*FLOATS, *WHOLE), _clip),
    Row(nodes.ClipNode, INTS, _clip_outside, "clip outside the kind", thinned=False),
    Row(nodes.PReluNode, (*FLOATS, *WHOLE), _prelu),
]


@on_every_backend(ROWS)
def test_activation(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize(("cls", "attrs"), [(cls, attrs) for cls, _, _, attrs in FORMULAS])
def test_a_backend_may_keep_an_activation(cls: type[Node], attrs: Mapping[str, Any]) -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (3,)))
    kept, lowered = f.create(cls, "kept", [x], attrs), f.create(cls, "lowered", [x], attrs)
    for node in (kept, lowered):
        f.create_save("save", node, module.create_placeholder("y", node.type))
    LowerPass(lambda node: node is kept).run(f, PassContext(evaluate))
    assert kept in f
    assert lowered not in f
    assert all(node is kept or not isinstance(node, cls) for node in f.nodes)


@pytest.mark.parametrize("cls", [nodes.EluNode, nodes.GeluNode])
def test_integers_are_refused(cls: type[Node]) -> None:
    attrs = next(attrs for known, _, _, attrs in FORMULAS if known is cls)
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.I32, (3,)))
    node = f.create(cls, "node", [x], attrs)
    f.create_save("save", node, module.create_placeholder("y", node.type))
    with pytest.raises(glowpy.VerifyError, match="expected a floating-point kind, got i32"):
        glowpy.compile(module, "interpreter")


@pytest.mark.parametrize("backend", BACKENDS)
def test_clips_of_clips(backend: str) -> None:
    """Limits merge as numbers, also where the kind does not hold them."""
    module = glowpy.Module()
    f = module.create_function("main")
    elements = np.array([-128, -7, 0, 5, 127], np.int8)
    x = module.create_placeholder("x", Tensor.of(elements).type)
    clipped = f.create_clip("c", f.create_clip("c", x, -200.0, 300.0), -1.0, 200.0)
    f.create_save("save", clipped, module.create_placeholder("y", clipped.type))
    result = glowpy.compile(f, backend)({"x": elements})["y"]
    assert result.tolist() == [-1, -1, 0, 5, 127]
