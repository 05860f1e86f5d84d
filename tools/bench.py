"""Times glowpy against other runtimes on one core: `python -m tools.bench [--models resnet50,bert,...]`.

* Everything runs on one core, in one process, with one thread, and in f32; with `--threads 2`, on all processors that
  the process may use.
* Runs are interleaved: a round times every runtime once, so that a change of the machine's speed hits all of them.
* A time is the median over rounds of the median within a round, after a warm-up; a ratio is the median over rounds of
  glowpy's time in parts of the other's: below 1 glowpy is faster.
* Outputs are compared before anything is timed; a wrong network gets no figure.

`--batch 8` times the light networks of the onnx package on eight images. ncnn, which has no batches, computes one after
another.

`--cpu x86-64-v3` times code for older processors, without AVX-512, beside OpenVINO with the same instructions.

`--write docs/reference/performance.md` writes the page that the documentation has, and its picture beside it; what
`--batch`, `--cpu` and `tools/bench_threads.py` measure of some of the networks is on it as well.
Which networks there are: see `tools/bench_subjects.py`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.benchmark.measure import CLOCKS
from glowpy.benchmark.peers import PEERS, Contestant, Inputs, loaded
from glowpy.debugging.compare import compare
from glowpy.llvm.machine import host_cpu
from glowpy.support.console import print_table
from glowpy.support.errors import UserError
from tools.bench_command import number, output_file, saying_errors, usable_core, whole_number
from tools.bench_page import Others, write_page
from tools.bench_processors import Processors
from tools.bench_rounds import interleaved
from tools.bench_rows import Row, ThreadsRow, geometric_mean, two_digits
from tools.bench_subjects import TABLE, Subject, names_of, networks, prepared
from tools.bench_threads import MODELS as SCALED
from tools.zoo import NAMES

RUNTIMES = tuple(PEERS)
RTOL, ATOL = 1e-3, 1e-3
"""Networks end in a softmax or in scores of unit scale; a wrong kernel is off by far more."""

_SETS = {"x86-64-v2": "SSE41", "x86-64-v3": "AVX2"}
"""OpenVINO's names of the instruction sets that glowpy has for a processor."""


BATCHES = (8, 32)
"""Sizes of batches on the page."""
_IN_THE_PAPER = ("resnet50", "vgg19")
"""Networks that the paper on Glow compares with other compilers, at a batch of 8 (Rotem et al. 2018, figure 11)."""


def with_glowpy(path: Path, inputs: Inputs, cpu: str, threads: int) -> Contestant:
    """The model compiled for a processor, this one if the name is empty, running in its own buffers."""
    backend = CpuBackend(CpuOptions(cpu=cpu, threads=threads))
    compiled = glowpy.compile(glowpy.load(path), backend=backend)
    instance = compiled.instance()
    for name, array in inputs.items():
        instance.write(name, array)
    instance.run()
    return Contestant(
        "glowpy", instance.run, lambda: [instance[name].copy() for name in compiled.outputs]
    )


def prepare(
    subject: Subject,
    names: Sequence[str],
    ncnn_models: Path | None,
    row: Row,
    cpu: str = "",
    threads: int = 1,
) -> list[Contestant]:
    """Every runtime that loads the model and computes what it has to; `row` notes why others do not.

    glowpy's code is for the processor called `cpu`.
    """
    reference = {str(index): array for index, array in enumerate(subject.expected)}
    ready = []
    for name in ("glowpy", *names):
        try:
            contestant = (
                with_glowpy(subject.path, subject.inputs, cpu, threads)
                if name == "glowpy"
                else loaded(name, subject.path, subject.inputs, threads, ncnn_models)
            )
        except UserError as error:
            row.missing[name] = error.diagnostics[0].message
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the table goes on
            row.missing[name] = repr(error)
            continue
        got = {str(index): array for index, array in enumerate(contestant.outputs())}
        differences = compare(got, reference, RTOL, ATOL, RTOL)
        row.errors[name] = max(difference.absolute for difference in differences)
        if all(difference.within for difference in differences):
            ready.append(contestant)
        else:
            row.missing[name] = f"wrong by {row.errors[name]:.3g}"
    return ready


def bench(subject: Subject, options: argparse.Namespace) -> Row:
    """Everything about one model."""
    first = next(iter(subject.inputs.values()))
    row = Row(subject.name, "x".join(map(str, first.shape)))
    contestants = prepare(
        subject, options.against, options.ncnn_models, row, options.cpu, options.threads
    )
    if contestants:
        clock = CLOCKS[options.clock]
        row.rounds = interleaved(contestants, options.rounds, options.seconds, clock)
    return row


