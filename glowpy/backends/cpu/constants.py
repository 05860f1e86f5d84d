"""The constants of a network in this process: small ones in one block, large ones once for all networks.

What the code of a network is given is the address of a block. It begins with the addresses of the large constants, each
of which has memory of its own; then come the small ones. So networks share the weights that they have in common, such
as one model compiled for several shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final
from weakref import WeakValueDictionary

import numpy as np

from glowpy.backend import aligned_array
from glowpy.core.tensor import LARGE, Array, Tensor
from glowpy.ir.plan import ALIGNMENT, MemoryPlan, Slot

__all__ = ["Block", "Constants", "block_of", "fill"]


@dataclass(frozen=True)
class Block:
    """How the block of a network is laid out.

    Attributes:
        large: The constants whose addresses it begins with, in order.
        small: Where the others are in it.
        size: Its bytes.
    """

    large: tuple[Slot, ...]
    small: tuple[Slot, ...]
    size: int


def block_of(plan: MemoryPlan, pointer_bytes: int) -> Block:
    """The block for the constants of a plan."""
    slots = plan.constant.slots
    large = tuple(slot for slot in slots if slot.size >= LARGE)
    end = len(large) * pointer_bytes
    small = []
    for slot in slots:
        if slot.size < LARGE:
            start = -(-end // ALIGNMENT) * ALIGNMENT
            small.append(replace(slot, start=start))
            end = start + slot.size
    return Block(large, tuple(small), end)


@final
class Weights:
    """A large constant in memory."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: Array) -> None:
        self.memory = memory


_shared: WeakValueDictionary[str, Weights] = WeakValueDictionary()
_lock = threading.Lock()


def _weights(tensor: Tensor) -> Weights:
    """The elements of a tensor, which are those of every tensor with this key."""
    with _lock:
        weights = _shared.get(tensor.key)
    if weights is None:
        memory = aligned_array(tensor.type.size)
        fill(memory, tensor)
        with _lock:
            weights = _shared.setdefault(tensor.key, Weights(memory))
    return weights


def fill(place: Array, tensor: Tensor) -> None:
    """Writes the elements of a tensor to bytes."""
    for piece in tensor.pieces():
        np.copyto(place[: piece.nbytes].view(piece.dtype).reshape(piece.shape), piece)
        place = place[piece.nbytes :]


@final
class Constants:
    """The block of a network, filled; it keeps what it points to.

    Attributes:
        address: Where it begins.
    """

    def __init__(self, plan: MemoryPlan, tensors: Mapping[str, Tensor]) -> None:
        block = block_of(plan, np.dtype(np.uintp).itemsize)
        self._large = [_weights(tensors[slot.name]) for slot in block.large]
        self._block = aligned_array(block.size)
        for slot in block.small:
            fill(self._block[slot.start : slot.end], tensors[slot.name])
        pointers = self._block[: len(self._large) * np.dtype(np.uintp).itemsize].view(np.uintp)
        pointers[:] = [weights.memory.ctypes.data for weights in self._large]
        self.address = int(self._block.ctypes.data)
