"""A run of a network as a trace for Perfetto and chrome://tracing: its layers, and the memory that is alive meanwhile.

Times are the medians of all runs, one layer after the other. The format is that of Chrome's Trace Event documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glowpy.benchmark.figures import layer_figures
from glowpy.benchmark.measured import Measured

__all__ = ["trace_text"]

_THREAD = 1


def trace_text(results: Sequence[Measured]) -> str:
    """The trace as JSON, with a process for each model."""
    events = [
        event for number, result in enumerate(results, 1) for event in _events(number, result)
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}) + "\n"


def _events(process: int, result: Measured) -> Iterator[dict[str, Any]]:
    place = {"pid": process, "tid": _THREAD}
    for what, name in (("process_name", Path(result.path).name), ("thread_name", "layers")):
        yield {**place, "ph": "M", "name": what, "args": {"name": name}}
    for layer in result.layers:
        figures = layer_figures(layer)
        yield {
            **place,
            "ph": "X",
            "name": layer.name,
            "cat": layer.kernel,
            "ts": layer.start * 1e6,
            "dur": layer.seconds * 1e6,
            "args": {name: figure for name, figure in figures.items() if name != "start"},
        }
        alive = {"bytes": result.alive(layer)}
        yield {**place, "ph": "C", "name": "activations", "ts": layer.start * 1e6, "args": alive}
    end = result.layers[-1].end * 1e6 if result.layers else 0.0
    yield {**place, "ph": "C", "name": "activations", "ts": end, "args": {"bytes": 0}}
