"""Profiles: a trace of a session in the Trace Event Format, which chrome://tracing and Perfetto show.

The events are onnxruntime's: `Session` for what a session does, `Node` for each instruction, times in microseconds
since the session began. What is a node there is an instruction here, after fusing.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, final

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import type_name
from glowpy.ir.inst import Instruction
from glowpy.ir.value import WeightVar
from glowpy.onnxruntime.errors import Fail
from glowpy.onnxruntime.logs import say_once
from glowpy.onnxruntime.providers import CPU

__all__ = ["Profiler"]

MAX_EVENTS = 1_000_000
"""More are not kept, as in onnxruntime: a profile is for some runs."""


@final
class Profiler:
    """An observer that notes what each instruction takes. Safe from several threads.

    Attributes:
        start: When it began, as `time.monotonic_ns` counts.

    Raises Fail if there is no folder for the trace.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.monotonic_ns()
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")[:-3]
        self._path = Path(f"{prefix}_{stamp}.json")
        if not self._path.parent.is_dir():
            raise Fail(f"cannot write the profile '{self._path}': there is no such folder")
        self._events: list[dict[str, Any]] = []
        self._local = threading.local()
        self._end = weakref.finalize(self, _write, self._path, self._events)

    def end(self) -> str:
        """Writes the trace, once. The name of its file; empty if it was written before."""
        if not self._end.alive:
            return ""
        self._end()
        return str(self._path)

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Notes what a part of the session's work takes."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self._add("Session", name, begin, {})

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Notes the time."""
        self._local.begin = time.monotonic_ns()

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Notes what the instruction has taken."""
        begin, end = self._local.begin, time.monotonic_ns()
        refs = inst.operands
        stored = {
            ref.name
            for ref in refs
            if isinstance(ref.value.base, WeightVar) and ref.value.base.is_constant
        }
        read = {ref.name: operands[ref.name] for ref in refs if ref.access.reads}
        written = {ref.name: operands[ref.name] for ref in refs if ref.access.writes}
        parameters = sum(read[name].nbytes for name in stored & set(read))
        details = {
            "op_name": inst.SCHEMA.mnemonic,
            "provider": CPU,
            "input_type_shape": [_type_shape(array) for array in read.values()],
            "output_type_shape": [_type_shape(array) for array in written.values()],
            "activation_size": str(sum(array.nbytes for array in read.values()) - parameters),
            "parameter_size": str(parameters),
            "output_size": str(sum(array.nbytes for array in written.values())),
        }
        self._add("Node", f"{inst.name}_kernel_time", begin, details, end)

    def _add(
        self, category: str, name: str, begin: int, details: dict[str, Any], end: int = 0
    ) -> None:
        if not self._end.alive:
            return
        if len(self._events) >= MAX_EVENTS:
            say_once(f"the profile has {MAX_EVENTS} events, more are not kept")
            return
        self._events.append(
            {
                "cat": category,
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": ((end or time.monotonic_ns()) - begin) // 1000,
                "ts": (begin - self.start) // 1000,
                "ph": "X",
                "name": name,
                "args": details,
            }
        )


def _type_shape(array: Array) -> dict[str, list[int]]:
    kind = type_name(ElemKind.of(array.dtype)).removeprefix("tensor(").removesuffix(")")
    return {kind: list(array.shape)}


def _write(path: Path, events: list[dict[str, Any]]) -> None:
    """Writes a line for each event."""
    lines = ",\n".join(map(json.dumps, events))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
