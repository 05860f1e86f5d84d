"""The host's memory, whose buffers are arrays: nothing has to be copied to call what runs in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from glowpy.core.tensor import ALIGNMENT, Array, Tensor, address_of, allocated
from glowpy.runtime.memory import Content, Memory
from glowpy.support.symbolic import static

if TYPE_CHECKING:
    from glowpy.ir.value import Value

__all__ = [
    "HOST",
    "HostMemory",
    "aligned_array",
    "elements_at",
    "part_of",
    "write_tensor",
]


@final
class HostMemory(Memory[Array]):
    """The memory of this process. Any C-contiguous array is a buffer."""

    def __reduce__(self) -> str:
        """There is one in a process, which copies of others share."""
        return "HOST"

    def allocate(self, size: int) -> Array:
        """Zero bytes; see `aligned_array`."""
        return aligned_array(size)

    def size(self, buffer: Array) -> int:
        """Bytes of an array's elements."""
        return buffer.nbytes

    def write(self, buffer: Array, content: Content, start: int = 0) -> None:
        """Copies bytes into an array."""
        elements = np.frombuffer(content, np.uint8)
        _bytes_of(buffer)[start : start + elements.size] = elements

    def read(self, buffer: Array, start: int = 0, size: int | None = None) -> bytearray:
        """A copy of an array's bytes."""
        end = None if size is None else start + size
        return bytearray(_bytes_of(buffer)[start:end])

    def copy(self, source: Array, target: Array) -> None:
        """Copies all bytes of an array to another."""
        _bytes_of(target)[: source.nbytes] = _bytes_of(source)

    def address(self, buffer: Array) -> int:
        """Returns the address of the elements of an array."""
        return address_of(buffer)


HOST = HostMemory()
"""The memory of this process."""


def _bytes_of(array: Array) -> Array:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8)


def aligned_array(size: int) -> Array:
    """`size` zero bytes at an address that is a multiple of the memory plan's alignment.

    Raises UserError where there is no memory for them.
    """
    block = allocated((size + ALIGNMENT,), np.uint8)
    start = -address_of(block) % ALIGNMENT
    return block[start : start + size]


def elements_at(memory: Array, start: int, value: Value) -> Array:
    """The elements of `value`, not copied, where its first byte is byte `start` of `memory`."""
    kind, shape = value.type.kind, value.type.extents
    (span,) = static([value.span])
    elements = memory[start : start + span].view(kind.dtype)
    if value.is_contiguous:
        return elements.reshape(shape)
    steps = [stride * kind.size for stride in static(value.strides)]
    return np.lib.stride_tricks.as_strided(elements, shape, steps)


def part_of(array: Array, shape: tuple[int, ...]) -> Array:
    """The first elements of an array without gaps, which has room for as many, in another shape; not copied."""
    return array if array.shape == shape else np.ndarray(shape, array.dtype, array)


def write_tensor(place: Array, tensor: Tensor) -> None:
    """Writes the elements of a tensor to bytes."""
    for piece in tensor.pieces():
        np.copyto(place[: piece.nbytes].view(piece.dtype).reshape(piece.shape), piece)
        place = place[piece.nbytes :]
