"""Import of random numbers: they follow from the seed or, without one, from the name of the node.

Every run draws the same numbers, on every backend: bits are Philox's, and what is made of them is arithmetic that all
backends round alike, but for the logarithm and the cosine in what is normally distributed.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Shape, Type
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.moves import convert, filled, reshape, slice_axis
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

__all__: list[str] = []


def _key(n: OnnxNode) -> tuple[int, int]:
    """Two numbers of 31 bits, of an integer seed, a seed in f32, or the name."""
    if not n.has_attribute("seed"):
        return zlib.crc32(n.name.encode()) >> 1, 1
    if n.proto.op_type == "Dropout":
        seed = n.integer("seed", 0)
    else:
        seed = int(np.float32(n.real("seed", 0.0)).view(np.uint32))
    return seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF


def _rows(n: OnnxNode, shape: Shape, kind: ElemKind, count: int) -> list[Numbers]:
    """So many tensors of numbers from 0 on that are below 1: multiples of 2^-24 in f32, of 2^-53 in f64."""
    words = 2 if kind is ElemKind.F64 else 1
    type = Type(ElemKind.U32, (count * words, product(shape)))
    bits = n.f.create_random_bits(n.name, type, _key(n)).result
    lines = [
        Numbers(n, reshape(n, slice_axis(n, bits, 0, row, 1, 1), shape))
        for row in range(count * words)
    ]
    if words == 1:
        return [(line // 256).to(kind) * 2.0**-24 for line in lines]
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [((a // 32).to(kind) * 2.0**26 + (b // 64).to(kind)) * 2.0**-53 for a, b in pairs]


def _computed_in(kind: ElemKind) -> ElemKind:
    return ElemKind.F32 if kind.is_half else kind


def _wanted(n: OnnxNode) -> tuple[Shape, ElemKind]:
    """Shape and kind of the result: attributes, or those of the input."""
    like = n.num_inputs > 0
    shape = n.type(0).shape if like else n.integers("shape")
    if shape is None or any(size < 0 for size in shape if isinstance(size, int)):
        raise UserError(f"attribute 'shape': expected extents, got {shape}")
    stated = not like or n.has_attribute("dtype")
    kind = kind_of(n.integer("dtype", 1)) if stated else n.type(0).kind
    if not kind.is_float or kind.is_code:
        raise UserError(f"expected a floating-point kind as 'dtype', got {kind.value}")
    return tuple(shape), kind


@from_onnx("RandomUniform", "RandomUniformLike")
def _random_uniform(n: OnnxNode) -> Value:
    """Between `low` and `high`, which is reached only where rounding leads there."""
    shape, kind = _wanted(n)
    low, high = n.real("low", 0.0), n.real("high", 1.0)
    (share,) = _rows(n, shape, _computed_in(kind), 1)
    return (share * (high - low) + low).to(kind).value


@from_onnx("RandomNormal", "RandomNormalLike")
def _random_normal(n: OnnxNode) -> Value:
    """The radius and the angle of a point in the plane give a coordinate (Box and Muller 1958)."""
    shape, kind = _wanted(n)
    share, turn = _rows(n, shape, _computed_in(kind), 2)
    logarithm = Numbers(n, n.f.create_log(n.name, (1.0 - share).operand).result)
    radius = n.f.create_sqrt(n.name, (logarithm * -2.0).operand).result
    angle = (turn * (2 * math.pi)).operand
    normal = Numbers(n, n.f.create_mul(n.name, radius, n.f.create_cos(n.name, angle)).result)
    return (normal * n.real("scale", 1.0) + n.real("mean", 0.0)).to(kind).value


@from_onnx("Bernoulli", since=15)
def _bernoulli(n: OnnxNode) -> Value:
    """1 by the chance that the input says, which ONNX's definition by other operators turns round."""
    x = n.value(0)
    kind = _computed_in(x.type.kind)
    (share,) = _rows(n, x.type.shape, kind, 1)
    result_kind = kind_of(n.integer("dtype", 0)) if n.has_attribute("dtype") else x.type.kind
    return (share < Numbers(n, convert(n, x, kind))).to(result_kind).value


@from_onnx("Multinomial", since=7)
def _multinomial(n: OnnxNode) -> Value:
    """Classes whose probabilities are a softmax: the first whose running sum of these is above a uniform number."""
    x, count = n.value(0), n.integer("sample_size", 1)
    if x.type.rank != 2 or x.type.shape[1] == 0 or count < 1:
        raise UserError(f"expected logarithms of [batch, classes], got {x.type}, {count} samples")
    batch, classes = x.type.shape
    kind = _computed_in(x.type.kind)
    chances = n.f.create_softmax(n.name, n.operand(convert(n, x, kind)), 1)
    sums = n.f.create_cum_sum(n.name, chances, 1, exclusive=False, reverse=False).result
    (share,) = _rows(n, (batch, count), kind, 1)
    below = Numbers(n, reshape(n, sums, (batch, 1, classes))) <= share.reshaped(batch, count, 1)
    passed = n.f.create_reduce_add(n.name, below.to(ElemKind.I32).operand, (2,)).result
    place = Numbers(n, reshape(n, passed, (batch, count))).at_most(classes - 1)
    return place.to(kind_of(n.integer("dtype", 6))).value


@from_onnx("Dropout")
def _dropout_1(n: OnnxNode) -> tuple[Result, ...]:
    """Below opset 7 `is_test` said whether the model is trained; exporters that leave it out mean inference.

    What the mask is then is said from opset 12 on only; onnxruntime's is False where nothing is dropped.
    """
    if n.opset < 7 and n.has_attribute("is_test") and not n.flag("is_test"):
        value, is_kept = _dropped(n, Tensor.of(np.array(n.real("ratio", 0.5), np.float32)))
        return value, is_kept.to(n.type(0).kind).value
    kind = ElemKind.BOOL if n.opset >= 10 else n.type(0).kind
    return n.value(0), filled(n, n.type(0).with_kind(kind), 0 if n.opset >= 7 else 1)


@from_onnx("Dropout", since=12)
def _dropout_12(n: OnnxNode) -> tuple[Result, ...]:
    """In training, a ratio of 0 changes nothing either."""
    ratio = n.value(1) if n.has(1) else Tensor.of(np.array(0.5, np.float32))
    nothing = isinstance(ratio, Tensor) and not ratio.array.any()
    if n.has(2) and n.known_scalar(2) and not nothing:
        value, is_kept = _dropped(n, ratio)
        return value, is_kept.value
    return n.value(0), filled(n, n.type(0).with_kind(ElemKind.BOOL), 1)


def _dropped(n: OnnxNode, ratio: Value) -> tuple[Value, Numbers]:
    """Drops elements, and divides the others by their share 1 - ratio; also returns which elements remain."""
    x = n.value(0)
    if x.type.kind.is_code:
        raise n.unsupported(f"Dropout of {x.type.kind.value}")
    kind = _computed_in(x.type.kind)
    share = Numbers(n, convert(n, reshape(n, ratio, ()), kind))
    (drawn,) = _rows(n, x.type.shape, kind, 1)
    is_kept = drawn >= share
    scaled = Numbers(n, convert(n, x, kind)) / (1.0 - share)
    zero = Numbers(n, filled(n, Type(kind, ()), 0.0))
    return scaled.where(is_kept, zero).to(x.type.kind).value, is_kept
