"""Indexed access."""

from classgen.dsl import INDICES, WIDTHS, Op, integer

Op(
    "Gather",
    "Slices of input along dimension `axis`, picked by indices: negative ones count from the end, others are clamped into the range.",
    inputs=["input", "indices"],
    attrs=[integer("axis")],
    traits=["codes"],
    kernel={"input": WIDTHS, "indices": INDICES},
    no_derivative="there is no operator yet that adds up elements by index",
    quant="same",
    plain=["indices"],
)
Op(
    "DynamicSlice",
    "result[i] = input[start + i * step] along dimension `axis`, with a computed i64 `start`, which is clamped into the range, and so is every place.",
    inputs=["input", "start"],
    attrs=[integer("axis"), integer("step")],
    traits=["typed", "codes"],
    kernel={"input": WIDTHS},
    mixed={width: {"start": "i64"} for width in WIDTHS},
    no_derivative="there is no operator yet that adds up elements by index",
)
