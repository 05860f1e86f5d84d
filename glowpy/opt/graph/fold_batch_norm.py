"""Normalisation, scaling and shifting of channels, done by the weights of the layer before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from glowpy.core.tensor import Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    AddNode,
    BatchNormalizationNode,
    ConvolutionNode,
    DivNode,
    FullyConnectedNode,
    MulNode,
    SubNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.opt.known import known
from glowpy.passes import RewritePass

__all__ = ["FoldBatchNormPass"]

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """channel -> channel * scale + shift, in double precision."""

    scale: F64
    shift: F64


@dataclass(frozen=True)
class FoldBatchNormPass(RewritePass):
    """Folds what is affine in each channel into the constant weights of the layer before it.

    The layer is a convolution, a fully connected layer or a batch normalization, and has no other
    user. Behind it stand a batch normalization, or an addition, subtraction, multiplication or
    division by a constant for each channel (ONNX models have both, one behind the other). The new
    weights are computed in double precision and rounded once.

    Before:
        %x : f32[1x2x2x1]
        %w : f32[2x1x1x1] = [1.0, 2.0]
        %b : f32[2] = [0.5, 0.0]
        %scale : f32[2] = splat 3.0
        %bias : f32[2] = splat 1.0
        %mean : f32[2] = splat 0.5
        %variance : f32[2] = splat 4.0
        %out : f32[1x2x2x2]
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x2x2]
        %n = batch_normalization(%c, %scale, %bias, %mean, %variance)
            {axis=3, epsilon=0.0} : f32[1x2x2x2]
        save(%n, %out)
    After:
        %x : f32[1x2x2x1]
        %w : f32[2x1x1x1] = [1.0, 2.0]
        %b : f32[2] = [0.5, 0.0]
        %scale : f32[2] = splat 3.0
        %bias : f32[2] = splat 1.0
        %mean : f32[2] = splat 0.5
        %variance : f32[2] = splat 4.0
        %out : f32[1x2x2x2]
        %w_1 : f32[2x1x1x1] = [1.5, 3.0]
        %b_1 : f32[2] = [1.0, 0.25]
        %n = convolution(%x, %w_1, %b_1)
            {dilation=[1,1], group=1, kernels=[1,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x2x2x2]
        save(%n, %out)
    """

    name: ClassVar[str] = "fold-batch-norm"

    @rule_where(lambda schema: bool(schema.inputs and schema.results))
    def fold(self, f: Function, node: Node, why: Why) -> Replacement:
        """The layer with the weights of both."""
        layer = node.inputs[0].node
        if not isinstance(layer, _LAYERS):
            return None
        if isinstance(layer, BatchNormalizationNode) and layer.axis != layer.type.rank - 1:
            return None
        if node.type != layer.type or not node.type.kind.is_float:
            return None
        with np.errstate(all="ignore"):
            affine = _affine(node)
            if affine is None:
                return None
            if layer.result.num_users > 1:
                return why.no(f"%{layer.name} has other users")
            if not (np.isfinite(affine.scale).all() and np.isfinite(affine.shift).all()):
                return why.no("scale or shift is not finite")
            return _folded(f, node.name, layer, affine, why)


_LAYERS = (ConvolutionNode, FullyConnectedNode, BatchNormalizationNode)


def _affine(node: Node) -> Affine | None:
    """What `node` does to each channel of its first input, if that is affine with known numbers."""
    channels = node.type.shape[-1] if node.type.rank else 1
    if isinstance(node, BatchNormalizationNode):
        vectors = [known(value) for value in node.inputs[1:]]
        if node.axis != node.type.rank - 1 or any(vector is None for vector in vectors):
            return None
        scale, bias, mean, variance = (np.asarray(v, np.float64) for v in vectors)
        scale = scale / np.sqrt(variance + node.epsilon)
        return Affine(scale, bias - mean * scale)
    if len(node.inputs) != 2:
        return None
    vector = _per_channel(node.inputs[1], channels)
    if vector is None:
        return None
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    match node:
        case AddNode():
            return Affine(one, vector)
        case SubNode():
            return Affine(one, -vector)
        case MulNode():
            return Affine(vector, zero)
        case DivNode():
            return Affine(1 / vector, zero)
        case _:
            return None


def _per_channel(value: NodeValue, channels: int) -> F64 | None:
    """One number for each channel, if `value` is known and differs by channel at most."""
    elements, shape = known(value), value.type.shape
    if elements is None or any(size != 1 for size in shape[:-1]):
        return None
    if shape and shape[-1] not in (1, channels):
        return None
    return np.broadcast_to(elements.reshape(-1).astype(np.float64), (channels,))


def _folded(f: Function, name: str, layer: Node, affine: Affine, why: Why) -> Replacement:
    """The layer with new weights, all computed before any constant is made."""
    weights = {index: known(layer.inputs[index]) for index in (1, 2)}
    if weights[1] is None or weights[2] is None:
        return why.no(f"the weights of %{layer.name} are not constant")
    main, bias = weights[1].astype(np.float64), weights[2].astype(np.float64)
    by_row = isinstance(layer, ConvolutionNode)
    scale = affine.scale.reshape(-1, *(1,) * (main.ndim - 1)) if by_row else affine.scale
    arrays = {1: main * scale, 2: bias * affine.scale + affine.shift}
    tensors = {
        index: Tensor(layer.inputs[index].type, array.astype(layer.inputs[index].type.kind.dtype))
        for index, array in arrays.items()
    }
    if not all(np.isfinite(t.array.astype(np.float64)).all() for t in tensors.values()):
        return why.no("a folded weight is not finite")
    inputs = list(layer.inputs)
    for index, tensor in tensors.items():
        stem = layer.inputs[index].producer.name
        inputs[index] = f.module.create_constant(stem, tensor, loc=layer.loc).value
    return f.create(type(layer), name, inputs, layer.attrs, layer.type)
