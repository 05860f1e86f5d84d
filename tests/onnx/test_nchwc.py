"""Channels in blocks of either width: files say nowhere which one they were written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from glowpy.core.tensor import Array
from glowpy.importer.onnx.contrib import nchwc
from glowpy.importer.onnx.contrib.nchwc import channel_block
from glowpy.importer.onnx.model import read_model
from tests.onnx.comparison import graph_model, info
from tests.onnx.contrib_cases import NCHWC, Case, case, f32

BLOCKS = (8, 16)
IMAGE, WIDE = f32(2, 3, 7, 6), f32(2, 32, 7, 6)


def blocked(filter: Array, block: int, *, both: bool) -> Array:
    """A filter [O, I, h, w] as it is stored: output channels in blocks, and input channels if `both`."""
    outputs, inputs, *spatial = filter.shape
    if not both:
        split = filter.reshape(outputs // block, block, inputs, *spatial)
        return np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1)).reshape(filter.shape)
    split = filter.reshape(outputs // block, block, inputs // block, block, *spatial)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1)).reshape(filter.shape)


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The block of files that do not show it."""
    width: int = request.param
    monkeypatch.setattr(nchwc, "_own_block", lambda: width)
    return width


CONVS: list[tuple[Array, Array, bool, dict[str, Any]]] = [
    (IMAGE, f32(32, 3, 3, 3), False, {"pads": [1] * 4}),
    (WIDE, f32(48, 32, 1, 1), True, {"activation": "Relu"}),
    (WIDE, f32(16, 32, 3, 2), True, {"strides": [2, 1], "auto_pad": "SAME_UPPER"}),
    (WIDE, f32(32, 1, 3, 3), False, {"group": 32, "dilations": [2, 1]}),
    (WIDE, f32(64, 16, 3, 3), True, {"group": 2}),
    (WIDE, f32(32, 1, 1, 1), False, {"group": 32, "activation": "Relu"}),
    (WIDE, f32(32, 1, 1, 1), False, {"group": 32, "strides": [2, 2]}),
    (WIDE, f32(32, 1, 1, 1), False, {"group": 32, "pads": [1, 0, 0, 1]}),
]


@pytest.mark.parametrize(("image", "filter", "both", "attributes"), CONVS)
def test_convolution(
    image: Array, filter: Array, both: bool, attributes: dict[str, Any], block: int
) -> None:
    filter = filter / np.float32(np.sqrt(filter[0].size))
    bias = f32(filter.shape[0])
    plain = case("FusedConv", image, filter, bias, **attributes)
    stored = [image, blocked(filter, block, both=both), bias]
    node = replace(plain, op_type="Conv", domain=NCHWC, inputs=stored, known=[1, 2])
    node.check("interpreter", plain.expected())


def test_convolution_with_a_sum(block: int) -> None:
    filter, addend = f32(16, 32, 1, 1), f32(2, 16, 7, 6)
    plain = case("FusedConv", WIDE, filter, None, addend, activation="Tanh")
    stored = [WIDE, blocked(filter, block, both=True), None, addend]
    node = replace(plain, op_type="Conv", domain=NCHWC, inputs=stored, known=[1])
    node.check("cpu", plain.expected())


def own(op_type: str, x: Array, **attributes: Any) -> Case:
    return replace(case(op_type, x, **attributes), domain=NCHWC)


POOL: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("MaxPool", {**POOL, "dilations": [1, 2], "ceil_mode": 1}),
        ("AveragePool", {**POOL, "count_include_pad": 1}),
        ("AveragePool", POOL),
        ("GlobalMaxPool", {}),
        ("GlobalAveragePool", {}),
    ],
)
def test_pool_is_what_it_is_without_blocks(op_type: str, attributes: dict[str, Any]) -> None:
    plain = replace(case(op_type, WIDE, **attributes), domain="", opset=17)
    replace(plain, domain=NCHWC).check("interpreter", plain.expected())


RESIZED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    *(
        ({"coordinate_transformation_mode": mode}, {"coordinate_transformation_mode": mode})
        for mode in ("asymmetric", "align_corners", "half_pixel")
    ),
]


