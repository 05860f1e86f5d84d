"""Images that are read at computed places. Activations are N, spatial..., C."""

from classgen.dsl import FLOATS, NUMBERS, Op, dims, flag, integer, ints, real

Op(
    "Sample",
    "The elements of input, N, spatial..., C, at the places [N, points, groups, spatial dimensions], which count pixels, those along the "
    "last spatial dimension first: [N, points, C], where every group of channels has places of its own. `order` 0 takes the nearest "
    "pixel, halves to even, 1 is linear between two pixels of each dimension, 3 is cubic between four. Outside are zeros (`padding` 0), "
    "the pixels of the border (1), or reflections (2) at the middles of the pixels of the border if `aligned`, else at their edges. A NaN "
    "lies before all pixels.",
    inputs=["input", "places"],
    attrs=[integer("order"), integer("padding"), flag("aligned")],
    kernel={"input": FLOATS},
)
Op(
    "RoiAlign",
    "Regions of the images N, H, W, C in a grid of `height` x `width` bins each, as ONNX says: [regions, height, width, C]. A region has "
    "x1, y1, x2, y2, times `scale`, and the i64 number of its image. A bin is the mean, or if `largest` the largest weighted pixel, of "
    "`ratio` x `ratio` points; of as many as there are pixels if that is 0. If `half_pixel`, 0 is the edge of the first pixel, else "
    "its middle.",
    inputs=["input", "regions", "images"],
    attrs=[integer("height"), integer("width"), integer("ratio"), real("scale"), flag("largest"), flag("half_pixel")],
    kernel={"input": FLOATS},
    mixed={kind: {"images": "i64"} for kind in FLOATS},
    no_derivative="not written yet",
)
Op(
    "RoiMaxPool",
    "Regions of the images N, H, W, C in a grid of `height` x `width` bins each: [regions, height, width, C]. A region has the number of "
    "its image, x1, y1, x2, y2; these, times `scale`, are rounded to the pixels that it ends with. A bin is the largest of all the "
    "pixels that it touches, and 0 if it touches none.",
    inputs=["input", "regions"],
    attrs=[integer("height"), integer("width"), real("scale")],
    kernel={"input": FLOATS},
    no_derivative="not written yet",
)
Op(
    "ColumnsToImage",
    "Windows put back where they lay, and added up: column l of input, N, C * taps, windows, has the taps of the window l of the result, "
    "N, C, spatial.... What falls on the pads is left out.",
    inputs=["input"],
    attrs=[ints("kernels"), ints("strides"), dims("pads"), ints("dilation")],
    traits=["typed"],
    kernel={"input": NUMBERS},
)
