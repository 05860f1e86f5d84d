"""The parts of the importer that models reach only in passing: the table, attributes, order, signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.importer.declared import ValueInfo, bind, type_name
from glowpy.importer.elements import kind_of
from glowpy.importer.kit import moves
from glowpy.importer.onnx.node import OnnxNode, OnnxScope, Result, from_onnx
from glowpy.importer.onnx.order import in_order
from glowpy.importer.onnx.registry import handler_of, registered
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import decode_sparse
from glowpy.support.errors import InternalError
from glowpy.support.loc import Loc


def node(op_type: str = "Foo", inputs: tuple[Tensor, ...] = (), **attributes: Any) -> OnnxNode:
    """A node in a function of its own."""
    names = [f"in{index}" for index in range(len(inputs))]
    proto = helper.make_node(op_type, names, ["out"], **attributes)
    return OnnxNode(proto, Loc("m.onnx", node="n", index=0), 13, inputs, scope())


def scope() -> OnnxScope:
    return OnnxScope(Module().create_function("f"), Stores())


# The table.


def test_handler_is_the_newest_that_is_not_too_new() -> None:
    begins = registered()["", "Clip"]
    assert begins == [1, 11]
    old, new = handler_of("", "Clip", 1), handler_of("", "Clip", 11)
    assert old is not new
    assert handler_of("", "Clip", 10) is old
    assert handler_of("", "Clip", 99) is new


def test_no_handler_before_the_first() -> None:
    assert handler_of("", "Erf", 0) is None
    assert handler_of("", "Nonsense", 13) is None
    assert handler_of("elsewhere", "Relu", 13) is None


def test_second_handler_for_one_opset_is_a_bug() -> None:
    def twice(n: OnnxNode) -> Result:
        return n.value(0)

    with pytest.raises(InternalError, match=r"second import function for Clip \(opset 11\)"):
        from_onnx("Clip", since=11)(twice)


# Attributes and inputs.


def test_attributes_are_typed() -> None:
    n = node(i=3, f=1.5, s="text", ints=[1, 2], floats=[0.5], texts=["a", "b"])
    assert (n.integer("i", 0), n.real("f", 0.0), n.text("s", "")) == (3, 1.5, "text")
    assert (n.integers("ints"), n.reals("floats")) == ((1, 2), (0.5,))
    assert n.texts("texts") == ("a", "b")
    assert n.flag("i")


def test_missing_attributes_have_defaults() -> None:
    n = node()
    assert (n.integer("i", 7), n.real("f", 0.5), n.text("s", "d")) == (7, 0.5, "d")
    assert n.integers("ints") is None
    assert n.reals("floats") is None
    assert n.tensor("t") is None
    assert n.texts("texts") == ()
    assert not n.flag("i")


def test_attribute_of_another_kind_is_an_error() -> None:
    with pytest.raises(glowpy.UserError, match="attribute 'i': expected INTS, got INT"):
        node(i=3).integers("i")


def test_known_scalar_needs_one_element() -> None:
    n = node("Foo", (Tensor.of(np.arange(3)), Tensor.of(np.array([2.5], np.float32))))
    assert n.known_ints(0) == (0, 1, 2)
    assert n.known_scalar(1) == 2.5
    with pytest.raises(glowpy.UserError, match="expected one element as input 0"):
        n.known_scalar(0)
    with pytest.raises(glowpy.UserError, match="expected a vector of integers as input 1"):
        n.known_ints(1)
    with pytest.raises(glowpy.UserError, match="expected a tensor as input 2, got none"):
        n.value(2)


def test_known_tensor_becomes_one_constant() -> None:
    tensor = Tensor.of(np.arange(3))
    n = node("Foo", (tensor, tensor))
    assert n.input(0) is n.input(1)
    assert [c.name for c in n.f.module.constants] == ["in0"]


# Moves of known tensors.


def test_moves_of_a_splat_stay_a_splat() -> None:
    n = node()
    big = Tensor.splat(Type(ElemKind.F32, (1 << 15, 1 << 14)), 0.5)  # 2 GiB if it had memory
    for moved in (
        moves.reshape(n, big, (1 << 29,)),
        moves.transpose(n, big, (1, 0)),
        moves.slice_axis(n, big, 0, 1, 9, 2),
        moves.broadcast(n, big, (2, 1 << 15, 1 << 14)),
        moves.convert(n, big, ElemKind.F64),
    ):
        assert isinstance(moved, Tensor)
        assert moved.splat_value == 0.5
        assert not any(moved.array.strides)
    assert n.f.num_nodes == 0


def test_moves_of_known_elements_leave_no_nodes() -> None:
    n, tensor = node(), Tensor.of(np.arange(6).reshape(2, 3))
    turned = moves.transpose(n, tensor, (1, 0))
    assert isinstance(turned, Tensor)
    np.testing.assert_array_equal(turned.array, tensor.array.T)
    assert np.shares_memory(turned.array, tensor.array)
    back = moves.slice_axis(n, tensor, 1, 2, 3, -1)
    assert isinstance(back, Tensor)
    np.testing.assert_array_equal(back.array, tensor.array[:, ::-1])
    assert moves.reshape(n, tensor, (2, 3)) is tensor
    assert n.f.num_nodes == 0


def test_reshape_to_another_count_is_an_error() -> None:
    with pytest.raises(glowpy.UserError, match="expected 6 elements"):
        moves.reshape(node(), Tensor.of(np.arange(6)), (4,))


# Order.


def test_sorted_nodes_keep_their_order() -> None:
    nodes = [
        helper.make_node("B", ["x"], ["b"]),
        helper.make_node("A", ["x"], ["a"]),
        helper.make_node("C", ["a", "b", ""], ["c"]),
    ]
    graph = helper.make_graph(nodes, "g", [], [])
    order, errors = in_order(graph, {"x"}, "m.onnx")
    assert ([index for index, _ in order], errors) == ([0, 1, 2], [])


def test_every_missing_name_is_reported() -> None:
    nodes = [helper.make_node("A", ["p"], ["a"]), helper.make_node("B", ["q"], ["b"])]
    order, (error,) = in_order(helper.make_graph(nodes, "g", [], []), set(), "m.onnx")
    assert [index for index, _ in order] == [0, 1]
    assert [d.message for d in error.diagnostics] == [
        "A: input 'p' is computed by no node",
        "B: input 'q' is computed by no node",
    ]


# Signatures and tensors.


def test_bind_takes_symbols_from_shapes() -> None:
    infos = [
        ValueInfo("x", ElemKind.F32, ["n", 3]),
        ValueInfo("y", ElemKind.I64, ["n", None]),
        ValueInfo("z", ElemKind.I64, None),
    ]
    types = bind(infos, {"x": (2, 3), "y": (2, 5), "z": ()}, {})
    assert [str(type) for type in types] == ["f32[2x3]", "i64[2x5]", "i64[]"]
    for size in ((0, 16), "0..16", 1.5, True):
        with pytest.raises(glowpy.UserError, match="'n': expected a number or a symbol, got"):
            bind(infos, {"y": (2, 5), "z": ()}, {"n": size})  # type: ignore[dict-item]
        with pytest.raises(glowpy.UserError, match="input 'x': expected a number or a symbol, got"):
            bind(infos, {"x": (size, 3), "y": (2, 5), "z": ()}, {})  # type: ignore[dict-item]
    with pytest.raises(
        glowpy.UserError, match="input 'x': expected a tuple of dimensions, got int"
    ):
        bind(infos, {"x": 3, "y": (2, 5), "z": ()}, {})  # type: ignore[dict-item]
    with pytest.raises(glowpy.UserError, match="symbolic dimension 'n' is 2 elsewhere, got 4"):
        bind(infos, {"x": (2, 3), "y": (4, 5), "z": ()}, {})
    with pytest.raises(glowpy.UserError, match="input 'y' has no size in dimension 1"):
        bind(infos, {"x": (2, 3), "z": ()}, {})


def test_element_types_have_names() -> None:
    assert kind_of(TensorProto.BFLOAT16) is ElemKind.BF16
    assert type_name(ElemKind.BF16) == "tensor(bfloat16)"
    names = {type_name(kind) for kind in ElemKind}
    assert len(names) == len(ElemKind)
    assert {"tensor(float)", "tensor(double)", "tensor(uint8)", "tensor(bool)"} < names


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["linear", "coordinates"])
def test_sparse_tensor_becomes_dense(indices: list[Any]) -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [7.0, 8.0])
    places = np.array(indices, np.int64)
    index = helper.make_tensor("i", TensorProto.INT64, places.shape, places.reshape(-1))
    dense = decode_sparse(helper.make_sparse_tensor(values, index, [2, 3]), Stores())
    np.testing.assert_array_equal(dense.array, [[0, 7, 0], [0, 0, 8]])


@pytest.mark.parametrize("indices", [[1, 6], [-1, 0], [[0, 1], [2, 0]], [1]])
def test_sparse_tensor_with_indices_outside(indices: list[Any]) -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [7.0, 8.0])
    places = np.array(indices, np.int64)
    index = helper.make_tensor("i", TensorProto.INT64, places.shape, places.reshape(-1))
    with pytest.raises(glowpy.UserError, match="expected indices inside of"):
        decode_sparse(helper.make_sparse_tensor(values, index, [2, 3]), Stores())
