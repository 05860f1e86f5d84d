"""Memory of devices: buffers that networks read and write, and what allocates, fills and copies them.

A buffer is whatever names a piece of a memory. In the host's it is an array, so that any array of a caller's is one as
it stands; in that of a device apart it may be a handle of the driver. Only the memory knows what a buffer is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Buffer", "Content", "Memory"]

Buffer = TypeVar("Buffer")
"""Name of a piece of a memory: an array, or a handle of a driver."""

Content: TypeAlias = bytes | bytearray | memoryview
"""Bytes of the host, to be written to a buffer."""


class Memory(ABC, Generic[Buffer]):
    """The memory of a device. Safe from several threads; a buffer ends with the last reference to it.

    Buffers begin where the memory plan says that areas begin, at a multiple of its alignment.
    """

    @abstractmethod
    def allocate(self, size: int) -> Buffer:
        """A new buffer of `size` bytes, all of them 0. Raises UserError where there is no room for it."""

    @abstractmethod
    def size(self, buffer: Buffer) -> int:
        """Bytes of a buffer."""

    @abstractmethod
    def write(self, buffer: Buffer, content: Content, start: int = 0) -> None:
        """Copies bytes of the host into a buffer, from byte `start` on."""

    @abstractmethod
    def read(self, buffer: Buffer, start: int = 0, size: int | None = None) -> bytearray:
        """Copies `size` bytes of a buffer, from byte `start` on, to the host: without `size`, all that follow."""

    @abstractmethod
    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copies all bytes of a buffer to the beginning of another one of this memory, which it does not overlap."""

    @abstractmethod
    def address(self, buffer: Buffer) -> int:
        """Returns the address of a buffer for code of the device; 0 for a buffer without bytes."""
