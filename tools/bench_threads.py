"""Times one and two threads, and eight sessions at once: `python -m tools.bench_threads [--models resnet50,...]`.

* Times are of the wall, on all processors that the process may use: other work on the machine is in them.
* One and two threads take turns, as runtimes do in `tools/bench.py`. Outputs with 1, 2, 3 and 7 threads are compared
  bit by bit.
* Eight sessions with two threads each run once: one after another, then all at once, each called by a thread of its
  own. What sixteen threads lose on two processors would show in the second time.
* Last it says how fast one processor reads what another one has written: see `tools/bench_processors.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.benchmark.measure import CLOCKS
from glowpy.benchmark.peers import Contestant
from glowpy.support.console import print_table
from tools.bench_command import number, saying_errors, whole_number
from tools.bench_processors import processors
from tools.bench_rounds import interleaved
from tools.bench_rows import ThreadsRow
from tools.bench_subjects import TABLE, Subject, networks, prepared

__all__ = ["MODELS", "main", "measure"]

MODELS = ("resnet50", "vgg19", "squeezenet", "bert")
"""Those whose times with two threads the documentation has."""
_THREADS, _SESSIONS = (1, 2, 3, 7), 8


def _contestant(subject: Subject, threads: int) -> Contestant:
    """The network with so many threads, which has run once."""
    backend = CpuBackend(CpuOptions(threads=threads))
    compiled = glowpy.compile(glowpy.load(subject.path), backend=backend)
    instance = compiled.instance()
    for name, array in subject.inputs.items():
        instance.write(name, array)
    instance.run()
    return Contestant(
        str(threads), instance.run, lambda: [instance[name].copy() for name in compiled.outputs]
    )


def measure(subject: Subject, rounds: int, seconds: float) -> ThreadsRow:
    """Everything about one network."""
    clock = CLOCKS["wall"]
    contestants = [_contestant(subject, threads) for threads in _THREADS]
    bits = [[array.tobytes() for array in contestant.outputs()] for contestant in contestants]
    one, two = interleaved(contestants[:2], rounds, seconds, clock).values()
    sessions = [glowpy.InferenceSession(subject.path, threads=2) for _ in range(_SESSIONS)]

    def run(session: glowpy.InferenceSession) -> object:
        return session.run(None, dict(subject.inputs))

    with ThreadPoolExecutor(_SESSIONS) as pool:
        ways = [
            Contestant("apart", lambda: [run(session) for session in sessions], list),
            Contestant("together", lambda: list(pool.map(run, sessions)), list),
        ]
        apart, together = interleaved(ways, rounds, seconds, clock).values()
    return ThreadsRow(
        subject.name,
        median(one),
        median(two),
        median(before / after for before, after in zip(one, two, strict=True)),
        all(other == bits[0] for other in bits),
        median(apart),
        median(together),
        median(before / after for before, after in zip(apart, together, strict=True)),
    )


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table; 1 if bits depend on the number of threads."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_threads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--models",
        type=networks,
        default=list(MODELS),
        help="ONNX files, or some of these, with commas between: " + ", ".join(TABLE),
    )
    parser.add_argument("--small", action="store_true", help="exports as small as in tests")
    parser.add_argument("--rounds", type=whole_number, default=7)
    parser.add_argument("--seconds", type=number, default=0.2, help="at least so long per round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows, used = [], processors()
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.models:
            with prepared(name, Path(scratch), small=options.small, keep=False) as subject:
                rows.append(measure(subject, options.rounds, options.seconds))
    if options.json:
        figures = {"rows": list(map(asdict, rows)), "note": str(used) if used else ""}
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        heads = [ThreadsRow.HEADS[0], *(f">{head}" for head in ThreadsRow.HEADS[1:])]
        print_table("", heads, [row.cells for row in rows], whole=True)
        sys.stdout.write(f"{used}\n" if used else "")
    return int(not all(row.same_bits for row in rows))


if __name__ == "__main__":
    sys.exit(main())
