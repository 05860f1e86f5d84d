"""Indexed access."""

from classgen.dsl import INDICES, NUMBERS, WIDTHS, Op, integer

_PLACES = "negative ones count from the end, others are clamped into the range"

Op(
    "Gather",
    f"Slices of input along dimension `axis`, picked by indices: {_PLACES}.",
    inputs=["input", "indices"],
    attrs=[integer("axis")],
    traits=["codes"],
    kernel={"input": WIDTHS, "indices": INDICES},
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
)


_SCATTERED = f"A matrix with other rows, whose i64 indices are given: {_PLACES}."


def _scatter(name: str, what: str, kinds: tuple[str, ...], *, traits: tuple[str, ...] = ()) -> None:
    Op(
        name,
        f"{_SCATTERED} {what}",
        inputs=["input", "indices", "updates"],
        traits=traits,
        kernel={"input": kinds},
        mixed={kind: {"indices": "i64"} for kind in kinds},
    )


_scatter("Scatter", "The last update of a row is what it becomes.", WIDTHS, traits=("codes",))
_scatter("ScatterAdd", "Updates are added to the rows, in order.", NUMBERS)
_scatter("ScatterMul", "Rows are multiplied by the updates, in order.", NUMBERS)
_scatter("ScatterMax", "A row becomes the larger of itself and its updates; NaN if one is NaN.", NUMBERS)
_scatter("ScatterMin", "A row becomes the smaller of itself and its updates; NaN if one is NaN.", NUMBERS)
