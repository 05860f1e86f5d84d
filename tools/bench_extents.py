"""Times code for a range against code for one extent: `python -m tools.bench_extents FILE.onnx seq=1..512 64 250`.

* Everything runs on one core, in one process, with one thread; figures are of CPU time.
* Runs are interleaved: a round times both once, so that a change of the machine's speed hits both. A ratio is the
  median over rounds, a time the least.
* Inputs are as `glowpy run` makes them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

import numpy as np

import glowpy
from glowpy.core.random_array import random_array
from glowpy.graph.function import Module
from glowpy.importer import OnnxModel, read_model
from glowpy.importer.open_dimensions import Unsaid
from glowpy.importer.shape_text import parse_shapes
from glowpy.support.console import print_table
from tools.bench_command import existing_file, number, saying_errors, usable_core, whole_number

Run = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """The times at one extent: CPU milliseconds of constant and of symbolic code, and their ratio."""

    extent: int
    constant: float
    symbolic: float
    ratio: float


def timed(run: Run, seconds: float) -> float:
    """CPU milliseconds of a run, over as many as take that long."""
    begin, count = time.process_time(), 0
    while count < 2 or time.process_time() - begin < seconds:
        run()
        count += 1
    return (time.process_time() - begin) / count * 1e3


def _module(model: OnnxModel, texts: Sequence[str]) -> Module:
    """The model with dimensions as texts say; those that they say nothing of are 1."""
    shapes, dims = Unsaid(model.inputs, *parse_shapes(texts, model.inputs)).said()
    return model.build(shapes=shapes, dims=dims)


def measure(
    path: str, dimension: str, extent: int, shapes: Sequence[str], *, rounds: int, seconds: float
) -> Row:
    """Compares at one extent of the dimension `NAME=LOW..HIGH`; `shapes` say what all others are."""
    name, model = dimension.partition("=")[0], read_model(path)
    networks = [
        glowpy.compile(_module(model, [f"{name}={which}", *shapes]))
        for which in (extent, dimension.partition("=")[2])
    ]
    rng = np.random.default_rng(0)
    inputs = {name: random_array(type, rng) for name, type in networks[0].inputs.items()}
    runs: list[Run] = [lambda network=network: network(inputs) for network in networks]  # type: ignore[misc]
    for run in runs:
        run()
    times = [[timed(run, seconds) for run in runs] for _ in range(rounds)]
    constant, symbolic = (min(column) for column in zip(*times, strict=True))
    return Row(extent, constant, symbolic, median(after / before for before, after in times))


@saying_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=existing_file)
    parser.add_argument("dimension", help="NAME=LOW..HIGH")
    parser.add_argument("extents", nargs="+", type=whole_number)
    parser.add_argument("--shape", action="append", default=[], help="of other dimensions")
    parser.add_argument("--rounds", type=whole_number, default=9)
    parser.add_argument("--seconds", type=number, default=0.2, help="of CPU time, for each round")
    parser.add_argument("--core", type=usable_core, default=max(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, {options.core})
    rows = [
        measure(
            str(options.model), options.dimension, extent, options.shape,
            rounds=options.rounds, seconds=options.seconds,
        )
        for extent in options.extents
    ]  # fmt: skip
    columns = ["extent", ">constant ms", ">symbolic ms", ">symbolic / constant"]
    cells = [
        [str(row.extent), f"{row.constant:.3f}", f"{row.symbolic:.3f}", f"{row.ratio:.3f}"]
        for row in rows
    ]
    mean = f"{geometric_mean(row.ratio for row in rows):.3f}"
    title = f"{options.model}, {options.dimension}"
    print_table(title, columns, [*cells, ["geometric mean", "", "", mean]], whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
