"""Rules of the element-wise operators beyond what classgen writes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from glowpy.autodiff.differentiate import differentiate
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ClipNode, ConvertNode, ErfNode, LeakyReluNode, ReluNode
from glowpy.graph.verifier import verify
from glowpy.lower import lower
from glowpy.ops.elementwise_gen import KINDS, ONNX_ELEMENTWISE

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


@differentiate(ErfNode)
def _differentiate_erf(f: Function, n: ErfNode, g: NodeValue) -> list[Operand | None]:
    """The bell curve 2 / sqrt(pi) * exp(-input ** 2)."""
    square = f.create_mul(n.name, n.input, n.input)
    bell = f.create_exp(n.name, f.create_neg(n.name, square))
    factor = scalar(f, f"{n.name}_factor", n.type, 2 / math.sqrt(math.pi))
    return [f.create_mul(n.name, g, f.create_mul(n.name, bell, factor))]


@differentiate(ReluNode)
def _differentiate_relu(f: Function, n: ReluNode, g: NodeValue) -> list[Operand | None]:
    zero = scalar(f, f"{n.name}_zero", n.type, 0.0)
    return [f.create_select(n.name, f.create_lt(n.name, zero, n.input), g, zero)]


@differentiate(LeakyReluNode)
def _differentiate_leaky_relu(f: Function, n: LeakyReluNode, g: NodeValue) -> list[Operand | None]:
    scaled = f.create_mul(n.name, g, scalar(f, f"{n.name}_alpha", n.type, n.alpha))
    negative = f.create_lt(n.name, n.input, scalar(f, f"{n.name}_zero", n.type, 0.0))
    return [f.create_select(n.name, negative, scaled, g)]


@differentiate(ClipNode)
def _differentiate_clip(f: Function, n: ClipNode, g: NodeValue) -> list[Operand | None]:
    """Flows where nothing was cut off."""
    kept = f.create_eq(n.name, n.input, n.result)
    return [f.create_select(n.name, kept, g, scalar(f, f"{n.name}_zero", n.type, 0.0))]


@verify(ConvertNode)
def _verify_convert(n: ConvertNode) -> Iterator[str]:
    if n.type.shape != n.input.type.shape:
        yield f"result has shape {n.type}, expected that of {n.input.type}"


@verify(*(cls for cls in KINDS if cls is not ConvertNode))
def _verify_kind(n: Node) -> Iterator[str]:
    operand = n.inputs[-1].type
    suffix = "f32" if operand.kind.is_float else operand.kind.suffix
    if suffix not in KINDS[type(n)].split():
        yield f"expected a kind of {KINDS[type(n)]}, got {operand}"


@verify(LeakyReluNode)
def _verify_leaky_relu(n: LeakyReluNode) -> Iterator[str]:
    if not n.type.kind.is_float:
        yield f"expected a floating-point kind, got {n.type}"
