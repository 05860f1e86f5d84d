"""Times glowpy against other runtimes on one core: `python -m tools.bench [--models resnet50,bert,...]`.

* Everything runs on one core, in one process, with one thread, and in f32, unless options say otherwise; with
  `--threads 2`, on all processors that the process may use.
* Runs are interleaved: a round times every contestant once, so that a change of the machine's speed hits all of them.
* A time is the median over rounds of the median within a round, after a warm-up; a ratio is the median over rounds of
  glowpy's time in parts of the other's: below 1 glowpy is faster.
* Outputs are compared before anything is timed; a wrong network gets no figure.

`--against` names others of `tools/bench_contestants.py`, and `--ours "glowpy bf16"` the one whose ratios are told.
`--cpu x86-64-v3` times code for older processors, without AVX-512, beside OpenVINO with the same instructions.

`--batch 8` times the light networks of the onnx package on eight images, and `--int8` as glowpy quantizes them. ncnn,
which has no batches, computes one after another.

`--write docs/reference/performance.md` writes the page that the documentation has, its figures as JSON and its picture
beside it. The page has sections, see `tools/bench_sections.py`: `--only bf16 --models resnet50,bert` measures these
rows of this section again and keeps all others; `--only none` writes the page again from the figures beside it.
Which networks there are: see `tools/bench_subjects.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from glowpy.benchmark.measure import CLOCKS
from glowpy.benchmark.peers import PEERS, own_precision
from glowpy.support.console import print_table
from tools.bench_command import (
    number,
    output_file,
    saying_errors,
    threads,
    usable_core,
    whole_number,
)
from tools.bench_contestants import CONTESTANTS, Setting, prepare
from tools.bench_machine import limits, machine
from tools.bench_page import measured, read_figures, renewed, write_page
from tools.bench_rounds import interleaved
from tools.bench_rows import Row, geometric_mean, two_digits
from tools.bench_sections import SECTIONS
from tools.bench_subjects import TABLE, Subject, names_of, networks, prepared
from tools.zoo import NAMES

_SETS = {"x86-64-v2": "SSE41", "x86-64-v3": "AVX2"}
"""OpenVINO's names of the instruction sets that glowpy has for a processor."""
_OURS = [name for name in CONTESTANTS if name.startswith("glowpy")]


def bench(subject: Subject, options: argparse.Namespace) -> Row:
    """Everything about one model."""
    first = next(iter(subject.inputs.values()))
    row = Row(subject.name, "x".join(map(str, first.shape)))
    setting = Setting(options.threads, options.cpu, options.ncnn_models)
    contestants = prepare(subject, [options.ours, *options.against], setting, row)
    if contestants:
        clock = CLOCKS[options.clock]
        row.rounds = interleaved(contestants, options.rounds, options.seconds, clock)
    return row


def table(
    rows: Sequence[Row], against: Sequence[str], ours: str = "glowpy"
) -> tuple[list[str], list[list[str]]]:
    """Columns, and cells: milliseconds and ratios; a ratio below 1 means that glowpy is faster."""
    columns = [ours, *against]
    compared = [*against, "fastest"] if len(against) > 1 else list(against)
    heads = ["model", *(f">{name} ms" for name in columns)]
    heads += [f">{ours} / {name}" for name in compared]
    cells = []
    for row in rows:
        medians = row.milliseconds
        times = [f"{medians[name]:.3f}" if name in medians else "-" for name in columns]
        cells.append([row.model, *times, *(two_digits(row.ratio(name, ours)) for name in compared)])
    means = [two_digits(geometric_mean(rows, name, ours)) for name in compared]
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
        type=names_of,
        help="ONNX files, or some of these, with commas between: " + ", ".join(TABLE),
    )
    say("--against", type=names_of, default=list(PEERS), help="some of " + ", ".join(CONTESTANTS))
    say("--ours", choices=_OURS, default="glowpy", help="the one that is compared with others")
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
    say("--batch", type=whole_number, default=1, help="images that light networks compute")
    say("--int8", action="store_true", help="light networks in 8-bit integers")
    say(
        "--threads",
        type=threads,
        default=1,
        help="0 for as many as each takes by itself",
    )
    say(
        "--cpu",
        choices=_SETS,
        default="",
        help="code for an older processor; OpenVINO's products are held to its instructions as well",
    )
    say(
        "--core",
        type=usable_core,
        help="the core for one thread; the last one if left out",
    )
    say("--keep", type=Path, help="a folder for the networks, which stay and are taken again")
    say("--write", type=output_file, help="a page of Markdown to write, with figures beside it")
    say("--only", type=names_of, help="sections to measure: some of " + ", ".join(SECTIONS))
    say("--json", action="store_true")
    return _checked(parser, parser.parse_args(argv))


