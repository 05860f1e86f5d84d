"""Convolutions over volumes as sums of convolutions over images."""

from __future__ import annotations

from glowpy.backends.cpu.derived import derived
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.graph.parts import part_along
from glowpy.support.symbolic import ceil_div, static

__all__ = ["bias_alone", "by_planes"]


def bias_alone(f: Function, n: ConvolutionNode) -> NodeValue:
    """Returns the result of a convolution where it meets no input."""
    row = n.type.with_shape((*(1,) * (n.type.rank - 1), n.type.shape[-1]))
    return f.create_broadcast(n.name, n.type, f.create_reshape(n.name, row, n.bias)).result


def by_planes(f: Function, n: ConvolutionNode) -> NodeValue:
    """A 3-D convolution as the sum of 2-D ones, one for each plane of the kernel. Sums become epilogues.

    Where a plane of the kernel would meet the padding, the result's planes stay as they are. So the first is one that
    meets the input everywhere, if there is one.
    """
    met = {plane: _planes_met(n, plane) for plane in range(n.kernels[0])}
    order = sorted(met, key=lambda plane: -len(met[plane]))
    total: NodeValue
    if len(met[order[0]]) == n.type.extents[1]:
        total = _plane_product(f, n, order[0], met[order.pop(0)], n.bias)
    else:
        total = bias_alone(f, n)
    for plane in order:
        if met[plane]:
            nothing = f.create_splat(n.name, n.bias.type, 0.0)
            product = _plane_product(f, n, plane, met[plane], nothing)
            total = _added(f, n, total, product, met[plane])
    return total


def _planes_met(n: ConvolutionNode, plane: int) -> range:
    """The planes of the result for which a plane of the kernel meets the input."""
    ahead = plane * n.dilation[0] - static(n.pads)[0]
    first = ceil_div(max(-ahead, 0), n.strides[0])
    last = ceil_div(max(n.input.type.extents[1] - ahead, 0), n.strides[0])
    return range(first, min(last, n.type.extents[1]))


def _plane_product(
    f: Function, n: ConvolutionNode, plane: int, met: range, bias: Operand
) -> NodeValue:
    """The convolution with one plane of the kernel: all planes of the input that it meets are a batch of images."""
    images, planes = n.type.extents[0], len(met)
    start = met.start * n.strides[0] + plane * n.dilation[0] - n.pads[0]
    area, shape = n.input.type.extents[2:], n.type.extents[2:]
    source = part_along(f, n.name, n.input, 1, start, planes, n.strides[0])
    product = f.create_convolution(
        n.name, f.create_reshape(n.name, n.type.with_shape((images * planes, *area)), source),
        _kernel_plane(f, n, plane), bias, n.kernels[1:], n.strides[1:],
        (*n.pads[1:3], *n.pads[4:]), n.dilation[1:], n.group,
    )  # fmt: skip
    return f.create_reshape(n.name, n.type.with_shape((images, planes, *shape)), product).result


def _added(
    f: Function, n: ConvolutionNode, total: NodeValue, product: NodeValue, met: range
) -> NodeValue:
    """The sum with those planes that are met; the others as they were."""

    def planes(start: int, stop: int) -> NodeValue:
        return part_along(f, n.name, total, 1, start, stop - start)

    parts = [f.create_add(n.name, product, planes(met.start, met.stop)).result]
    if met.start > 0:
        parts.insert(0, planes(0, met.start))
    if met.stop < n.type.extents[1]:
        parts.append(planes(met.stop, n.type.extents[1]))
    return f.create_concat(n.name, parts, 1).result


def _kernel_plane(f: Function, n: ConvolutionNode, plane: int) -> Operand:
    """One plane of the filter of a 3-D convolution, as that of a 2-D one."""
    outputs, _, *taps = n.filter.type.extents
    if n.filter.constant is not None:
        return derived(
            f, n, "plane", n.filter.type.with_shape((outputs, *taps)), n.filter.constant,
            f"plane {plane}", lambda filter: filter[:, plane],
        )  # fmt: skip
    part = part_along(f, n.name, n.filter, 1, plane, 1)
    return f.create_reshape(n.name, n.filter.type.with_shape((outputs, *taps)), part)
