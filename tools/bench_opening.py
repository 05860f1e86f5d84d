"""Measures opening a model: `python -m tools.bench_opening FILE.onnx ... [--rounds 5] [--json]`.

* Every measurement is a process of its own, on one core; a round takes each once, so that a change of the machine's
  speed hits all of them. Figures are medians over rounds.
* *CPU seconds* are those of opening, and of the processes that it starts; imports before it do not count.
* *Peak* is the most resident memory of the process after opening and one run, mapped files included.
* *Cold* has a cache with nothing but the kernels, *warm* one that holds what the cold opening left.
"""

from __future__ import annotations

import argparse
import json
import os
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
if sys.argv[1] == "onnxruntime":
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    open_model = lambda path: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
else:
    from glowpy import InferenceSession as open_model
KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
def seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
begin = seconds()
session = open_model(sys.argv[2])
opening = seconds() - begin
feeds = {
    info.name: np.zeros([size if isinstance(size, int) else 1 for size in info.shape], KINDS[info.type])
    for info in session.get_inputs()
}
session.run(None, feeds)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": opening, "megabytes": peak}))
"""

NAMES = ("onnxruntime", "glowpy cold", "glowpy warm")


@dataclass(frozen=True)
class Row:
    """One model: CPU seconds to open it, and MiB of peak memory, by the name of who opened it."""

    model: str
    seconds: Mapping[str, float]
    megabytes: Mapping[str, float]


def measure(name: str, path: Path, cache: Path, core: int) -> dict[str, float]:
    """One opening in a process of its own."""
    environment = {**os.environ, "GLOWPY_CACHE_DIR": str(cache)}
    done = subprocess.run(
        ["taskset", "-c", str(core), sys.executable, "-c", _PROGRAM, name.split()[0], str(path)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise UserError(f"{name} cannot open the file: {reason}", loc=Loc(str(path)))
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def bench(path: Path, rounds: int, core: int) -> Row:
    """All measurements of one model."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    backend = CpuBackend()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder, "cache")
            _with_kernels(cache, backend)
            for name in NAMES:
                results[name].append(measure(name, path, cache, core))

    def medians(field: str) -> dict[str, float]:
        return {name: median(r[field] for r in runs) for name, runs in results.items()}

    return Row(path.stem, medians("seconds"), medians("megabytes"))


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
    heads = ["model", *(f">{name} CPU-s" for name in NAMES), *(f">{name} MiB" for name in NAMES)]
    cells = []
    for row in rows:
        seconds = [f"{row.seconds[name]:.3f}" for name in NAMES]
        cells.append([row.model, *seconds, *(f"{row.megabytes[name]:.0f}" for name in NAMES)])
    return heads, cells


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures the models and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=existing_file, nargs="+")
    parser.add_argument("--rounds", type=whole_number, default=5)
    parser.add_argument("--core", type=usable_core, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = [bench(path, options.rounds, options.core) for path in options.models]
    if options.json:
        print_json([asdict(row) for row in rows])
    else:
        print_table("", *table(rows), whole=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
