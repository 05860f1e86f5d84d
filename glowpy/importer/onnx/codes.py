"""Floats of at most 8 bits: what `Cast` and `QuantizeLinear` say about numbers for which there is no code."""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode
from glowpy.support.errors import UserError

__all__ = ["to_codes"]


def to_codes(n: OnnxNode, value: Value, kind: ElemKind) -> Value:
    """Numbers as codes, as the attributes `saturate` and, for powers of two, `round_mode` say.

    What lies beyond the range becomes the last code, or without `saturate` infinity or NaN; codes of 6 and 4 bits have
    neither.
    """
    numbers = convert(n, value, ElemKind.F32)
    if n.flag("saturate", True) and kind.code_bits == 8:
        numbers = n.f.create_clip(n.name, n.operand(numbers), *_limits(kind)).result
    if kind is ElemKind.F8E8M0:
        numbers = _power(n, n.operand(numbers), n.text("round_mode", "up"))
    return convert(n, numbers, kind)


def _limits(kind: ElemKind) -> tuple[float, float]:
    """The lowest and the highest number that is not infinite."""
    numbers = np.arange(256, dtype=np.uint8).view(kind.dtype).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    return float(finite.min()), float(finite.max())


def _power(n: OnnxNode, numbers: NodeValue, mode: str) -> NodeValue:
    """The nearest power of two, or the next one in a direction, as f32."""
    if mode not in ("up", "down", "nearest"):
        raise UserError(f"attribute 'round_mode': expected up, down or nearest, got '{mode}'")
    floats = numbers.type
    codes = n.f.create_encode(n.name, floats.with_kind(ElemKind.F8E8M0), numbers)
    near = n.f.create_decode(n.name, floats, codes).result
    if mode == "nearest":
        return near
    upwards = mode == "up"
    sides = (near, numbers) if upwards else (numbers, near)
    factor = n.f.create_splat(f"{n.name}_step", Type(ElemKind.F32, ()), 2.0 if upwards else 0.5)
    missed = n.f.create_lt(n.name, *sides)
    return n.f.create_select(n.name, missed, n.f.create_mul(n.name, near, factor), near).result
