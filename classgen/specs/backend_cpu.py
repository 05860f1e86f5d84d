"""Nodes and instructions that only the CPU backend knows: products over repacked weights."""

from classgen.dsl import FLOATS, Op, integer, ints, library

library("cpu", "libjit", "libjit", core=True)

_CONV = [ints("kernels"), ints("strides"), ints("pads"), ints("dilation")]
_TILE = [integer("tile_pixels"), integer("tile_vectors")]
_WALK = [integer("slab"), integer("fetch")]
_LATE = "gradients are taken before the CPU backend brings it in"

Op(
    "CpuConv",
    "A 2-D convolution with register tiles of tile_pixels pixels by tile_vectors vectors. filter is [G, blocks, KH, KW, I, NR]; "
    "zeros has I of them where there are pads. Lines of so many pixels are tiled by themselves; slab lines are computed for one "
    "block of channels before the next, and fetch elements of weights are fetched ahead at each step.",
    inputs=["input", "filter", "bias", "zeros"],
    attrs=[*_CONV, integer("group"), *_TILE, integer("line"), *_WALK],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": FLOATS},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuDepthwiseConv",
    "A 2-D convolution with one filter for each channel, of tile_pixels pixels at a time. filter is [KH, KW, C].",
    inputs=["input", "filter", "bias"],
    attrs=[*_CONV, integer("tile_pixels")],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": FLOATS},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuMatmul",
    "[..., M, K] times right sides packed to [..., blocks, K, NR], with register tiles of tile_pixels rows by tile_vectors vectors; "
    "slab tiles of rows are computed for one block of columns before the next, and fetch elements of weights are fetched ahead.",
    inputs=["lhs", "rhs"],
    attrs=[*_TILE, *_WALK],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["lhs"],
    kernel={"lhs": FLOATS},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuPackMatrix",
    "Packs matrices [..., K, N] as right sides of products: [..., ceil(N / block), K, block], filled with zeros.",
    inputs=["input"],
    attrs=[integer("block")],
    traits=["typed"],
    transposed=["input"],
    kernel={"input": ("x32", "x64")},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuPlainConv",
    "A 2-D convolution that computes one number after the other, for code that is to be small. filter is [O, KH, KW, I].",
    inputs=["input", "filter", "bias"],
    attrs=[*_CONV, integer("group")],
    traits=["typed", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": FLOATS},
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuPlainMatmul",
    "[..., M, K] times the transposes of [..., N, K], one number after the other, for code that is to be small.",
    inputs=["lhs", "rhs"],
    traits=["typed", "epilogue"],
    strided=["result"],
    rows=["lhs"],
    transposed=["rhs"],
    kernel={"lhs": FLOATS},
    backend="cpu",
    no_derivative=_LATE,
)
