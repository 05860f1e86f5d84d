"""Recurrent cells, as ONNX defines them: loops over steps.

What follows from the input of all steps is one matrix product before the cell: its sums, biases among them, are the operand
`gates`. The activation functions are numbers in ONNX's order: Relu, Tanh, Sigmoid, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh,
HardSigmoid, Elu, Softsign, Softplus; `coefficients` has alpha and beta of each.
"""

from classgen.dsl import Op, flag, ints, real

_STEPS = (
    "gates are [T, B, gates x H], recurrence is a matrix [H, H] for each gate. Sequence b has `lengths[b]` steps, or all if lengths are empty; from "
    "there on results are zeros, and the state stays. If `reverse`, its steps are taken from the last to the first. What a gate computes is limited to [-limit, limit] before its activation."
)
_CELL = [ints("functions"), real("limit"), flag("reverse")]

Op(
    "Lstm",
    "Long short-term memory, with gates input, output, forget, cell. The three peepholes, of input, output and forget, may be missing; if `coupled`, the forget gate is 1 - the input gate. " + _STEPS,
    inputs=["gates", "recurrence", "peepholes", "lengths", "initial_h", "initial_c", "coefficients"],
    results=["result", "last_h", "last_c"],
    attrs=[*_CELL, flag("coupled")],
    plain=["lengths"],
)
Op(
    "Gru",
    "A gated recurrent unit, with gates update, reset, hidden. The state is reset before the product with the hidden gate's matrix or, if `reset_after`, after it and after `bias`, which is else empty. " + _STEPS,
    inputs=["gates", "recurrence", "bias", "lengths", "initial_h", "coefficients"],
    results=["result", "last_h"],
    attrs=[*_CELL, flag("reset_after")],
    plain=["lengths"],
)
Op(
    "Rnn",
    "A recurrent layer with one gate: the state is the activation of a step's sums. " + _STEPS,
    inputs=["gates", "recurrence", "lengths", "initial_h", "coefficients"],
    results=["result", "last_h"],
    attrs=_CELL,
    plain=["lengths"],
)
