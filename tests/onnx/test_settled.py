"""Operands that have to be known while compiling, computed of stored integers by DequantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
import glowpy.onnxruntime as ort
from glowpy.core.elemkind import ElemKind
from tests.onnx.comparison import assert_same

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 5


def stored(name: str, *numbers: int, kind: int = FLOAT) -> tuple[list[Any], list[Any]]:
    """Nodes that compute a vector, or for one number a scalar, of stored integers; and these."""
    data = np.array(numbers if len(numbers) > 1 else numbers[0], np.uint8)
    integers = [
        numpy_helper.from_array(2 * data + 3, f"{name}_q"),
        numpy_helper.from_array(np.array(0.5, np.float32), f"{name}_s"),
        numpy_helper.from_array(np.array(3, np.uint8), f"{name}_z"),
    ]
    floats = name if kind == FLOAT else f"{name}_f"
    nodes = [helper.make_node("DequantizeLinear", [f"{name}_{part}" for part in "qsz"], [floats])]
    if kind != FLOAT:
        nodes.append(helper.make_node("Cast", [floats], [name], to=kind))
    return nodes, integers


def model(
    node: onnx.NodeProto, *operands: tuple[list[Any], list[Any]], **constants: Any
) -> onnx.ModelProto:
    """`node` on x and on what is computed of stored integers."""
    nodes = [inner for nodes, _ in operands for inner in nodes]
    tensors = [tensor for _, tensors in operands for tensor in tensors]
    tensors += [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()]
    graph = helper.make_graph(
        [*nodes, node],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def node(op_type: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, ["x", *inputs], ["y"], **attributes)


PADS = {"p": [0, 1, 0, 0, 0, 2]}
BODY = helper.make_graph(
    [
        helper.make_node("Identity", ["c"], ["d"]),
        helper.make_node("Pad", ["x", "p", "v"], ["padded"]),
        helper.make_node("Reshape", ["padded", "shape"], ["row"]),
    ],
    "body",
    [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("c", 9, [])],
    [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("row", FLOAT, None)],
)

MODELS = {
    "Pad": model(node("Pad", "p", "v"), stored("v", 7), **PADS),
    "Pad's pads": model(node("Pad", "p"), stored("p", 0, 1, 0, 0, 0, 2, kind=INT64)),
    "Clip": model(node("Clip", "low", "high"), stored("low", 2), stored("high", 9)),
    "Reshape": model(node("Reshape", "s"), stored("s", 4, 6, kind=INT64)),
    "Expand": model(node("Expand", "s"), stored("s", 3, 2, 3, 4, kind=INT64)),
    "Tile": model(node("Tile", "s"), stored("s", 1, 2, 1, kind=INT64)),
    "Slice": model(
        node("Slice", "b", "e"), stored("b", 0, 1, kind=INT64), stored("e", 2, 3, kind=INT64)
    ),
    "ReduceSum": model(node("ReduceSum", "a"), stored("a", 0, 2, kind=INT64)),
    "Resize": model(node("Resize", "", "s", mode="nearest"), stored("s", 1, 2, 3)),
    "Loop": model(
        helper.make_node("Loop", ["n", ""], ["y"], body=BODY),
        stored("n", 2, kind=INT64),
        stored("v", 7),
        stored("shape", 4, 12, kind=INT64),
        **PADS,
    ),
}
MODELS["TopK"] = model(
    helper.make_node("TopK", ["x", "one"], ["y", "places"]),
    (
        [*stored("k", 1, kind=INT64)[0], helper.make_node("Reshape", ["k", "of_one"], ["one"])],
        stored("k", 1, kind=INT64)[1],
    ),
    of_one=[1],
)


@pytest.mark.parametrize("name", MODELS)
def test_operand_is_known(name: str) -> None:
    content = MODELS[name].SerializeToString()
    expected = onnxruntime.InferenceSession(content).run(["y"], {"x": X})
    assert_same(ort.InferenceSession(content).run(["y"], {"x": X}), expected)
    session = glowpy.InferenceSession(content, backend="interpreter")
    assert_same(session.run(["y"], {"x": X}), expected)


def test_range_of_floats() -> None:
    ends = [stored(name, number) for name, number in (("a", 1), ("b", 9), ("c", 2))]
    range_node = helper.make_node("Range", ["a", "b", "c"], ["r"])
    add = helper.make_node("Add", ["x", "r"], ["y"])
    both = [
        ([*(n for nodes, _ in ends for n in nodes), range_node], [t for _, ts in ends for t in ts])
    ]
    content = model(add, *both).SerializeToString()
    expected = onnxruntime.InferenceSession(content).run(None, {"x": X})
    assert_same(ort.InferenceSession(content).run(None, {"x": X}), expected)


def test_weights_stay_integers() -> None:
    """What products read of DequantizeLinear is not folded."""
    nodes, tensors = stored("w", *range(8))
    tensors[0] = numpy_helper.from_array(np.arange(16, dtype=np.uint8).reshape(4, 4), "w_q")
    module = glowpy.load(model(node("MatMul", "w"), (nodes, tensors)))
    assert ElemKind.U8 in {constant.type.kind for constant in module.constants}
