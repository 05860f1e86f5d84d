"""Rules of the activation functions: what they are lowered to, and their derivatives.

Lowering follows the definitions of ONNX: a NaN stays one, except in `shrink` and `thresholded_relu`, which give 0;
x * sigmoid(x) and its relatives are NaN at minus infinity, where they multiply infinity by 0. Nothing overflows on the
way to a finite result, and nothing cancels but the differences that are in the definitions, exp(x) - 1 and 1 + erf(x).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from glowpy.autodiff.derivative import derivative
from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    CeluNode,
    ClipNode,
    EluNode,
    GeluNode,
    HardSigmoidNode,
    HardSwishNode,
    LeakyReluNode,
    MishNode,
    PReluNode,
    ReluNode,
    SeluNode,
    ShrinkNode,
    SoftsignNode,
    SwishNode,
    ThresholdedReluNode,
)
from glowpy.graph.verifier import verify
from glowpy.lower import lower
from glowpy.ops.elementwise import scalar
from glowpy.ops.term import Term, term

__all__: list[str] = []

Gradients = list[Operand | None]


@verify(ReluNode, ClipNode, PReluNode)
def _verify_numbers(n: Node) -> Iterator[str]:
    if n.type.kind is ElemKind.BOOL:
        yield f"expected a kind of numbers, got {n.type}"


@verify(
    CeluNode,
    EluNode,
    GeluNode,
    HardSigmoidNode,
    HardSwishNode,
    LeakyReluNode,
    MishNode,
    SeluNode,
    ShrinkNode,
    SoftsignNode,
    SwishNode,
    ThresholdedReluNode,
)
def _verify_floats(n: Node) -> Iterator[str]:
    if not (n.type.kind.is_float or n.type.quant):
        yield f"expected a floating-point kind, got {n.type}"


# Straight lines with a bend.


@lower(ReluNode)
def _lower_relu(f: Function, n: ReluNode) -> Operand:
    return f.create_max(n.name, n.input, scalar(f, f"{n.name}_zero", n.type, 0.0))


@derivative(ReluNode)
def _differentiate_relu(f: Function, n: ReluNode, g: NodeValue) -> Gradients:
    x = Term(f, n.name, n.input)
    return [Term(f, n.name, g).where(x > 0.0, 0.0).value]


@lower(LeakyReluNode)
def _lower_leaky_relu(f: Function, n: LeakyReluNode) -> Operand:
    x = Term(f, n.name, n.input)
    return (x * n.alpha).where(x < 0.0, x).value


@derivative(LeakyReluNode)
def _differentiate_leaky_relu(f: Function, n: LeakyReluNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)
    return [(flow * n.alpha).where(x < 0.0, flow).value]


@lower(PReluNode)
def _lower_prelu(f: Function, n: PReluNode) -> Operand:
    x, slope = Term(f, n.name, n.input), Term(f, n.name, n.slope)
    return (x * slope).where(x < 0.0, x).value


@derivative(PReluNode)
def _differentiate_prelu(f: Function, n: PReluNode, g: NodeValue) -> Gradients:
    x, slope, flow = (Term(f, n.name, value) for value in (n.input, n.slope, g))
    by_input = (flow * slope).where(x < 0.0, flow)
    return [by_input.value, (flow * x).where(x < 0.0, 0.0).value]


@lower(ThresholdedReluNode)
def _lower_thresholded_relu(f: Function, n: ThresholdedReluNode) -> Operand:
    x = Term(f, n.name, n.input)
    return x.where(x > n.alpha, 0.0).value


@derivative(ThresholdedReluNode)
def _differentiate_thresholded_relu(f: Function, n: ThresholdedReluNode, g: NodeValue) -> Gradients:
    x = Term(f, n.name, n.input)
    return [Term(f, n.name, g).where(x > n.alpha, 0.0).value]


@lower(ClipNode)
def _lower_clip(f: Function, n: ClipNode) -> Operand:
    raised = f.create_max(n.name, n.input, scalar(f, f"{n.name}_min", n.type, n.min))
    return f.create_min(n.name, raised, scalar(f, f"{n.name}_max", n.type, n.max))


@derivative(ClipNode)
def _differentiate_clip(f: Function, n: ClipNode, g: NodeValue) -> Gradients:
    """Flows where nothing was cut off."""
    mask = Term(f, n.name, f.create_eq(n.name, n.input, n.result))
    return [Term(f, n.name, g).where(mask, 0.0).value]


@lower(ShrinkNode)
def _lower_shrink(f: Function, n: ShrinkNode) -> Operand:
    x = Term(f, n.name, n.input)
    high = (x - n.bias).where(x > n.lambd, 0.0)
    return (x + n.bias).where(x < -n.lambd, high).value


@derivative(ShrinkNode)
def _differentiate_shrink(f: Function, n: ShrinkNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)
    return [flow.where(x < -n.lambd, flow.where(x > n.lambd, 0.0)).value]


# Exponentials below 0 (Clevert et al. 2015, Klambauer et al. 2017, Barron 2017).


@lower(EluNode)
def _lower_elu(f: Function, n: EluNode) -> Operand:
    x = term(f, n, n.input)
    curve = _exp_less_one(x) * n.alpha
    return curve.where(x < 0.0, x).as_type(n.type)


def _exp_less_one(x: Term) -> Term:
    """exp(x) - 1 for x below 0, as 2 * t / (1 - t) with t = tanh(x / 2), which does not cancel close to 0."""
    t = (x * 0.5).tanh()
    return (t + t) / (1.0 - t)


@derivative(EluNode)
def _differentiate_elu(f: Function, n: EluNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)
    return [(flow * (x.exp() * n.alpha)).where(x < 0.0, flow).value]


@lower(SeluNode)
def _lower_selu(f: Function, n: SeluNode) -> Operand:
    x = term(f, n, n.input)
    curve = _exp_less_one(x) * (n.alpha * n.gamma)
    return curve.where(x < 0.0, x * n.gamma).as_type(n.type)


@derivative(SeluNode)
def _differentiate_selu(f: Function, n: SeluNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g) * n.gamma
    return [(flow * (x.exp() * n.alpha)).where(x < 0.0, flow).value]


@lower(CeluNode)
def _lower_celu(f: Function, n: CeluNode) -> Operand:
    x = term(f, n, n.input)
    curve = _exp_less_one(x / n.alpha) * n.alpha
    return curve.where(x < 0.0, x).as_type(n.type)


@derivative(CeluNode)
def _differentiate_celu(f: Function, n: CeluNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)
    return [(flow * (x / n.alpha).exp()).where(x < 0.0, flow).value]


# Smooth steps and what is gated by them.


@lower(SoftsignNode)
def _lower_softsign(f: Function, n: SoftsignNode) -> Operand:
    x = term(f, n, n.input)
    return (x / (abs(x) + 1.0)).as_type(n.type)


@derivative(SoftsignNode)
def _differentiate_softsign(f: Function, n: SoftsignNode, g: NodeValue) -> Gradients:
    divisor = abs(Term(f, n.name, n.input)) + 1.0
    return [(Term(f, n.name, g) / divisor / divisor).value]


@lower(HardSigmoidNode)
def _lower_hard_sigmoid(f: Function, n: HardSigmoidNode) -> Operand:
    return _line(term(f, n, n.input), n.alpha, n.beta).as_type(n.type)


@derivative(HardSigmoidNode)
def _differentiate_hard_sigmoid(f: Function, n: HardSigmoidNode, g: NodeValue) -> Gradients:
    flow = Term(f, n.name, g) * n.alpha
    return [_where_inside(flow, Term(f, n.name, n.result)).value]


@lower(HardSwishNode)
def _lower_hard_swish(f: Function, n: HardSwishNode) -> Operand:
    """Howard et al. 2019."""
    x = term(f, n, n.input)
    return (x * _line(x, 1 / 6, 0.5)).as_type(n.type)


@derivative(HardSwishNode)
def _differentiate_hard_swish(f: Function, n: HardSwishNode, g: NodeValue) -> Gradients:
    x = Term(f, n.name, n.input)
    line = _line(x, 1 / 6, 0.5)
    return [(Term(f, n.name, g) * (line + _where_inside(x * (1 / 6), line))).value]


def _line(x: Term, alpha: float, beta: float) -> Term:
    """The line alpha * x + beta, limited to [0, 1]."""
    return (x * alpha + beta).max(0.0).min(1.0)


def _where_inside(value: Term, line: Term) -> Term:
    """`value` where the line was not limited, else 0."""
    return value.where(line > 0.0, 0.0).where(line < 1.0, 0.0)


@lower(SwishNode)
def _lower_swish(f: Function, n: SwishNode) -> Operand:
    """Ramachandran et al. 2017."""
    x = term(f, n, n.input)
    return (x * (x * n.alpha).sigmoid()).as_type(n.type)


@derivative(SwishNode)
def _differentiate_swish(f: Function, n: SwishNode, g: NodeValue) -> Gradients:
    x = Term(f, n.name, n.input)
    gate = (x * n.alpha).sigmoid()
    return [(Term(f, n.name, g) * (gate + x * n.alpha * gate * (1.0 - gate))).value]


@lower(MishNode)
def _lower_mish(f: Function, n: MishNode) -> Operand:
    """Computes Mish (Misra 2019)."""
    x = term(f, n, n.input)
    return (x * _tanh_softplus(x)).as_type(n.type)


@derivative(MishNode)
def _differentiate_mish(f: Function, n: MishNode, g: NodeValue) -> Gradients:
    x = Term(f, n.name, n.input)
    gate = _tanh_softplus(x)
    return [(Term(f, n.name, g) * (gate + x * x.sigmoid() * (1.0 - gate * gate))).value]


def _tanh_softplus(x: Term) -> Term:
    """tanh(log(1 + e)) = w / (w + 2) where e = exp(x) and w = (1 + e) ** 2 - 1 = e * (e + 2), which does not cancel.

    It is 1 in every kind where x is 40, and w does not overflow in f32.
    """
    power = x.min(40.0).exp()
    w = power * (power + 2.0)
    return w / (w + 2.0)


_GELU_CUBE = 0.044715
_GELU_SLOPE = math.sqrt(8 / math.pi)


@lower(GeluNode)
def _lower_gelu(f: Function, n: GeluNode) -> Operand:
    """Hendrycks and Gimpel 2016. ONNX writes (1 + tanh(z)) / 2 for sigmoid(2 * z), which does not cancel."""
    x = term(f, n, n.input)
    return (x * (_gelu_gate(x) if n.approximate else _normal(x))).as_type(n.type)


@derivative(GeluNode)
def _differentiate_gelu(f: Function, n: GeluNode, g: NodeValue) -> Gradients:
    x, flow = Term(f, n.name, n.input), Term(f, n.name, g)
    if n.approximate:
        gate = _gelu_gate(x)
        slope = (x * x * (3 * _GELU_CUBE) + 1.0) * _GELU_SLOPE
        return [(flow * (gate + x * slope * gate * (1.0 - gate))).value]
    bell = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return [(flow * (_normal(x) + x * bell)).value]


def _gelu_gate(x: Term) -> Term:
    return (x * (x * x * (_GELU_CUBE * _GELU_SLOPE) + _GELU_SLOPE)).sigmoid()


def _normal(x: Term) -> Term:
    """The normal distribution's probability of a value below x."""
    return ((x * math.sqrt(0.5)).erf() + 1.0) * 0.5
