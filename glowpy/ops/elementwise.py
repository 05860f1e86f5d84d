"""Rules of the element-wise operators beyond what classgen writes: the composite ones and the conversion."""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import ClipNode, ConvertNode, LeakyReluNode, PowNode, ReluNode
from glowpy.graph.verifier import verify
from glowpy.lower import lower
from glowpy.ops.elementwise_gen import ONNX_ELEMENTWISE

__all__ = ["ONNX_ELEMENTWISE", "scalar"]


def scalar(f: Function, name: str, like: Type, value: float) -> Operand:
    """A rank-0 splat of `value` in the kind of `like`; it broadcasts."""
    return f.create_splat(name, Type(like.kind, ()), value)


@lower(ReluNode)
def _lower_relu(f: Function, n: ReluNode) -> Operand:
    return f.create_max(n.name, n.input, scalar(f, f"{n.name}_zero", n.type, 0.0))


@lower(LeakyReluNode)
def _lower_leaky_relu(f: Function, n: LeakyReluNode) -> Operand:
    scaled = f.create_mul(n.name, n.input, scalar(f, f"{n.name}_alpha", n.type, n.alpha))
    negative = f.create_lt(n.name, n.input, scalar(f, f"{n.name}_zero", n.type, 0.0))
    return f.create_select(n.name, negative, scaled, n.input)


@lower(ClipNode)
def _lower_clip(f: Function, n: ClipNode) -> Operand:
    raised = f.create_max(n.name, n.input, scalar(f, f"{n.name}_min", n.type, n.min))
    return f.create_min(n.name, raised, scalar(f, f"{n.name}_max", n.type, n.max))


@verify(ConvertNode)
def _verify_convert(n: ConvertNode) -> Iterator[str]:
    if n.type.shape != n.input.type.shape:
        yield f"result has shape {n.type}, expected that of {n.input.type}"


@verify(PowNode)
def _verify_pow(n: PowNode) -> Iterator[str]:
    if not n.type.kind.is_float:
        yield f"expected floats, got {n.type}"
