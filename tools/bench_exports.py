"""Times what PyTorch exports against onnxruntime on one core: `python -m tools.bench_exports [NAME ...]`.

The networks are those of `tools/exports/` in the widths that people use, with random weights. Extents that are open in
the file are open for onnxruntime; glowpy compiles for them, as a session does. How time is taken: see `tools/bench.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from glowpy.cli.bench_model import CLOCKS
from glowpy.core.tensor import Array
from tools.bench import (
    ATOL,
    RTOL,
    Row,
    interleaved,
    machine,
    table,
    with_glowpy,
    with_onnxruntime,
)
from tools.exports.catalogue import EXPORTS, Export, exported, inputs, made, outputs


def _wrong(actual: Sequence[Array], expected: Sequence[Array]) -> str | None:
    """How far outputs are from PyTorch's; None if they are near."""
    for got, array in zip(actual, expected, strict=True):
        if got.shape != array.shape:
            return f"expected the shape {array.shape}, got {got.shape}"
        scale = float(np.abs(array).max(initial=0.0))
        difference = float(np.abs(got - array).max(initial=0.0))
        if not difference <= ATOL + RTOL * scale:
            return f"wrong by {difference:.3g} of {scale:.3g}"
    return None


def bench(name: str, export: Export, path: Path, options: argparse.Namespace) -> Row:
    """Exports one network, compares both runtimes with PyTorch, and times them."""
    size = export.small if options.small else export.large
    row, network, tensors = Row(name), made(export, size), inputs(export, size.extents)
    exported(export, network, tensors, path, dynamo=options.dynamo)
    expected, feeds = outputs(network, tensors), {name: x.numpy() for name, x in tensors.items()}
    shapes = [f"{name}:{'x'.join(map(str, array.shape))}" for name, array in feeds.items()]
    contestants = []
    for contestant in (with_glowpy(path, feeds, shapes), with_onnxruntime(path, feeds)):
        contestant.run()
        if (reason := _wrong(contestant.outputs(), expected)) is not None:
            row.missing[contestant.name] = reason
        else:
            contestants.append(contestant)
    row.rounds = interleaved(contestants, options.rounds, options.seconds, CLOCKS[options.clock])
    return row


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(EXPORTS), metavar="NAME")
    parser.add_argument("--dynamo", action="store_true", help="torch's newer exporter")
    parser.add_argument("--small", action="store_true", help="the networks that tests use")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="at least, per round")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--core", type=int, help="the core to run on; the last one if left out")
    parser.add_argument("--keep", type=Path, help="a folder for the files")
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in EXPORTS:
            parser.error(f"no network {name!r}: expected some of {', '.join(EXPORTS)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Times the networks; 1 if glowpy has no figure for one of them."""
    options = parse(argv)
    core = options.core if options.core is not None else max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    console, rows = Console(highlight=False, markup=False), []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.names:
            path = (options.keep or Path(scratch)) / f"{name.replace(' ', '-')}.onnx"
            rows.append(bench(name, EXPORTS[name], path, options))
            if options.keep is None:
                path.unlink()
    if not console.is_terminal:
        console.width = 160
    console.print(table(rows, ["onnxruntime"]))
    for row in rows:
        for runtime, reason in row.missing.items():
            console.print(f"{row.model}: {runtime}: {reason}")
    for key, value in {**machine(core), "clock": options.clock}.items():
        console.print(f"{key}: {value}")
    return int(any("glowpy" not in row.milliseconds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
