"""Images that are read at computed places, and put together of columns. Channels come second in ONNX."""

from __future__ import annotations

from glowpy.exporter.onnx.graph import OnnxGraph, elem_type_of, to_onnx
from glowpy.graph.nodes_gen import ColumnsToImageNode, RoiAlignNode, RoiMaxPoolNode, SampleNode

__all__: list[str] = []

_MODES = {0: "nearest", 1: "linear", 3: "cubic"}
_PADDINGS = ("zeros", "border", "reflection")


@to_onnx(SampleNode)
def _sample(g: OnnxGraph, n: SampleNode) -> None:
    """Places between -1 and 1, which stand for the outer edges, or for the middles of the pixels there.

    Every group of channels is an image of its own.
    """
    image, places = n.input.type, n.places.type
    images, *spatial, channels = image.shape
    rank, (points, groups) = len(spatial), places.shape[1:3]
    channels_of_group = channels // groups
    aligned = n.aligned and n.padding == _PADDINGS.index("reflection")
    sizes = g.ints("sizes", [size - aligned for size in reversed(spatial)])
    sizes = g.add("Cast", sizes, to=elem_type_of(image.kind))
    numbers = g.operand(n.places)
    one, two = (g.scalar("number", image.kind, number) for number in (1, 2))
    if aligned:
        sizes = g.add("Max", sizes, one)
    doubled = g.add("Mul", numbers, two)
    grid = g.add(
        "Sub", g.add("Div", doubled if aligned else g.add("Add", doubled, one), sizes), one
    )
    grid = g.add("Transpose", grid, perm=(0, 2, 1, 3))
    shape = (images * groups, points, *[1] * (rank - 1), rank)
    grid = g.add("Reshape", grid, g.ints("shape", shape), allowzero=1)
    last = rank + 1
    split = g.ints("shape", (images, *spatial, groups, channels_of_group))
    pixels = g.add("Reshape", g.operand(n.input), split, allowzero=1)
    pixels = g.add("Transpose", pixels, perm=(0, last, last + 1, *range(1, last)))
    joined = g.ints("shape", (images * groups, channels_of_group, *spatial))
    sampled = g.add(
        "GridSample",
        g.add("Reshape", pixels, joined, allowzero=1),
        grid,
        mode=_MODES[n.order],
        padding_mode=_PADDINGS[n.padding],
        align_corners=int(aligned),
    )
    parts = g.ints("shape", (images, groups * channels_of_group, points))
    g.result("Transpose", g.add("Reshape", sampled, parts, allowzero=1), perm=(0, 2, 1))


def _first(g: OnnxGraph, name: str) -> str:
    return g.add("Transpose", name, perm=(0, 3, 1, 2))


@to_onnx(RoiAlignNode)
def _roi_align(g: OnnxGraph, n: RoiAlignNode) -> None:
    aligned = g.add(
        "RoiAlign",
        _first(g, g.operand(n.input)),
        g.operand(n.regions),
        g.operand(n.images),
        mode="max" if n.largest else "avg",
        coordinate_transformation_mode="half_pixel" if n.half_pixel else "output_half_pixel",
        output_height=n.height,
        output_width=n.width,
        sampling_ratio=n.ratio,
        spatial_scale=n.scale,
    )
    g.result("Transpose", aligned, perm=(0, 2, 3, 1))


@to_onnx(RoiMaxPoolNode)
def _roi_max_pool(g: OnnxGraph, n: RoiMaxPoolNode) -> None:
    pooled = g.add(
        "MaxRoiPool",
        _first(g, g.operand(n.input)),
        g.operand(n.regions),
        pooled_shape=(n.height, n.width),
        spatial_scale=n.scale,
    )
    g.result("Transpose", pooled, perm=(0, 2, 3, 1))


@to_onnx(ColumnsToImageNode)
def _columns_to_image(g: OnnxGraph, n: ColumnsToImageNode) -> None:
    g.result(
        "Col2Im",
        g.operand(n.input),
        g.ints("size", n.type.shape[2:]),
        g.ints("block", n.kernels),
        strides=n.strides,
        pads=n.pads,
        dilations=n.dilation,
    )
