"""Measures the first result of networks: `python -m tools.bench_first --models resnet50,FILE.onnx [--rounds 5]`.

* Every measurement is a whole process that imports a runtime, opens the model and runs it once. A round takes each
  once, so that a change of the machine's speed hits all of them. Figures are medians over rounds.
* *CPU seconds* are all of the process, and of those that it starts. *Wall* is from its start to its answer: of a
  machine with nothing else to do.
* glowpy's cache is empty: what an installation brings is all there is. *Again* is the same process with the cache that
  the first has left.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from glowpy.support.console import print_json, print_table
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from tools.bench_command import saying_errors, whole_number
from tools.bench_subjects import TABLE, networks, prepared
from tools.zoo import NAMES as LIGHT

_PROGRAM = """
import sys
import numpy as np
if sys.argv[1] == "onnxruntime":
    from onnxruntime import InferenceSession
else:
    from glowpy import InferenceSession
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
session = InferenceSession(sys.argv[2])
feeds = {
    info.name: np.zeros([size if isinstance(size, int) else 1 for size in info.shape], KINDS[info.type])
    for info in session.get_inputs()
}
session.run(None, feeds)
print("answered", flush=True)
"""

NAMES = ("onnxruntime", "glowpy", "glowpy again")


@dataclass(frozen=True)
class Row:
    """One model: CPU seconds and seconds of whole processes, by the name of who computed the result."""

    model: str
    cpu_seconds: Mapping[str, float]
    wall_seconds: Mapping[str, float]


def measure(name: str, path: Path, cache: Path) -> tuple[float, float]:
    """CPU seconds, and seconds to the answer, of one process."""
    environment = {**os.environ, "GLOWPY_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _PROGRAM, name.split()[0], str(path)]
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        assert process.stdout is not None
        answer = process.stdout.readline()
        wall = time.perf_counter() - begin
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not answer:
            errors.seek(0)
            said = errors.read().strip().splitlines()
            reason = (said or [f"it ended with {process.returncode}"])[-1]
            raise UserError(f"{name} cannot run the file: {reason}", loc=Loc(str(path)))
    return usage.ru_utime + usage.ru_stime, wall


def bench(path: Path, rounds: int) -> Row:
    """All measurements of one model."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in NAMES:
                results[name].append(measure(name, path, Path(folder, "cache")))
    cpu, wall = (
        {name: median(figures[index] for figures in runs) for name, runs in results.items()}
        for index in range(2)
    )
    return Row(path.stem, cpu, wall)


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells for people."""
    heads = ["model", *(f">{name} CPU-s" for name in NAMES), *(f">{name} wall" for name in NAMES)]
    cells = []
    for row in rows:
        figures = [row.cpu_seconds[name] for name in NAMES] + [
            row.wall_seconds[name] for name in NAMES
        ]
        cells.append([row.model, *(f"{figure:.2f}" for figure in figures)])
    return heads, cells


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures the models and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models",
        type=networks,
        default=list(LIGHT),
        help="ONNX files, or some of these, with commas between: " + ", ".join(TABLE),
    )
    parser.add_argument("--small", action="store_true", help="exports as small as in tests")
    parser.add_argument("--keep", type=Path, help="a folder for the networks' files, which stay")
    parser.add_argument("--rounds", type=whole_number, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder, keep = options.keep or Path(scratch), options.keep is not None
        for name in options.models:
            with prepared(name, folder, small=options.small, keep=keep) as subject:
                rows.append(replace(bench(subject.path, options.rounds), model=subject.name))
    if options.json:
        print_json({"rows": [asdict(row) for row in rows]})
    else:
        print_table("", *table(rows), whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
