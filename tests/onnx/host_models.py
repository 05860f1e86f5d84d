"""Models of which a session computes a part itself, and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same

ML = "ai.onnx.ml"
STRING, FLOAT, INT64 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64


def f32(items: Any) -> Array:
    return np.array(items, np.float32)


def texts(*items: Any, shape: Sequence[int] | None = None) -> Array:
    array = np.array(items, object)
    return array if shape is None else array.reshape(shape)


def tensor(name: str, elem_type: int, dims: Sequence[int | str | None] | None = None) -> Any:
    return helper.make_tensor_value_info(name, elem_type, dims)


def typed(name: str, type: onnx.TypeProto) -> Any:
    return helper.make_value_info(name, type)


def sequence(name: str, elem_type: int) -> Any:
    return helper.make_tensor_sequence_value_info(name, elem_type, None)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    stored: dict[str, Array] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    tensors = []
    for name, array in (stored or {}).items():
        elem_type = (
            STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        items = [s.encode() for s in array.flat] if array.dtype == object else array.ravel()
        tensors.append(helper.make_tensor(name, elem_type, array.shape, items))
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(proto: onnx.ModelProto, backend: str = "interpreter", **feeds: Any) -> list[Any]:
    return glowpy.InferenceSession(proto, backend=backend).run(None, feeds)


def tagger() -> onnx.ModelProto:
    """Words to numbers, their vectors, a product, the best class, and its name."""
    rng = np.random.default_rng(0)
    vocabulary = ["the", "cat", "sat"]
    nodes = [
        helper.make_node("StringNormalizer", ["text"], ["lower"], case_change_action="LOWER", locale="C"),
        helper.make_node(
            "LabelEncoder", ["lower"], ["ids"], domain=ML, keys_strings=vocabulary,
            values_int64s=[1, 2, 3], default_int64=0,
        ),
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("MatMul", ["vectors", "weight"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["best"], ["tags"], domain=ML, keys_int64s=[0, 1], values_strings=["N", "V"]
        ),
    ]  # fmt: skip
    stored = {
        "table": rng.normal(size=(4, 8)).astype(np.float32),
        "weight": rng.normal(size=(8, 2)).astype(np.float32),
    }
    outputs = [tensor("tags", STRING, ["n"]), tensor("logits", FLOAT, ["n", 2])]
    return model(nodes, [tensor("text", STRING, ["n"])], outputs, stored)


def collector() -> onnx.ModelProto:
    """A loop whose body reads a constant and a value around it, and carries a sequence and a string."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
            helper.make_node("Constant", [], ["ten"], value_float=10.0),
            helper.make_node("Mul", ["f", "ten"], ["tens"]),
            helper.make_node("Mul", ["tens", "scale"], ["m"]),
            helper.make_node("Add", ["x", "m"], ["item"]),
            helper.make_node("SequenceInsert", ["before", "item"], ["after"]),
            helper.make_node("StringConcat", ["word", "mark"], ["longer"]),
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Identity", ["m"], ["scanned"]),
        ],
        "body",
        [tensor("i", INT64, []), tensor("going", TensorProto.BOOL, []), sequence("before", FLOAT),
         tensor("word", STRING, [])],
        [tensor("goes", TensorProto.BOOL, []), sequence("after", FLOAT), tensor("longer", STRING, []),
         tensor("scanned", FLOAT, [])],
    )  # fmt: skip
    nodes = [
        helper.make_node("SequenceEmpty", [], ["empty"]),
        helper.make_node("Loop", ["trips", "", "empty", "first"], ["s", "text", "scan"], body=body),
        helper.make_node("SequenceLength", ["s"], ["n"]),
    ]
    stored = {"scale": f32(1), "mark": texts("!", shape=()), "first": texts("hi", shape=())}
    inputs = [tensor("x", FLOAT, [2]), tensor("trips", INT64, [])]
    outputs = [
        sequence("s", FLOAT),
        tensor("text", STRING),
        tensor("scan", FLOAT),
        tensor("n", INT64),
    ]
    return model(nodes, inputs, outputs, stored)


def host_models() -> list[onnx.ModelProto]:
    """Some with strings, sequences, and graphs of nodes."""
    return [tagger(), collector()]


def one(op_type: str, *arrays: Array, out: int = STRING, **attributes: Any) -> onnx.ModelProto:
    """A node of these inputs."""
    kinds = [
        STRING if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays
    ]
    inputs = [
        tensor(f"x{i}", kind, list(a.shape))
        for i, (kind, a) in enumerate(zip(kinds, arrays, strict=True))
    ]
    node = helper.make_node(op_type, [i.name for i in inputs], ["y"], name="node", **attributes)
    return model([node], inputs, [tensor("y", out)])


def check(proto: onnx.ModelProto, *arrays: Array, backend: str = "interpreter") -> None:
    """The same as onnxruntime's."""
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    for result, array in zip(run(proto, backend, **feeds), expected, strict=True):
        assert_same(result, array)
