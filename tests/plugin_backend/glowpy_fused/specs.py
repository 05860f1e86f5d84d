"""What only this backend knows. `python -m classgen --package glowpy_fused` writes the classes and prototypes."""

from classgen.dsl import InstOnly, Op, real

Op(
    "FusedScaledSoftmax",
    "Softmax of input times scale, over the last dimension.",
    inputs=["input"],
    attrs=[real("scale")],
    kernel={"input": ("f32",)},
    backend="fused",
    no_derivative="gradients are taken before the backend brings it in",
)
InstOnly(
    "HardSwish",
    "input times its hard sigmoid. The node is one that every backend knows, and that others lower.",
    results=["result"],
    inputs=["input"],
    kernel={"input": ("f32",)},
    backend="fused",
)
