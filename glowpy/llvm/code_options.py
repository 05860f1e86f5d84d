"""Options for code: how entry points behave, and what modules have besides a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from glowpy.llvm.instrument import Instrument
from glowpy.llvm.writer import ModuleWriter

__all__ = ["CodeOptions", "Counter", "EntryOptions"]

Counter = Literal["", "readcyclecounter", "readsteadycounter", "clock_gettime"]
"""Counters of time: one of LLVM's intrinsics, or the thread's clock, by a function of the system."""


@dataclass(frozen=True)
class EntryOptions:
    """How the entry points behave.

    Attributes:
        bound: `NAME_bound` is visible, and `NAME` is not there.
        checks: `NAME` checks its pointers.
        guard: `NAME` surrounds the activations with canaries; the area it is given is larger by twice GUARD_BYTES.
        instrument: Callbacks before and after every instruction: in the table, or the functions BUNDLE_before and
            BUNDLE_after.
        runs: The callbacks are around runs of instructions, which are computed as ever, and are told of those operands
            that are in memory.
        bundle: The name those begin with.
        parallel: The table holds a `parallel_for`; where there is a `NAME`, there is a `NAME_parallel`.
        timed: The counter for stamps; empty for none. Work of other functions of the network has no stamps.
    """

    bound: bool = False
    checks: bool = False
    guard: bool = False
    instrument: Instrument = ""
    runs: bool = False
    bundle: str = ""
    parallel: bool = False
    timed: Counter = ""


@dataclass(frozen=True)
class CodeOptions:
    """Options for the contents of modules besides the network.

    Attributes:
        entry: How the entry points behave.
        debug: File name and folder of the IR's text, for DWARF; None for no debug information.
        separate: Make a module of each function, which does not depend on the others, and one of the entry points.
        visible: Every function can be found by its name in the loaded code.
        support: Writes what else is visible in the module of the entry points.
    """

    entry: EntryOptions = field(default_factory=EntryOptions)
    debug: tuple[str, str] | None = None
    separate: bool = False
    visible: bool = False
    support: Callable[[ModuleWriter], list[str]] | None = None
