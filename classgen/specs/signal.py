"""Transforms of signals."""

from classgen.dsl import FLOATS, Op, flag

Op(
    "FourierTransform",
    "The discrete Fourier transform along the dimension before the last: of pairs of a real and an imaginary part, or of real parts alone. "
    "As many rows are read as `roots` has, which are the pairs of exp(-2 pi i k / rows); those that there are not are zero. If `half`, "
    "the result has only the first rows / 2 + 1. If `inverse`, it is that of the inverse transform; if `half` as well, input has only "
    "those rows, the others are their conjugates, and the result has the real parts.",
    inputs=["input", "roots"],
    attrs=[flag("inverse"), flag("half")],
    scratches=["work"],
    kernel={"input": FLOATS},
)
