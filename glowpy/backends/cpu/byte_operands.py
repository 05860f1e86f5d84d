"""Operands of products of 8-bit integers: convolutions in the plane of images, and weights in i8 in other layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.graph.parts import part_along

__all__ = ["Images", "Weights", "images_of", "in_i8", "plane_shape", "signed_offsets", "taps_of"]

_HALF_RANGE = 128


@dataclass(frozen=True)
class Images:
    """A convolution in the plane: its input, its lists of height and width, and the shape of its result."""

    input: NodeValue
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Shape
    dilation: tuple[int, ...]
    group: int
    shape: Shape

    @property
    def offset(self) -> int:
        """The stored integer outside the images."""
        return parameters(self.input.type).offsets[0]


@dataclass(frozen=True)
class Weights:
    """Constant weights, computed from some tensors: O x KH x KW x I, or [..., K, N], in i8."""

    shape: tuple[int, ...]
    text: str
    sources: Sequence[Tensor]
    stored: Callable[..., Array]

    def constant(
        self,
        f: Function,
        n: Node,
        part: str,
        shape: tuple[int, ...],
        change: Callable[[Array], Array | Iterable[Array]],
        kind: ElemKind = ElemKind.I8,
    ) -> Operand:
        """The weights in another layout, or integers made of them."""
        tensor = Tensor.derived(
            Type(kind, shape), f"{part} {self.text}", self.sources,
            lambda *arrays: change(self.stored(*arrays)),
        )  # fmt: skip
        return f.module.create_constant(f"{n.name}_{part}", tensor, loc=n.loc)


def signed_offsets(type: Type) -> Array:
    """The offsets of weights once they are in i8: one, or one for each channel."""
    offsets = np.array(parameters(type).offsets, np.int64)
    return offsets - _HALF_RANGE if type.kind is ElemKind.U8 else offsets


def in_i8(array: Array) -> Array:
    """Stored integers in i8; an offset that goes with them is 128 less where they were in u8."""
    if array.dtype == np.int8:
        return array
    return (array.astype(np.int16) - _HALF_RANGE).astype(np.int8)


def plane_shape(filter: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `taps_of`."""
    outputs, *taps, depth = filter
    if len(taps) == 3:
        return (outputs, *taps[1:], taps[0] * depth)
    return (outputs, *(1,) * (2 - len(taps)), *taps, depth)


def taps_of(filter: Array) -> Array:
    """A filter in i8 and in the plane: the planes of one for volumes are channels."""
    stored = in_i8(filter)
    if stored.ndim == 5:
        stored = stored.transpose(0, 2, 3, 1, 4)
    return stored.reshape(plane_shape(filter.shape))


def images_of(f: Function, n: ConvolutionNode, input: NodeValue) -> Images:
    """A convolution of 1 to 3 dimensions in the plane."""
    rank = len(n.kernels)
    if rank == 3:
        return _volumes(f, n, input)
    images, *area, channels = input.type.shape
    more = (1,) * (2 - rank)
    if rank == 1:
        flat = input.type.with_shape((images, 1, *area, channels))
        input = f.create_reshape(n.name, flat, input).result
    pads = n.pads if rank == 2 else (0, n.pads[0], 0, n.pads[1])
    return Images(
        input, (*more, *n.kernels), (*more, *n.strides), pads, (*more, *n.dilation), n.group,
        (images, *more, *n.type.shape[1:]),
    )  # fmt: skip


def _volumes(f: Function, n: ConvolutionNode, input: NodeValue) -> Images:
    """Volumes as images whose channels are those of all planes that the kernel sees at a time."""
    pads = (0, n.pads[0], 0, 0, 0, 0, n.pads[3], 0, 0, 0)
    padded = f.create_pad(n.name, input, pads, 0.0).result if has_pads(pads) else input
    images, _, *area, channels = input.type.shape
    planes, depth = n.type.shape[1], channels // n.group
    parts = []
    for plane in range(n.kernels[0]):
        seen = part_along(f, n.name, padded, 1, plane * n.dilation[0], planes, n.strides[0])
        groups = input.type.with_shape((images * planes, *area, n.group, depth))
        parts.append(f.create_reshape(n.name, groups, seen).result)
    joined = f.create_concat(n.name, parts, 4) if len(parts) > 1 else parts[0]
    flat = input.type.with_shape((images * planes, *area, n.kernels[0] * channels))
    return Images(
        f.create_reshape(n.name, flat, joined).result, n.kernels[1:], n.strides[1:],
        (*n.pads[1:3], *n.pads[4:]), n.dilation[1:], n.group, (images * planes, *n.type.shape[2:]),
    )  # fmt: skip
