"""What type inference refuses, and how it says so."""

from __future__ import annotations

import re

import pytest

import glowpy
from glowpy.core.type import parse_type
from glowpy.graph import nodes_gen as nodes
from glowpy.graph.infer import infer_types
from glowpy.graph.node import Node
from glowpy.support.loc import Loc
from glowpy.support.text import Attr

CONV: dict[str, Attr] = {
    "kernels": (3, 3),
    "strides": (1, 1),
    "pads": (0, 0, 0, 0),
    "dilation": (1, 1),
    "group": 1,
}
POOL: dict[str, Attr] = {**{key: CONV[key] for key in CONV if key != "group"}, "ceil": False}
AVG: dict[str, Attr] = {**POOL, "count_include_pads": False}
IMAGE = "f32[1x5x5x3]"
FILTER = "f32[4x3x3x3]"
BATCH: dict[str, Attr] = {"axis": 1, "epsilon": 1e-5}
LRN: dict[str, Attr] = {"size": 3, "alpha": 1.0, "beta": 1.0, "k": 1.0}

Refusal = tuple[type[Node], str, dict[str, Attr], str]

REFUSALS: list[Refusal] = [
    (
        nodes.ConvolutionNode,
        "f32[1x5x5x1] f32[4x3x3x3] f32[4]",
        CONV,
        "filter has 3 input channels, expected 1 (input channels 1 / group 1)",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} {FILTER} f32[4]",
        {**CONV, "group": 2},
        "input has 3 channels, expected a multiple of group 2",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} {FILTER} f32[4]",
        {**CONV, "group": 3},
        "filter has 4 outputs, expected a multiple of group 3",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} {FILTER} f32[4]",
        {**CONV, "group": 0},
        "expected a group of at least 1, got 0",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} f32[4x3x3] f32[4]",
        CONV,
        "expected filter of rank 4 as the input, got f32[4x3x3]",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} f32[4x2x2x3] f32[4]",
        CONV,
        "expected filter windows of [3, 3], got f32[4x2x2x3]",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} {FILTER} f32[3]",
        CONV,
        "expected bias of shape [4], got f32[3]",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} f64[4x3x3x3] f32[4]",
        CONV,
        "expected filter of kind f32, got f64[4x3x3x3]",
    ),
    (
        nodes.ConvolutionNode,
        "bool[1x5x5x3] bool[4x3x3x3] bool[4]",
        CONV,
        "expected input of a number kind, got bool[1x5x5x3]",
    ),
    (
        nodes.ConvolutionNode,
        f"{IMAGE} {FILTER} f32[4]",
        {**CONV, "pads": (0, -1, 0, 0)},
        "expected pads of at least 0, got [0, -1, 0, 0]",
    ),
    (
        nodes.ConvolutionNode,
        "f32[5x3] f32[4x3] f32[4]",
        CONV,
        "expected an input N, 1 to 3 spatial dimensions, C, got f32[5x3]",
    ),
    (
        nodes.MaxPoolNode,
        IMAGE,
        {**POOL, "kernels": (7, 3)},
        "window of 7 is larger than the padded input of 5 in spatial dimension 0",
    ),
    (
        nodes.MaxPoolNode,
        IMAGE,
        {**POOL, "strides": (1,)},
        "expected 2 strides for 2 spatial dimensions, got 1",
    ),
    (
        nodes.MaxPoolWithArgmaxNode,
        IMAGE,
        {**POOL, "strides": (0, 1)},
        "expected kernels, strides and dilation of at least 1",
    ),
    (
        nodes.AvgPoolNode,
        "i32[1x5x5x3]",
        AVG,
        "expected input of a floating-point kind, got i32[1x5x5x3]",
    ),
    (nodes.MatMulNode, "f32[3] f32[3x2]", {}, "expected lhs of a rank of at least 2, got f32[3]"),
    (
        nodes.MatMulNode,
        "f32[2x3] f32[4x2]",
        {},
        "lhs has 3 columns, expected as many as rhs has rows, 4",
    ),
    (nodes.MatMulNode, "f32[2x3] f64[3x2]", {}, "expected rhs of kind f32, got f64[3x2]"),
    (
        nodes.MatMulNode,
        "f32[2x2x3] f32[3x3x2]",
        {},
        "expected shapes that broadcast, got [2] and [3]",
    ),
    (
        nodes.FullyConnectedNode,
        "f32[1x2x3] f32[3x2] f32[2]",
        {},
        "expected input of rank 2, got f32[1x2x3]",
    ),
    (
        nodes.FullyConnectedNode,
        "f32[2x3] f32[4x2] f32[2]",
        {},
        "input has 3 columns, expected as many as weights has rows, 4",
    ),
    (
        nodes.FullyConnectedNode,
        "f32[2x3] f32[3x2] f32[3]",
        {},
        "expected bias of shape [2], got f32[3]",
    ),
    (nodes.SoftmaxNode, "f32[2x3]", {"axis": 2}, "expected an axis from 0 to 1, got 2"),
    (nodes.SoftmaxNode, "f32[2x3]", {"axis": -1}, "expected an axis from 0 to 1, got -1"),
    (
        nodes.LogSoftmaxNode,
        "i32[2x3]",
        {"axis": 1},
        "expected input of a floating-point kind, got i32[2x3]",
    ),
    (
        nodes.LocalResponseNormalizationNode,
        "f32[2x3]",
        {**LRN, "size": 0},
        "expected a size of at least 1, got 0",
    ),
    (
        nodes.LocalResponseNormalizationNode,
        "f32[]",
        LRN,
        "expected input of a rank of at least 1, got f32[]",
    ),
    (
        nodes.BatchNormalizationNode,
        "f32[2x3] f32[3] f32[3] f32[2] f32[3]",
        BATCH,
        "expected mean of shape [3], got f32[2]",
    ),
    (
        nodes.BatchNormalizationNode,
        "f16[2x3] f16[3] f16[3] f32[3] f16[3]",
        BATCH,
        "expected mean of kind f16, got f32[3]",
    ),
    (
        nodes.ReduceAddNode,
        "bool[2x3]",
        {"axes": (0,)},
        "expected input of a number kind, got bool[2x3]",
    ),
    (
        nodes.ReduceMaxNode,
        "f32[2x3]",
        {"axes": (1, 0)},
        "expected distinct axes in ascending order, got [1, 0]",
    ),
    (
        nodes.ReduceMinNode,
        "f32[2x3]",
        {"axes": (1, 1)},
        "expected distinct axes in ascending order, got [1, 1]",
    ),
    (
        nodes.GatherNode,
        "f32[2x3] f32[2]",
        {"axis": 0},
        "expected indices of kind i32 or i64, got f32[2]",
    ),
    (
        nodes.GatherNode,
        "f32[0x3] i64[2]",
        {"axis": 0},
        "expected elements to gather along dimension 0, got f32[0x3]",
    ),
    (
        nodes.GatherNode,
        "f32[] i64[2]",
        {"axis": 0},
        "expected an input of a rank of at least 1, got a scalar",
    ),
]


@pytest.mark.parametrize(
    ("cls", "types", "attrs", "message"),
    [
        pytest.param(*refusal, id=f"{refusal[0].SCHEMA.mnemonic}-{number}")
        for number, refusal in enumerate(REFUSALS)
    ],
)
def test_inference_refuses(
    cls: type[Node], types: str, attrs: dict[str, Attr], message: str
) -> None:
    with pytest.raises(glowpy.UserError, match=f"^{re.escape(message)}$"):
        infer_types(cls, [parse_type(text) for text in types.split()], attrs)


def test_verifier_names_the_operator_and_shows_the_line() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[2x3]"))
    with f.at(Loc("net.onnx", node="last", index=3)):
        node = f.create_softmax("s", x, 1)
    f.create_save("save", node, module.create_placeholder("y", x.type))
    f.nodes[0].attrs["axis"] = 5
    with pytest.raises(glowpy.VerifyError) as caught:
        glowpy.compile(f, "interpreter")
    assert str(caught.value).splitlines() == [
        "net.onnx: node 'last' (#3): softmax: expected an axis from 0 to 1, got 5",
        "  %s = softmax(%x) {axis=5} : f32[2x3]",
        "  ^^",
    ]
