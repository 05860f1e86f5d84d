"""Channels come second in ONNX, and last in our nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from glowpy.core.channel_axis import permuted
from glowpy.core.shape import permute
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.exporter.onnx.operator import OnnxOperatorNode
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import (
    AvgPoolNode,
    BatchNormalizationNode,
    ConvolutionNode,
    DequantizeNode,
    FilterGradientNode,
    LocalResponseNormalizationNode,
    MaxPoolNode,
    MaxPoolWithArgmaxNode,
    SplatNode,
    TransposedConvolutionNode,
    TransposeNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.lower import lower
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim, depends_on_symbols, static
from glowpy.support.text import Attr

__all__ = ["ChannelsFirstPass", "padded_window"]


@dataclass(frozen=True)
class ChannelsFirstPass(RewritePass):
    """Writes convolutions, pools and normalizations as ONNX operators on N, C, spatial..., with transposes around them.

    Before:
        %x : f32[1x6x6x3]
        %out : f32[1x6x6x3]
        %a = local_response_normalization(%x) {size=3, alpha=0.5, beta=0.75, k=1.0} : f32[1x6x6x3]
        save(%a, %out)
    After:
        %x : f32[1x6x6x3]
        %out : f32[1x6x6x3]
        %x_1 = transpose(%x) {shuffle=[0,3,1,2]} : f32[1x3x6x6]
        %a = onnx_operator(%x_1) {alpha=0.5, beta=0.75, bias=1.0, op_type="LRN", size=3} : f32[1x3x6x6]
        %a_2 = transpose(%a) {shuffle=[0,2,3,1]} : f32[1x6x6x3]
        save(%a_2, %out)
    """

    name: ClassVar[str] = "channels-first"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def weights(self, f: Function, n: TransposeNode, why: Why) -> Replacement:
        """Weights are transposed now, stored integers too."""
        source = n.input.node.input if isinstance(n.input.node, DequantizeNode) else n.input
        if source.constant is None:
            return why.no("its input is computed")
        return _moved(f, n.input, n.shuffle)

    @rule
    def convolution(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """`Conv`; a bias of zeros is left out."""
        del why
        bias = [] if _is_zero(n.bias) else [n.bias]
        input, pads = _known_pads(f, n, 0.0)
        inputs = [_first(f, input), _first(f, n.filter), *bias]
        return _operator(f, n, "Conv", inputs, {**_window(n), "pads": pads, "group": n.group})

    @rule
    def transposed_convolution(
        self, f: Function, n: TransposedConvolutionNode, why: Why
    ) -> Replacement:
        """`ConvTranspose`, whose filter is I, O / group, spatial..., and which is told what is cut off the ends."""
        if min(n.begins) < 0:
            return why.no("its result begins before the first element")
        group, outputs, inputs = n.group, n.filter.type.extents[0], n.filter.type.extents[-1]
        parts = (group, outputs // group, math.prod(n.kernels), inputs)
        swapped = _moved(f, _reshaped(f, n.filter, parts), (0, 3, 1, 2))
        filter = _reshaped(f, swapped, (group * inputs, outputs // group, *n.kernels))
        ends, extra = [], []
        for axis, begin in enumerate(n.begins):
            reach = (n.kernels[axis] - 1) * n.dilation[axis] + 1
            size = n.strides[axis] * (n.input.type.shape[1 + axis] - 1) + reach
            cut = size - begin - n.type.shape[1 + axis]
            if depends_on_symbols(cut):
                return why.no(_OPEN_PADS)
            (margin,) = static([cut])
            ends.append(max(margin, 0))
            extra.append(max(-margin, 0))
        attributes: dict[str, Attr] = {
            "kernel_shape": n.kernels, "strides": n.strides, "dilations": n.dilation,
            "pads": (*n.begins, *ends), "output_padding": tuple(extra), "group": group,
        }  # fmt: skip
        bias = [] if _is_zero(n.bias) else [n.bias]
        return _operator(f, n, "ConvTranspose", [_first(f, n.input), filter, *bias], attributes)

    @rule
    def filter_gradient(self, f: Function, n: FilterGradientNode, why: Why) -> Replacement:
        """Products over the pixels: a `Conv` adds nothing up over images."""
        del why
        sums = lower[FilterGradientNode](f, n)
        assert not isinstance(sums, tuple)
        return value_of(sums)

    @rule
    def max_pool(self, f: Function, n: MaxPoolNode, why: Why) -> Replacement:
        """`MaxPool`."""
        if depends_on_symbols(n.pads) and (n.ceil or not n.type.kind.is_float):
            return why.no(_OPEN_PADS)
        input, pads = _known_pads(f, n, -math.inf)
        window = padded_window(n) if input is n.input else {**_window(n), "pads": pads}
        return _operator(f, n, "MaxPool", [_first(f, input)], window)

    @rule
    def avg_pool(self, f: Function, n: AvgPoolNode, why: Why) -> Replacement:
        """`AveragePool`, or `GlobalAveragePool` of what is one window.

        onnxruntime makes one of integers of a pool between conversions, which knows no dilation, and then refuses the
        file: a `Clip` without limits keeps a dilated pool apart.
        """
        if depends_on_symbols(n.pads) and (n.ceil or not n.count_include_pads):
            return why.no(_OPEN_PADS)
        if depends_on_symbols(n.pads):
            input, pads = _known_pads(f, n, 0.0)
            return _operator(f, n, "AveragePool", [_first(f, input)], {**_window(n), "pads": pads})
        is_global = n.kernels == n.input.type.shape[1:-1] and not any(n.pads)
        if is_global and math.prod(n.type.shape[1:-1]) == 1:
            return _operator(f, n, "GlobalAveragePool", [_first(f, n.input)], {})
        attributes = padded_window(n)
        if n.count_include_pads and attributes["pads"] != n.pads:
            if any(rest > 0 for rest in _rests(n)):
                return why.no("ONNX rounds the shape up along all dimensions or none")
            attributes = {**_window(n), "ceil_mode": 1}
        attributes["count_include_pad"] = int(n.count_include_pads)
        data, source = _first(f, n.input), n.input.node
        while isinstance(source, TransposeNode):
            source = source.input.node
        if isinstance(source, DequantizeNode) and any(step > 1 for step in n.dilation):
            data = _create(f, n, "Clip", [data], {}, data.type).result
        return _operator(f, n, "AveragePool", [data], attributes)

    @rule
    def local_response(
        self, f: Function, n: LocalResponseNormalizationNode, why: Why
    ) -> Replacement:
        """`LRN`."""
        del why
        attributes = {"size": n.size, "alpha": n.alpha, "beta": n.beta, "bias": n.k}
        return _operator(f, n, "LRN", [_first(f, n.input)], attributes)

    @rule
    def batch_normalization(self, f: Function, n: BatchNormalizationNode, why: Why) -> Replacement:
        """`BatchNormalization`, whose channels are dimension 1, of at least two."""
        del why
        rank, axis, input = n.type.rank, n.axis, n.input
        if rank == 1:
            input = _reshaped(f, input, (1, *n.type.shape))
            rank, axis = 2, 1
        order = [place for place in range(rank) if place != axis]
        shuffle = (order[0], axis, *order[1:])
        data = _moved(f, input, shuffle)
        inputs = [data, n.scale, n.bias, n.mean, n.variance]
        node = _create(f, n, "BatchNormalization", inputs, {"epsilon": n.epsilon}, data.type)
        back = tuple(int(place) for place in np.argsort(shuffle))
        return _reshaped(f, _moved(f, node.result, back), n.type.shape)


_Pool: TypeAlias = AvgPoolNode | MaxPoolNode | MaxPoolWithArgmaxNode


def _window(n: ConvolutionNode | _Pool) -> dict[str, Attr]:
    return {
        "kernel_shape": n.kernels, "strides": n.strides, "pads": n.pads, "dilations": n.dilation,
    }  # fmt: skip


_OPEN_PADS = "its pads depend on symbolic dimensions"


def _known_pads(
    f: Function, n: ConvolutionNode | MaxPoolNode | AvgPoolNode, fill: float
) -> tuple[NodeValue, tuple[int, ...]]:
    """The input and its pads; those that are symbolic, which an attribute cannot be, are put around it before."""
    if not depends_on_symbols(n.pads):
        return n.input, static(n.pads)
    rank = len(n.kernels)
    pads = (0, *n.pads[:rank], 0, 0, *n.pads[rank:], 0)
    return f.create_pad(f"{n.name}_padded", n.input, pads, fill).result, (0,) * (2 * rank)


def _rests(n: _Pool) -> list[Dim]:
    """How many elements, pads included, follow the last window along each dimension; below 0 if it ends outside."""
    rests, rank = [], len(n.kernels)
    for axis, size in enumerate(n.input.type.shape[1:-1]):
        reach = (n.kernels[axis] - 1) * n.dilation[axis] + 1
        length = size + n.pads[axis] + n.pads[rank + axis] - reach
        rests.append(length - (n.type.shape[1 + axis] - 1) * n.strides[axis])
    return rests


def padded_window(n: _Pool) -> dict[str, Attr]:
    """The window with as many pads as it needs, which neither win nor count.

    `ceil_mode` would do so, but ONNX's own shape inference then counts windows that begin after the image. It is left
    to images of symbolic sizes.
    """
    if not n.ceil:
        return _window(n)
    rank, rests = len(n.kernels), _rests(n)
    if depends_on_symbols(tuple(rests)):
        return {**_window(n), "ceil_mode": 1}
    ends = (pad + max(-rest, 0) for pad, rest in zip(n.pads[rank:], rests, strict=True))
    return {**_window(n), "pads": (*n.pads[:rank], *ends)}


def _first(f: Function, value: NodeValue) -> NodeValue:
    """N, spatial..., C as N, C, spatial..."""
    rank = value.type.rank
    return _moved(f, value, (0, rank - 1, *range(1, rank - 1)))


def _moved(f: Function, value: NodeValue, shuffle: Sequence[int]) -> NodeValue:
    """Dimension i of the result is dimension shuffle[i] of `value`; weights and stored integers are moved at once."""
    if tuple(shuffle) == tuple(range(value.type.rank)):
        return value
    if isinstance(value.node, DequantizeNode):
        type = Type(value.type.kind, permute(value.type.shape, shuffle))
        inner = _moved(f, value.node.input, shuffle)
        return f.create_dequantize(value.name, type, inner).result
    constant = value.constant
    if constant is None:
        type = permuted(value.type, shuffle)
        return f.create_transpose(value.name, value, tuple(shuffle), result_type=type).result
    order, type = tuple(shuffle), permuted(value.type, shuffle)
    tensor = Tensor.derived(
        type, f"transpose {order}", [constant.tensor], lambda array: array.transpose(order)
    )
    return f.module.create_constant(constant.name, tensor, loc=constant.loc).value


def _reshaped(f: Function, value: NodeValue, shape: Shape) -> NodeValue:
    """The same elements in another shape; of floats."""
    type = Type(value.type.kind, shape)
    if type == value.type:
        return value
    constant = value.constant
    if constant is None:
        return f.create_reshape(value.name, type, value).result
    tensor = Tensor.derived(
        type, "reshape", [constant.tensor], lambda array: array.reshape(type.shape)
    )
    return f.module.create_constant(constant.name, tensor, loc=constant.loc).value


def _operator(
    f: Function, n: Node, op_type: str, inputs: Sequence[Operand], attributes: Mapping[str, Attr]
) -> Node:
    """The operator on channels that come second, and its result with channels last."""
    rank = n.type.rank
    order = (0, rank - 1, *range(1, rank - 1))
    node = _create(f, n, op_type, inputs, attributes, permuted(n.type, order))
    last = (0, *range(2, rank), 1)
    return f.create_transpose(n.name, node, last, result_type=n.type)


def _create(
    f: Function, n: Node, op_type: str, inputs: Sequence[Operand],
    attributes: Mapping[str, Attr], type: Type,
) -> Node:  # fmt: skip
    return f.create(OnnxOperatorNode, n.name, inputs, {"op_type": op_type, **attributes}, type)


def _is_zero(value: NodeValue) -> bool:
    if isinstance(value.node, SplatNode):
        return value.node.value == 0 and value.type.quant is None
    constant = value.constant
    return constant is not None and constant.tensor.splat_value == 0 and value.type.quant is None
