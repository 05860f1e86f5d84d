"""Convolutions. Activations are N, spatial..., C; filters are O, spatial..., I / group; 1 to 3 spatial dimensions."""

from classgen.dsl import NodeOnly, Op, dims, integer, ints

Op(
    "Convolution",
    "Cross-correlation with a filter, plus a bias for each output channel. pads are the begins, then the ends, of the spatial dimensions.",
    inputs=["input", "filter", "bias"],
    attrs=[ints("kernels"), ints("strides"), dims("pads"), ints("dilation"), integer("group")],
    quant="numbers",
    channels=("filter", 0, "bias"),
)
NodeOnly(
    "TransposedConvolution",
    "The gradient of a convolution with respect to its input: result[strides * i + dilation * k - begins] adds input[i] * filter[k], for each output channel, to the bias.",
    inputs=["input", "filter", "bias"],
    attrs=[ints("kernels"), ints("strides"), ints("begins"), ints("dilation"), integer("group")],
    traits=["typed"],
    channels=("filter", 0, "bias"),
)
NodeOnly(
    "FilterGradient",
    "The gradient of a convolution with respect to its filter, given that of its result: result[o, k, i] sums gradient[n, p, o] * input[n, strides * p + dilation * k - begins, i] over images and pixels.",
    inputs=["input", "gradient"],
    attrs=[ints("kernels"), ints("strides"), ints("begins"), ints("dilation"), integer("group")],
    traits=["typed"],
)
