"""Activation functions: each is one node until it is lowered, so that a backend or a quantizer may keep it."""

from classgen.dsl import Algebra, NodeOnly, flag, real

NodeOnly("Relu", "max(input, 0)", inputs=["input"], traits=["elementwise"], quant="numbers", onnx="Relu")
NodeOnly("LeakyRelu", "input where it is at least 0, else alpha * input", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], quant="numbers")
NodeOnly("PRelu", "input where it is at least 0, else slope * input; the slope broadcasts", inputs=["input", "slope"], traits=["elementwise"], quant="numbers")
NodeOnly("ThresholdedRelu", "input where it is above alpha, else 0", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], quant="numbers")
NodeOnly("Clip", "input limited to [min, max]", inputs=["input"], attrs=[real("min"), real("max")], traits=["elementwise"], quant="numbers")
NodeOnly("Shrink", "input + bias below -lambd, input - bias above lambd, else 0", inputs=["input"], attrs=[real("lambd"), real("bias")], traits=["elementwise"], quant="numbers")

NodeOnly("Elu", "input where it is at least 0, else alpha * (exp(input) - 1)", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], quant="numbers")
NodeOnly("Selu", "gamma * elu(input, alpha)", inputs=["input"], attrs=[real("alpha"), real("gamma")], traits=["elementwise"], quant="numbers")
NodeOnly("Celu", "input where it is at least 0, else alpha * (exp(input / alpha) - 1)", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], quant="numbers")
NodeOnly("Softsign", "input / (1 + |input|)", inputs=["input"], traits=["elementwise"], quant="numbers", onnx="Softsign", algebra=Algebra(bounds=(-1.0, 1.0)))

NodeOnly("HardSigmoid", "alpha * input + beta, limited to [0, 1]", inputs=["input"], attrs=[real("alpha"), real("beta")], traits=["elementwise"], quant="numbers", algebra=Algebra(bounds=(0.0, 1.0)))
NodeOnly("HardSwish", "input * hard_sigmoid(input, 1 / 6, 1 / 2)", inputs=["input"], traits=["elementwise"], quant="numbers", onnx="HardSwish", onnx_since=14)
NodeOnly("Swish", "input * sigmoid(alpha * input)", inputs=["input"], attrs=[real("alpha")], traits=["elementwise"], quant="numbers")
NodeOnly("Mish", "input * tanh(softplus(input))", inputs=["input"], traits=["elementwise"], quant="numbers", onnx="Mish", onnx_since=18)
NodeOnly(
    "Gelu",
    "input times the normal distribution's probability of a value below it: (1 + erf(input / sqrt(2))) / 2 or, if `approximate`, "
    "sigmoid(sqrt(8 / pi) * (input + 0.044715 * input ** 3))",
    inputs=["input"],
    attrs=[flag("approximate")],
    traits=["elementwise"], quant="numbers",
)
