"""Import of activations: those with a bias or a gate, and those that onnxruntime appends to products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glowpy.core.shape import is_same_shape
from glowpy.graph.node import Node, NodeValue
from glowpy.importer.kit.moves import slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError

__all__ = ["activated"]


def _last(n: OnnxNode, index: int) -> NodeValue:
    """Input `index`, which must be a vector with an element for each of the last dimension of input 0."""
    x, bias = n.type(0), n.type(index)
    if x.rank < 1 or not is_same_shape(bias.shape, x.shape[-1:]):
        raise UserError(f"expected a vector for the last dimension of {x}, got {bias}")
    return n.input(index)


def _biased(n: OnnxNode) -> NodeValue:
    """Input 0 plus the vector in input 1, if that is given."""
    return n.f.create_add(n.name, n.input(0), _last(n, 1)).result if n.has(1) else n.input(0)


@from_onnx("Gelu", "BiasGelu", domain=CONTRIB)
def _gelu(n: OnnxNode) -> NodeValue:
    return n.f.create_gelu(n.name, _biased(n), approximate=False).result


@from_onnx("FastGelu", domain=CONTRIB)
def _fast_gelu(n: OnnxNode) -> NodeValue:
    return n.f.create_gelu(n.name, _biased(n), approximate=True).result


@from_onnx("QuickGelu", domain=CONTRIB)
def _quick_gelu(n: OnnxNode) -> NodeValue:
    return n.f.create_swish(n.name, n.input(0), n.real("alpha", 1.702)).result


@from_onnx("BiasSplitGelu", domain=CONTRIB)
def _bias_split_gelu(n: OnnxNode) -> NodeValue:
    """The first half of the channels times Gelu of the second."""
    x = _biased(n)
    axis, width = x.type.rank - 1, x.type.extent(-1)
    if width % 2:
        raise UserError(f"expected an even number of channels, got {x.type}")
    halves = (slice_axis(n, x, axis, start, width // 2, 1) for start in (0, width // 2))
    value, gate = (n.operand(half) for half in halves)
    return n.f.create_mul(n.name, value, n.f.create_gelu(n.name, gate, approximate=False)).result


@from_onnx("BiasAdd", domain=CONTRIB)
def _bias_add(n: OnnxNode) -> NodeValue:
    if n.type(2) != n.type(0):
        raise UserError(f"expected a skip input like {n.type(0)}, got {n.type(2)}")
    return n.f.create_add(n.name, _biased(n), n.input(2)).result


Builder = Callable[[OnnxNode, NodeValue, Sequence[float]], Node]

_ACTIVATIONS: dict[str, tuple[Builder, int]] = {
    "Relu": (lambda n, x, _: n.f.create_relu(n.name, x), 0),
    "Tanh": (lambda n, x, _: n.f.create_tanh(n.name, x), 0),
    "Sigmoid": (lambda n, x, _: n.f.create_sigmoid(n.name, x), 0),
    "Softplus": (lambda n, x, _: n.f.create_softplus(n.name, x), 0),
    "Softsign": (lambda n, x, _: n.f.create_softsign(n.name, x), 0),
    "HardSwish": (lambda n, x, _: n.f.create_hard_swish(n.name, x), 0),
    "LeakyRelu": (lambda n, x, p: n.f.create_leaky_relu(n.name, x, *p), 1),
    "ThresholdedRelu": (lambda n, x, p: n.f.create_thresholded_relu(n.name, x, *p), 1),
    "Elu": (lambda n, x, p: n.f.create_elu(n.name, x, *p), 1),
    "Celu": (lambda n, x, p: n.f.create_celu(n.name, x, *p), 1),
    "Selu": (lambda n, x, p: n.f.create_selu(n.name, x, *p), 2),
    "HardSigmoid": (lambda n, x, p: n.f.create_hard_sigmoid(n.name, x, *p), 2),
    "Clip": (lambda n, x, p: n.f.create_clip(n.name, x, *p), 2),
}
"""Activations that may follow a product, and the number of their parameters."""


def activated(n: OnnxNode, value: Value, parameters: Sequence[float]) -> Value:
    """The value after what the attribute `activation` names, if it names something."""
    name = n.text("activation", "")
    if not name:
        return value
    if name not in _ACTIVATIONS:
        raise n.unsupported(f"activation '{name}'")
    build, count = _ACTIVATIONS[name]
    if len(parameters) != count:
        raise UserError(f"expected {count} parameters of {name}, got {len(parameters)}")
    return build(n, n.operand(value), parameters).result
