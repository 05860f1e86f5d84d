"""Element kinds: what one element of a tensor is."""

from __future__ import annotations

from enum import Enum

import ml_dtypes
import numpy as np

__all__ = ["ElemKind"]


_DTYPES: dict[str, type[np.generic]] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}


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

    dtype: np.dtype[np.generic]
    """The numpy dtype that stores one element."""
    size: int
    """Bytes per element."""
    is_float: bool
    """Whether elements are floating point."""

    def __init__(self, spelling: str) -> None:
        self.dtype = np.dtype(_DTYPES[spelling])
        self.size = self.dtype.itemsize
        self.is_float = spelling in ("f16", "bf16", "f32", "f64")

    @property
    def is_half(self) -> bool:
        """Whether elements are floating point of 16 bits."""
        return self in (ElemKind.F16, ElemKind.BF16)

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


_KINDS = {kind.dtype: kind for kind in ElemKind}
