"""Import of activation functions; those without attributes are named in the specs."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcast_shapes
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("LeakyRelu")
def _leaky_relu(n: OnnxNode) -> NodeValue:
    return n.f.create_leaky_relu(n.name, n.input(0), n.real("alpha", 0.01)).result


@from_onnx("Clip")
def _clip_1(n: OnnxNode) -> NodeValue:
    """From opset 6 on, a bound that is left out is the outermost f32, which makes infinities finite."""
    outermost = float("inf") if n.opset < 6 else float(np.finfo(np.float32).max)
    low, high = n.real("min", -outermost), n.real("max", outermost)
    return n.f.create_clip(n.name, n.input(0), low, high).result


@from_onnx("Clip", since=11)
def _clip_11(n: OnnxNode) -> Value:
    """One clip if both bounds are known floats; integers keep all their bits in bounds that are operands."""
    result = n.value(0)
    for index in (1, 2):
        n.settle(index)
        if n.has(index) and n.type(index).count != 1:
            raise UserError(f"expected a scalar as input {index}, got {n.type(index)}")
    is_constant = all(not n.has(i) or isinstance(n.value(i), Tensor) for i in (1, 2))
    if is_constant and result.type.kind.is_float and (n.has(1) or n.has(2)):
        low = float(n.known_scalar(1)) if n.has(1) else float("-inf")
        high = float(n.known_scalar(2)) if n.has(2) else float("inf")
        return n.f.create_clip(n.name, n.input(0), low, high).result
    if n.has(1):
        bound = n.operand(reshape(n, n.value(1), ()), n.proto.input[1])
        result = n.f.create_max(n.name, n.operand(result, n.proto.input[0]), bound).result
    if n.has(2):
        bound = n.operand(reshape(n, n.value(2), ()), n.proto.input[2])
        result = n.f.create_min(n.name, n.operand(result, n.proto.input[0]), bound).result
    return result


@from_onnx("PRelu")
def _prelu(n: OnnxNode) -> NodeValue:
    """Below opset 7 the slope is one for each channel, or one for all; later it broadcasts to the input."""
    x, slope = n.input(0), n.value(1)
    if n.opset < 7 and slope.type.rank == 1 and slope.type.count > 1:
        slope = reshape(n, slope, (*slope.type.shape, *(1,) * (x.type.rank - 2)))
    if broadcast_shapes(x.type.shape, slope.type.shape) != x.type.shape:
        raise UserError(f"expected a slope that broadcasts to {x.type}, got {slope.type}")
    return n.f.create_prelu(n.name, x, n.operand(slope, n.proto.input[1])).result


@from_onnx("ThresholdedRelu", since=10)
def _thresholded_relu(n: OnnxNode) -> NodeValue:
    return n.f.create_thresholded_relu(n.name, n.input(0), n.real("alpha", 1.0)).result


@from_onnx("Shrink", since=9)
def _shrink(n: OnnxNode) -> Value:
    """Integers in f64."""
    kind = n.type(0).kind
    wide = convert(n, n.value(0), kind if kind.is_float else ElemKind.F64)
    operand = n.operand(wide, n.proto.input[0])
    result = n.f.create_shrink(n.name, operand, n.real("lambd", 0.5), n.real("bias", 0.0))
    return convert(n, result.result, kind)


@from_onnx("Elu")
def _elu(n: OnnxNode) -> NodeValue:
    return n.f.create_elu(n.name, n.input(0), n.real("alpha", 1.0)).result


@from_onnx("Selu")
def _selu(n: OnnxNode) -> NodeValue:
    """The defaults are those of opset 6; opset 1 had rounded ones."""
    alpha, gamma = (1.6732, 1.0507) if n.opset < 6 else (1.6732632, 1.050701)
    values = n.real("alpha", alpha), n.real("gamma", gamma)
    return n.f.create_selu(n.name, n.input(0), *values).result


@from_onnx("Celu", since=12)
def _celu(n: OnnxNode) -> NodeValue:
    return n.f.create_celu(n.name, n.input(0), n.real("alpha", 1.0)).result


@from_onnx("HardSigmoid")
def _hard_sigmoid(n: OnnxNode) -> NodeValue:
    values = n.real("alpha", 0.2), n.real("beta", 0.5)
    return n.f.create_hard_sigmoid(n.name, n.input(0), *values).result


@from_onnx("Swish", since=24)
def _swish(n: OnnxNode) -> NodeValue:
    return n.f.create_swish(n.name, n.input(0), n.real("alpha", 1.0)).result


@from_onnx("Gelu", since=20)
def _gelu(n: OnnxNode) -> NodeValue:
    form = n.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise UserError(f"attribute 'approximate': expected none or tanh, got '{form}'")
    return n.f.create_gelu(n.name, n.input(0), approximate=form == "tanh").result
