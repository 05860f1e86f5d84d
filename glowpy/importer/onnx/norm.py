"""Import of normalisations: by batch, by instance, by local response, and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import TensorProto

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcasts_to, is_same_shape, normalize_axis
from glowpy.core.type import Shape, Type
from glowpy.graph.node import Node, NodeValue
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.moves import channels_first, channels_last, convert, reshape
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

__all__: list[str] = []


@from_onnx("BatchNormalization")
def _batch_normalization(n: OnnxNode) -> Value | tuple[Value, ...]:
    """Normalizes by given statistics, or the batch's in training; below opset 9 perhaps by some for each element."""
    x = n.value(0)
    if x.type.rank == 0:
        raise UserError(f"expected an input of rank 1 or more, got {x.type}")
    is_spatial = n.flag("spatial", True)
    wide = x if x.type.rank > 1 else reshape(n, x, (*x.type.shape, 1))
    channels = wide.type.shape[1]
    shape = (channels,) if is_spatial else wide.type.shape[1:]
    for index in range(1, 5):
        if not is_same_shape(n.type(index).shape, shape):
            what = f"{channels} elements" if is_spatial else f"{list(shape)}"
            raise UserError(f"expected {what} as input {index}, got {n.type(index)}")
    if not is_spatial:
        if _in_training(n):
            raise n.unsupported("training with spatial 0")
        channels = product(shape)
        wide = reshape(n, wide, (wide.type.shape[0], channels))
    if _in_training(n):
        normal, *statistics = _trained(n, wide)
        return reshape(n, normal, x.type.shape), *statistics
    vectors = []
    for index in range(1, 5):
        vector = convert(n, reshape(n, n.value(index), (channels,)), x.type.kind)
        vectors.append(n.operand(vector, n.proto.input[index]))
    scale, bias, mean, variance = vectors
    node = n.f.create_batch_normalization(
        n.name,
        n.operand(wide, n.proto.input[0]),
        scale,
        bias,
        mean,
        variance,
        1,
        n.real("epsilon", 1e-5),
    )
    return reshape(n, node.result, x.type.shape)


def _in_training(n: OnnxNode) -> bool:
    """By an attribute; from opset 7 to 13 by the outputs. Exporters that left out `is_test` meant inference."""
    if n.opset >= 14:
        return n.flag("training_mode")
    has_statistics = any(n.wants(index) for index in range(1, n.num_outputs))
    return has_statistics or (n.opset < 7 and n.has_attribute("is_test") and not n.flag("is_test"))


def _trained(n: OnnxNode, x: Value) -> tuple[Value, ...]:
    """By mean and variance of the batch, which move the running ones; below opset 14 they are results as well."""
    kind, channels = x.type.kind, x.type.shape[1]
    moments = _moments(n, _wide(n, x), [axis for axis in range(x.type.rank) if axis != 1])
    column = (channels, *(1,) * (x.type.rank - 2))
    scale, bias = (_vector(n, index, moments.mean.type.kind, column) for index in (1, 2))
    inverse = _inverse_root(n, moments.variance)
    normal = n.f.create_mul(f"{n.name}_standard", moments.centred, inverse).result
    result = convert(n, _scaled(n, normal, scale, bias), kind)
    momentum, statistics = n.real("momentum", 0.9), []
    batch = [
        Numbers(n, reshape(n, value, (channels,))) for value in (moments.mean, moments.variance)
    ]
    for index, now in enumerate(batch, 3):
        before = Numbers(n, n.value(index))
        moved = before.to(now.kind) * momentum + now * (1.0 - momentum)
        statistics.append(moved.to(before.kind).value)
    saved = [now.to(n.kind(index)).value for index, now in enumerate(batch, 3)]
    return (result, *statistics, *(saved if n.opset < 14 else ()))


@from_onnx("LRN")
def _lrn(n: OnnxNode) -> Value:
    if n.type(0).rank < 2:
        raise UserError(f"expected an input of rank 2 or more, got {n.type(0)}")
    size = n.integer("size", 0)
    if size < 1:
        raise UserError(f"attribute 'size': expected at least 1, got {size}")
    normal = n.f.create_local_response_normalization(
        n.name,
        n.operand(channels_last(n, n.value(0)), n.proto.input[0]),
        size,
        n.real("alpha", 1e-4),
        n.real("beta", 0.75),
        n.real("bias", 1.0),
    )
    return channels_first(n, normal.result)


def _softmax_node(n: OnnxNode, value: Value, axis: int) -> NodeValue:
    operand = n.operand(value, n.proto.input[0])
    if n.proto.op_type == "Softmax":
        return n.f.create_softmax(n.name, operand, axis).result
    return n.f.create_log_softmax(n.name, operand, axis).result


@from_onnx("Softmax", "LogSoftmax")
def _softmax_1(n: OnnxNode) -> Value:
    """Below opset 13 all dimensions from `axis` on are one."""
    shape = n.type(0).shape
    axis = n.axis(len(shape), 1)
    flat = reshape(n, n.value(0), (product(shape[:axis]), product(shape[axis:])))
    return reshape(n, _softmax_node(n, flat, 1), shape)


