"""Rules of the element-wise operators beyond what classgen writes."""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Quantized, Trait
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, Operand
from glowpy.graph.nodes_gen import ConvertNode, DecodeNode, EncodeNode
from glowpy.graph.verifier import verify
from glowpy.ops.elementwise_gen import KINDS, ONNX_ELEMENTWISE

__all__ = ["ONNX_ELEMENTWISE", "scalar"]


def scalar(f: Function, name: str, like: Type, value: float) -> Operand:
    """A rank-0 splat of `value` in the kind of `like`; it broadcasts."""
    return f.create_splat(name, Type(like.kind, ()), value)


@verify(ConvertNode)
def _verify_convert(n: ConvertNode) -> Iterator[str]:
    if n.type.shape != n.input.type.shape:
        yield f"result has shape {n.type}, expected that of {n.input.type}"


@verify(EncodeNode, DecodeNode)
def _verify_code(n: EncodeNode | DecodeNode) -> Iterator[str]:
    floats, codes = n.input.type, n.type
    if isinstance(n, DecodeNode):
        floats, codes = codes, floats
    if floats.kind is not ElemKind.F32 or not codes.kind.is_code:
        yield f"expected floats of kind f32 and codes, got {floats} and {codes}"
    if n.type.shape != n.input.type.shape:
        yield f"result has shape {n.type}, expected that of {n.input.type}"


@verify(*(cls for cls in KINDS if Trait.TYPED not in cls.SCHEMA.traits))
def _verify_kind(n: Node) -> Iterator[str]:
    operand = n.inputs[-1].type
    if n.SCHEMA.quant is Quantized.NUMBERS and operand.quant is not None:
        return
    suffix = "f32" if operand.kind.is_float else operand.kind.suffix
    if suffix not in KINDS[type(n)].split():
        yield f"expected a kind of {KINDS[type(n)]}, got {operand}"