def _checked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """The options if they go together; else ends the program, and says why."""
    if unknown := set(options.against) - set(CONTESTANTS):
        expected = ", ".join(CONTESTANTS)
        parser.error(f"unknown runtime {min(unknown)}: expected some of {expected}")
    if options.threads != 1 and (options.core is not None or options.clock == "cpu"):
        parser.error("--threads: expected the wall's clock, and all processors, for several")
    if options.write is None:
        _check_models(parser, options)
    else:
        _check_page(parser, options)
    if options.core is None:
        options.core = max(os.sched_getaffinity(0))
    return options


def _check_models(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.only is not None:
        parser.error("--only: expected --write, for it names sections of the page")
    is_light = options.int8 or options.batch > 1
    names = options.models or (NAMES if is_light else TABLE)
    try:
        options.models = networks(",".join(names))
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --models: {error}")
    if is_light and (others := set(options.models) - set(NAMES)):
        light = ", ".join(NAMES)
        option = "--int8" if options.int8 else "--batch"
        parser.error(f"{option}: expected light networks, got {min(others)}; they are {light}")


def _check_page(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    for name, usual in (("cpu", ""), ("batch", 1), ("int8", False), ("threads", 1)):
        if getattr(options, name) != usual:
            parser.error(
                f"--write: expected no --{name}, for which the page has sections of its own"
            )
    options.only = list(SECTIONS) if options.only is None else options.only
    if unknown := set(options.only) - set(SECTIONS) - {"none"}:
        expected = ", ".join(SECTIONS)
        parser.error(f"unknown section {min(unknown)}: expected some of {expected}, or none")
    known = {name for section in SECTIONS.values() for name in section.networks}
    if unknown := set(options.models or ()) - known:
        parser.error(f"no section has a row '{min(unknown)}'")


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
                *(name, folder),
                small=options.small,
                keep=keep,
                batch=options.batch,
                int8=options.int8,
            ) as subject:
                rows.append(bench(subject, options))
    return rows


def _write(options: argparse.Namespace) -> int:
    """Measures sections and writes the page after each: what is there stays if the next one fails."""
    for name in options.only:
        if name != "none" and (run := measured(name, options)) is not None:
            figures = read_figures(options.write)
            write_page(options.write, figures | {name: renewed(figures.get(name, ()), run)})
    write_page(options.write, read_figures(options.write))
    return 0


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Times the models; 1 if glowpy has no figure for one of them."""
    options = parse(argv)
    if options.write is not None:
        return _write(options)
    if options.cpu:
        os.environ["ONEDNN_MAX_CPU_ISA"] = _SETS[options.cpu]  # before OpenVINO is imported
    cores = [options.core] if options.threads == 1 else sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores)
    about = {**machine(cores), "clock": options.clock}
    rows = measure(options)
    if options.json:
        figures = {row.model: row.milliseconds for row in rows}
        report = {"machine": about, "rows": list(map(asdict, rows)), "milliseconds": figures}
        sys.stdout.write(json.dumps({**report, "note": _note(options)}, indent=2) + "\n")
    else:
        print_table("", *table(rows, options.against, options.ours), whole=True)
        missing = [
            f"{row.model}: {name}: {why}" for row in rows for name, why in row.missing.items()
        ]
        lines = [*missing, *(f"{name}: {value}" for name, value in about.items()), _note(options)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(any(options.ours not in row.milliseconds for row in rows))


def _note(options: argparse.Namespace) -> str:
    """Words on the limits of the core, and on the precision that others choose."""
    notes = [] if options.cpu or options.threads != 1 else [limits()]
    if "openvino default" in options.against:
        notes.append(f"OpenVINO chooses {own_precision('openvino')} on this processor.")
    return " ".join(notes)


if __name__ == "__main__":
    sys.exit(main())
