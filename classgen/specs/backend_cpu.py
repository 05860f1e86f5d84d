"""Nodes and instructions that only the CPU backend knows: products over repacked weights."""

from classgen.dsl import Op, integer, ints, library

library("cpu", "libjit", "libjit", core=True)

_CONV = [ints("kernels"), ints("strides"), ints("pads"), ints("dilation")]
_LATE = "gradients are taken before the CPU backend brings it in"

Op(
    "CpuConv",
    "A 2-D convolution with register tiles of tile_rows x tile_cols pixels by tile_vectors vectors. filter is [G, blocks, KH, KW, I, NR].",
    inputs=["input", "filter", "bias"],
    attrs=[*_CONV, integer("group"), integer("tile_rows"), integer("tile_cols"), integer("tile_vectors")],
    traits=["typed", "epilogue"],
    scratches=["padded"],
    kernel={"input": ("f32",)},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuDepthwiseConv",
    "A 2-D convolution with one filter for each channel. filter is [KH, KW, C].",
    inputs=["input", "filter", "bias"],
    attrs=_CONV,
    traits=["typed", "epilogue"],
    scratches=["padded"],
    kernel={"input": ("f32",)},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuMatmul",
    "[M, K] times a right side packed to [blocks, K, NR], with register tiles of tile_rows by tile_vectors vectors.",
    inputs=["lhs", "rhs"],
    attrs=[integer("tile_rows"), integer("tile_vectors")],
    traits=["typed", "epilogue"],
    kernel={"lhs": ("f32",)},
    backend="cpu",
    no_derivative=_LATE,
)
