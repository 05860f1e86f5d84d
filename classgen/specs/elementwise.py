"""Element-wise operators: one line each."""

import math

from classgen.dsl import (
    ALL,
    BOOL,
    DISCRETE,
    FLOATS,
    HALVES,
    INTS,
    NUMBERS,
    SIGNED,
    Algebra,
    Elementwise,
)

# The arithmetic. Integers wrap; integer division truncates towards zero and by zero gives zero.
# Facts are exact: x + 0.0 is not x where x is -0.0, and x * 0.0 is NaN for some x.
Elementwise("Add", 2, "lhs + rhs", {"float": "sum_{s}(lhs, rhs)", "int": "lhs + rhs", "unsigned": "lhs + rhs"}, "np.add(lhs, rhs)", NUMBERS, derivative=("g", "g"), quant="numbers", onnx="Add", traits=("commutative",), algebra=Algebra(neutral={"float": -0.0, "int": 0}, associative=("int",), affine=(0, 1)))
Elementwise("Sub", 2, "lhs - rhs", {"float": "difference_{s}(lhs, rhs)", "int": "lhs - rhs", "unsigned": "lhs - rhs"}, "np.subtract(lhs, rhs)", NUMBERS, derivative=("g", "neg(g)"), quant="numbers", onnx="Sub", algebra=Algebra(neutral={"float": 0.0, "int": 0}, affine=(0, -1)))
Elementwise("Mul", 2, "lhs * rhs", {"float": "times_{s}(lhs, rhs)", "int": "lhs * rhs", "unsigned": "lhs * rhs"}, "np.multiply(lhs, rhs)", NUMBERS, derivative=("mul(g, rhs)", "mul(g, lhs)"), quant="numbers", onnx="Mul", traits=("commutative",), algebra=Algebra(neutral={"float": 1.0, "int": 1}, absorbing={"int": 0}, associative=("int",), affine=(1, 0)))
Elementwise("Div", 2, "lhs / rhs; integers truncate, and give 0 where rhs is 0", {"float": "quotient_{s}(lhs, rhs)", "int": "rhs == 0 ? 0 : rhs == -1 ? -lhs : lhs / rhs", "unsigned": "rhs == 0 ? 0 : lhs / rhs"}, "numeric.divide(lhs, rhs)", NUMBERS, derivative=("div(g, rhs)", "neg(div(mul(g, y), rhs))"), quant="numbers", onnx="Div", algebra=Algebra(neutral={"float": 1.0, "int": 1}, affine=(-1, 0)))
Elementwise("Pow", 2, "lhs to the power of rhs, as IEEE 754's pow", {"float": "math_pow_{s}(lhs, rhs)"}, "numeric.power(lhs, rhs)", FLOATS, derivative=("select(eq(rhs, 0), 0, mul(g, mul(rhs, pow(lhs, sub(rhs, 1)))))", "mul(g, mul(y, log(select(eq(lhs, 0), 1, lhs))))"), algebra=Algebra(neutral={"float": 1.0}))
Elementwise("Max", 2, "The larger of both; NaN if one is NaN", {"float": "greater_{s}(rhs, lhs) || is_nan_{s}(rhs) ? rhs : lhs", "int": "lhs > rhs ? lhs : rhs", "unsigned": "lhs > rhs ? lhs : rhs"}, "np.maximum(lhs, rhs)", NUMBERS, derivative=("select(le(rhs, lhs), g, 0)", "select(lt(lhs, rhs), g, 0)"), traits=("commutative",), quant="same", algebra=Algebra(neutral={"float": -math.inf, "int": -math.inf}, absorbing={"int": math.inf}, associative=("int",), idempotent=True))
Elementwise("Min", 2, "The smaller of both; NaN if one is NaN", {"float": "less_{s}(rhs, lhs) || is_nan_{s}(rhs) ? rhs : lhs", "int": "lhs < rhs ? lhs : rhs", "unsigned": "lhs < rhs ? lhs : rhs"}, "np.minimum(lhs, rhs)", NUMBERS, derivative=("select(le(lhs, rhs), g, 0)", "select(lt(rhs, lhs), g, 0)"), traits=("commutative",), quant="same", algebra=Algebra(neutral={"float": math.inf, "int": math.inf}, absorbing={"int": -math.inf}, associative=("int",), idempotent=True))

