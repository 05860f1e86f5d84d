"""Import of operators on channels in blocks, which onnxruntime writes at the levels `layout` and `all`.

Between ReorderInput and ReorderOutput its tensors are N, C / block, spatial..., block in memory, and are declared as
N, C, spatial... with C filled up to a multiple of the block. Here they are in memory what they are declared as, so
that every other operator among them means what it says; only filters, which are stored in blocks, are put in order.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx

from glowpy.core.tensor import Tensor
from glowpy.importer.kit.moves import (
    channels_first,
    channels_last,
    full,
    reshape,
    slice_axis,
    transpose,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.conv import fused
from glowpy.importer.onnx.contrib.schemas import NCHWC
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError

__all__ = ["channel_block"]

WIDE, NARROW = 16, 8
"""The blocks there are: 16 channels where the writing machine has AVX-512, and on AArch64; 8 on other x86-64."""


def channel_block(graph: onnx.GraphProto) -> int:
    """How many channels are a block in the graph, which does not say so; 0 if there are none.

    What is no multiple of 16 has blocks of 8, and what was filled up further than to a multiple of 8 has blocks of 16.
    Otherwise the block is that of this machine: onnxruntime itself reads such a file as if it had written it.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    channels: dict[str, int] = {}
    if all(node.domain != NCHWC for node in graph.node):
        return 0
    for node in graph.node:
        first, second = (*node.input, "", "")[:2]
        if (node.domain, node.op_type) == (NCHWC, "Conv"):
            outputs, inputs = (*shapes.get(second, ()), WIDE, WIDE)[:2]
            if outputs % WIDE or (inputs > WIDE and inputs % WIDE):
                return NARROW
            channels.update(dict.fromkeys(node.output, outputs))
        elif node.op_type == "ReorderOutput":
            count = next((a.i for a in node.attribute if a.name == "channels"), 0)
            if channels.get(first, 0) - count >= NARROW:
                return WIDE
        elif first in channels and node.op_type != "Concat":
            channels.update(dict.fromkeys(node.output, channels[first]))
    return _own_block()


@cache
def _own_block() -> int:
    """The block that onnxruntime would write on this machine."""
    from glowpy.llvm.machine import host_features, host_triple  # noqa: PLC0415 - heavy

    narrow = host_triple().startswith("x86_64") and "avx512f" not in host_features()
    return NARROW if narrow else WIDE


def _image(n: OnnxNode) -> Value:
    """Input 0 with its channels in front, which `channels_last` may have put last."""
    if n.type(0).rank < 3:
        raise UserError(f"expected an input of rank 3 or more, got {n.type(0)}")
    return channels_first(n, n.value(0)) if n.flag("channels_last") else n.value(0)


@from_onnx("ReorderInput", domain=NCHWC)
def _reorder_input(n: OnnxNode) -> Value:
    """Zeros fill up the channels."""
    value, block = _image(n), n.scope.block
    missing = -value.type.extent(1) % block
    if not missing:
        return value
    pads = [0] * (2 * value.type.rank)
    pads[value.type.rank + 1] = missing
    return n.f.create_pad(n.name, n.operand(value), tuple(pads), 0.0).result


@from_onnx("ReorderOutput", domain=NCHWC)
def _reorder_output(n: OnnxNode) -> Value:
    """The channels without what filled them up."""
    x, count = n.type(0), n.integer("channels", 0)
    if x.rank < 3 or not 1 <= count <= x.extent(1):
        raise UserError(f"attribute 'channels': expected 1 to those of {x}, got {count}")
    value = slice_axis(n, n.value(0), 1, 0, count, 1)
    return channels_last(n, value) if n.flag("channels_last") else value


@from_onnx("Conv", domain=NCHWC)
def _conv(n: OnnxNode) -> Value:
    if _is_normalization(n):
        return fused(n, _normalized(n), 3)
    values = [n.value(0), _filter(n), n.value(2) if n.has(2) else None]
    return fused(n, standard(n, "Conv", values), 3)


def _is_normalization(n: OnnxNode) -> bool:
    """Whether each element is multiplied by a factor of its channel: what onnxruntime makes of a normalisation."""
    channels = n.type(0).extent(1) if n.type(0).rank == 4 else 0
    moves = any(n.integers("pads") or ()) or set(n.integers("strides") or ()) - {1}
    return (
        n.type(1).extents == (channels, 1, 1, 1) and n.integer("group", 1) == channels and not moves
    )


def _normalized(n: OnnxNode) -> Value:
    """The input times its channels' factors, plus their biases."""
    type = n.type(1).with_shape((n.type(0).extent(1),))
    scale = n.operand(reshape(n, n.value(1), type.extents), n.proto.input[1])
    zero, one = (
        n.operand(full(type, 0), f"{n.name}_zero"),
        n.operand(full(type, 1), f"{n.name}_one"),
    )
    bias = n.input(2) if n.has(2) else zero
    x = n.input(0)
    return n.f.create_batch_normalization(n.name, x, scale, bias, zero, one, 1, 0.0).result


def _filter(n: OnnxNode) -> Value:
    """The filter as O, I, spatial...

    It is O / block, I / block, spatial..., I % block, O % block in memory, or O / block, I, spatial..., O % block where
    each channel has a filter of its own or the input has fewer channels than a block, and is not in blocks itself.
    """
    x, w, block = n.type(0), n.type(1), n.scope.block
    if w.rank != 4 or x.rank != 4 or w.extents[0] % block:
        raise UserError(f"expected images and a filter in blocks of {block}, got {x} and {w}")
    outputs, inputs, *spatial = w.extents
    rows = outputs // block
    if inputs == 1 or x.extent(1) < block:
        stored = reshape(n, n.value(1), (rows, inputs, *spatial, block))
        ordered = transpose(n, stored, (0, 4, 1, 2, 3))
    elif inputs % block == 0:
        stored = reshape(n, n.value(1), (rows, inputs // block, *spatial, block, block))
        ordered = transpose(n, stored, (0, 5, 1, 4, 2, 3))
    else:
        raise UserError(f"expected a filter in blocks of {block} channels, got {w}")
    return reshape(n, ordered, w.extents)


@from_onnx("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)
def _pool(n: OnnxNode) -> Value:
    return standard(n, n.proto.op_type, [n.value(0)])


@from_onnx("Upsample", domain=NCHWC)
def _upsample(n: OnnxNode) -> Value:
    """Whole factors; the nearest element is the one before."""
    scales = Tensor.of(np.array(n.integers("scales") or (), np.float32))
    modes = {"nearest_mode": "floor"}
    if n.text("mode", "nearest") == "nearest":
        modes["coordinate_transformation_mode"] = "asymmetric"
    return standard(n, "Resize", [n.value(0), None, scales], **modes)
