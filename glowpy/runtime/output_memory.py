"""`OutputMemory`: memory for the large outputs of one run after the other.

The C library returns the memory of large arrays to the system when they are dropped, and each page of new ones is a
fault when it is first written: 0.1 ms for caches of 400 KB, which takes longer than to compute them. What nobody has
any more is kept for the next run instead, as much as one run needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glowpy.core.tensor import Array, address_of, allocated
from glowpy.ir.plan import ALIGNMENT

__all__ = ["OutputMemory"]

_LEAST = 1 << 16
"""Arrays of fewer bytes come from what the C library keeps itself."""
_MOST = 1 << 26
"""Larger ones are not kept: what they would take between runs is noticed, what they save is not."""


@final
class _Block(np.ndarray[Any, np.dtype[Any]]):
    """Bytes that may be kept: a class of its own, so that views of a lease have the lease as their base."""


@final
class _Lease(np.ndarray[Any, np.dtype[Any]]):
    """A view of a block that arrays have as their base, and that gives the block back when the last one is dropped."""

    home: OutputMemory | None = None

    def __del__(self) -> None:
        if self.home is not None and isinstance(self.base, _Block):
            self.home.keep(self.base)


@final
@dataclass(frozen=True, eq=False)
class _Kept:
    """A block in a list that is searched by identity: arrays compare their elements."""

    block: _Block


@final
class OutputMemory:
    """Memory of outputs that nobody has any more. Safe from several threads: what is done to the list is atomic."""

    def __init__(self, num_outputs: int) -> None:
        self._most = num_outputs
        self._kept: list[_Kept] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Returns an array for an output, at a multiple of the memory plan's alignment."""
        size = math.prod(shape) * dtype.itemsize + ALIGNMENT
        if not _LEAST <= size <= _MOST:
            block = allocated((size,), np.uint8, zeros=False)
            return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)
        step = 1 << (
            size.bit_length() - 4
        )  # sizes that grow by a row from run to run are often the same
        lease = self._taken(-(-size // step) * step).view(_Lease)
        lease.home = self
        return np.ndarray(shape, dtype, lease, -address_of(lease) % ALIGNMENT)

    def _taken(self, size: int) -> _Block:
        for entry in [*self._kept]:
            if len(entry.block) == size:
                try:
                    self._kept.remove(entry)
                except ValueError:
                    continue  # another thread has taken it
                return entry.block
        return allocated((size,), np.uint8, zeros=False).view(_Block)

    def keep(self, block: _Block) -> None:
        """Keeps memory that nobody has any more, in place of what was kept first if that is too much."""
        self._kept.append(_Kept(block))
        if len(self._kept) > self._most:
            try:
                self._kept.pop(0)
            except IndexError:
                return  # another thread has taken it
