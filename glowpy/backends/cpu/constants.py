"""The block of constants of a network in this process, whose address is what its code is given.

It begins with the addresses of the large constants, each of which has memory of its own; then come the small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from glowpy.runtime.host_memory import aligned_array
from glowpy.runtime.weights import Weights

__all__ = ["Constants"]


@final
class Constants:
    """The block of constants of a network, with addresses; it keeps what these point to.

    Attributes:
        address: Where it begins.
    """

    def __init__(self, block: bytes, large: Sequence[Weights]) -> None:
        self._large = tuple(large)
        self._memory = aligned_array(len(block))
        self._memory[:] = np.frombuffer(block, np.uint8)
        pointers = self._memory[: len(large) * np.dtype(np.uintp).itemsize].view(np.uintp)
        pointers[:] = [weights.memory.ctypes.data for weights in large]
        self.address = int(self._memory.ctypes.data)
