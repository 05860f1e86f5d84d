"""Numbers that ONNX has for the types of elements, as files have them: whoever reads them needs no onnx package."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import TYPE_NAMES, Narrow
from glowpy.support.errors import UnsupportedError

__all__ = ["NARROW", "PACKED", "STRING", "dtype_named", "elem_type_of", "kind_named", "kind_of"]

STRING = 8
"""The number of strings."""

NARROW: dict[int, Narrow] = {
    number: Narrow(name, bits, kind, np.dtype(getattr(ml_dtypes, name)))
    for number, name, bits, kind in (
        (22, "int4", 4, ElemKind.I8),
        (21, "uint4", 4, ElemKind.U8),
        (26, "int2", 2, ElemKind.I8),
        (25, "uint2", 2, ElemKind.U8),
    )
}
"""Integers of fewer bits than a byte, by the number of the type."""

_KINDS: dict[int, ElemKind] = {
    10: ElemKind.F16,
    16: ElemKind.BF16,
    1: ElemKind.F32,
    11: ElemKind.F64,
    3: ElemKind.I8,
    5: ElemKind.I16,
    6: ElemKind.I32,
    7: ElemKind.I64,
    2: ElemKind.U8,
    4: ElemKind.U16,
    12: ElemKind.U32,
    13: ElemKind.U64,
    9: ElemKind.BOOL,
    **{number: narrow.kind for number, narrow in NARROW.items()},
    17: ElemKind.F8E4M3FN,
    18: ElemKind.F8E4M3FNUZ,
    19: ElemKind.F8E5M2,
    20: ElemKind.F8E5M2FNUZ,
    24: ElemKind.F8E8M0,
    27: ElemKind.F6E2M3,
    28: ElemKind.F6E3M2,
    23: ElemKind.F4E2M1,
}

PACKED: dict[int, int] = {
    **{number: narrow.bits for number, narrow in NARROW.items()},
    23: 4,
    27: 6,
    28: 6,
}
"""How many bits an element has in files, of types with several elements in a byte."""

_OTHERS = {0: "UNDEFINED", STRING: "STRING", 14: "COMPLEX64", 15: "COMPLEX128"}
"""How ONNX calls the types that have no kind."""


def kind_of(elem_type: int) -> ElemKind:
    """The element kind of an ONNX element type.

    Raises UnsupportedError for strings, complex numbers and the like.
    """
    kind = _KINDS.get(elem_type)
    if kind is None:
        names = [*TYPE_NAMES.values(), *(narrow.name for narrow in NARROW.values())]
        raise UnsupportedError(
            f"element type {_OTHERS.get(elem_type, elem_type)} is not supported",
            note=f"supported are {', '.join(names)}",
        )
    return kind


def elem_type_of(kind: ElemKind) -> int:
    """The ONNX element type of a kind."""
    return next(number for number, other in _KINDS.items() if other is kind)


_NUMBERS = {
    **{TYPE_NAMES[kind]: number for number, kind in _KINDS.items() if number not in NARROW},
    **{narrow.name: number for number, narrow in NARROW.items()},
    **{name.lower(): number for number, name in _OTHERS.items()},
}


def kind_named(name: str) -> ElemKind:
    """The element kind of what ONNX calls so, such as `float`. Raises UnsupportedError as `kind_of` does."""
    return kind_of(_NUMBERS.get(name, 0))


def dtype_named(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of arrays of such elements; that of narrow integers is of ml_dtypes. Raises UnsupportedError."""
    narrow = NARROW.get(_NUMBERS.get(name, 0))
    return kind_named(name).dtype if narrow is None else narrow.dtype
