"""The operators of this package, of which classgen writes the classes."""

from classgen.dsl import Op, flag

Op(
    "SeriesRecord",
    "The largest element so far along the last dimension, from the end if it is reversed. A NaN stays.",
    inputs=["input"],
    attrs=[flag("reverse")],
    kernel={"input": ("f32", "f64", "i32", "i64")},
    backend="series",
    no_derivative="not written",
)