Elementwise("Neg", 1, "-input", "-input", "np.negative(input)", FLOATS + SIGNED, derivative=("neg(g)",), quant="numbers", onnx="Neg", algebra=Algebra(involution=True))
Elementwise("Abs", 1, "The absolute value", {"float": "math_abs_{s}(input)", "int": "input < 0 ? -input : input", "unsigned": "input"}, "np.abs(input)", NUMBERS, derivative=("mul(g, sign(input))",), quant="numbers", onnx="Abs", algebra=Algebra(idempotent=True))
Elementwise("Sign", 1, "-1, 0 or 1; NaN of NaN", {"float": "input > 0 ? 1 : input < 0 ? -1 : input", "int": "(input > 0) - (input < 0)", "unsigned": "input > 0"}, "np.sign(input)", NUMBERS, derivative=("0",), quant="numbers", onnx="Sign", algebra=Algebra(idempotent=True))
Elementwise("Floor", 1, "Rounded down", {"float": "math_floor_{s}(input)"}, "np.floor(input)", FLOATS, derivative=("0",), quant="numbers", onnx="Floor", algebra=Algebra(idempotent=True))
Elementwise("Ceil", 1, "Rounded up", {"float": "math_ceil_{s}(input)"}, "np.ceil(input)", FLOATS, derivative=("0",), quant="numbers", onnx="Ceil", algebra=Algebra(idempotent=True))
Elementwise("Round", 1, "Rounded to the nearest integer, halves to even", {"float": "math_round_{s}(input)"}, "np.rint(input)", FLOATS, derivative=("0",), quant="numbers", onnx="Round", algebra=Algebra(idempotent=True))
Elementwise("Sqrt", 1, "The square root", {"float": "math_sqrt_{s}(input)"}, "np.sqrt(input)", FLOATS, derivative=("div(g, add(y, y))",), quant="numbers", onnx="Sqrt")
Elementwise("Reciprocal", 1, "1 / input", {"float": "1 / input"}, "np.reciprocal(input)", FLOATS, derivative=("neg(mul(g, mul(y, y)))",), quant="numbers", onnx="Reciprocal")
Elementwise("Exp", 1, "e to the power of input", {"float": "math_exp_{s}(input)"}, "np.exp(input)", FLOATS, derivative=("mul(g, y)",), quant="numbers", onnx="Exp")
Elementwise("Log", 1, "The natural logarithm", {"float": "math_log_{s}(input)"}, "np.log(input)", FLOATS, derivative=("div(g, input)",), quant="numbers", onnx="Log")
Elementwise("Tanh", 1, "The hyperbolic tangent", {"float": "math_tanh_{s}(input)"}, "np.tanh(input)", FLOATS, derivative=("sub(g, mul(g, mul(y, y)))",), quant="numbers", onnx="Tanh", algebra=Algebra(bounds=(-1.0, 1.0)))
Elementwise("Sigmoid", 1, "1 / (1 + exp(-input))", {"float": "math_sigmoid_{s}(input)"}, "numeric.sigmoid(input)", FLOATS, derivative=("mul(g, sub(y, mul(y, y)))",), quant="numbers", onnx="Sigmoid", algebra=Algebra(bounds=(0.0, 1.0)))
Elementwise("Softplus", 1, "log(1 + exp(input)), which does not overflow", {"float": "math_softplus_{s}(input)"}, "numeric.softplus(input)", FLOATS, derivative=("mul(g, sigmoid(input))",), quant="numbers", onnx="Softplus")
Elementwise("Erf", 1, "The error function", {"float": "math_erf_{s}(input)"}, "numeric.erf(input)", FLOATS, derivative=("mul(g, mul(1.1283791670955126, exp(neg(mul(input, input)))))",), quant="numbers", onnx="Erf", algebra=Algebra(bounds=(-1.0, 1.0)))
Elementwise("Sin", 1, "The sine of radians", {"float": "math_sin_{s}(input)"}, "np.sin(input)", FLOATS, derivative=("mul(g, cos(input))",), quant="numbers", onnx="Sin", algebra=Algebra(bounds=(-1.0, 1.0)))
Elementwise("Cos", 1, "The cosine of radians", {"float": "math_cos_{s}(input)"}, "np.cos(input)", FLOATS, derivative=("neg(mul(g, sin(input)))",), quant="numbers", onnx="Cos", algebra=Algebra(bounds=(-1.0, 1.0)))
Elementwise("Tan", 1, "The tangent of radians", {"float": "math_tan_{s}(input)"}, "np.tan(input)", FLOATS, derivative=("add(g, mul(g, mul(y, y)))",), quant="numbers", onnx="Tan")
Elementwise("Asin", 1, "The angle in radians whose sine is input", {"float": "math_asin_{s}(input)"}, "np.arcsin(input)", FLOATS, derivative=("div(g, sqrt(sub(1, mul(input, input))))",), quant="numbers", onnx="Asin")
Elementwise("Acos", 1, "The angle in radians whose cosine is input", {"float": "math_acos_{s}(input)"}, "np.arccos(input)", FLOATS, derivative=("neg(div(g, sqrt(sub(1, mul(input, input)))))",), quant="numbers", onnx="Acos")
Elementwise("Atan", 1, "The angle in radians whose tangent is input", {"float": "math_atan_{s}(input)"}, "np.arctan(input)", FLOATS, derivative=("div(g, add(1, mul(input, input)))",), quant="numbers", onnx="Atan")
Elementwise("Sinh", 1, "The hyperbolic sine", {"float": "math_sinh_{s}(input)"}, "np.sinh(input)", FLOATS, derivative=("mul(g, cosh(input))",), quant="numbers", onnx="Sinh")
Elementwise("Cosh", 1, "The hyperbolic cosine", {"float": "math_cosh_{s}(input)"}, "np.cosh(input)", FLOATS, derivative=("mul(g, sinh(input))",), quant="numbers", onnx="Cosh")
Elementwise("Asinh", 1, "The number whose hyperbolic sine is input", {"float": "math_asinh_{s}(input)"}, "np.arcsinh(input)", FLOATS, derivative=("div(g, sqrt(add(mul(input, input), 1)))",), quant="numbers", onnx="Asinh")
Elementwise("Acosh", 1, "The number whose hyperbolic cosine is input", {"float": "math_acosh_{s}(input)"}, "np.arccosh(input)", FLOATS, derivative=("div(g, sqrt(sub(mul(input, input), 1)))",), quant="numbers", onnx="Acosh")
Elementwise("Atanh", 1, "The number whose hyperbolic tangent is input", {"float": "math_atanh_{s}(input)"}, "np.arctanh(input)", FLOATS, derivative=("div(g, sub(1, mul(input, input)))",), quant="numbers", onnx="Atanh")

