"""Operators that read images at computed places, against onnxruntime on odd shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import GatherNode
from glowpy.importer import load
from glowpy.support.symbolic import Dim
from tests.onnx.comparison import assert_same, graph_model, info

EXAMPLES = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(
    op_type: str,
    arrays: Sequence[Array | None],
    opset: int,
    known: Sequence[int] = (),
    **attributes: Any,
) -> None:
    """One node, on the interpreter and on onnxruntime."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(arrays)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    stored = {names[index]: given.pop(names[index]) for index in known}
    inputs = [info(name, array) for name, array in given.items()]
    first = next(iter(given.values()))
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(first.dtype), None)
    model = graph_model([node], inputs, [output], opset, stored)
    reference = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = reference.run(None, given)
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, given)
    assert_same(got, expected, rtol=1e-4, atol=1e-4)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


SIZES = st.integers(1, 6)
SEEDS = st.integers(0, 1 << 20)


@EXAMPLES
@given(
    st.tuples(SIZES, SIZES, SIZES, SIZES, SIZES),
    st.sampled_from(["nearest", "linear", "cubic"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    SEEDS,
)
def test_grid_sample(
    sizes: tuple[int, ...], mode: str, padding: str, corners: bool, seed: int
) -> None:
    """A single pixel is reflected by itself alone where corners are aligned: onnxruntime divides by 0."""
    rng = np.random.default_rng(seed)
    channels, height, width, *points = sizes
    least = 2 if corners and padding == "reflection" else 1
    image = normal(rng, 2, channels, max(height, least), max(width, least))
    grid = rng.uniform(-2, 2, (2, *points, 2)).astype(np.float32)
    attributes: dict[str, Any] = {
        "mode": mode,
        "padding_mode": padding,
        "align_corners": int(corners),
    }
    check("GridSample", [image, grid], 20, **attributes)


@EXAMPLES
@given(
    st.tuples(SIZES, SIZES, SIZES, SIZES),
    st.sampled_from(["avg", "max"]),
    st.sampled_from(["half_pixel", "output_half_pixel"]),
    st.integers(0, 3),
    SEEDS,
)
def test_roi_align(
    sizes: tuple[int, ...], mode: str, coordinates: str, ratio: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    height, width, rows, columns = sizes
    regions = np.sort(rng.uniform(-2, 9, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    check(
        "RoiAlign",
        [normal(rng, 2, 3, height, width), regions, rng.integers(0, 2, 5)],
        16,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        sampling_ratio=ratio,
        output_height=rows,
        output_width=columns,
        spatial_scale=0.75,
    )


@EXAMPLES
@given(st.tuples(SIZES, SIZES), st.sampled_from([1, 2]), st.sampled_from([1, 2]), SEEDS)
def test_deform_conv(size: tuple[int, int], group: int, offset_group: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (extent + 3 for extent in size)
    spatial = (height // 2, width)  # 2 x 3 taps, strides of 2 and 1, pads of 1
    check(
        "DeformConv",
        [
            normal(rng, 2, 4, height, width),
            normal(rng, 6, 4 // group, 2, 3),
            normal(rng, 2, 12 * offset_group, *spatial),
            normal(rng, 6) if seed % 2 else None,
            normal(rng, 2, 6 * offset_group, *spatial) if seed % 3 else None,
        ],
        19,
        group=group,
        offset_group=offset_group,
        strides=[2, 1],
        pads=[0, 1, 0, 1],
    )


@EXAMPLES
@given(st.tuples(SIZES, SIZES), st.integers(1, 3), st.integers(1, 2), st.booleans(), SEEDS)
def test_lp_pool(size: tuple[int, int], p: int, dilation: int, ceil: bool, seed: int) -> None:
    height, width = (extent + 3 for extent in size)
    check(
        "LpPool",
        [normal(np.random.default_rng(seed), 2, 3, height, width)],
        18,
        kernel_shape=[2, 3],
        strides=[1, 2],
        pads=[1, 0, 1, 1],
        dilations=[dilation, 1],
        ceil_mode=int(ceil),
        p=p,
    )


@EXAMPLES
@given(st.tuples(SIZES, SIZES), st.integers(1, 3), st.booleans(), SEEDS)
def test_lp_pool_of_images_smaller_than_a_window(
    size: tuple[int, int], p: int, ceil: bool, seed: int
) -> None:
    image = normal(np.random.default_rng(seed), 2, 3, *size)
    sizes = {"kernel_shape": [7, 9], "strides": [7, 9]}
    check("LpPool", [image], 18, **sizes, ceil_mode=int(ceil), p=p)


@EXAMPLES
@given(st.tuples(SIZES, SIZES, SIZES), st.integers(1, 2), SEEDS)
def test_col2im(sizes: tuple[int, int, int], stride: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, height, width = sizes
    windows = ((height - 1) // stride + 1) * ((width + 1) // stride + 1)  # 2 x 1 taps, pads of 1
    spatial = np.array([height, width]), np.array([2, 1])
    columns = normal(rng, 2, 2 * channels, windows)
    check("Col2Im", [columns, *spatial], 18, [1, 2], strides=[stride, stride], pads=[1, 1, 0, 1])


@EXAMPLES
@given(SIZES, SIZES, st.booleans(), SEEDS)
def test_affine_grid(height: int, width: int, corners: bool, seed: int) -> None:
    theta = normal(np.random.default_rng(seed), 2, 2, 3)
    sizes = np.array([2, 3, height + corners, width + corners])
    check("AffineGrid", [theta, sizes], 20, [1], align_corners=int(corners))


def gathered(op_type: str, *inputs: Array | None, **attributes: Any) -> list[tuple[Dim, ...]]:
    """The shapes of what is gathered from an image of 8 by 9, in order."""
    names = ["x", *("" if array is None else f"i{index}" for index, array in enumerate(inputs))]
    stored = {f"i{index}": array for index, array in enumerate(inputs) if array is not None}
    node = helper.make_node(op_type, names, ["y"], **attributes)
    image = info("x", np.zeros((1, 1, 8, 9), np.float32))
    output = helper.make_empty_tensor_value_info("y")
    module = load(graph_model([node], [image], [output], 19, stored))
    return [node.type.shape for node in module.main.nodes if isinstance(node, GatherNode)]


def test_pads_gather_what_they_add() -> None:
    pads = np.array([0, 0, 2, 0, 0, 0, 1, 3])
    assert gathered("Pad", pads, mode="edge") == [(1, 1, 2, 9), (1, 1, 1, 9), (1, 1, 11, 3)]


def test_images_shrink_first_and_grow_in_the_longest_pieces() -> None:
    def scaled(*factors: float) -> list[tuple[Dim, ...]]:
        return gathered("Resize", None, np.array([1, 1, *factors], np.float32))

    assert scaled(1.5, 1.5) == [(1, 1, 8, 13), (1, 1, 12, 13)]
    assert scaled(1.5, 1 / 3) == [(1, 1, 8, 3), (1, 1, 12, 3)]
    assert scaled(2, 3) == []  # repeated, both at once
    assert scaled(2, 1 / 3) == [(1, 1, 8, 3)]
