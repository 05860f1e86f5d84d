"""Measures opening a model: `python -m tools.bench_opening FILE.onnx ... [--state] [--warm] [--rounds 5] [--json]`.

* Every measurement is a process of its own, on one core; a round takes each once, so that a change of the machine's
  speed hits all of them. Figures are medians over rounds.
* *Whole* CPU seconds are those of the process from its start to its end: imports, opening, and one run. Its modules
  have their bytecode, as those of installed packages have. *Opening* is the part of it that the constructor takes.
* *Peak* is the most resident memory of the process after opening and one run, mapped files included.
* *Cold* has a cache with nothing but the kernels, *warm* one that holds what a process before it left; *drop-in* is
  warm as well, by `glowpy.onnxruntime`. `--warm` leaves the first out.
* With `--state` sessions keep what looks like state, but for onnxruntime's and those of the drop-in.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.support.cache_folder import cache_folder
from glowpy.support.console import print_json, print_table
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from tools.bench_command import existing_file, saying_errors, usable_core, whole_number

_PROGRAM = """
import json, resource, sys
import numpy as np
if sys.argv[1] == "glowpy":
    from glowpy import InferenceSession
    open_model = lambda path: InferenceSession(path, state="auto" if sys.argv[3:] else None)
else:
    if sys.argv[1] == "onnxruntime":
        import onnxruntime
    else:
        import glowpy.onnxruntime as onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    open_model = lambda path: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
KINDS = {"float": "f4", "double": "f8", "string": "U1"}
def feed(info):
    kind = info.type.removeprefix("tensor(").removesuffix(")")
    shape = [size if isinstance(size, int) else 1 for size in info.shape]
    return np.zeros(shape, KINDS.get(kind, kind))
def seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
begin = seconds()
session = open_model(sys.argv[2])
opening = seconds() - begin
session.run(None, {info.name: feed(info) for info in session.get_inputs()})
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) / 1024  # ru_maxrss would begin with what the parent takes
print(json.dumps({"opening": opening, "megabytes": peak}))
"""

NAMES = ("onnxruntime", "glowpy cold", "glowpy warm", "drop-in")


@dataclass(frozen=True)
class Row:
    """One model: CPU seconds of whole processes and of opening it, and MiB of peak memory, by who opened it."""

    model: str
    whole: Mapping[str, float]
    opening: Mapping[str, float]
    megabytes: Mapping[str, float]


def measure(
    name: str, path: Path, cache: Path, core: int, *, state: bool = False
) -> dict[str, float]:
    """One opening in a process of its own."""
    bytecode = {
        "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    program = [sys.executable, "-c", _PROGRAM, name.split()[0], str(path), *["state"] * state]
    begin = _child_seconds()
    done = subprocess.run(
        ["taskset", "-c", str(core), *program],
        capture_output=True, text=True, check=False,
        env={**os.environ, **bytecode, "GLOWPY_CACHE_DIR": str(cache)},
    )  # fmt: skip
    whole = _child_seconds() - begin
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise UserError(f"{name} cannot open the file: {reason}", loc=Loc(str(path)))
    return {"whole": whole, **json.loads(done.stdout)}


def _child_seconds() -> float:
    """CPU seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def bench(
    path: Path, rounds: int, core: int, names: Sequence[str] = NAMES, *, state: bool = False
) -> Row:
    """The measurements of these names of one model, after a round that does not count: it fills the cache."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    backend = CpuBackend()
    with tempfile.TemporaryDirectory() as folder:
        warm, cold = Path(folder, "warm"), Path(folder, "cold")
        _with_kernels(warm, backend)
        for _ in range(rounds + 1):
            _with_kernels(cold, backend)
            for name in names:
                cache = cold if name == "glowpy cold" else warm
                results[name].append(measure(name, path, cache, core, state=state))
            shutil.rmtree(cold)

    def medians(field: str) -> dict[str, float]:
        return {name: median(run[field] for run in runs[1:]) for name, runs in results.items()}

    return Row(path.stem, medians("whole"), medians("opening"), medians("megabytes"))


def _with_kernels(cache: Path, backend: CpuBackend) -> None:
    """Makes a cache that holds the kernels for this machine, as a wheel does."""
    cache.mkdir()
    origin = Path(LIBJIT.origin(backend.target.variant).partition(" ")[0])
    if not origin.is_absolute():
        _ = backend.kernels.bitcode
        folder = cache_folder()
        if folder is not None:
            shutil.copy(folder / origin, cache / origin)


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells for people."""
    heads = ["model", "process", ">whole CPU-s", ">of onnxruntime's", ">opening CPU-s", ">MiB"]
    cells = []
    for row in rows:
        for name in row.whole:
            whole, ratio = row.whole[name], row.whole[name] / row.whole["onnxruntime"]
            figures = f"{whole:.3f}", f"{ratio:.2f}", f"{row.opening[name]:.3f}"
            cells.append([row.model, name, *figures, f"{row.megabytes[name]:.0f}"])
    return heads, cells


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures the models and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=existing_file, nargs="+")
    parser.add_argument("--rounds", type=whole_number, default=5)
    parser.add_argument("--core", type=usable_core, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--state", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    names = [name for name in NAMES if not (options.warm and name == "glowpy cold")]
    rows = [
        bench(path, options.rounds, options.core, names, state=options.state)
        for path in options.models
    ]
    if options.json:
        print_json([asdict(row) for row in rows])
    else:
        print_table("", *table(rows), whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
