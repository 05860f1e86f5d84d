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
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}

_CODES = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f6e2m3", "f6e3m2", "f4e2m1")


class ElemKind(Enum):
    """The kind of one element. The value is its spelling in every text form.

    *Codes* are floats of at most 8 bits, each in a byte. `f8e4m3` has 4 bits of exponent and 3 of mantissa; `fn` says
    that all are finite, `uz` that zero has no sign. `f8e8m0` are powers of two. Those of 6 and 4 bits are in the low
    bits of a byte, and have neither infinity nor NaN.
    """

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
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0"
    F6E2M3 = "f6e2m3"
    F6E3M2 = "f6e3m2"
    F4E2M1 = "f4e2m1"

    dtype: np.dtype[np.generic]
    """The numpy dtype that stores one element."""
    size: int
    """Bytes per element."""
    is_float: bool
    """Whether elements are floating point, to be computed with; codes are not."""

    def __init__(self, spelling: str) -> None:
        self.dtype = np.dtype(_DTYPES[spelling])
        self.size = self.dtype.itemsize
        self.is_float = spelling in ("f16", "bf16", "f32", "f64")

    @property
    def is_half(self) -> bool:
        """Whether elements are floating point of 16 bits."""
        return self in (ElemKind.F16, ElemKind.BF16)

    @property
    def is_code(self) -> bool:
        """Whether elements are floats of at most 8 bits, which are moved and converted, and never computed with."""
        return self.value in _CODES

    @property
    def code_bits(self) -> int:
        """How many bits of its byte a code has."""
        return int(self.value[1])

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is not."""
        return not (self.is_float or self.is_code or self is ElemKind.BOOL)

    @property
    def family(self) -> str:
        """`float`, `int` (signed or not), `bool` or `code`: kinds for which the same algebra holds."""
        if self.is_code:
            return "code"
        return "float" if self.is_float else "int" if self.is_integer else "bool"

    @property
    def has_fractions(self) -> bool:
        """Whether elements are numbers between integers as well: floats and codes."""
        return self.is_float or self.is_code

    @property
    def is_signed(self) -> bool:
        """Whether elements have a sign."""
        unsigned = self.value[0] == "u" or self in (ElemKind.BOOL, ElemKind.F8E8M0)
        return not unsigned

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
