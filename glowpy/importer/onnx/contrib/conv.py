"""Import of convolutions with a sum and an activation, and of those whose channels are last in the model."""

from __future__ import annotations

from glowpy.importer.kit.moves import channels_first, channels_last
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.activation import activated
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError

__all__ = ["fused"]


def fused(n: OnnxNode, result: Value, addend: int) -> Value:
    """A convolution's result plus input `addend`, if that is given, and after the activation."""
    if n.has(addend):
        if n.type(addend) != result.type:
            raise UserError(f"expected {result.type} as input {addend}, got {n.type(addend)}")
        result = n.f.create_add(n.name, n.operand(result), n.input(addend)).result
    return activated(n, result, n.reals("activation_params") or ())


@from_onnx("FusedConv", domain=CONTRIB)
def _fused_conv(n: OnnxNode) -> Value:
    return fused(n, standard(n, "Conv", _operands(n)), 3)


@from_onnx("NhwcConv", domain=CONTRIB)
def _nhwc_conv(n: OnnxNode) -> Value:
    """The filter is O, spatial..., I, as the transformer tool writes it."""
    return _channels_last(n, channels_first(n, n.value(1)))


@from_onnx("NhwcFusedConv", domain=CONTRIB)
def _nhwc_fused_conv(n: OnnxNode) -> Value:
    """The filter is ONNX's own."""
    return fused(n, _channels_last(n, n.value(1)), 3)


def _channels_last(n: OnnxNode, filter: Value) -> Value:
    if n.type(0).rank < 3:
        raise UserError(f"expected an input of rank 3 or more, got {n.type(0)}")
    image = channels_first(n, n.value(0))
    return channels_last(n, standard(n, "Conv", [image, filter, *_operands(n)[2:]]))


def _operands(n: OnnxNode) -> list[Value | None]:
    """Input, filter and bias."""
    return [n.value(0), n.value(1), n.value(2) if n.has(2) else None]