@from_onnx("Softmax", "LogSoftmax", since=13)
def _softmax_13(n: OnnxNode) -> Value:
    if n.type(0).rank == 0:
        return reshape(n, _softmax_node(n, reshape(n, n.value(0), (1,)), 0), ())
    return _softmax_node(n, n.value(0), n.axis(n.type(0).rank, -1))


@dataclass(frozen=True)
class _Moments:
    """The mean along some axes, the elements without it, and their variance."""

    mean: NodeValue
    centred: NodeValue
    variance: NodeValue


def _moments(n: OnnxNode, x: NodeValue, axes: Sequence[int]) -> _Moments:
    """The variance is that of centred elements: a difference of squares would cancel where the mean is large."""
    f = n.f
    mean = f.create_reduce_mean(f"{n.name}_mean", x, tuple(axes)).result
    centred = f.create_sub(f"{n.name}_centred", x, mean).result
    square = f.create_mul(f"{n.name}_square", centred, centred)
    variance = f.create_reduce_mean(f"{n.name}_variance", square, tuple(axes))
    return _Moments(mean, centred, variance.result)


def _inverse_root(n: OnnxNode, square: NodeValue) -> NodeValue:
    """1 / sqrt(square + epsilon)."""
    scalar = Type(square.type.kind, ())
    epsilon = n.f.create_splat(f"{n.name}_epsilon", scalar, n.real("epsilon", 1e-5))
    root = n.f.create_sqrt(f"{n.name}_root", n.f.create_add(f"{n.name}_raised", square, epsilon))
    return n.f.create_reciprocal(f"{n.name}_inverse", root).result


def _standardized(n: OnnxNode, x: NodeValue, axes: Sequence[int]) -> NodeValue:
    """Elements with the mean 0 and the variance 1."""
    moments = _moments(n, x, axes)
    inverse = _inverse_root(n, moments.variance)
    return n.f.create_mul(f"{n.name}_standard", moments.centred, inverse).result


def _wide(n: OnnxNode, value: Value) -> NodeValue:
    """Halves in f32, so that only the result is rounded to 16 bits."""
    kind = ElemKind.F32 if value.type.kind.is_half else value.type.kind
    return n.operand(convert(n, value, kind))


def _vector(n: OnnxNode, index: int, kind: ElemKind, shape: Shape) -> Value:
    """Input `index`, a vector of as many elements as `shape` has, in that shape, which broadcasts."""
    count = product(shape)
    if not is_same_shape(n.type(index).shape, (count,)):
        raise UserError(f"expected {count} elements as input {index}, got {n.type(index)}")
    return reshape(n, convert(n, n.value(index), kind), shape)


def _scaled(n: OnnxNode, value: NodeValue, factors: Value, shifts: Value | None) -> NodeValue:
    """The value times factors, plus shifts."""
    result = n.f.create_mul(n.name, value, n.operand(factors, n.proto.input[1])).result
    if shifts is None:
        return result
    return n.f.create_add(n.name, result, n.operand(shifts, n.proto.input[2])).result


@from_onnx("InstanceNormalization")
def _instance_normalization(n: OnnxNode) -> Value:
    """Each channel of each image by its own mean and variance, then scale and bias."""
    type = n.type(0)
    if type.rank < 3:
        raise UserError(f"expected an input of rank 3 or more, got {type}")
    channels, axes = type.shape[1], range(2, type.rank)
    normal = _standardized(n, _wide(n, n.value(0)), axes)
    shape = (channels, *(1 for _ in axes))
    scale, bias = (_vector(n, i, normal.type.kind, shape) for i in (1, 2))
    return convert(n, _scaled(n, normal, scale, bias), type.kind)


@from_onnx("GroupNormalization", since=18)
def _group_normalization_18(n: OnnxNode) -> Value:
    """ONNX has withdrawn this version, but files have it, and onnxruntime reads it."""
    return _by_groups(n, per_group=True)


@from_onnx("GroupNormalization", since=21)
def _group_normalization(n: OnnxNode) -> Value:
    return _by_groups(n, per_group=False)


