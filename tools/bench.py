"""Times glowpy against other runtimes on one core: `python tools/bench.py [--models resnet50,...]`.

* Everything runs on one core, in one process, with one thread.
* Runs are interleaved: a round times every runtime once, so that a change of the machine's speed hits all of them.
* A figure is the median over rounds of the median within a round, after a warm-up.
* Outputs are compared with onnxruntime's before anything is timed; a wrong network gets no figure.

ncnn reads no ONNX. It takes part for the models for which `--ncnn-models` has NAME.param and NAME.bin, as its
converter pnnx writes them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from rich import box
from rich.console import Console
from rich.table import Table

import glowpy
from glowpy.cli.bench_model import CLOCKS
from glowpy.cli.bench_peers import PEERS, Contestant, Inputs, loaded
from glowpy.cli.compare import compare
from glowpy.cli.model import load_model, random_array
from glowpy.core.tensor import Array
from tools.zoo import NAMES, initialised

RUNTIMES = tuple(PEERS)
RTOL, ATOL = 1e-3, 1e-3
"""Networks end in a softmax or in scores of unit scale; a wrong kernel is off by far more."""

Run = Callable[[], object]
Clock = Callable[[], float]


@dataclass
class Row:
    """What was found out about one model: milliseconds of each round by runtime, and why others have none."""

    model: str
    rounds: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def milliseconds(self) -> dict[str, float]:
        """The median round of every runtime."""
        return {name: median(rounds) for name, rounds in self.rounds.items()}

    def ratio(self, name: str) -> float | None:
        """How many times as long as glowpy `name` takes; above 1 glowpy is faster."""
        medians = self.milliseconds
        return medians[name] / medians["glowpy"] if {name, "glowpy"} <= medians.keys() else None


def with_glowpy(path: Path, inputs: Inputs, shapes: Sequence[str] = ()) -> Contestant:
    """The model compiled for this processor, running in its own buffers; `shapes` are as in `--shape`."""
    compiled = glowpy.compile(load_model(str(path), shapes))
    instance = compiled.instance()
    for name, array in inputs.items():
        instance.write(name, array)
    return Contestant(
        "glowpy", instance.run, lambda: [instance[name].copy() for name in compiled.outputs]
    )


def onnxruntime_session(path: Path) -> Any:
    """A session with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def with_onnxruntime(path: Path, inputs: Inputs) -> Contestant:
    """The runtime onnxruntime with one thread."""
    return loaded("onnxruntime", path, inputs, 1, None)


def time_once(run: Run, least_seconds: float, clock: Clock) -> float:
    """Seconds of one run: the median of as many as fit into `least_seconds`, and of at least three."""
    seconds: list[float] = []
    begin = clock()
    while len(seconds) < 3 or clock() - begin < least_seconds:
        start = clock()
        run()
        seconds.append(clock() - start)
    return median(seconds)


def interleaved(
    contestants: Sequence[Contestant], rounds: int, least_seconds: float, clock: Clock
) -> dict[str, list[float]]:
    """Milliseconds of every round by name.

    Each round begins with another contestant: nobody always runs after the same one.
    """
    for contestant in contestants:
        time_once(contestant.run, least_seconds, clock)
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for index in range(rounds):
        first = index % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            samples[contestant.name].append(1e3 * time_once(contestant.run, least_seconds, clock))
    return samples


