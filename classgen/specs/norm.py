"""Normalisation."""

from classgen.dsl import Algebra, NodeOnly, Op, flag, integer, ints, real

NodeOnly(
    "BatchNormalization",
    "(input - mean) / sqrt(variance + epsilon) * scale + bias; the four are vectors along dimension `axis`.",
    inputs=["input", "scale", "bias", "mean", "variance"],
    attrs=[integer("axis"), real("epsilon")],
    traits=["axes"],
    channels=("scale", 0, "bias", "axis"),
    quant="numbers",
    plain=["scale", "bias", "mean", "variance"],
)
NodeOnly(
    "LayerNormalization",
    "(input - mean) / sqrt(variance + epsilon) * scale + bias, where mean and variance are those over `axes`; if not `centred`, input / "
    "sqrt(mean of squares + epsilon) * scale + bias. Scale and bias broadcast.",
    inputs=["input", "scale", "bias"],
    attrs=[ints("axes"), real("epsilon"), flag("centred")],
    traits=["axes"],
    quant="numbers",
    plain=["scale", "bias"],
    no_derivative="gradients are taken before it is found among simpler nodes",
)
Op(
    "LocalResponseNormalization",
    "input / (k + alpha / size * sum of squares over `size` channels around) ** beta; channels are the last dimension.",
    inputs=["input"],
    attrs=[integer("size"), real("alpha"), real("beta"), real("k")],
    traits=[],
    kernel={"input": ("f32", "f64")},
)
Op("Softmax", "exp(input - max) / sum of the same, along dimension `axis`.", inputs=["input"], attrs=[integer("axis")], traits=["inplace", "axes"], kernel={"input": ("f32", "f64")}, quant="numbers", strided=["result", "input"], algebra=Algebra(bounds=(0.0, 1.0)))
Op("LogSoftmax", "The logarithm of softmax along dimension `axis`.", inputs=["input"], attrs=[integer("axis")], traits=["inplace", "axes"], kernel={"input": ("f32", "f64")}, strided=["result", "input"])
