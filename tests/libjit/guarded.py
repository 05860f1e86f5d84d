"""Memory between two pages that nobody may touch: an access next to a buffer ends the process."""

from __future__ import annotations

import ctypes
import mmap
from enum import Enum

import numpy as np

from glowpy.core.tensor import Array

_PAGE = mmap.PAGESIZE
_NO_ACCESS = 0


class Edge(Enum):
    """Which end of a buffer lies at a forbidden page."""

    BEGIN = "after a forbidden page"
    END = "before a forbidden page"


class GuardedArea:
    """An area that holds one buffer at a time, aligned to nothing but its element at Edge.END."""

    def __init__(self, size: int) -> None:
        self._size = -(-max(size, 1) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self._size + 2 * _PAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for page in (self._address, self._address + _PAGE + self._size):
            if libc.mprotect(page, _PAGE, _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect failed")

    def place(self, array: Array, edge: Edge) -> tuple[Array, int]:
        """A copy of `array` at one end of the area, and its address."""
        assert array.nbytes <= self._size
        start = _PAGE + (0 if edge is Edge.BEGIN else self._size - array.nbytes)
        placed = np.ndarray(array.shape, array.dtype, self._map, start)
        placed[...] = array
        return placed, self._address + start
