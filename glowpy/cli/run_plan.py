"""How `glowpy run` runs a model, whatever kind of model that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.backend import Backend, CompileOptions
from glowpy.runtime.compiled import Observer

__all__ = ["RunPlan"]


@dataclass(frozen=True)
class RunPlan:
    """How a model is compiled and run.

    Attributes:
        seed: For inputs without a file, which are random.
        backend: The backend it is compiled for.
        observers: The observers of instructions.
        options: How it is compiled.
        repeat: How often it runs.
    """

    seed: int
    backend: Backend
    observers: Sequence[Observer]
    options: CompileOptions
    repeat: int