def prepare(
    path: Path, inputs: Inputs, names: Sequence[str], ncnn_models: Path | None, row: Row
) -> list[Contestant]:
    """Every runtime that loads the model and computes what onnxruntime computes; `row` notes why others do not."""
    expected = onnxruntime_session(path).run(None, dict(inputs))
    reference = {str(index): array for index, array in enumerate(expected)}
    ready = []
    for name in ("glowpy", *names):
        try:
            own = name == "glowpy"
            contestant = (
                with_glowpy(path, inputs) if own else loaded(name, path, inputs, 1, ncnn_models)
            )
            contestant.run()
        except Exception as error:  # noqa: BLE001 - another project's runtime may raise anything; it is reported
            row.missing[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        got = {str(index): array for index, array in enumerate(contestant.outputs())}
        differences = compare(got, reference, RTOL, ATOL)
        row.errors[name] = max(difference.absolute for difference in differences)
        if all(difference.within for difference in differences):
            ready.append(contestant)
        else:
            row.missing[name] = f"wrong by {row.errors[name]:.3g}"
    return ready


def input_arrays(path: Path) -> dict[str, Array]:
    """The same random inputs for every runtime."""
    function = load_model(str(path)).main
    rng = np.random.default_rng(0)
    return {port.original: random_array(port.type, rng) for port in function.inputs}


def bench(path: Path, options: argparse.Namespace) -> Row:
    """Everything about one model."""
    row = Row(path.stem)
    contestants = prepare(path, input_arrays(path), options.against, options.ncnn_models, row)
    if contestants:
        row.rounds = interleaved(
            contestants, options.rounds, options.seconds, CLOCKS[options.clock]
        )
    return row


def machine(core: int) -> dict[str, str]:
    """What the figures depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {}
    for package in ("glowpy", "numpy", *RUNTIMES):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": str(os.cpu_count()),
        "core": str(core),
        "load": f"{os.getloadavg()[0]:.2f}",
        "system": platform.platform(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def table(rows: Sequence[Row], against: Sequence[str]) -> Table:
    """Milliseconds and ratios; a ratio above 1 means that glowpy is faster."""
    columns = ["glowpy", *against]
    result = Table("model", box=box.SIMPLE_HEAD)
    for name in columns:
        result.add_column(f"{name} ms", justify="right")
    for name in against:
        result.add_column(f"{name} / glowpy", justify="right")
    for row in rows:
        medians = row.milliseconds
        times = [f"{medians[name]:.3f}" if name in medians else "-" for name in columns]
        ratios = [f"{ratio:.2f}" if (ratio := row.ratio(name)) else "-" for name in against]
        result.add_row(row.model, *times, *ratios)
    return result


def _names(text: str) -> list[str]:
    """`a,b` as a list."""
    return [name for name in text.split(",") if name]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", type=_names, default=list(NAMES), help="networks of the zoo, or ONNX files"
    )
    parser.add_argument(
        "--against", type=_names, default=["onnxruntime"], help="of " + ", ".join(RUNTIMES)
    )
    parser.add_argument("--ncnn-models", type=Path, help="a folder with NAME.param and NAME.bin")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="at least so long per round and runtime"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu counts this process's processor time only: for a machine that others use as well",
    )
    parser.add_argument("--core", type=int, help="the core to run on; the last one if left out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if unknown := set(options.against) - set(RUNTIMES):
        parser.error(
            f"unknown runtime {sorted(unknown)[0]}: expected some of {', '.join(RUNTIMES)}"
        )
    for name in options.models:
        if not name.endswith(".onnx") and name not in NAMES:
            parser.error(f"no network {name!r} in the zoo: expected some of {', '.join(NAMES)}")
    return options


def find_models(options: argparse.Namespace, scratch: Path) -> Iterator[Path]:
    """The files to time: those named, and networks of the zoo, each written before it is timed, then deleted."""
    for name in options.models:
        if name.endswith(".onnx"):
            yield Path(name)
            continue
        path = scratch / f"{name}.onnx"
        onnx.save(initialised(name), path)
        yield path
        path.unlink()


def main(argv: Sequence[str] | None = None) -> int:
    """Times the models; 1 if glowpy has no figure for one of them."""
    options = parse(argv)
    core = options.core if options.core is not None else max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    progress = Console(stderr=True)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in find_models(options, Path(scratch)):
            with progress.status(path.stem):
                rows.append(bench(path, options))
    if options.json:
        figures = [{**asdict(row), "milliseconds": row.milliseconds} for row in rows]
        report = {"machine": machine(core), "clock": options.clock, "rows": figures}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        console = Console(highlight=False, markup=False)
        if not console.is_terminal:
            console.width = 160
        console.print(table(rows, options.against))
        for row in rows:
            for name, reason in row.missing.items():
                console.print(f"{row.model}: {name}: {reason}")
        for name, value in {**machine(core), "clock": options.clock}.items():
            console.print(f"{name}: {value}")
    return int(any("glowpy" not in row.milliseconds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
