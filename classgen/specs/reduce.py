"""Reductions, where the reduced dimensions stay with length 1, and running sums."""

from classgen.dsl import DISCRETE, FLOATS, NUMBERS, NodeOnly, Op, flag, integer, ints

_KINDS = (*FLOATS, "i8", "i16", "i32", "i64", "u8", "u32", "u64")

Op("ReduceAdd", "The sum over `axes`, which stay as dimensions of 1.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, quant="numbers", strided=["result", "input"])
Op("ReduceMul", "The product over `axes`, which stay as dimensions of 1.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, strided=["result", "input"])
Op("ReduceMax", "The maximum over `axes`, which stay as dimensions of 1; NaN if one is NaN.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, quant="same", strided=["result", "input"])
Op("ReduceMin", "The minimum over `axes`, which stay as dimensions of 1; NaN if one is NaN.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, quant="same", strided=["result", "input"])
NodeOnly("ReduceMean", "The mean over `axes`, which stay as dimensions of 1; integers are summed in 64 bits, and the mean is truncated towards zero.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], quant="numbers")

_INDEX = {"input": NUMBERS, "result": ("i64",)}
Op("ArgMax", "The i64 index of the largest element along dimension `axis`: of equal ones the first, or the `last`; NaN is larger than all numbers.", inputs=["input"], attrs=[integer("axis"), flag("last")], traits=["axes"], kernel=_INDEX, quant="same", plain=["result"], no_derivative=DISCRETE)
Op("ArgMin", "The i64 index of the smallest element along dimension `axis`: of equal ones the first, or the `last`; NaN is smaller than all numbers.", inputs=["input"], attrs=[integer("axis"), flag("last")], traits=["axes"], kernel=_INDEX, quant="same", plain=["result"], no_derivative=DISCRETE)
Op(
    "CumSum",
    "The sums of all elements up to each position along dimension `axis`: from the end if `reverse`, without the element itself if `exclusive`.",
    inputs=["input"],
    attrs=[integer("axis"), flag("exclusive"), flag("reverse")],
    traits=["axes", "inplace"],
    kernel={"input": NUMBERS},
)
Op(
    "CumProd",
    "The products of all elements up to each position along dimension `axis`: from the end if `reverse`, without the element itself if `exclusive`.",
    inputs=["input"],
    attrs=[integer("axis"), flag("exclusive"), flag("reverse")],
    traits=["axes", "inplace"],
    kernel={"input": NUMBERS},
)
