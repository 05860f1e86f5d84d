"""Nodes and instructions that only the CPU backend knows: products over repacked weights.

Those of 8-bit integers multiply what is stored, whatever it stands for: weights of i8, sums of i32, which wrap. Those of
bf16 are added up in f32.
"""

from classgen.dsl import FLOATS, Attr, Op, dim, dims, flag, integer, ints, library, real

library("cpu", "libjit", "libjit", core=True)

_CONV = [ints("kernels"), ints("strides"), dims("pads"), ints("dilation")]
_TILE = [integer("tile_pixels"), integer("tile_vectors")]
_WALK = [integer("slab"), dim("fetch")]
_PRODUCTS = (*FLOATS, "i8", "u8")
_TILED = (*_PRODUCTS, "bf16")
_CONV_KINDS = {kind: {"result": "i32", "filter": "i8", "bias": "i32"} for kind in ("i8", "u8")}
_TILED_CONV_KINDS = {**_CONV_KINDS, "bf16": {"result": "f32", "bias": "f32"}}
_MATMUL_KINDS = {kind: {"result": "i32", "rhs": "i8"} for kind in ("i8", "u8")}
_TILED_MATMUL_KINDS = {**_MATMUL_KINDS, "bf16": {"result": "f32"}}
_BLOCK_KINDS = {
    kind: {"result": "f32", "lhs": "f32", "scales": "f32", "zeros": "i8"} for kind in ("i8", "u32")
}
_BYTE_BLOCK_KINDS = {
    kind: {"result": "f32", "lhs": "i8", "lhs_scales": "f32", "lhs_sums": "i32", "scales": "f32", "zeros": "i8"}
    for kind in ("i8", "u32")
}
_LATE = "gradients are taken before the CPU backend brings it in"


def _cell(name: str, doc: str, inputs: list[str], results: list[str], attrs: list[Attr]) -> None:
    """A recurrent cell, with recurrence packed as right sides: the sums of a step are scratch memory."""
    Op(
        name,
        f"{doc} with recurrence packed to [gates, blocks, H, NR]; products take tile_rows sequences by tile_vectors vectors.",
        inputs=["gates", "recurrence", *inputs, "coefficients"],
        results=results,
        attrs=[ints("functions"), real("limit"), flag("reverse"), *attrs, integer("tile_rows"), integer("tile_vectors")],
        traits=["units"],
        scratches=["sums"],
        rows=["result", "gates"],
        kernel={"gates": FLOATS},
        mixed={kind: {"lengths": "i32"} for kind in FLOATS},
        backend="cpu",
        no_derivative=_LATE,
    )


