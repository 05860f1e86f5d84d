"""Times a decoder with weights of few bits: `python -m tools.bench_decoders [--bits 4] [--past 128] [--new 1,128]`.

* The network is a random Llama of `tools/decoders.py`: 8 layers of 2,048. It takes one token after others, and many
  without any before. onnxruntime and glowpy run the same file and are compared: once in f32, once where its products
  may round what they multiply to 8 bits (`accuracy_level` 4). llama.cpp runs a file of the same shape with weights in
  q4_0 or q8_0, and always rounds; it is left out where `llama_cpp` is not installed.
* All are in one process, take turns, and have one core or `--threads`. llama.cpp computes the last token's logits only,
  the others those of all tokens.
* Times are of the process's clock, which other work on the machine is not in, with one thread; else of the wall.
* *Least* is how long reading the weights takes, at the rate at which as many cores read 128 MB.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.benchmark.measure import CLOCKS
from glowpy.benchmark.peers import Contestant, loaded
from glowpy.support.console import print_table
from tools.bench_command import number, saying_errors, threads, usable_core, whole_number
from tools.bench_rounds import interleaved
from tools.decoders import LARGE, SMALL, Shape, feeds, write_gguf, write_onnx

__all__ = ["Row", "main"]

_LEVELS = {"f32": 0, "8 bits": 4}
_MOST_ERROR = {"f32": 1e-4, "8 bits": 2e-2}
"""Largest errors, as parts of the largest logit: what rounds to another integer changes all that follow."""

_FAR = 128e6
"""Bytes that were read since: those of no cache."""


@dataclass(frozen=True)
class Row:
    """Milliseconds of new tokens after others, by runtime and what it multiplies."""

    new: int
    past: int
    bits: int
    milliseconds: dict[str, float]
    error: dict[str, float]
    least: float | None


def _session(path: Path, inputs: dict[str, Any], count: int, name: str) -> Contestant:
    """glowpy, with the network's state in arrays of the caller."""
    session = glowpy.InferenceSession(path, threads=count)
    session.run(None, inputs)
    return Contestant(
        name, lambda: session.run(None, inputs), lambda: list(session.run(["logits"], inputs))
    )


def _onnx_contestants(
    folder: Path, shape: Shape, bits: int, inputs: dict[str, Any], count: int
) -> Iterator[tuple[str, Contestant]]:
    """Both runtimes of the ONNX files, and what they multiply."""
    for kind in _LEVELS:
        path = folder / f"{kind.replace(' ', '-')}-{bits}.onnx"
        peer = loaded("onnxruntime", path, inputs, count, None)
        yield kind, Contestant(f"onnxruntime {kind}", peer.run, peer.outputs)
        yield kind, _session(path, inputs, count, f"glowpy {kind}")


def _llama(path: Path, past: int, new: int, words: int, count: int) -> Contestant:
    module: Any = importlib.import_module("llama_cpp")
    model = module.Llama(
        str(path), n_ctx=past + new + 8, n_threads=count, n_threads_batch=count, verbose=False,
        n_batch=max(new, past, 1), n_ubatch=max(new, past, 1),
    )  # fmt: skip
    tokens = np.random.default_rng(1).integers(0, words, past + new).tolist()
    if past:
        model.eval(tokens[:past])

    def run() -> None:
        model.n_tokens = past
        model.eval(tokens[past:])

    run()
    return Contestant("llama.cpp", run, list)


def measure(folder: Path, shape: Shape, past: int, new: int, options: argparse.Namespace) -> Row:
    """One row, of files that are there."""
    count = options.threads or 1
    inputs = feeds(shape, past, new)
    pairs = list(_onnx_contestants(folder, shape, options.bits, inputs, count))
    errors = {}
    for kind in _LEVELS:
        right, ours = (contestant.outputs()[0] for other, contestant in pairs if other == kind)
        errors[kind] = float(np.abs(right - ours).max() / np.abs(right).max())
    contestants = [contestant for _, contestant in pairs]
    gguf = folder / f"llama-{options.bits}.gguf"
    if gguf.exists():
        contestants.append(_llama(gguf, past, new, shape.words, count))
    clock = CLOCKS["cpu" if count == 1 else "wall"]
    samples = interleaved(contestants, options.rounds, options.seconds, clock)
    least = None
    if not options.small:
        rate = peaks_of(CpuBackend().target, count).bandwidth("read", _FAR)
        least = 1e3 * shape.bytes_of_weights(options.bits) / rate
    times = {name: median(values) for name, values in samples.items()}
    return Row(new, past, options.bits, times, errors, least)


def _cells(row: Row) -> Iterator[list[str]]:
    """A line for each runtime: its time, as a part of llama.cpp's and of onnxruntime's with the same rounding."""
    llama = row.milliseconds.get("llama.cpp")
    for name, time in row.milliseconds.items():
        kind = name.partition(" ")[2]
        peer = row.milliseconds[f"onnxruntime {kind}"] if kind in _LEVELS else None
        error = row.error[kind] if name.startswith("glowpy") else None
        yield [
            f"{row.new} after {row.past}", name, f"{time:.2f}",
            *("" if part is None else f"{time / part:.2f}" for part in (llama, peer)),
            "" if error is None else f"{error:.1e}",
            "" if row.least is None else f"{row.least:.2f}",
        ]  # fmt: skip


_HEADS = ("tokens", "runtime", ">ms", ">of llama.cpp", ">of onnxruntime", ">error", ">least ms")


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_decoders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--past", type=whole_number, default=128, help="tokens before one")
    parser.add_argument(
        "--new",
        type=lambda text: [whole_number(part) for part in text.split(",")],
        default=[1, 128],
        help="how many tokens, with commas between; several begin a text (1,128)",
    )
    parser.add_argument("--threads", type=threads, default=1)
    parser.add_argument("--core", type=usable_core, help="the processor to stay on")
    parser.add_argument("--small", action="store_true", help="a network for tests of this tool")
    parser.add_argument("--rounds", type=whole_number, default=7)
    parser.add_argument("--seconds", type=number, default=0.1, help="at least so long per round")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


@saying_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Measures, and prints a table; 1 if glowpy computes something else than onnxruntime."""
    options = _parsed(argv)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    shape = SMALL if options.small else LARGE
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for kind, level in _LEVELS.items():
            path = folder / f"{kind.replace(' ', '-')}-{options.bits}.onnx"
            write_onnx(path, shape, options.bits, level)
        if find_spec("llama_cpp") is not None and not options.small:
            write_gguf(folder / f"llama-{options.bits}.gguf", shape, options.bits)
        rows = [
            measure(folder, shape, options.past if new == 1 else 0, new, options)
            for new in options.new
        ]
    if options.json:
        figures = {"rows": list(map(asdict, rows)), "onnxruntime": onnxruntime.__version__}
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        print_table("", _HEADS, [cells for row in rows for cells in _cells(row)], whole=True)
    wrong = [row for row in rows for kind in _LEVELS if row.error[kind] > _MOST_ERROR[kind]]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
