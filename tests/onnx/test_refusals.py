"""What import functions refuse of attributes, shapes and values: one node, and words of the message.

Each is one step beyond what is accepted, which has rows in opset_rows.py. Attributes and inputs that another opset
allows are in test_opsets.py, models that are wrong as a whole in test_errors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import graph_model, info


def floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: float, dtype: type = np.int64) -> Array:
    return np.array(value, dtype)


X = floats(2, 3, 4)
IMAGE = floats(1, 2, 5, 5)
FILTER = floats(4, 2, 3, 3)
VECTORS = [floats(3)] * 4
POOL = {"kernel_shape": [3, 3]}


@dataclass(frozen=True)
class Case:
    """A node whose first input is known at run time only, unless all are `known`."""

    op_type: str
    inputs: Sequence[Array]
    message: str
    attributes: dict[str, Any] = field(default_factory=dict)
    known: bool = False
    outputs: int = 1

    def __str__(self) -> str:
        return f"{self.op_type}: {self.message}"


def known(op_type: str, inputs: Sequence[Array], message: str, **attributes: Any) -> Case:
    return Case(op_type, inputs, message, attributes, known=True)


def node(op_type: str, inputs: Sequence[Array], message: str, **attributes: Any) -> Case:
    return Case(op_type, inputs, message, attributes)


ACTIVATIONS = [
    node("Clip", [X, floats(2)], "expected a scalar as input 1, got f32[2]"),
    node("Clip", [X, scalar(0, np.float32), floats(2)], "expected a scalar as input 2, got f32[2]"),
    node("PRelu", [X, floats(5, 2, 3, 4)], "slope"),
    node("PRelu", [X, floats(2)], "broadcast"),
    node("Gelu", [X], "expected none or tanh, got 'erf'", approximate="erf"),
    node("BitShift", [i64(1).astype(np.uint8)] * 2, "LEFT or RIGHT, got 'UP'", direction="UP"),
]

WINDOWS = [
    node("Conv", [IMAGE, FILTER], "'kernel_shape': expected that of", kernel_shape=[3, 2]),
    node("Conv", [IMAGE, FILTER], "'strides': expected 2 sizes of at least 1", strides=[1, 0]),
    node("Conv", [IMAGE, FILTER], "'strides': expected 2 sizes of at least 1", strides=[1]),
    node("Conv", [IMAGE, FILTER], "'dilations': expected 2 sizes of at least 1", dilations=[0, 1]),
    node("Conv", [IMAGE, FILTER], "'pads': expected 4 sizes of at least 0", pads=[0, 0, 0, -1]),
    node("Conv", [IMAGE, FILTER], "'pads': expected 4 sizes of at least 0", pads=[0, 0]),
    node("Conv", [IMAGE, FILTER], "expected NOTSET, VALID or SAME, got 'SOME'", auto_pad="SOME"),
    node("Conv", [IMAGE, FILTER], "multiple of group 2", group=2),
    node("Conv", [IMAGE, floats(3, 1, 3, 3)], "multiple of group 2", group=2),
    node("Conv", [IMAGE, FILTER], "multiple of group 0", group=0),
    node("Conv", [floats(1, 2), floats(1, 2)], "one rank from 3 to 5"),
    node("Conv", [floats(*[1] * 6), floats(*[1] * 6)], "one rank from 3 to 5"),
    node("Conv", [IMAGE, floats(4, 2, 3)], "one rank from 3 to 5"),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3)], "one rank from 3 to 5"),
    node("ConvTranspose", [floats(1, 2), floats(2, 1)], "one rank from 3 to 5"),
    node("ConvTranspose", [IMAGE, floats(3, 1, 3, 3)], "a filter of [2, O / group, ...]"),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "O / group", group=3),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "O / group", group=0),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'kernel_shape'", kernel_shape=[3, 2]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'strides'", strides=[0, 1]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'dilations'", dilations=[1]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'output_padding'", output_padding=[-1, 0]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'pads'", pads=[0, 0, -1, 0]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'pads'", pads=[0, 0]),
    node("ConvTranspose", [IMAGE, floats(2, 1, 3, 3)], "'output_shape'", output_shape=[7]),
    node(
        "ConvTranspose",
        [IMAGE, floats(2, 1, 3, 3)],
        "leave some of the 7 elements",
        pads=[3, 0, 4, 0],
    ),
    node(
        "Conv", [IMAGE, FILTER], "window of 3 with dilation 4, which spans 9, is", dilations=[4, 1]
    ),
    node("MaxPool", [floats(2, 3)], "expected an input of rank 3 or more", kernel_shape=[1]),
    node("MaxPool", [floats(3)], "expected an input of rank 2 or more", kernel_shape=[3]),
    node("MaxPool", [IMAGE], "'kernel_shape': expected 2 sizes", kernel_shape=[3]),
    node("AveragePool", [IMAGE], "'kernel_shape': expected 2 sizes", kernel_shape=[3, 0]),
    node("GlobalMaxPool", [floats(3)], "expected an input of rank 2 or more"),
    Case(
        "MaxPool",
        [floats(1, 2, 3, 3, 3)],
        "storage_order 1 with 3 spatial dimensions is not supported",
        {"kernel_shape": [2, 2, 2], "storage_order": 1},
        outputs=2,
    ),
]

NORMS = [
    node("BatchNormalization", [floats(), *VECTORS], "rank 1 or more"),
    node("BatchNormalization", [X, *VECTORS[1:], floats(2)], "3 elements as input 4, got f32[2]"),
    node("BatchNormalization", [X, floats(3, 1), *VECTORS[1:]], "3 elements as input 1"),
    node("RandomUniformLike", [X], "expected a floating-point kind as 'dtype', got i32", dtype=6),
    node("Multinomial", [X], "expected logarithms of [batch, classes], got"),
    node("LRN", [floats(3)], "rank 2 or more", size=3),
    node("LRN", [X], "'size': expected at least 1, got 0", size=0),
    node("InstanceNormalization", [floats(2, 3), *VECTORS[:2]], "rank 3 or more"),
    node("InstanceNormalization", [X, floats(3), floats(2)], "3 elements as input 2, got f32[2]"),
    node("LpNormalization", [X], "p 3 is not supported", p=3),
    node("GroupNormalization", [floats(3), *VECTORS[:2]], "rank 2 or more", num_groups=1),
    node("GroupNormalization", [X, *VECTORS[:2]], "3 channels in equal groups", num_groups=2),
    node("GroupNormalization", [X, floats(3), floats(1)], "3 elements as input 2", num_groups=1),
    node("LayerNormalization", [X, floats(4)], "axis between -3 and 2, got 3", axis=3),
    node("LayerNormalization", [X, floats(2, 1, 3, 4)], "input 1 to broadcast to f32[2x3x4]"),
    node("LayerNormalization", [X, floats(5)], "input 1 to broadcast to f32[2x3x4], got f32[5]"),
    node("LayerNormalization", [X, floats(4)], "stash_type i32 is not supported", stash_type=6),
    node("MeanVarianceNormalization", [X], "axis between -3 and 2, got 3"),
    node("Softmax", [X], "axis between -3 and 2, got 3", axis=3),
]

PRODUCTS = [
    node("MatMul", [X, floats()], "rank 1 or more"),
    node("MatMul", [X, floats(3, 2)], "expected"),
    node("Gemm", [X, floats(4, 2)], "expected a matrix as input 0, got f32[2x3x4]"),
    node("Gemm", [floats(2, 3), floats(3)], "expected a matrix as input 1, got f32[3]"),
    node("Gemm", [floats(2, 3), floats(3, 4), floats(3)], "C to broadcast to [2, 4], got f32[3]"),
    node("Gemm", [floats(2, 3), floats(3, 4), floats(1, 2, 4)], "C to broadcast to [2, 4]"),
    node("Gemm", [floats(2, 3), floats(3, 4)], "matrices that fit", transA=1),
]

INDICES = [
    node("Gather", [floats(), i64(0)], "rank 1 or more"),
    node("Gather", [X, i64(0, 2)], "expected indices from -2 to 1, got 0 to 2"),
    node("Gather", [X, i64(-3, 1)], "expected indices from -2 to 1, got -3 to 1"),
    node("Gather", [X, i64(0)], "expected an axis between -3 and 2, got 3", axis=3),
    node("GatherElements", [X, i64(0, 0)], "expected indices that fit f32[2x3x4] beside axis 0"),
    node("GatherElements", [floats(2, 3), np.zeros((1, 4), np.int64)], "expected indices that fit"),
    node("GatherND", [X, i64(0, 0, 0, 0)], "expected indices that lead into f32[2x3x4]"),
    node("GatherND", [X, np.zeros((2, 0), np.int64)], "expected indices that lead into"),
    node("GatherND", [X, np.zeros((3, 1), np.int64)], "1 batch dimensions alike", batch_dims=1),
    node("GatherND", [X, np.zeros((2, 1), np.int64)], "lead into f32[2x3x4]", batch_dims=2),
    node("OneHot", [i64(1), scalar(0), i64(0, 1)], "a depth of at least 1, got 0"),
    node("OneHot", [i64(1), scalar(3), i64(0, 1, 2)], "expected two values, got i64[3]"),
    node("OneHot", [i64(1), scalar(3), i64(0, 1)], "axis", axis=2),
    known("CumSum", [X, scalar(3)], "axis"),
]

GRID = floats(1, 4, 4, 2)
REGIONS = [floats(3, 4), i64(0, 0, 0)]
OFFSETS = floats(1, 18, 3, 3)


def edge(hertz: int) -> Array:
    return np.array(hertz, np.float32)


SAMPLED = [
    node("GridSample", [floats(1, 2), GRID], "expected an input of a rank from 3 to 5"),
    node("GridSample", [IMAGE, floats(1, 4, 2)], "expected a grid of [1, ..., 2]"),
    node("GridSample", [IMAGE, floats(2, 4, 4, 2)], "expected a grid of [1, ..., 2]"),
    node("GridSample", [IMAGE, floats(1, 4, 4, 3)], "expected a grid of [1, ..., 2]"),
    node("GridSample", [IMAGE, GRID], "mode 'best' with padding_mode 'zeros'", mode="best"),
    node("GridSample", [IMAGE, GRID], "padding_mode 'ones' is not", padding_mode="ones"),
    node("AffineGrid", [floats(1, 2, 3), i64(1, 1, 4)], "expected theta [N, 2, 3] or [N, 3, 4]"),
    node("AffineGrid", [floats(1, 2, 3), i64(2, 1, 4, 4)], "expected theta [N, 2, 3]"),
    node("AffineGrid", [floats(1, 2, 3), i64(1, 1, 4, 4, 4)], "expected theta [N, 2, 3]"),
    node("AffineGrid", [floats(1, 2, 3), i64(1, 1, 4, 1 << 33)], "at most 268435456, got 8589"),
    node("RoiAlign", [X, *REGIONS], "expected an input of rank 4"),
    node("RoiAlign", [IMAGE, floats(3, 5), REGIONS[1]], "expected regions of 4 numbers each"),
    node("RoiAlign", [IMAGE, floats(3, 4), i64(0)], "expected images i64[3]"),
    node("RoiAlign", [IMAGE, *REGIONS], "expected bins and a ratio", output_width=0),
    node("RoiAlign", [IMAGE, *REGIONS], "a ratio from 0 to 1024", sampling_ratio=1 << 30),
    node("RoiAlign", [IMAGE, *REGIONS], "mode 'sum' with 'half_pixel'", mode="sum"),
    node("MaxRoiPool", [IMAGE, floats(3, 5)], "'pooled_shape': expected", pooled_shape=[1]),
    node("MaxRoiPool", [IMAGE, floats(3, 4)], "regions of 5 numbers", pooled_shape=[1, 1]),
    node("MaxRoiPool", [IMAGE, floats(3, 5)], "expected bins", pooled_shape=[0, 1]),
    node("DeformConv", [X, FILTER, OFFSETS], "one rank from 3 to 5"),
    node("DeformConv", [IMAGE, FILTER, OFFSETS], "'kernel_shape'", kernel_shape=[3, 2]),
    node("DeformConv", [IMAGE, FILTER, OFFSETS], "multiple of group 2", group=2),
    node("DeformConv", [IMAGE, FILTER, OFFSETS], "expected a divisor of 2", offset_group=3),
    node("DeformConv", [IMAGE, FILTER, floats(1, 9, 3, 3)], "expected [1, 18, 3, 3] as input 2"),
    node("Col2Im", [X, i64(4, 4), i64(2, 2)], "expected columns N, C * 4, windows"),
    node("Col2Im", [X, i64(4, 4), i64(3)], "expected columns N, C * 3, windows"),
    node("Col2Im", [X, i64(4, 4), i64(1, 3)], "expected 8 windows"),
    node("LpPool", [IMAGE], "'p': expected more than 0, got 0", kernel_shape=[1, 1], p=0),
    node("MaxUnpool", [IMAGE, i64(0)], "an index for each element", kernel_shape=[3, 3]),
    node(
        *("MaxUnpool", [IMAGE, np.zeros((1, 2, 5, 5), np.int64), i64(1, 2, 7, 6)]),
        "expected an output_shape of at least [1, 2, 7, 7]",
        kernel_shape=[3, 3],
    ),
    node("DFT", [floats(2, 5, 3)], "expected one or two parts of each number along another axis"),
    node("DFT", [floats(2, 5, 2), scalar(4), scalar(2)], "expected one or two parts"),
    node("DFT", [floats(2, 5, 2), scalar(0)], "expected a length from 1 to 16777216, got 0"),
    node("STFT", [floats(2, 5, 3), scalar(1)], "expected a signal [batch, length, 1 or 2]"),
    node("STFT", [floats(2, 5, 1), scalar(0)], "expected a step and a length of at least 1"),
    node("STFT", [floats(2, 5, 1), scalar(1), floats(2, 2)], "expected a vector as the window"),
    node("STFT", [floats(2, 5, 1), scalar(1), floats(2), scalar(3)], "a window of 3 elements"),
    node("STFT", [floats(2, 5, 1), scalar(1), floats(6)], "a signal of at least 6 elements"),
    node("Det", [floats(2, 3)], "expected square matrices, got f32[2x3]"),
    known("MelWeightMatrix", [*i64(1, 0, 8), *floats(2)], "edges that ascend"),
    known("MelWeightMatrix", [*i64(1, 8, 8), *map(edge, (5, 4))], "edges that ascend"),
    known("MelWeightMatrix", [*i64(1, 8, 8), *map(edge, (0, 9))], "expected edges below half"),
    known("MelWeightMatrix", [*i64(1 << 40, 8, 8), *floats(2)], "expected at most"),
]

RESIZED = [
    node(
        *("Resize", [X, floats(0), floats(0), i64(2, 3, 1 << 33)], "at most 268435456, got 8589"),
        mode="linear",
    ),
    node("Resize", [X], "expected either scales or sizes"),
    node("Resize", [X, floats(0), floats(3) + 1, i64(1, 2, 3)], "expected either scales or sizes"),
    node("Resize", [X, floats(0), floats(2) + 1], "expected 3 positive scales"),
    node("Resize", [X, floats(0), floats(3)], "expected 3 positive scales"),
    node("Resize", [X, floats(0), floats(0), i64(2, 3)], "expected 3 positive sizes"),
    node("Resize", [X, floats(0), floats(0), i64(2, 3, 0)], "expected 3 positive sizes"),
    node("Resize", [floats(0, 2), floats(0), floats(0), i64(2, 3)], "expected 2 positive sizes"),
    node("Resize", [X, floats(0), floats(3) + 2], "mode 'best' is not supported", mode="best"),
    node(
        *("Resize", [np.zeros(2, bool), floats(0), floats(1) + 2], "mode 'linear' for bool"),
        mode="linear",
    ),
    node(
        *("Resize", [X, floats(0), floats(3) + 2], "'sideways' is not supported"),
        coordinate_transformation_mode="sideways",
    ),
    node("Resize", [X, floats(0), floats(3) + 2], "'most' is not supported", nearest_mode="most"),
    node(
        *("Resize", [X, floats(0), floats(0), i64(2, 3, 5)], "'keep' is not supported"),
        keep_aspect_ratio_policy="keep",
    ),
    node(
        *("Resize", [X, floats(4), floats(3) + 2], "expected 6 bounds of the region, got 4"),
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
]

SHAPES = [
    node("Concat", [X, floats(2, 3)], "expected", axis=0),
    node("Concat", [X, floats(2, 2, 4)], "expected", axis=0),
    node("Reshape", [X, i64(2, 3, 4, 0)], "a dimension of f32[2x3x4] for every 0"),
    node("Reshape", [X, i64(0, -1)], "no -1 beside a 0", allowzero=1),
    node("Reshape", [X, i64(-1, -1)], "at most one -1, got [-1, -1]"),
    node("Reshape", [X, i64(-2, 12)], "at most one -1, got [-2, 12]"),
    node("Reshape", [X, i64(5, 5)], "a shape of 24 elements to reshape f32[2x3x4] to"),
    node("Reshape", [X, i64(7, -1)], "a shape of 24 elements"),
    node("DepthToSpace", [X], "expected an input of rank 4", blocksize=1),
    node("DepthToSpace", [IMAGE], "a size that fits f32[1x2x5x5], got 2", blocksize=2),
    node("DepthToSpace", [IMAGE], "a size that fits f32[1x2x5x5], got 0", blocksize=0),
    node("DepthToSpace", [IMAGE], "expected DCR or CRD, got 'RCD'", blocksize=1, mode="RCD"),
    node("SpaceToDepth", [floats(1, 1, 4, 5)], "fits f32[1x1x4x5], got 2", blocksize=2),
    node("SpaceToDepth", [floats(1, 1, 5, 4)], "fits f32[1x1x5x4], got 2", blocksize=2),
    node("Flatten", [X], "expected an axis from -3 to 3, got 4", axis=4),
    node("Flatten", [X], "expected an axis from -3 to 3, got -4", axis=-4),
    node("Unsqueeze", [X, i64(0, -5)], "expected each axis once"),
    node("Unsqueeze", [X, i64(4)], "expected an axis between -4 and 3, got 4"),
    node("Squeeze", [X, i64(1)], "dimensions of 1 to squeeze, got [1] of f32[2x3x4]"),
    node("Squeeze", [floats(1, 1), i64(0, -2)], "expected each axis once"),
    node("Transpose", [X], "expected a permutation", perm=[0, 1]),
    node("Expand", [X, i64(5)], "broadcast"),
    node("Tile", [X, i64(1, 1, -1)], "repeats of at least 0, got -1"),
    node("Slice", [X, i64(0), i64(1), i64(0, 1)], "as many starts, ends, axes and steps"),
    node("Slice", [X, i64(0), i64(1), i64(0), i64(0)], "expected steps other than 0"),
    node("Slice", [X, i64(0, 0), i64(1, 1), i64(0, -3)], "expected each axis once"),
    node("Split", [X, i64(1, 2)], "expected 1 sizes with the sum 2"),
    node("Split", [X, i64(3)], "expected 1 sizes with the sum 2, got [3]"),
    Case("Split", [X, i64(3, -1)], "expected 2 sizes with the sum 2, got [3, -1]", outputs=2),
    node("Pad", [X, i64(0, 0, 0)], "expected 6 pads, got 3"),
    node("Pad", [X, i64(0, 0), floats(), i64(0, 1)], "expected 4 pads, got 2"),
    node("Pad", [X, i64(*[0] * 8), floats(), i64(0, 0)], "expected each axis once"),
    node("Pad", [X, i64(-2, 0, 0, 1, 0, 0)], "something to repeat in dimension 0", mode="edge"),
    node("Pad", [X, i64(0, 0, 0, 1 << 25, 0, 0)], "a pad of 33554432 elements", mode="wrap"),
    node("Pad", [i64(1, 2), i64(1, 1), scalar((1 << 53) + 1)], "more than 53 bits"),
    node("Trilu", [floats(3)], "rank 2 or more"),
    node("EyeLike", [X], "an identity like f32[2x3x4] is not supported"),
]

KNOWN = [
    known("Constant", [], "exactly one attribute, got none"),
    known("Constant", [], "exactly one attribute", value_int=1, value_float=0.5),
    known("Constant", [], "a constant of strings is not supported", value_string="a"),
    known("Constant", [], "a constant of strings is not supported", value_strings=["a"]),
    known(
        *("ConstantOfShape", [i64(2)], "one element as 'value', got i64[2]"),
        value=numpy_helper.from_array(i64(1, 2)),
    ),
    known("ConstantOfShape", [i64(-1)], "dimensions of at least 0"),
    known("Range", [i64(0, 1), scalar(3), scalar(1)], "scalars as start, limit and delta"),
    known("Range", [scalar(0), scalar(3), scalar(0)], "a delta other than 0"),
    known("Range", [scalar(0), scalar(1 << 26), scalar(1)], "a range of 67108864 elements"),
]

CASES = [*ACTIVATIONS, *WINDOWS, *NORMS, *PRODUCTS, *INDICES, *SAMPLED, *RESIZED, *SHAPES, *KNOWN]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_refusal(case: Case) -> None:
    names = [f"in{index}" for index in range(len(case.inputs))]
    stored = dict(zip(names, case.inputs, strict=True))
    inputs = [] if case.known else [info(name, stored.pop(name)) for name in names[:1]]
    outputs = [f"out{index}" for index in range(case.outputs)]
    bad = helper.make_node(case.op_type, names, outputs, name="bad", **case.attributes)
    declared = [info("out0", X, [None, None, None])]
    model = graph_model([bad], inputs, declared, 22, stored)
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.load(model)
    assert case.message in str(caught.value)
    assert "node 'bad' (#0)" in str(caught.value)


POSITIONS = {name: scalar(value) for name, value in (("two", 2), ("three", 3), ("minus", -3))}
SEQUENCES: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("SequenceAt", ["pair", "two"], {}, "expected a position from -2 to 1, got 2"),
    ("SequenceAt", ["pair", "minus"], {}, "expected a position from -2 to 1, got -3"),
    ("SequenceErase", ["pair", "two"], {}, "expected a position from -2 to 1, got 2"),
    ("SequenceInsert", ["pair", "x", "three"], {}, "expected a position from -2 to 2, got 3"),
    ("SequenceInsert", ["pair", "x", "minus"], {}, "expected a position from -2 to 2, got -3"),
    ("SequenceInsert", ["pair", "two"], {}, "expected an element of kind f32, got i64"),
    ("SequenceAt", ["x", "two"], {}, "a sequence"),
    ("SplitToSequence", ["x", "none"], {}, "expected parts of at least 1, got 0"),
    ("SplitToSequence", ["x", "sizes"], {}, "expected sizes with the sum 2, got [2, 1]"),
    ("SplitToSequence", ["long"], {}, "expected at most 200000 parts, each of which is a node"),
    ("ConcatFromSequence", ["empty"], {"axis": 0}, "a sequence of at least one tensor"),
    ("Relu", ["pair"], {}, "a sequence"),
]


@pytest.mark.parametrize(
    ("op_type", "names", "attributes", "message"), SEQUENCES, ids=[str(case) for case in SEQUENCES]
)
def test_refusal_of_sequences(
    op_type: str, names: list[str], attributes: dict[str, Any], message: str
) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"]),
        helper.make_node("SequenceEmpty", [], ["empty"]),
        helper.make_node(op_type, names, ["y"], name="bad", **attributes),
    ]
    stored = {**POSITIONS, "none": scalar(0), "sizes": i64(2, 1)}
    used = {name: array for name, array in stored.items() if name in names}
    inputs = [info("x", X), helper.make_tensor_value_info("long", TensorProto.FLOAT, [1 << 20])]
    model = graph_model(nodes, inputs, [info("y", X, [None] * 3)], 22, used)
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.load(model)
    assert message in str(caught.value)
    assert "node 'bad' (#2)" in str(caught.value)


def test_a_sequence_is_no_output() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 22)
    with pytest.raises(glowpy.UserError, match="output 'y': expected a tensor, got a sequence"):
        glowpy.load(model)
