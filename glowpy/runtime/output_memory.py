"""`OutputMemory`: memory for the large outputs of one run after the other.

The C library returns the memory of large arrays to the system when they are dropped, and each page of new ones is a
fault when it is first written: 0.1 ms for caches of 400 KB, which takes longer than to compute them. What nobody has
any more is kept for the next run instead, as much as one run needs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
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
    """A view of a block that arrays have as their base, and that gives the block back when the last one is dropped.

    No step of that is in Python: Ctrl-C is heard between such steps, and what is raised while something is dropped
    is lost.
    """

    give_back: Callable[[], object] = object

    __del__ = property(attrgetter("give_back"))


@final
@dataclass(frozen=True, eq=False)
class _Kept:
    """A block in a queue that is searched by identity: arrays compare their elements."""

    block: _Block


@final
class OutputMemory:
    """Memory of outputs that nobody has any more. Safe from several threads: what is done to the queue is atomic."""

    def __init__(self, num_outputs: int) -> None:
        self._kept: deque[_Kept] = deque(maxlen=num_outputs)  # in place of what was kept first

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Returns an array for an output, at a multiple of the memory plan's alignment."""
        size = math.prod(shape) * dtype.itemsize + ALIGNMENT
        if not _LEAST <= size <= _MOST:
            block = allocated((size,), np.uint8, zeros=False)
            return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)
        step = 1 << (
            size.bit_length() - 4
        )  # sizes that grow by a row from run to run are often the same
        entry = self._taken(-(-size // step) * step)
        lease = entry.block.view(_Lease)
        lease.give_back = partial(self._kept.append, entry)
        return np.ndarray(shape, dtype, lease, -address_of(lease) % ALIGNMENT)

    def _taken(self, size: int) -> _Kept:
        for entry in [*self._kept]:
            if len(entry.block) == size:
                try:
                    self._kept.remove(entry)
                except ValueError:
                    continue  # another thread has taken it
                return entry
        return _Kept(allocated((size,), np.uint8, zeros=False).view(_Block))