Op(
    "CpuAttention",
    "softmax(query @ key * scale) @ value, with masks, block by block of keys. Queries are [B, H, M, K], keys [B, H', K, N] and values [B, H', N, V], of which "
    "a head serves H / H' neighbours. Scores are capped by softcap, unless that is 0. bias and mask, [B, H, N, M] with extents that may be 1, or empty, are "
    "added in this order; one that chooses instead takes the score's place where it is not 0. Where `causal`, query i does not see keys after i + diagonal. "
    "Where `clears_nan`, weights that are NaN count as 0, as those of a query that sees no key. "
    "Where `in_bf16`, both products of more than a few queries are of numbers that are rounded to bf16, and their sums in f32. "
    "A unit computes `rows` queries of one head at a time, against `block` keys, by tiles of tile_keys keys by `group` queries and tile_rows queries by two vectors of the width.",
    inputs=["query", "key", "value", "bias", "mask"],
    attrs=[
        real("scale"), real("softcap"), flag("bias_chooses"), flag("mask_chooses"), flag("causal"), dim("diagonal"), flag("clears_nan"),
        flag("in_bf16"), integer("units"), integer("rows"), integer("block"), integer("tile_keys"), integer("tile_rows"), integer("group"),
    ],
    traits=["typed", "units"],
    scratches=["work"],
    rows=["result", "query", "value", "bias", "mask"],
    transposed=["key"],
    kernel={"query": ("f32",)},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuBlockMatmul",
    "[..., M, K] in f32 times a right side of stored integers, (rhs - zeros) * scales for each `block` neighbours in depth. rhs is "
    "[blocks, K, NR], of 4 bits [blocks, ceil(K / 8), NR] of words; scales and zeros, which may be missing, are [blocks, ceil(K / block), NR].",
    inputs=["lhs", "rhs", "scales", "zeros"],
    attrs=[integer("block")],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["lhs"],
    kernel={"rhs": ("i8", "u32")},
    mixed=_BLOCK_KINDS,
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuByteBlockMatmul",
    "[..., M, K] rounded to 8 bits, as `cpu_quantize_blocks` gives it, times a right side of stored integers: lhs * lhs_scales times (rhs - zeros) * scales. The products of "
    "`block` neighbours in depth are added up as integers. rhs is [blocks, ceil(K / 4), 4 NR], of 4 bits [blocks, ceil(K / 8), NR] of words; scales and zeros, "
    "which may be missing, are [blocks, ceil(K / block), NR].",
    inputs=["lhs", "lhs_scales", "lhs_sums", "rhs", "scales", "zeros"],
    attrs=[integer("block")],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    kernel={"rhs": ("i8", "u32")},
    mixed=_BYTE_BLOCK_KINDS,
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuByteWinograd",
    "`cpu_winograd` of 8-bit integers, with exact sums of i32. The filter's points are of 16 bits, [blocks, points, I / group / 2, 2 NR]; outside is what lies outside the image, and is subtracted from all of it.",
    inputs=["input", "filter", "bias"],
    attrs=[ints("kernels"), dims("pads"), integer("group"), integer("outside"), ints("patch"), *_TILE, integer("slab"), integer("bands"), integer("blocks")],
    traits=["typed", "units", "epilogue"],
    scratches=["work"],
    strided=["result"],
    rows=["input"],
    kernel={"input": ("i8", "u8")},
    mixed={kind: {"filter": "i16", "bias": "i32", "work": "i32", "result": "i32"} for kind in ("i8", "u8")},
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuConv",
    "A 2-D convolution with register tiles of tile_pixels pixels by tile_vectors vectors. filter is [G, blocks, KH, KW, I, NR], "
    "of integers [G, blocks, KH, KW, I / 4, 4 NR], of bf16, which gives f32, [G, blocks, KH, KW, I / 2, 2 NR]; zeros has I elements, which lie outside the image, where there are pads. "
    "Lines of so many pixels are tiled by themselves; slab lines are computed for one block of channels before the next, and "
    "fetch elements of weights are fetched ahead at each step.",
    inputs=["input", "filter", "bias", "zeros"],
    attrs=[*_CONV, integer("group"), *_TILE, dim("line"), *_WALK],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": _TILED},
    mixed=_TILED_CONV_KINDS,
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuDepthwiseConv",
    "A 2-D convolution with as many groups as there are channels, or with groups of which several fit into a vector, of tile_pixels pixels at a time. A unit is slab "
    "lines of so many vectors of channels. With single_edges pixels whose windows reach over an edge are computed "
    "one by one. filter is [KH, KW, I, C], where I are the input's channels of a group; outside is what lies outside the image.",
    inputs=["input", "filter", "bias"],
    attrs=[*_CONV, integer("outside"), integer("tile_pixels"), integer("slab"), integer("vectors"), flag("single_edges")],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": _PRODUCTS},
    mixed=_CONV_KINDS,
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
_cell("CpuGru", "`gru`", ["bias", "lengths", "initial_h"], ["result", "last_h"], [flag("reset_after")])
_cell("CpuLstm", "`lstm`", ["peepholes", "lengths", "initial_h", "initial_c"], ["result", "last_h", "last_c"], [flag("coupled")])
Op(
    "CpuMatmul",
    "[..., M, K] times right sides packed to [..., blocks, K, NR], of integers to [..., blocks, K / 4, 4 NR], of bf16, which gives f32, to [..., blocks, K / 2, 2 NR], with register "
    "tiles of tile_pixels rows by tile_vectors vectors; slab tiles of rows are computed for one block of columns before the next, and fetch elements of weights are fetched ahead.",
    inputs=["lhs", "rhs"],
    attrs=[*_TILE, *_WALK],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["lhs"],
    kernel={"lhs": _TILED},
    mixed=_TILED_MATMUL_KINDS,
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuPackMatrix",
    "Packs matrices [..., K, N] as right sides of products: [..., ceil(N / block), K, block], of bytes [..., ceil(N / block), "
    "ceil(K / 4), 4 block], of 16 bits [..., ceil(N / block), ceil(K / 2), 2 block], filled with zeros.",
    inputs=["input"],
    attrs=[integer("block")],
    traits=["typed"],
    transposed=["input"],
    kernel={"input": ("x8", "x16", "x32", "x64")},
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuPlainConv",
    "A 2-D convolution that computes one number after the other, for code that is to be small. "
    "filter is [O, KH, KW, I]; outside is what lies outside the image.",
    inputs=["input", "filter", "bias"],
    attrs=[*_CONV, integer("group"), integer("outside")],
    traits=["typed", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": _PRODUCTS},
    mixed=_CONV_KINDS,
    quant="rule",
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
    kernel={"lhs": _PRODUCTS},
    mixed=_MATMUL_KINDS,
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuQuantizeBlocks",
    "input [..., K] in integers of 8 bits, with a scale for each `block` neighbours, and the sum of their integers. Zeros fill up the last eight. For a right side of 4 `bits` the "
    "even ones of eight neighbours come before the odd ones.",
    inputs=["input"],
    results=["result", "scales", "sums"],
    attrs=[integer("block"), integer("bits")],
    traits=["units"],
    rows=["input"],
    kernel={"input": ("f32",)},
    mixed={"f32": {"result": "i8", "scales": "f32", "sums": "i32"}},
    backend="cpu",
    no_derivative=_LATE,
)
_cell("CpuRnn", "`rnn`", ["lengths", "initial_h"], ["result", "last_h"], [])
Op(
    "CpuRowMatmul",
    "[..., 1, K] times [..., K, N], each matrix read once, where it lies: by rows or by columns. For those that to pack takes longer than "
    "to multiply: what is computed, as a decoder's cache is, and the left side of a product with one column. Units are 64 columns or more.",
    inputs=["lhs", "rhs"],
    traits=["typed", "units"],
    rows=["lhs"],
    transposed=["rhs"],
    kernel={"lhs": FLOATS},
    quant="rule",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuStandardize",
    "(input - mean) / sqrt(variance + epsilon) along the last dimension; if not `centred`, input / sqrt(mean of squares + epsilon).",
    inputs=["input"],
    attrs=[real("epsilon"), flag("centred")],
    traits=["typed", "units", "epilogue"],
    strided=["result"],
    rows=["input"],
    kernel={"input": ("f32",)},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuStrassen",
    "[..., K] times a right side packed to [2 pairs, K, NR], by seven products of its quarters in place of eight. sums are those of lhs; tiles take "
    "tile_pixels rows by tile_vectors vectors. slab rows of both halves are multiplied at once; units are so many bands of slabs, for so many pairs of blocks each.",
    inputs=["lhs", "sums", "rhs"],
    attrs=[*_TILE, integer("slab"), integer("bands"), integer("pairs")],
    traits=["typed", "units", "epilogue"],
    scratches=["work"],
    strided=["result"],
    kernel={"lhs": ("f32",)},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuStrassenSums",
    "The sums of the quarters of a left side [..., K] that `cpu_strassen` multiplies: [4, ceil(M / 2), K / 2].",
    inputs=["lhs"],
    traits=["typed", "units"],
    kernel={"lhs": ("f32",)},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuWeightedGather",
    "Slices of input along dimension `axis`, not the last one, each the sum of several times weights: those of indices[i], with weights[i], for slice i. "
    "Negative indices count from the end, others are clamped into the range.",
    inputs=["input", "indices", "weights"],
    attrs=[integer("axis")],
    traits=["typed"],
    rows=["result", "input"],
    kernel={"input": FLOATS},
    mixed={kind: {"indices": "i64"} for kind in FLOATS},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
Op(
    "CpuWinograd",
    "A 2-D convolution by Winograd's algorithm, with patches of `patch` pixels in height and width, and the largest of each `pool` pixels of it, which do not overlap. filter is [blocks, points, I / group, NR], group by group; "
    "tiles take tile_pixels patches by tile_vectors vectors. slab patches are multiplied at once; units are so many bands of tiles, for so many blocks of channels each.",
    inputs=["input", "filter", "bias"],
    attrs=[ints("kernels"), dims("pads"), integer("group"), ints("patch"), ints("pool"), *_TILE, integer("slab"), integer("bands"), integer("blocks")],
    traits=["typed", "units", "epilogue"],
    scratches=["work"],
    strided=["result"],
    rows=["input"],
    kernel={"input": ("f32",)},
    quant="refused",
    backend="cpu",
    no_derivative=_LATE,
)
