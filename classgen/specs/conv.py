"""Convolutions. Activations are N, spatial..., C; filters are O, spatial..., I / group; 1 to 3 spatial dimensions."""

from classgen.dsl import FLOATS, Op, integer, ints

Op(
    "Convolution",
    "Cross-correlation with a filter, plus a bias for each output channel. pads are the begins, then the ends, of the spatial dimensions.",
    inputs=["input", "filter", "bias"],
    attrs=[ints("kernels"), ints("strides"), ints("pads"), ints("dilation"), integer("group")],
    kernel={"input": FLOATS},
    channels=("filter", 0, "bias"),
    no_derivative="not written yet",
)
