"""Arrays in numpy's files, where codes are bytes and strings are not pickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.support.output_files import write_output_file

__all__ = ["as_codes", "named", "plain", "write_array"]


def plain(array: Array) -> Array:
    """Codes as bytes, for numpy saves some of them so that it cannot read them back; strings without pickling."""
    if array.dtype.kind in "OU":
        return array.astype(np.str_)
    return array.view(np.uint8) if ElemKind.of(array.dtype).is_code else array


def as_codes(array: Array, kind: ElemKind) -> Array:
    """Bytes as the codes that they were saved of, if `kind` is one of codes; any other array as it is."""
    return array.view(kind.dtype) if kind.is_code and array.dtype.str in ("|u1", "|V1") else array


def named(array: Array) -> Array:
    """Numpy saves a bfloat16 as two bytes without a name; gives it its name back."""
    return array.view(ElemKind.BF16.dtype) if array.dtype.str == "|V2" else array


def write_array(path: str | Path, array: Array) -> None:
    """Writes a .npy file. Raises UserError where that is impossible."""
    write_output_file(path, lambda file: np.save(file, plain(array), allow_pickle=False))
