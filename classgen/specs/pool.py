"""Pooling over windows. Activations are N, spatial..., C. pads are the begins, then the ends; `ceil` rounds the result's shape up."""

from classgen.dsl import FLOATS, HALVES, Op, dims, flag, ints

_WINDOW = [ints("kernels"), ints("strides"), dims("pads"), ints("dilation"), flag("ceil")]

Op("MaxPool", "The largest element of each window; pads never win.", inputs=["input"], attrs=_WINDOW, traits=["units"], kernel={"input": (*FLOATS, *HALVES, "i8", "u8", "i16")}, quant="same", strided=["result", "input"])
Op(
    "MaxPoolWithArgmax",
    "The largest element of each window and where it is: the i64 index of the first one in the input as if that were N, C, spatial.",
    inputs=["input"],
    results=["result", "argmax"],
    attrs=_WINDOW,
    traits=["units"],
    kernel={"input": (*FLOATS, "i8", "u8"), "argmax": ("i64",)},
    quant="same",
    plain=["argmax"],
)
Op(
    "AvgPool",
    "The mean of each window. The divisor counts the pads iff count_include_pads, but never what `ceil` added after them.",
    inputs=["input"],
    attrs=[*_WINDOW, flag("count_include_pads")],
    traits=["units"],
    kernel={"input": FLOATS},
    quant="numbers",
    strided=["result", "input"],
)
Op(
    "SumPool",
    "The sum of each window's stored integers, as i32, which wraps; pads add nothing.",
    inputs=["input"],
    attrs=_WINDOW,
    traits=["units"],
    kernel={"result": ("i32",), "input": ("i8", "u8", "i16", "u16")},
    quant="rule",
    plain=["result"],
    strided=["result", "input"],
    no_derivative="a stored integer moves in steps",
)
