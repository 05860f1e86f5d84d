"""The algebraic facts in the specs are true, for values that are special and for every element kind."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from glowpy.core.algebra import NO_ALGEBRA
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import (
    NODES,
    BatchNormalizationNode,
    ConvolutionNode,
    MaxNode,
    ReluNode,
)
from glowpy.ops.elementwise_gen import KINDS
from glowpy.support.text import Attr

OPERATORS: list[type[Node]] = [
    cls for cls in NODES if replace(cls.SCHEMA.algebra, bounds=None) != NO_ALGEBRA
]
BOUNDED: list[type[Node]] = [cls for cls in NODES if cls.SCHEMA.algebra.bounds is not None]
ATTRS: dict[str, dict[str, Attr]] = {
    "hard_sigmoid": {"alpha": 0.3, "beta": 0.5},
    "softmax": {"axis": 0},
}
BY_SUFFIX = {kind.suffix: kind for kind in ElemKind}


def kinds(cls: type[Node]) -> list[ElemKind]:
    suffixes = KINDS.get(cls, "f32 f64").split()
    return [BY_SUFFIX[suffix] for suffix in suffixes]


CASES = [(cls, kind) for cls in OPERATORS for kind in kinds(cls)]
IDS = [f"{cls.SCHEMA.mnemonic}-{kind.value}" for cls, kind in CASES]


def special(kind: ElemKind) -> Array:
    """Values among which an exception would be."""
    if kind.is_float:
        limits = np.finfo(kind.dtype.name)
        values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan]
        return np.array([*values, limits.max, limits.min, limits.tiny], kind.dtype)
    if kind is ElemKind.BOOL:
        return np.array([False, True])
    integers = np.iinfo(kind.dtype.name)
    return np.array([0, 1, 2, 7, integers.max, integers.min, integers.max - 1], kind.dtype)


def compute(cls: type[Node], *arrays: Array) -> Array:
    """What a node computes of constants, by the interpreter."""
    module = Module()
    f = module.create_function("main")
    inputs = [module.create_constant("c", array) for array in arrays]
    attrs = ATTRS.get(cls.SCHEMA.mnemonic, {})
    return evaluate([f.create(cls, "n", inputs, attrs).result])[0].array


def same(array: Array, expected: Array) -> None:
    """Bit for bit, but that any NaN is as good as another."""
    nan = np.isnan(array.astype(np.float64))
    np.testing.assert_array_equal(nan, np.isnan(expected.astype(np.float64)))
    assert array[~nan].tobytes() == expected[~nan].tobytes()


@pytest.mark.parametrize(("cls", "kind"), CASES, ids=IDS)
def test_facts_are_true(cls: type[Node], kind: ElemKind) -> None:
    algebra, x = cls.SCHEMA.algebra, special(kind)
    pairs = np.array(list(itertools.product(x, x, x)), x.dtype).T
    neutral, absorbing = algebra.neutral_of(kind), algebra.absorbing_of(kind)
    if neutral is not None:
        same(compute(cls, x, neutral), x)
    if absorbing is not None:
        same(compute(cls, x, absorbing), np.broadcast_to(absorbing, x.shape).copy())
    if kind.family in algebra.associative:
        a, b, c = pairs
        together = compute(cls, b, c)
        same(compute(cls, compute(cls, a, b), c), compute(cls, a, together))
        assert algebra.combine is not None
        with np.errstate(all="ignore"):
            same(np.asarray(algebra.combine(b, c)), together)
    if algebra.involution:
        same(compute(cls, compute(cls, x)), x)
    if algebra.idempotent and len(cls.SCHEMA.inputs) == 2:
        same(compute(cls, x, x), x)
    if algebra.idempotent and len(cls.SCHEMA.inputs) == 1:
        same(compute(cls, compute(cls, x)), compute(cls, x))


@pytest.mark.parametrize(
    "cls", [cls for cls in OPERATORS if cls.SCHEMA.algebra.affine is not None], ids=str
)
def test_what_is_affine_is_so(cls: type[Node]) -> None:
    power, sign = cls.SCHEMA.algebra.affine or (0, 0)
    x, c = np.array([-3.0, 0.0, 0.25, 5.0]), np.array([2.0, -0.5, 4.0, 8.0])
    np.testing.assert_array_equal(compute(cls, x, c), x * c**power + sign * c)
    if power == 0:
        for kind in (ElemKind.I8, ElemKind.U32):
            x, c = np.array(list(itertools.product(special(kind), repeat=2)), kind.dtype.type).T
            with np.errstate(over="ignore"):
                same(compute(cls, x, c), x + c if sign > 0 else x + np.negative(c))


@pytest.mark.parametrize("cls", BOUNDED, ids=str)
def test_bounds_are_true(cls: type[Node]) -> None:
    bounds = cls.SCHEMA.algebra.bounds
    assert bounds is not None
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-100, 100, 1001), rng.normal(size=1000) * 1e6])
    for numbers in (x, x[:3], x[-1:], special(ElemKind.F32)):
        result = compute(cls, numbers.astype(np.float32))
        result = result[~np.isnan(result)]
        assert ((result >= bounds[0]) & (result <= bounds[1])).all()
    spread = compute(cls, x.astype(np.float32))
    assert spread.min() < bounds[0] + 0.02
    assert spread.max() > bounds[1] - 0.02


def test_channels_lie_where_the_operator_says() -> None:
    normalization, product = BatchNormalizationNode.SCHEMA.channels, ConvolutionNode.SCHEMA.channels
    assert normalization is not None
    assert product is not None
    assert [normalization.are_last({"axis": axis}, 4) for axis in (1, 3)] == [False, True]
    assert product.are_last({}, 4)


def test_facts_are_for_element_wise_operators() -> None:
    assert {cls for cls in OPERATORS if Trait.ELEMENTWISE not in cls.SCHEMA.traits} == set()
    for cls in OPERATORS:
        assert not cls.SCHEMA.attrs, cls
        algebra, arity = cls.SCHEMA.algebra, len(cls.SCHEMA.inputs)
        assert arity == 1 or not algebra.involution
        assert arity == 2 or not (algebra.neutral or algebra.absorbing or algebra.associative)


def test_extremes_are_those_of_the_kind() -> None:
    algebra = MaxNode.SCHEMA.algebra
    assert algebra.neutral_of(ElemKind.I8) == -128
    assert algebra.absorbing_of(ElemKind.U16) == 65535
    assert algebra.absorbing_of(ElemKind.F32) is None
    assert algebra.neutral_of(ElemKind.F32) == -np.inf
    assert ReluNode.SCHEMA.algebra.neutral_of(ElemKind.F32) is None
