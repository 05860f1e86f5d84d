"""Devices: what loads compiled networks and runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from glowpy.runtime.artifact import Artifact
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.copying import CopyingFunction
from glowpy.runtime.executable import Executable
from glowpy.runtime.memory import Buffer, Memory
from glowpy.support.errors import UserError

__all__ = ["Device"]

Loaded = TypeVar("Loaded", bound=Artifact)
"""The artifacts that a device loads."""


class Device(ABC, Generic[Buffer, Loaded]):
    """A processor with its memory. Safe from several threads.

    Attributes:
        memory: The memory in which all that it has loaded runs.
    """

    memory: Memory[Buffer]

    @abstractmethod
    def executable(self, artifact: Loaded, *, use_cache: bool = True) -> Executable[Buffer] | None:
        """Makes a network ready to run in the memory of the device.

        None where one of its large constants is neither in this process nor, if that is used, in the cache.
        """

    def load(self, artifact: Loaded, *, use_cache: bool = True) -> CompiledFunction | None:
        """Makes a network ready to be called with arrays of the host, or returns None as `executable` does."""
        executable = self.executable(artifact, use_cache=use_cache)
        if executable is None or isinstance(executable, CompiledFunction):
            return executable
        return CopyingFunction(executable)

    def parse(self, payload: bytes) -> Loaded:
        """The artifact whose bytes these are.

        Raises LoadError for bytes that are no artifact, or one of another compiler, UserError where none are read.
        """
        del payload
        raise UserError(
            f"{type(self).__name__} reads no artifacts", note="compile the network here"
        )
