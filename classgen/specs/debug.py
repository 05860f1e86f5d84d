"""Looking at values while a network runs."""

from classgen.dsl import DISCRETE, Op, integer

Op(
    "QuantizationProfile",
    "Statistics from which a range for input can be chosen, without its NaNs and infinities. A histogram of `bins` i64 counts: bin i counts the elements from (first + i) * 2**exponent on, below the next bin. The f32 `range`: the smallest and the largest element, or infinity and minus infinity if there is none. The i64 `grid`: exponent, first, how many NaNs, how many infinities. The exponent is the smallest from -126 on with which the bins hold these elements and zero.",
    inputs=["input"],
    results=["result", "range", "grid"],
    attrs=[integer("bins")],
    kernel={"input": ("f32",), "result": ("i64",), "grid": ("i64",)},
    no_derivative=DISCRETE,
)