def _by_groups(n: OnnxNode, *, per_group: bool) -> Value:
    """Each group of channels by its own mean and variance, then scale and bias of each group, or of each channel."""
    groups = n.integer("num_groups", 0)
    type = n.type(0)
    if type.rank < 2:
        raise UserError(f"expected an input of rank 2 or more, got {type}")
    channels = type.shape[1]
    if groups < 1 or channels % groups:
        raise UserError(f"expected {channels} channels in equal groups, got num_groups {groups}")
    grouped = (type.shape[0], groups, channels // groups, product(type.shape[2:]))
    x = n.operand(reshape(n, _stashed(n), grouped), n.proto.input[0])
    normal = _standardized(n, x, (2, 3))
    shape = (groups, 1 if per_group else channels // groups, 1)
    scale, bias = (_vector(n, index, x.type.kind, shape) for index in (1, 2))
    return reshape(n, convert(n, _scaled(n, normal, scale, bias), type.kind), type.shape)


def _stashed(n: OnnxNode) -> NodeValue:
    """The input in the kind that `stash_type` says: f64 stays f64, and a half is computed in f32."""
    kind, x = _stash_kind(n), n.value(0)
    return _wide(n, x if x.type.kind is ElemKind.F64 else convert(n, x, kind))


def _stash_kind(n: OnnxNode) -> ElemKind:
    """The kind that `stash_type` says."""
    kind = kind_of(n.integer("stash_type", TensorProto.FLOAT))
    if not kind.is_float:
        raise n.unsupported(f"stash_type {kind.value}")
    return kind


def _trailing_axes(n: OnnxNode) -> tuple[int, ...]:
    rank = n.type(0).rank
    return tuple(range(n.axis(rank, -1), rank))


def _trailing_factors(n: OnnxNode, index: int, kind: ElemKind) -> Value:
    """Scale or bias: it broadcasts to the input, or is a vector of all elements that are normalised together."""
    type, value = n.type(0), convert(n, n.value(index), kind)
    together = type.shape[_trailing_axes(n)[0] :]
    if value.type.shape == (product(together),):
        value = reshape(n, value, together)
    if not broadcasts_to(value.type.shape, type.shape):
        raise UserError(f"expected input {index} to broadcast to {type}, got {n.type(index)}")
    return value


@from_onnx("LayerNormalization")
def _layer_normalization(n: OnnxNode) -> tuple[Value, ...]:
    """The mean and the inverse deviation are results, too, of the kind that `stash_type` says.

    Before ONNX had it, onnxruntime did: the result is of the kind of the scale, which may be another than the input's.
    """
    kind, x = n.type(1).kind, _stashed(n)
    moments = _moments(n, x, _trailing_axes(n))
    inverse = _inverse_root(n, moments.variance)
    normal = n.f.create_mul(f"{n.name}_standard", moments.centred, inverse).result
    bias = _trailing_factors(n, 2, x.type.kind) if n.has(2) else None
    result = _scaled(n, normal, _trailing_factors(n, 1, x.type.kind), bias)
    stash = _stash_kind(n)
    return (convert(n, result, kind), *(convert(n, v, stash) for v in (moments.mean, inverse)))


@from_onnx("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(n: OnnxNode) -> tuple[Value, Value]:
    """Divided by the root of the mean square (Zhang and Sennrich 2019).

    onnxruntime has it under another name, and with the reciprocal of that root as a result, of the kind that
    `stash_type` says.
    """
    x = _stashed(n)
    square = n.f.create_mul(f"{n.name}_square", x, x)
    mean = n.f.create_reduce_mean(f"{n.name}_mean", square, _trailing_axes(n)).result
    inverse = _inverse_root(n, mean)
    normal = n.f.create_mul(f"{n.name}_standard", x, inverse).result
    result = _scaled(n, normal, _trailing_factors(n, 1, x.type.kind), None)
    return convert(n, result, n.type(1).kind), convert(n, inverse, _stash_kind(n))


@from_onnx("MeanVarianceNormalization")
def _mean_variance_normalization(n: OnnxNode) -> Value:
    """Centred elements, divided by a deviation that is kept from 0 after its root was taken."""
    type, f = n.type(0), n.f
    given_axes = n.integers("axes")
    axes = {
        normalize_axis(axis, type.rank)
        for axis in ((0, 2, 3) if given_axes is None else given_axes)
    }
    moments = _moments(n, _wide(n, n.value(0)), sorted(axes))
    epsilon = f.create_splat(f"{n.name}_epsilon", Type(moments.mean.type.kind, ()), 1e-9)
    deviation = f.create_add(n.name, f.create_sqrt(n.name, moments.variance), epsilon)
    return convert(n, f.create_div(n.name, moments.centred, deviation).result, type.kind)


@from_onnx("LpNormalization")
def _lp_normalization(n: OnnxNode) -> Value:
    """The input divided by its norm along an axis; 0 where that is 0."""
    f, x, power = n.f, n.input(0), n.integer("p", 2)
    axis = (n.axis(x.type.rank, -1),)
    if power == 1:
        norm: Node = f.create_reduce_add(n.name, f.create_abs(n.name, x), axis)
    elif power == 2:
        norm = f.create_sqrt(n.name, f.create_reduce_add(n.name, f.create_mul(n.name, x, x), axis))
    else:
        raise n.unsupported(f"p {power}")
    zero = f.create_splat(f"{n.name}_zero", Type(x.type.kind, ()), 0.0)
    nothing = f.create_eq(n.name, norm, zero)
    return f.create_select(n.name, nothing, zero, f.create_div(n.name, x, norm)).result
