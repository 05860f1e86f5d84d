"""Transposes go below reshapes of every form, and the elements stay where they were."""

import math
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.opt.graph.sink_transpose import SinkTransposePass
from glowpy.passes import PassContext
from tests.unit.networks import arrays_for, execute, unoptimized


def _shuffled(f: Function, rng: random.Random, x: NodeValue) -> NodeValue:
    axes = list(range(x.type.rank))
    rng.shuffle(axes)
    return f.create_transpose("t", x, tuple(axes)).result


def _regrouped(f: Function, rng: random.Random, x: NodeValue) -> NodeValue:
    """A reshape that splits all dimensions into primes and merges neighbours again, with ones in between."""
    primes = [p for size in x.type.extents for p in _primes(size)]
    shape = [1] * rng.randint(0, 1)
    while primes and len(shape) < 6:
        count = rng.randint(1, min(3, len(primes)))
        shape += [math.prod(primes[:count])] + [1] * (rng.random() < 0.2)
        del primes[:count]
    shape.append(math.prod(primes))
    return f.create_reshape("r", x.type.with_shape(shape), x).result


def _primes(number: int) -> list[int]:
    for p in (2, 3):
        if number % p == 0:
            return [p, *_primes(number // p)]
    return []


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False))
def test_elements_stay_where_they_were(rng: random.Random) -> None:
    module = Module()
    f = module.create_function("main")
    shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(2, 5)))
    value = module.create_placeholder("x", Type(ElemKind.I32, shape)).value
    for _ in range(rng.randint(1, 3)):
        value = _regrouped(f, rng, _shuffled(f, rng, value))
    if rng.random() < 0.7:
        value = _shuffled(f, rng, value)
    f.create_save("s", value, module.create_placeholder("out", value.type))
    elements = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    inputs = {**arrays_for(module.placeholders, 0), "x": elements}
    expected = execute(unoptimized(module), inputs)
    SinkTransposePass().run(f, PassContext(evaluate))
    np.testing.assert_array_equal(execute(unoptimized(module), inputs)["out"], expected["out"])


def test_what_has_no_dimensions_is_transposed_as_well() -> None:
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, ()))
    f = module.create_function("main")
    padded = f.create_pad("p", f.create_transpose("t", x, ()), (), 0.0)
    f.create_save("save", padded, module.create_placeholder("y", padded.type))
    SinkTransposePass().run(f, PassContext(evaluate))
    (result,) = execute(unoptimized(module), {"x": np.array(2, np.float32)}).values()
    np.testing.assert_array_equal(result, 2)


def test_moved_constant_outlives_the_one_it_is_made_of() -> None:
    f = (module := Module()).create_function("main")
    elements = np.arange(LARGE, dtype=np.int32).reshape(-1, 4)
    x = module.create_placeholder("x", Type(ElemKind.I32, elements.T.shape))
    old = module.create_constant("c", elements)
    total = f.create_add("sum", f.create_transpose("t", x, (1, 0)), old)
    f.create_save("s", total, module.create_placeholder("out", total.type))
    SinkTransposePass().run(f, PassContext(evaluate))
    new = next(constant for constant in module.constants if constant is not old)
    assert new.tensor.is_deferred
    old.forget()
    assert (new.tensor.array == elements.T).all()
