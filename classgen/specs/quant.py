"""Quantization: from numbers to stored integers and back."""

from classgen.dsl import CODES, Elementwise, NodeOnly, Op, integer

_STORED = ("i8", "u8", "i16", "u16", "i32")
_NO_DERIVATIVE = "a stored integer moves in steps"

NodeOnly(
    "Quantize",
    "The stored integers nearest to the floats of input: input / scale, rounded to the nearest integer, halves to even, plus the offset, limited to the kind.",
    inputs=["input"],
    traits=["elementwise", "typed"],
    quant="rule",
    no_derivative=_NO_DERIVATIVE,
)
NodeOnly(
    "Dequantize",
    "The floats that stored integers stand for: (input - offset) * scale.",
    inputs=["input"],
    traits=["elementwise", "typed"],
    quant="rule",
    no_derivative=_NO_DERIVATIVE,
)
NodeOnly(
    "Rescale",
    "The same numbers in another quantized type: input - offset times the ratio of both scales, rounded, plus the other offset, limited to the kind.",
    inputs=["input"],
    traits=["elementwise", "typed"],
    quant="rule",
    no_derivative=_NO_DERIVATIVE,
)

NodeOnly(
    "DynamicQuantize",
    "The integers of u8 nearest to the floats of input, for the range that these have, widened to hold 0; and the scale and the zero point with which they "
    "stand for them. As ONNX's DynamicQuantizeLinear.",
    inputs=["input"],
    results=["result", "scale", "zero"],
    no_derivative=_NO_DERIVATIVE,
)
NodeOnly(
    "DequantizeBlocks",
    "The floats that stored integers stand for, (input - zero) * scale, with a scale and a zero for each `block` neighbours along `axis`. "
    "Integers and zeros are numbers of `bits` bits, 4 or 8.",
    inputs=["input", "scale", "zero"],
    attrs=[integer("axis"), integer("block"), integer("bits")],
    no_derivative=_NO_DERIVATIVE,
)
NodeOnly(
    "RoundBlocks",
    "input, with a scale for each `block` neighbours of the last dimension, their largest magnitude / 127: times the reciprocal of its scale, rounded to the "
    "nearest integer, halves to even, times the scale. Blocks with a scale below 2^-126 are zeros.",
    inputs=["input"],
    attrs=[integer("block")],
    no_derivative=_NO_DERIVATIVE,
)

Elementwise("SubtractOffset", 2, "How many steps the stored integer lhs lies above the offset rhs, as a float", "float_of_i32((int32_t)((uint32_t)lhs - (uint32_t)rhs))", "numeric.subtract_offset(lhs, rhs)", _STORED, result_kinds=("f32",), no_derivative=_NO_DERIVATIVE, traits=("typed",), quant="rule", plain=["rhs"])
Elementwise("Saturate", 2, "The nearest integer to lhs, halves to even, plus the offset rhs, limited to the result's kind; NaN gives the lowest", {"float": "saturate_{r}(lhs, rhs)", "int": "limit_{r}(lhs, rhs)"}, "numeric.saturate(lhs, rhs, result.type)", ("f32", "i32"), result_kinds=_STORED, no_derivative=_NO_DERIVATIVE, traits=("typed",), quant="rule")
Elementwise("ScaleRounded", 2, "The integer nearest to lhs * rhs, halves to even, where the bits of rhs are a float: lhs, and the product, are rounded to f32 before. It is at most 2^22 on either side, and -2^22 if the product is NaN", "scale_rounded(lhs, rhs)", "numeric.scale_rounded(lhs, rhs)", ("i32",), no_derivative=_NO_DERIVATIVE)
Elementwise("StorageCast", 1, "The same stored integers, which stand for other numbers, or for themselves", "input", "np.copy(input)", _STORED, no_derivative=_NO_DERIVATIVE, traits=("typed",), quant="rule")
Elementwise("UncontractedMul", 2, "The uncontracted product lhs * rhs: it is rounded by itself, and never fused with an addition, as Mul may be", "product_f32(lhs, rhs)", "np.multiply(lhs, rhs)", ("f32",), no_derivative=_NO_DERIVATIVE, traits=("commutative",))
Elementwise("UncontractedAdd", 2, "The uncontracted sum lhs + rhs: it is rounded by itself, and never fused with a product, as Add may be", "plus_f32(lhs, rhs)", "np.add(lhs, rhs)", ("f32",), no_derivative=_NO_DERIVATIVE, traits=("commutative",))
Elementwise("HighByte", 1, "The upper half of an integer of 16 bits, input / 256 rounded down; the lower half is what converting it to u8 gives", "input >> 8", "np.right_shift(input, 8)", ("i16",), result_kinds=("i8",), no_derivative=_NO_DERIVATIVE, traits=("typed",))

Elementwise("Encode", 1, "The code nearest to a float, ties to even; beyond the range infinity, NaN, or the largest, whichever there is. In f8e8m0 ties go up, and what is not between the first and the last is NaN", "{r}_of_f32(input)", "numeric.encode(input, result.type)", ("f32",), result_kinds=CODES, no_derivative=_NO_DERIVATIVE, traits=("typed", "codes"))
Elementwise("Decode", 1, "The float that a code stands for", "f32_of_{s}(input)", "numeric.decode(input)", CODES, result_kinds=("f32",), no_derivative=_NO_DERIVATIVE, traits=("typed", "codes"))

Op(
    "LookupTable",
    "The element of a table of 256 for each stored integer of 8 bits: the first is for the lowest integer.",
    inputs=["input", "table"],
    traits=["typed"],
    kernel={"result": ("i8", "u8", "i32", "f32"), "input": ("i8", "u8")},
    quant="rule",
    no_derivative=_NO_DERIVATIVE,
)
