"""Integers of 4 and 2 bits: packed in files, one in a byte here, where their kind is that of 8 bits.

What is of such a type is known by name while a model is imported, from what it declares and from the operators: few
take them, and none computes on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import defs

from glowpy.core.tensor import Array
from glowpy.importer.declared import Narrow
from glowpy.importer.elements import NARROW

__all__ = ["narrow_results", "unpacked"]


def unpacked(bytes: Array, bits: int, *, signed: bool = False) -> Array:
    """The integers of `bits` in each byte, one after the other in the last dimension, the lowest bits first.

    Those of 6 bits lie across bytes, and are not signed.
    """
    if 8 % bits:
        digits = np.unpackbits(bytes.view(np.uint8), axis=-1, bitorder="little")
        count = digits.shape[-1] // bits
        split = digits[..., : count * bits].reshape(*bytes.shape[:-1], count, bits)
        return np.packbits(split, axis=-1, bitorder="little")[..., 0]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (bytes.view(np.uint8)[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    flat = codes.reshape(*bytes.shape[:-1], bytes.shape[-1] * len(shifts))
    half = np.uint8(1 << (bits - 1))
    return ((flat ^ half) - half).view(np.int8) if signed else flat


def narrow_results(
    node: onnx.NodeProto, schema: defs.OpSchema | None, known: Mapping[str, Narrow]
) -> dict[str, Narrow]:
    """Which outputs of a node are of narrow integers, if its inputs that are so are `known`."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    stated = 0
    for name in ("to", "output_dtype"):
        if name in attributes:
            stated = attributes[name].i
    if node.op_type == "Constant" and "value" in attributes:
        stated = attributes["value"].t.data_type
    first, like = NARROW.get(stated), _LIKE.get(node.op_type)
    if first is None and like is not None and like < len(node.input):
        first = known.get(node.input[like])
    results = {} if first is None else {node.output[0]: first}
    if schema is None or node.op_type in _CONVERTING:
        return results
    pairs = zip(node.input, _formals(schema.inputs, len(node.input)), strict=True)
    types = {formal.type_str: known[name] for name, formal in pairs if name in known}
    outputs = zip(node.output, _formals(schema.outputs, len(node.output)), strict=True)
    return {
        **results,
        **{name: types[formal.type_str] for name, formal in outputs if formal.type_str in types},
    }


_LIKE = {"CastLike": 1, "QuantizeLinear": 2}
"""Which input an operator's output is like."""

_CONVERTING = ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")


def _formals(
    formals: Sequence[defs.OpSchema.FormalParameter], count: int
) -> list[defs.OpSchema.FormalParameter]:
    """The parameters of so many operands: the last one may be variadic."""
    return [formals[min(index, len(formals) - 1)] for index in range(count)]