@pytest.mark.parametrize(("attributes", "plain"), RESIZED)
def test_upsampling(attributes: dict[str, Any], plain: dict[str, Any]) -> None:
    mode = "linear" if attributes else "nearest"
    scales = np.array([1, 1, 2, 3], np.float32)
    resize = replace(case("Resize", WIDE, None, scales, mode=mode, **plain), domain="", known=[2])
    node = own("Upsample", WIDE, mode=mode, scales=[1, 1, 2, 3], **attributes)
    node.check("interpreter", resize.expected())


def test_reordering_fills_up_channels_and_drops_them(block: int) -> None:
    x = f32(2, 20, 3, 4)
    filled = np.pad(x, ((0, 0), (0, -20 % block), (0, 0), (0, 0)))
    last = np.moveaxis(x, 1, -1)
    own("ReorderInput", x).check("interpreter", [filled])
    own("ReorderInput", last, channels_last=1).check("interpreter", [filled])
    own("ReorderOutput", filled, channels=20).check("interpreter", [x])
    own("ReorderOutput", filled, channels=20, channels_last=1).check("interpreter", [last])


def graph(nodes: Sequence[onnx.NodeProto], **filters: Sequence[int]) -> onnx.GraphProto:
    stored = {name: np.zeros(dims, np.float32) for name, dims in filters.items()}
    return graph_model(nodes, [info("x", WIDE)], [], 17, stored).graph


def conv(x: str, w: str, y: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, w], [y], domain=NCHWC)


def reorder(x: str, channels: int) -> onnx.NodeProto:
    return helper.make_node("ReorderOutput", [x], ["z"], domain=NCHWC, channels=channels)


def test_block_is_read_off_channels(block: int) -> None:
    """24 and 40 channels cannot be in blocks of 16; 20 would not be filled up to 32 by blocks of 8."""
    assert (
        channel_block(
            graph([conv("x", "v", "y"), conv("y", "w", "z")], v=[32, 3, 3, 3], w=[40, 32, 1, 1])
        )
        == 8
    )
    assert channel_block(graph([conv("x", "w", "y")], w=[32, 24, 1, 1])) == 8
    assert channel_block(graph([conv("x", "w", "y")], w=[32, 12, 1, 1])) == block
    relu = helper.make_node("Relu", ["y"], ["r"])
    assert (
        channel_block(graph([conv("x", "w", "y"), relu, reorder("r", 20)], w=[32, 3, 3, 3])) == 16
    )
    assert channel_block(graph([conv("x", "w", "y"), reorder("y", 20)], w=[24, 3, 3, 3])) == 8
    assert channel_block(graph([conv("x", "w", "y"), reorder("y", 32)], w=[32, 3, 3, 3])) == block
    assert channel_block(graph([conv("x", "w", "y"), reorder("y", 30)], w=[32, 3, 3, 3])) == block


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (own("ReorderOutput", WIDE, channels=33), "'channels': expected 1 to those of f32[2x32x7x6]"),
        (own("ReorderOutput", WIDE), "'channels': expected 1 to those of f32[2x32x7x6], got 0"),
        (own("ReorderInput", f32(2, 3)), "an input of rank 3 or more, got f32[2x3]"),
        (own("MaxPool", WIDE), "attribute 'kernel_shape' is required"),
        (replace(own("Conv", WIDE), inputs=[WIDE, f32(20, 32, 1, 1)]), "a filter in blocks of 8"),
        (replace(own("Conv", WIDE), inputs=[WIDE, f32(32, 12, 1, 1)]), "a filter in blocks of 8"),
        (own("Upsample", WIDE, scales=[1, 2]), "expected 4 positive scales, got [1.0, 2.0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refusal(node: Case, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nchwc, "_own_block", lambda: 8)
    assert message in node.error()


def test_what_was_compiled_for_one_block_is_not_recalled_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cache may be shared by machines."""
    model = replace(own("Conv", WIDE), inputs=[WIDE, f32(32, 32, 1, 1)]).model()
    digests = set()
    for width in BLOCKS:
        monkeypatch.setattr(nchwc, "_own_block", lambda width=width: width)
        digests.add(read_model(model).digest)
    assert len(digests) == 2
    plain = replace(case("Relu", WIDE), domain="").model()
    assert read_model(plain).block == 0


def test_block_of_this_machine() -> None:
    assert nchwc._own_block() in BLOCKS
