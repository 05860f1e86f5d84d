"""Element kinds: what one element of a tensor is."""

from __future__ import annotations

from enum import Enum

import ml_dtypes
import numpy as np

__all__ = ["ElemKind"]


class ElemKind(Enum):
    """The kind of one element. The value is its spelling in every text form."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy dtype that stores one element."""
        return _DTYPES[self]

    @property
    def size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is not."""
        return not self.is_float and self is not ElemKind.BOOL

    @property
    def family(self) -> str:
        """`float`, `int` (signed or not) or `bool`: kinds for which the same algebra holds."""
        return "float" if self.is_float else "int" if self.is_integer else "bool"

    @property
    def is_signed(self) -> bool:
        """Whether elements have a sign."""
        return self.is_float or (self.is_integer and self.value[0] == "i")

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest element of an integer kind."""
        bits = 8 * self.size
        return (-1 << bits - 1, (1 << bits - 1) - 1) if self.is_signed else (0, (1 << bits) - 1)

    @property
    def suffix(self) -> str:
        """How kernel names spell this kind."""
        return "b" if self is ElemKind.BOOL else str(self.value)

    @classmethod
    def of(cls, dtype: np.dtype[np.generic] | type[np.generic]) -> ElemKind:
        """The kind a numpy dtype stores. Raises KeyError for a dtype that is none, such as strings."""
        return _KINDS[np.dtype(dtype)]


_FLOATS = frozenset({ElemKind.F16, ElemKind.BF16, ElemKind.F32, ElemKind.F64})

_DTYPES: dict[ElemKind, np.dtype[np.generic]] = {
    ElemKind.F16: np.dtype(np.float16),
    ElemKind.BF16: np.dtype(ml_dtypes.bfloat16),
    ElemKind.F32: np.dtype(np.float32),
    ElemKind.F64: np.dtype(np.float64),
    ElemKind.I8: np.dtype(np.int8),
    ElemKind.I16: np.dtype(np.int16),
    ElemKind.I32: np.dtype(np.int32),
    ElemKind.I64: np.dtype(np.int64),
    ElemKind.U8: np.dtype(np.uint8),
    ElemKind.U16: np.dtype(np.uint16),
    ElemKind.U32: np.dtype(np.uint32),
    ElemKind.U64: np.dtype(np.uint64),
    ElemKind.BOOL: np.dtype(np.bool_),
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}
