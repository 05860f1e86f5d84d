"""Convolutions of stored integers whose pads differ from each other, in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.symbolic import symbol

RNG = np.random.default_rng(3)
CASES = [
    ((9,), (3,), (0, 2), (1,), (1,)),
    ((9,), (3,), (2, 0), (1,), (1,)),
    ((9,), (4,), (1, 3), (2,), (1,)),
    ((9,), (2,), (3, 1), (1,), (3,)),
    ((20,), (3,), (0, 1), (3,), (2,)),
    ((5, 6), (3, 2), (0, 1, 2, 0), (1, 2), (1, 1)),
    ((3, 4, 5), (2, 3, 2), (0, 1, 0, 1, 0, 2), (1, 1, 2), (1, 1, 1)),
]


def summed(x: Array, w: Array, case: tuple[tuple[int, ...], ...], group: int) -> Array:
    """Sums over all windows, of images and filters with their channels first."""
    _, kernels, pads, strides, dilations = case
    rank = len(kernels)
    wide = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    spans = [d * (k - 1) + 1 for k, d in zip(kernels, dilations, strict=True)]
    counts = [
        (size - s) // t + 1 for size, s, t in zip(wide.shape[2:], spans, strides, strict=True)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *counts), np.int64)
    inner, outer = w.shape[1], w.shape[0] // group
    for place in np.ndindex(*counts):
        starts = [p * t for p, t in zip(place, strides, strict=True)]
        slices = [slice(a, a + s, d) for a, s, d in zip(starts, spans, dilations, strict=True)]
        window = wide[(slice(None), slice(None), *slices)]
        for o in range(w.shape[0]):
            first = o // outer * inner
            part = window[:, first : first + inner]
            result[(slice(None), o, *place)] = (part * w[o]).reshape(len(x), -1).sum(1)
    return result


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("case", CASES, ids=[str(case[2]) for case in CASES])
def test_pads_that_differ(case: tuple[tuple[int, ...], ...], group: int, backend: str) -> None:
    spatial, kernels, pads, strides, dilations = case
    x = RNG.integers(0, 256, (2, 4, *spatial)).astype(np.uint8)
    w = RNG.integers(-128, 128, (8, 4 // group, *kernels)).astype(np.int8)
    attributes: dict[str, Any] = {
        "pads": pads,
        "strides": strides,
        "dilations": dilations,
        "group": group,
    }
    known = {
        "w": w,
        "zx": np.uint8(7),
        "zw": np.int8(0),
        "s": np.float32(1),
        "big": np.float32(512),
    }
    known["zy"] = np.uint8(128)
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], **attributes),
        helper.make_node(
            "QLinearConv", ["x", "s", "zx", "w", "s", "zw", "big", "zy"], ["z"], **attributes
        ),
    ]
    exact = summed(x.astype(np.int64) - 7, w.astype(np.int64), case, group)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.INT32, exact.shape),
            helper.make_tensor_value_info("z", TensorProto.UINT8, exact.shape),
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in known.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    module = glowpy.load(helper.make_model(graph, opset_imports=opset, ir_version=8))
    outputs = glowpy.compile(module, backend)({"x": x})
    np.testing.assert_array_equal(outputs["y"], exact)
    np.testing.assert_array_equal(outputs["z"], np.clip(np.rint(exact / 512) + 128, 0, 255))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_images_of_open_width(backend: str) -> None:
    """With a zero point that is computed, whose pads are what the sums of a filter leave out; and without one."""
    case = ((5, 0), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1))
    w = RNG.integers(-128, 128, (5, 3, 3, 3)).astype(np.int8)
    pads = helper.make_attribute("pads", case[2])
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", zero], [result])
        for zero, result in (("zx", "y"), ("zero", "z"))
    ]
    for node in nodes:
        node.attribute.append(pads)
    images = [
        helper.make_tensor_value_info(name, TensorProto.INT32, [1, 5, 5, "wide"]) for name in "yz"
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 5, "wide"]),
        helper.make_tensor_value_info("zx", TensorProto.UINT8, []),
    ]
    known = [
        numpy_helper.from_array(w, "w"),
        numpy_helper.from_array(np.array(9, np.uint8), "zero"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, images, known)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    function = glowpy.compile(glowpy.load(model, dims={"wide": symbol("wide", 0, 9)}), backend)
    for width in (9, 1, 0, 4):
        x = RNG.integers(0, 256, (1, 3, 5, width)).astype(np.uint8)
        outputs = function({"x": x, "zx": np.array(7, np.uint8)})
        for name, zero in (("y", 7), ("z", 9)):
            exact = summed(x.astype(np.int64) - zero, w.astype(np.int64), case, 1)
            np.testing.assert_array_equal(outputs[name], exact)
