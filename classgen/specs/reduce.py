"""Reductions: the reduced dimensions stay, with length 1."""

from classgen.dsl import FLOATS, NodeOnly, Op, ints

_KINDS = (*FLOATS, "i8", "i32", "i64", "u8", "u32", "u64")

Op("ReduceAdd", "The sum over `axes`.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS})
Op("ReduceMul", "The product over `axes`.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS})
Op("ReduceMax", "The maximum over `axes`; NaN if one is NaN.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, quant="same")
Op("ReduceMin", "The minimum over `axes`; NaN if one is NaN.", inputs=["input"], attrs=[ints("axes")], traits=["axes"], kernel={"input": _KINDS}, quant="same")
NodeOnly("ReduceMean", "The mean over `axes`.", inputs=["input"], attrs=[ints("axes")], traits=["axes"])
