"""Einsum against numpy's, and equations that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import MatMulNode
from tests.onnx.comparison import assert_same, graph_model, info


def einsum_model(equation: str, inputs: Sequence[Array], result: Array, dims: Any = None) -> Any:
    names = [f"in{index}" for index in range(len(inputs))]
    node = helper.make_node("Einsum", names, ["y"], name="sum", equation=equation)
    infos = [info(name, array, dims) for name, array in zip(names, inputs, strict=True)]
    shape = None if dims is None else [None] * result.ndim
    return graph_model([node], infos, [info("y", result, shape)], 12)


def check(equation: str, inputs: Sequence[Array], backend: str = "interpreter") -> None:
    expected = np.asarray(np.einsum(equation, *inputs), inputs[0].dtype)
    session = glowpy.InferenceSession(einsum_model(equation, inputs, expected), backend=backend)
    (got,) = session.run(None, {f"in{index}": array for index, array in enumerate(inputs)})
    assert_same(got, expected, 1e-5, 1e-5, equation)


def drawn(shapes: Sequence[Sequence[int]], dtype: type = np.float32) -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij , jk", [(3, 4), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...,...", [(2, 3), (3,)]),
    ("...a->a...", [(2, 3, 4)]),
    ("i...->...", [(2, 3, 4)]),
    ("ii", [(4, 4)]),
    ("ii->i", [(4, 4)]),
    ("iij,jii->ij", [(3, 3, 2), (2, 3, 3)]),
    ("iii->", [(3, 3, 3)]),
    ("i,i", [(4,), (4,)]),
    ("i,j->ji", [(4,), (3,)]),
    ("ab,cd,bc->ad", [(2, 3), (4, 5), (3, 4)]),
    ("a,a,a->a", [(3,), (3,), (3,)]),
    ("a,ab,abc->", [(2,), (2, 3), (2, 3, 4)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("ij,kl->", [(3, 4), (2, 5)]),
    ("ij,j->i", [(3, 1), (4,)]),
    ("ij,jk->ik", [(3, 0), (0, 2)]),
    (",ij->ji", [(), (2, 3)]),
    ("bn,anm,bm->ba", [(2, 3), (4, 3, 5), (2, 5)]),
    ("Aa,aB", [(2, 3), (3, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    for dtype in (np.float32, np.float64, np.int8, np.uint16, np.int64):
        check(equation, drawn(shapes, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_einsum_on_cpu(dtype: type) -> None:
    for equation, shapes in EQUATIONS[3:19:3]:
        check(equation, drawn(shapes, dtype), "cpu")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_einsum(data: st.DataObject) -> None:
    sizes = dict(
        zip("abcd", data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)), strict=True)
    )
    terms = data.draw(st.lists(st.text("abcd", max_size=4), min_size=1, max_size=4))
    labels = sorted(set("".join(terms)))
    output = data.draw(st.permutations(labels))[: data.draw(st.integers(0, len(labels)))]
    check(f"{','.join(terms)}->{''.join(output)}", drawn([[sizes[i] for i in t] for t in terms]))


def test_products_are_matrix_products() -> None:
    """Whatever lies between the dimensions that are summed."""
    inputs = drawn([(2, 3, 4, 5), (2, 5, 4, 6)])
    result = np.einsum("bihd,bdhk->bhik", *inputs)
    module = glowpy.load(einsum_model("bihd,bdhk->bhik", inputs, result))
    (product,) = [node for node in module.main.topological() if isinstance(node, MatMulNode)]
    assert str(product.type) == "f32[2x4x3x6]"


def test_extents_may_be_open() -> None:
    inputs = drawn([(3, 3, 3), (3, 3, 3)])
    for equation in ("bij,bjk->bik", "iij,jkk->ik", "...ij,...jk"):
        expected = np.einsum(equation, *inputs)
        model = einsum_model(equation, inputs, expected, ["n", "n", "n"])
        (got,) = glowpy.InferenceSession(model, backend="interpreter").run(
            None, {"in0": inputs[0], "in1": inputs[1]}
        )
        assert_same(got, expected)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij->i", [(2, 3), (3,)], "expected a term for each of 2 inputs, got 'ij->i'"),
        ("ij->i", [(2, 3, 4)], "expected a term for 3 dimensions, got 'ij'"),
        ("...ij->i", [(2,)], "expected a term for 1 dimensions, got '...ij'"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "'j' is 3 in one input and 4 in input 1"),
        ("...,...", [(2, 3), (2,)], "'...' is 3 in one input and 2 in input 1"),
        ("ij->ik", [(2, 3)], "expected different labels of inputs after '->', got 'ij->ik'"),
        ("ij->ii", [(2, 3)], "expected different labels of inputs after '->', got 'ij->ii'"),
        ("i1->i", [(2, 3)], "expected a term for 2 dimensions, got 'i1'"),
        ("i.j->i", [(2, 3)], "got 'i.j'"),
    ],
)
def test_wrong_equations(equation: str, shapes: list[tuple[int, ...]], message: str) -> None:
    inputs = drawn(shapes)
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.load(einsum_model(equation, inputs, inputs[0]))
    assert message in str(caught.value)
