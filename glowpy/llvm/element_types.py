"""Elements in LLVM IR: the types of their kinds, in memory and in registers, and constants."""

from __future__ import annotations

import struct

import numpy as np

from glowpy.core.elemkind import ElemKind

__all__ = ["literal", "memory_type", "register_type"]

_TYPES = {ElemKind.F32: "float", ElemKind.F64: "double"}
"""LLVM types of floats. Halves and codes are integers, which kernels convert: not every target computes with them."""


def memory_type(kind: ElemKind) -> str:
    """The LLVM type of an element in memory."""
    return _TYPES.get(kind) or f"i{8 * kind.size}"


def register_type(kind: ElemKind) -> str:
    """The LLVM type of an element in a register: bool is i1."""
    return "i1" if kind is ElemKind.BOOL else memory_type(kind)


def literal(kind: ElemKind, value: float | int) -> str:
    """`value` as an LLVM constant of the register type of `kind`: floats exactly, halves and codes as their bits."""
    if kind is ElemKind.BOOL:
        return "true" if value else "false"
    if kind.is_half or kind.is_code:
        with np.errstate(over="ignore"):
            bits = np.array(value).astype(kind.dtype).view(f"u{kind.size}")
        return str(int(bits))
    if kind.is_float:
        rounded = (
            struct.unpack("f", struct.pack("f", value))[0] if kind is ElemKind.F32 else float(value)
        )
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    return str(int(value))
