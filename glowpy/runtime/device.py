"""Devices: what loads compiled networks and runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from glowpy.runtime.executable import Executable
from glowpy.runtime.memory import Buffer, Memory

__all__ = ["Artifact", "Device"]


class Artifact(Protocol):
    """A compiled network that no device has loaded yet: code, plan, ports, and large constants by their digests."""

    def payload(self) -> bytes:
        """All of it as bytes, for other processes."""


Loaded = TypeVar("Loaded", bound=Artifact, contravariant=True)
"""The artifacts that a device loads."""


class Device(ABC, Generic[Buffer, Loaded]):
    """A processor with its memory.

    Attributes:
        memory: The memory in which all that it has loaded runs.
    """

    memory: Memory[Buffer]

    @abstractmethod
    def load(self, artifact: Loaded) -> Executable[Buffer] | None:
        """Makes a network ready to run; None where one of its large constants is nowhere to be found."""
