"""Import of normalisations: by batch, by instance, by local response, and softmax."""

from __future__ import annotations

import math

from glowpy.core.type import Type
from glowpy.graph.node import Node, NodeValue
from glowpy.importer.onnx.data_movement import channels_first, channels_last, convert, reshape
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.support.errors import UserError

__all__: list[str] = []


@from_onnx("BatchNormalization")
def _batch_normalization(n: OnnxNode) -> Value:
    """With statistics from training. Training itself, and one statistic for each element, are not supported."""
    training = n.opset < 7 and n.has_attribute("is_test") and not n.flag("is_test")
    if training or n.flag("training_mode") or any(n.wants(i) for i in range(1, n.num_outputs)):
        raise n.unsupported("training", note="export the model for inference")
    if not n.flag("spatial", True):
        raise n.unsupported("spatial 0")
    x = n.value(0)
    if x.type.rank == 0:
        raise UserError(f"expected an input of rank 1 or more, got {x.type}")
    wide = x if x.type.rank > 1 else reshape(n, x, (*x.type.shape, 1))
    channels = wide.type.shape[1]
    vectors = []
    for index in range(1, 5):
        if n.type(index).shape != (channels,):
            raise UserError(f"expected {channels} elements as input {index}, got {n.type(index)}")
        vector = convert(n, n.value(index), x.type.kind)
        vectors.append(n.operand(vector, n.proto.input[index]))
    scale, bias, mean, variance = vectors
    normal = n.f.create_batch_normalization(
        n.name,
        n.operand(wide, n.proto.input[0]),
        scale,
        bias,
        mean,
        variance,
        1,
        n.real("epsilon", 1e-5),
    )
    return reshape(n, normal.result, x.type.shape)


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
    axis = n.axis(len(shape), 1) if n.integer("axis", 1) != len(shape) else len(shape)
    flat = reshape(n, n.value(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))
    return reshape(n, _softmax_node(n, flat, 1), shape)


@from_onnx("Softmax", "LogSoftmax", since=13)
def _softmax_13(n: OnnxNode) -> Value:
    if n.type(0).rank == 0:
        return reshape(n, _softmax_node(n, reshape(n, n.value(0), (1,)), 0), ())
    return _softmax_node(n, n.value(0), n.axis(n.type(0).rank, -1))


@from_onnx("InstanceNormalization")
def _instance_normalization(n: OnnxNode) -> Value:
    """Each channel of each image by its own mean and variance, computed from centred elements, then scale and bias."""
    type, f = n.type(0), n.f
    if type.rank < 3:
        raise UserError(f"expected an input of rank 3 or more, got {type}")
    x, axes = n.input(0), tuple(range(2, type.rank))
    placed = []
    for index in (1, 2):
        if n.type(index).shape != (type.shape[1],):
            raise UserError(
                f"expected {type.shape[1]} elements as input {index}, got {n.type(index)}"
            )
        column = reshape(n, n.value(index), (type.shape[1], *(1,) * len(axes)))
        placed.append(n.operand(column, n.proto.input[index]))
    centred = f.create_sub(n.name, x, f.create_reduce_mean(n.name, x, axes))
    variance = f.create_reduce_mean(n.name, f.create_mul(n.name, centred, centred), axes)
    epsilon = f.create_splat(f"{n.name}_epsilon", Type(type.kind, ()), n.real("epsilon", 1e-5))
    deviation = f.create_sqrt(n.name, f.create_add(n.name, variance, epsilon))
    normal = f.create_mul(n.name, f.create_div(n.name, centred, deviation), placed[0])
    return f.create_add(n.name, normal, placed[1]).result


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
