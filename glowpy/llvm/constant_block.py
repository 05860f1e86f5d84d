"""The block of constants of a network: where each is in it, and what the small ones are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from glowpy.core.tensor import LARGE, Tensor
from glowpy.ir.plan import MemoryPlan, Slot, aligned
from glowpy.runtime.host_memory import write_tensor

__all__ = ["Block", "block_of", "small_constants"]


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
            small.append(replace(slot, start=aligned(end)))
            end = small[-1].end
    return Block(large, tuple(small), end)


def small_constants(block: Block, tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a block, with zeros for addresses."""
    memory = np.zeros(block.size, np.uint8)
    for slot in block.small:
        write_tensor(memory[slot.start : slot.start + slot.size], tensors[slot.name])
    return memory.tobytes()
