"""Matrix products, and determinants."""

from classgen.dsl import FLOATS, NodeOnly, Op

Op(
    "MatMul",
    "The matrix product of the last two dimensions, as numpy's matmul: ranks of at least 2, leading dimensions broadcast.",
    inputs=["lhs", "rhs"],
    quant="numbers",
    kernel={"lhs": ("i32", "i64", "u32", "u64")},
)
NodeOnly(
    "FullyConnected",
    "input * weights + bias: input is [N, K], weights [K, M], bias [M].",
    inputs=["input", "weights", "bias"],
    quant="numbers",
    channels=("weights", 1, "bias"),
)
Op(
    "Determinant",
    "The determinants of the square matrices in the last two dimensions; that of one without elements is 1.",
    inputs=["input"],
    scratches=["work"],
    kernel={"input": FLOATS},
)
