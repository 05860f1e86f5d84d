"""Normalisation, scaling and shifting of channels, done by the weights of the layer before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from glowpy.core.algebra import Channels
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import BatchNormalizationNode
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.opt.known import is_known, known, known_tensor
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
    user. After it comes a batch normalization, or an addition, subtraction, multiplication or
    division by a constant for each channel (ONNX models have both, one after the other). The new
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

    @rule
    def fold_normalization(self, f: Function, n: BatchNormalizationNode, why: Why) -> Replacement:
        """Folds a normalization along channels into the layer before it."""
        layer = _layer(n)
        if layer is None:
            return None
        vectors = [known(value) for value in n.inputs[1:]]
        if n.axis != n.type.rank - 1 or any(vector is None for vector in vectors):
            return None
        scale, bias, mean, variance = (np.asarray(v, np.float64) for v in vectors)
        with np.errstate(all="ignore"):
            scale = scale / np.sqrt(variance + n.epsilon)
            return layer.folded(f, n, Affine(scale, bias - mean * scale), why)

    @rule_where(lambda schema: schema.algebra.affine is not None)
    def fold_arithmetic(self, f: Function, n: Node, why: Why) -> Replacement:
        """Folds an operation with a constant for each channel into the layer before it."""
        layer, affine = _layer(n), n.SCHEMA.algebra.affine
        if layer is None or affine is None:
            return None
        channels = n.type.shape[-1] if n.type.rank else 1
        vector = _per_channel(n.inputs[1], channels) if isinstance(channels, int) else None
        if vector is None:
            return None
        power, sign = affine
        with np.errstate(all="ignore"):
            return layer.folded(f, n, Affine(vector**power, sign * vector), why)


@dataclass(frozen=True)
class _Layer:
    """A node whose weights make the channels of its result, along the last dimension."""

    node: Node
    channels: Channels

    def folded(self, f: Function, n: Node, affine: Affine, why: Why) -> Replacement:
        """The layer with new weights, all computed before any constant is made, in place of `n` after it."""
        layer, channels = self.node, self.channels
        if layer.result.num_users > 1:
            return why.no(f"%{layer.name} has other users")
        if not (np.isfinite(affine.scale).all() and np.isfinite(affine.shift).all()):
            return why.no("scale or shift is not finite")
        main, bias = (layer.SCHEMA.inputs.index(name) for name in (channels.weights, channels.bias))
        weights, shifts = (known_tensor(layer.inputs[index]) for index in (main, bias))
        if weights is None or shifts is None:
            return why.no(f"the weights of %{layer.name} are not constant")
        others = [axis for axis in range(weights.type.rank) if axis != channels.axis]
        tensors = {
            main: _scaled(weights, np.expand_dims(affine.scale, others)),
            bias: _scaled(shifts, affine.scale, affine.shift),
        }
        if not all(np.isfinite(t.array).all() for t in tensors.values()):
            return why.no("a folded weight is not finite")
        inputs = list(layer.inputs)
        for index, tensor in tensors.items():
            stem = layer.inputs[index].producer.name
            inputs[index] = f.module.create_constant(stem, tensor, loc=layer.loc).value
        return f.create(type(layer), n.name, inputs, layer.attrs, layer.type)


def _scaled(tensor: Tensor, *affine: F64) -> Tensor:
    """The tensor times a scale, and plus a shift if there is one, computed in f64."""
    dtype = tensor.type.kind.dtype

    def compute(array: Array, scale: F64, *shift: F64) -> Array:
        with np.errstate(all="ignore"):
            if shift:
                return (array.astype(np.float64) * scale + shift[0]).astype(dtype)
            product = np.empty_like(array)  # whose strides are alike, so that memory is passed once
            return np.multiply(array, scale, out=product, dtype=np.float64, casting="unsafe")

    inputs = [tensor, *(Tensor.of(vector) for vector in affine)]
    return Tensor.derived(tensor.type, "affine", inputs, compute)


def _layer(n: Node) -> _Layer | None:
    """Returns the layer that computes the first input of `n`, if the channels that `n` changes come from weights."""
    node = n.inputs[0].node
    if node is None or not n.type.kind.is_float or n.type != node.type:
        return None
    channels = node.SCHEMA.channels
    if channels is None or not channels.are_last(node.attrs, node.type.rank):
        return None
    return _Layer(node, channels)


def _per_channel(value: NodeValue, channels: int) -> F64 | None:
    """One number for each channel, if `value` is known and differs by channel at most."""
    if not is_known(value) or any(size != 1 for size in value.type.shape[:-1]):
        return None
    elements = known(value)
    assert elements is not None
    return np.broadcast_to(elements.reshape(-1).astype(np.float64), (channels,))
