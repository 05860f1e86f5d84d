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