# Comparison and logic. Greater-than swaps the operands.
Elementwise("Eq", 2, "lhs == rhs", "lhs == rhs", "np.equal(lhs, rhs)", ALL, no_derivative=DISCRETE, onnx="Equal", traits=("commutative", "bool_result"))
Elementwise("Lt", 2, "lhs < rhs", "lhs < rhs", "np.less(lhs, rhs)", NUMBERS, no_derivative=DISCRETE, onnx="Less", traits=("bool_result",))
Elementwise("Le", 2, "lhs <= rhs", "lhs <= rhs", "np.less_equal(lhs, rhs)", NUMBERS, no_derivative=DISCRETE, onnx="LessOrEqual", traits=("bool_result",))
Elementwise("IsNan", 1, "Whether input is NaN", {"float": "input != input"}, "np.isnan(input)", FLOATS, no_derivative=DISCRETE, onnx="IsNaN", traits=("bool_result",))
Elementwise("Not", 1, "Logical negation", "!input", "np.logical_not(input)", BOOL, no_derivative=DISCRETE, onnx="Not", algebra=Algebra(involution=True))
Elementwise("And", 2, "Logical and; bitwise for integers", "lhs & rhs", "np.bitwise_and(lhs, rhs)", INTS + BOOL, no_derivative=DISCRETE, onnx="And", traits=("commutative",), algebra=Algebra(neutral={"int": -1, "bool": 1}, absorbing={"int": 0, "bool": 0}, associative=("int", "bool"), idempotent=True))
Elementwise("Or", 2, "Logical or; bitwise for integers", "lhs | rhs", "np.bitwise_or(lhs, rhs)", INTS + BOOL, no_derivative=DISCRETE, onnx="Or", traits=("commutative",), algebra=Algebra(neutral={"int": 0, "bool": 0}, absorbing={"int": -1, "bool": 1}, associative=("int", "bool"), idempotent=True))
Elementwise("Xor", 2, "Logical exclusive or; bitwise for integers", "lhs ^ rhs", "np.bitwise_xor(lhs, rhs)", INTS + BOOL, no_derivative=DISCRETE, onnx="Xor", traits=("commutative",), algebra=Algebra(neutral={"int": 0, "bool": 0}, associative=("int", "bool")))
Elementwise("Select", 3, "lhs where the bool condition holds, else rhs", "condition ? lhs : rhs", "numeric.select(condition, lhs, rhs)", ALL, derivative=("0", "select(condition, g, 0)", "select(condition, 0, g)"), onnx="Where", quant="same", plain=["condition"])

Elementwise("Convert", 1, "The value in another element kind; floats truncate to integers and saturate, NaN gives 0, integers wrap", "", "numeric.convert(input, result.type)", (*ALL, *HALVES), result_kinds=(*ALL, *HALVES), derivative=("convert(g)",), traits=("typed",))