def machine(cores: Iterable[int]) -> dict[str, str]:
    """The machine and the versions that the figures depend on besides the code."""
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
        "processor": f"{models[0] if models else platform.processor()} ({host_cpu()})",
        "cores": str(os.cpu_count()),
        "core": ", ".join(map(str, cores)),
        "load": f"{os.getloadavg()[0]:.2f}",
        "system": platform.platform(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def table(rows: Sequence[Row], against: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Columns, and cells: milliseconds and ratios; a ratio below 1 means that glowpy is faster."""
    columns = ["glowpy", *against]
    compared = [*against, "fastest"] if len(against) > 1 else list(against)
    heads = ["model", *(f">{name} ms" for name in columns)]
    heads += [f">glowpy / {name}" for name in compared]
    cells = []
    for row in rows:
        medians = row.milliseconds
        times = [f"{medians[name]:.3f}" if name in medians else "-" for name in columns]
        cells.append([row.model, *times, *(two_digits(row.ratio(name)) for name in compared)])
    means = [two_digits(geometric_mean(rows, name)) for name in compared]
    return heads, [*cells, ["geometric mean", *[""] * len(columns), *means]]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    say = parser.add_argument
    say(
        "--models",
        type=networks,
        default=[],
        help="ONNX files, or some of these, with commas between: " + ", ".join(TABLE),
    )
    say("--against", type=names_of, default=list(RUNTIMES), help="some of " + ", ".join(RUNTIMES))
    say("--ncnn-models", type=Path, help="a folder with NAME.param and NAME.bin; else pnnx is run")
    say("--small", action="store_true", help="exports as small as in tests")
    say("--rounds", type=whole_number, default=7)
    say("--seconds", type=number, default=0.2, help="at least so long per round and runtime")
    say(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu counts this process's processor time only: for a machine that others use as well",
    )
    say(
        "--cpu",
        choices=_SETS,
        default="",
        help="code for an older processor; OpenVINO's products are held to its instructions as well",
    )
    say("--batch", type=whole_number, default=1, help="images that light networks compute")
    say("--threads", type=whole_number, default=1)
    say("--core", type=usable_core, help="the core for one thread; the last one if left out")
    say("--keep", type=Path, help="a folder for the networks' files, which stay")
    say("--write", type=output_file, help="a page of Markdown to write, with a picture beside it")
    say("--json", action="store_true")
    options = parser.parse_args(argv)
    if unknown := set(options.against) - set(RUNTIMES):
        parser.error(
            f"unknown runtime {sorted(unknown)[0]}: expected some of {', '.join(RUNTIMES)}"
        )
    for name, usual in (("cpu", ""), ("batch", 1), ("threads", 1)):
        if options.write is not None and getattr(options, name) != usual:
            parser.error(f"--write: expected no --{name}, for which the page has tables of its own")
    options.models = options.models or list(TABLE if options.batch == 1 else NAMES)
    if options.batch > 1 and (others := set(options.models) - set(NAMES)):
        light = ", ".join(NAMES)
        parser.error(f"--batch: expected light networks, got {min(others)}; they are {light}")
    if options.threads > 1 and (options.core is not None or options.clock == "cpu"):
        parser.error("--threads: expected the wall's clock, and all processors, for several")
    return options


def measure(options: argparse.Namespace) -> list[Row]:
    """Times the models, one after the other."""
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Console(stderr=True).status("") as status,
    ):
        folder, keep = options.keep or Path(scratch), options.keep is not None
        for number, name in enumerate(options.models, 1):
            status.update(f"{name} ({number} of {len(options.models)})")
            with prepared(
                name, folder, small=options.small, keep=keep, batch=options.batch
            ) as subject:
                rows.append(bench(subject, options))
    return rows


def _other_tables(options: argparse.Namespace, core: int) -> Others:
    """Measures the other tables of the page, for the models that they are about: each in a process of its own.

    Those with two threads run on all processors, those for older ones have OpenVINO held to fewer instructions from its
    beginning.
    """
    common = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--json"]
    common += ["--small"] if options.small else []

    def measured(tool: str, models: Container[str], *more: str) -> dict[str, Any]:
        names = [name for name in options.models if name in models]
        if not names:
            return {"rows": []}
        command = [sys.executable, "-m", tool, "--models", ",".join(names), *common, *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            sys.exit(f"{tool} ended without figures: see what it says above")
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures

    threads = measured("tools.bench_threads", SCALED)
    used = threads.get("processors")
    alone = "--core", str(core), "--clock", options.clock
    against = ["--against", ",".join(options.against)]
    against += ["--ncnn-models", str(options.ncnn_models)] if options.ncnn_models else []

    def timed(models: Container[str], *more: str) -> list[Row]:
        return [Row(**row) for row in measured("tools.bench", models, *more)["rows"]]

    batches = {
        (batch, 1): timed(NAMES, *alone, *against, "--batch", str(batch)) for batch in BATCHES
    }
    batches[8, 2] = timed(_IN_THE_PAPER, *against, "--batch", "8", "--threads", "2")
    sets = {
        cpu: timed(NAMES, *alone, "--against", "openvino,onnxruntime", "--cpu", cpu)
        for cpu in (_SETS if platform.machine() == "x86_64" else ())
    }
    rows = [ThreadsRow(**row) for row in threads["rows"]]
    return Others(rows, str(Processors(**used)) if used else "", batches, sets)


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Times the models; 1 if glowpy has no figure for one of them."""
    options = parse(argv)
    usable = os.sched_getaffinity(0)
    core = options.core if options.core is not None else max(usable)
    nothing_else = Others([], "", {}, {})
    other_tables = _other_tables(options, core) if options.write is not None else nothing_else
    if options.cpu:
        os.environ["ONEDNN_MAX_CPU_ISA"] = _SETS[options.cpu]  # before OpenVINO is imported
    cores = [core] if options.threads == 1 else sorted(usable)
    os.sched_setaffinity(0, cores)
    about = {**machine(cores), "clock": options.clock}
    rows = measure(options)
    if options.write is not None:
        write_page(
            options.write,
            about,
            rows,
            options.against,
            other_tables,
            rounds=options.rounds,
            seconds=options.seconds,
            tolerance=RTOL,
        )
    if options.json:
        figures = {row.model: row.milliseconds for row in rows}
        report = {"machine": about, "rows": list(map(asdict, rows)), "milliseconds": figures}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        print_table("", *table(rows, options.against), whole=True)
        missing = [
            f"{row.model}: {name}: {why}" for row in rows for name, why in row.missing.items()
        ]
        lines = [*missing, *(f"{name}: {value}" for name, value in about.items())]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(any("glowpy" not in row.milliseconds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
