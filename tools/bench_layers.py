"""Finds layers that are far from what the machine could do: `python -m tools.bench_layers [--models resnet50,bert]`.

They are those that reach less than 80 % of their roof and take more than 2 % of their network, on one core, in f32. A
layer is timed by a twin of the network, as by `glowpy bench --layers`; its roof is the time that it takes at least, by
the peak of the core and the bandwidth of the memory that its data comes from.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import glowpy
from glowpy import CpuBackend
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.benchmark.measure import CLOCKS, Plan, measure
from glowpy.benchmark.measure import Subject as Measurable
from glowpy.engine import compilation
from glowpy.support.console import print_table
from tools.bench_command import number, saying_errors, usable_core, whole_number
from tools.bench_subjects import TABLE, Subject, networks, prepared

__all__ = ["HEADS", "LayersRow", "SlowLayer", "main", "measured_layers"]

_LEAST_ROOF, _LEAST_SHARE = 0.8, 0.02

HEADS = ("network", "ms", "of its roof", "layer", "kernel", "ms", "of the network", "of its roof")
"""Columns of the table: a network, then each of its layers that is far from its roof."""


@dataclass(frozen=True)
class SlowLayer:
    """A layer that is far from its roof: times in milliseconds, shares in parts of 1."""

    name: str
    kernel: str
    milliseconds: float
    share: float
    of_roof: float


@dataclass(frozen=True)
class LayersRow:
    """The figures of a network, and its layers that are far from their roofs, the slowest first.

    Attributes:
        model: Its name.
        milliseconds: A run.
        of_roof: The time that all its layers take at least, in parts of that.
        layers: As JSON, what `SlowLayer` has.
    """

    model: str
    milliseconds: float
    of_roof: float
    layers: Sequence[Mapping[str, str | float]]

    @property
    def cells(self) -> list[list[str]]:
        """Lines as HEADS says; the first is of the network."""
        slow = [SlowLayer(**layer) for layer in self.layers]  # type: ignore[arg-type]
        lines = [
            [
                *(layer.name, layer.kernel, f"{layer.milliseconds:.3f}"),
                *(f"{layer.share:.0%}", f"{layer.of_roof:.0%}"),
            ]
            for layer in slow
        ] or [["none", *[""] * 4]]
        whole = [self.model, f"{self.milliseconds:.2f}", f"{self.of_roof:.0%}"]
        return [[*(whole if index == 0 else [""] * 3), *line] for index, line in enumerate(lines)]


def measured_layers(subject: Subject, options: argparse.Namespace) -> LayersRow:
    """Times a network and its layers."""
    backend = CpuBackend()
    stages = compilation(glowpy.load(subject.path), backend)
    feeds = {port.name: subject.inputs[port.original] for port in stages.function.inputs}
    plan = Plan(options.seconds, options.rounds, (), None, 1, options.core, options.clock)
    peaks = peaks_of(backend.target, 1)
    measurable = Measurable(str(subject.path), stages, feeds)
    result = measure(measurable, backend, peaks, plan, layers=True)
    total = sum(layer.seconds for layer in result.layers)
    slow = [
        SlowLayer(
            layer.origin or layer.name,
            " + ".join([layer.kernel, *layer.fused]),
            1e3 * layer.seconds,
            layer.seconds / total,
            layer.share_of_roof,
        )
        for layer in sorted(result.layers, key=lambda layer: -layer.seconds)
        if layer.share_of_roof < _LEAST_ROOF and layer.seconds > _LEAST_SHARE * total
    ]
    stages.close()
    rows = [asdict(layer) for layer in slow]
    return LayersRow(subject.name, 1e3 * result.median, result.share_of_roof, rows)


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say = parser.add_argument
    say(
        "--models",
        type=networks,
        default=list(TABLE),
        help="ONNX files, or some of these, with commas between: " + ", ".join(TABLE),
    )
    say("--small", action="store_true", help="exports as small as in tests")
    say("--rounds", type=whole_number, default=7)
    say("--seconds", type=number, default=0.2, help="at least so long in all")
    say("--clock", choices=CLOCKS, default="wall")
    say("--core", type=usable_core, default=max(os.sched_getaffinity(0)))
    say("--keep", type=Path, help="a folder for the networks, which stay and are taken again")
    say("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder, keep = options.keep or Path(scratch), options.keep is not None
        for name in options.models:
            with prepared(name, folder, small=options.small, keep=keep) as subject:
                rows.append(measured_layers(subject, options))
    if options.json:
        sys.stdout.write(json.dumps({"rows": list(map(asdict, rows))}) + "\n")
    else:
        print_table("", list(HEADS), [line for row in rows for line in row.cells], whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
