"""Saves of one function happen at once: each reads what the placeholders held before any of them writes."""

from collections.abc import Callable

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import BACKENDS
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Placeholder

F32 = Type(ElemKind.F32, (3,))
A, B = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)

Network = Callable[[Function, Placeholder, Placeholder], None]


def swap(f: Function, a: Placeholder, b: Placeholder) -> None:
    f.create_save("s", a, b)
    f.create_save("s", b, a)


def shift(f: Function, a: Placeholder, b: Placeholder) -> None:
    f.create_save("s", f.create_neg("n", b), a)
    f.create_save("s", a, b)


def shift_view(f: Function, a: Placeholder, b: Placeholder) -> None:
    f.create_save("s", f.create_neg("n", b), a)
    seen = f.create_reshape("r", Type(ElemKind.F32, (3, 1)), f.create_neg("m", a))
    f.create_save("s", f.create_neg("m", f.create_reshape("r", F32, seen)), b)


def both(f: Function, a: Placeholder, b: Placeholder) -> None:
    f.create_save("s", f.create_add("n", a, b), a)
    f.create_save("s", f.create_sub("n", a, b), b)


def stay(f: Function, a: Placeholder, b: Placeholder) -> None:
    f.create_save("s", a, a)
    f.create_save("s", a, b)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (swap, (B, A)),
        (shift, (-B, A)),
        (shift_view, (-B, A)),
        (both, (A + B, A - B)),
        (stay, (A, A)),
    ],
)
def test_placeholders_are_read_before_any_is_written(
    network: Network, expected: tuple[Array, Array], backend: str
) -> None:
    module = Module()
    a, b = module.create_placeholder("a", F32), module.create_placeholder("b", F32)
    network(module.create_function("main"), a, b)
    compiled = glowpy.compile(module, backend)
    feeds = {"a": A, "b": B}
    outputs = compiled({name: feeds[name] for name in compiled.inputs})
    np.testing.assert_array_equal(outputs["a"], expected[0])
    np.testing.assert_array_equal(outputs["b"], expected[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_of_a_placeholder_is_read_before_that_is_written(backend: str) -> None:
    module = Module()
    row = Type(ElemKind.F32, (1, 3))
    a, b = module.create_placeholder("a", F32), module.create_placeholder("b", row)
    f = module.create_function("main")
    f.create_save("s", f.create_neg("n", f.create_reshape("r", F32, b)), a)
    f.create_save("s", f.create_reshape("r", row, a), b)
    outputs = glowpy.compile(module, backend)({"a": A, "b": B[None]})
    np.testing.assert_array_equal(outputs["a"], -B)
    np.testing.assert_array_equal(outputs["b"], A[None])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("computed", [False, True])
def test_only_the_save_needs_its_predicate(computed: bool, backend: str) -> None:
    module = Module()
    a, b = module.create_placeholder("a", F32), module.create_placeholder("b", F32)
    p = module.create_placeholder("p", Type(ElemKind.BOOL, ()))
    f = module.create_function("main")
    save = f.create_save("s", f.create_neg("n", a), b)
    f.predicated(save, f.create_not("q", p) if computed else p)
    compiled = glowpy.compile(module, backend)
    assert list(compiled.inputs) == ["a", "p"]
    outputs = compiled({"a": A, "p": np.array(not computed)})
    np.testing.assert_array_equal(outputs["b"], -A)
