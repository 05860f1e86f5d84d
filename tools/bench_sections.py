"""The sections of the page that `tools/bench.py --write` makes: what measures each of them, and how it is told.

A section's figures are rows. A tool measures them in a process of its own; `SECTIONS` says which, with which options.
For another section, write a tool that takes `--models NAMES --json` and what else `takes` says, and prints

    {"rows": [{"model": NAME, ...}, ...], "note": "what else is to be said, in words; may be left out"}

and add it here with a function that makes Markdown of such rows. A row is kept by its section and model, so that it can
be measured again without the others. For contestants that run ONNX files by turns there is a tool, `_race`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from glowpy.benchmark.peers import PEERS
from tools.bench_layers import HEADS, LayersRow
from tools.bench_rows import Row, ThreadsRow, geometric_mean, two_digits
from tools.bench_subjects import TABLE
from tools.zoo import NAMES

__all__ = ["SECTIONS", "Figures", "Section", "races", "table"]

Figures = Mapping[str, Any]
"""A row as JSON; its `model` is the name by which it is found again."""

_COMMON = ("rounds", "seconds", "small")
_RACE = (*_COMMON, "keep", "ncnn_models")


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: Its heading.
        text: What was measured, in Markdown.
        command: The tool, and its options, as `python -m` takes them.
        takes: The options of `tools/bench.py` that the tool has as well.
        networks: The names of its rows, in their order.
        told: Markdown of rows, line by line.
        option: The option of the tool that names rows.
        field: The field of a row that has its name.
    """

    title: str
    text: str
    command: Sequence[str]
    takes: Sequence[str]
    networks: Sequence[str]
    told: Callable[[Sequence[Figures]], Iterator[str]]
    option: str = "--models"
    field: str = "model"


def table(heads: Sequence[str], cells: Sequence[Sequence[str]], *, texts: int = 1) -> Iterator[str]:
    """A table in Markdown; the first columns hold text, the others numbers."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * texts}{'---:|' * (len(heads) - texts)}"
    yield from (f"| {' | '.join(row)} |" for row in cells)


def races(
    rows: Sequence[Figures],
    *,
    names: Sequence[str],
    ours: str = "glowpy",
    fastest: bool = True,
) -> Iterator[str]:
    """Times of contestants, ratios of ours to all others, and their geometric means; then why some have no figure.

    Args:
        rows: What `Row` has.
        names: The contestants, in their order.
        ours: The one whose times the ratios are of.
        fastest: Whether it is compared with the fastest of other runtimes as well, if there are several.
    """
    made = [Row(**row) for row in rows]
    others = [name for name in names if name != ours]
    rivals = [name for name in others if not name.startswith("glowpy")]
    compared = [*others, *["fastest"] * (fastest and len(rivals) > 1)]
    limited = any(ours in row.least for row in made)
    heads = ["network", "first input", *(f"{name} ms" for name in names)]
    heads += [f"/ {name}" for name in compared] + ["of its roof"] * limited
    cells = []
    for row in made:
        times = row.milliseconds
        line = [row.model, row.shape]
        line += [f"{times[name]:.2f}" if name in times else "-" for name in names]
        line += [two_digits(row.ratio(name, ours)) for name in compared]
        share = row.least[ours] / times[ours] if ours in row.least and ours in times else None
        cells.append([*line, *(["-" if share is None else f"{share:.0%}"] * limited)])
    light = [row for row in made if row.model in NAMES]
    heavy = [row for row in made if row.model not in NAMES]
    for what, some in (("the light ones", light), ("the others", heavy), ("all", made)):
        if some is made or (some and len(some) < len(made)):
            means = [two_digits(geometric_mean(some, name, ours)) for name in compared]
            blank = [""] * (1 + len(names))
            cells.append([f"**{what}**, geometric mean", *blank, *means, *([""] * limited)])
    yield from table(heads, cells, texts=2)
    missing = [f"* {row.model}, {name}: {why}" for row in made for name, why in row.missing.items()]
    if missing:
        yield from ("", "No figure:", "", *missing)


def _race(
    title: str,
    text: str,
    names: Sequence[str],
    *options: str,
    ours: str = "glowpy",
    networks: Sequence[str] = TABLE,
    fastest: bool = True,
) -> Section:
    """A section that `tools/bench.py` measures: contestants by turns, on one core unless `--threads` says more."""
    others = ",".join(name for name in names if name != ours)
    command = "tools.bench", *options, "--ours", ours, "--against", others
    takes = _RACE if "--threads" in options else (*_RACE, "core", "clock")
    told = partial(races, names=names, ours=ours, fastest=fastest)
    return Section(title, text, command, takes, networks, told)


def _threads(rows: Sequence[Figures]) -> Iterator[str]:
    return table(ThreadsRow.HEADS, [ThreadsRow(**row).cells for row in rows])


def _layers(rows: Sequence[Figures]) -> Iterator[str]:
    return table(HEADS, [line for row in rows for line in LayersRow(**row).cells])


def _decoders(rows: Sequence[Figures]) -> Iterator[str]:
    """Times by what is multiplied, in parts of llama.cpp's as well, which multiplies numbers of 8 bits."""
    names = "llama.cpp", "glowpy 8 bits", "onnxruntime 8 bits", "glowpy f32", "onnxruntime f32"
    ours = [name for name in names if name.startswith("glowpy")]
    heads = ["tokens", *(f"{name} ms" for name in names), *(f"{name} / llama.cpp" for name in ours)]
    heads += ["error of 8 bits", "weights are read in ms"]
    cells = []
    for row in rows:
        times, least = row["milliseconds"], row["least"]
        line = [f"{row['new']} after {row['past']}"]
        line += [f"{times[name]:.2f}" if name in times else "-" for name in names]
        llama = times.get("llama.cpp")
        line += [two_digits(times[name] / llama if llama else None) for name in ours]
        cells.append([*line, f"{row['error']['8 bits']:.0e}", f"{least:.2f}" if least else "-"])
    return table(heads, cells)


def _first(rows: Sequence[Figures]) -> Iterator[str]:
    names = ("onnxruntime", "glowpy", "glowpy again")
    heads = ["network", *(f"{name} CPU-s" for name in names), *(f"{name} s" for name in names)]
    cells = [
        [
            row["model"],
            *(
                f"{row[what][name]:.2f}"
                for what in ("cpu_seconds", "wall_seconds")
                for name in names
            ),
        ]
        for row in rows
    ]
    return table(heads, cells)


_F32 = """
Every network computes one input, or one step, in f32, on one core and with one thread.
"""
_BF16 = """
Products in bf16: glowpy's by `--precision bf16`, OpenVINO's as it computes a model in f32 by default on a processor
that has such products. [halves.md](../halves.md#when-it-is-safe) says what that costs in accuracy.
"""
_INT8 = """
Networks in 8-bit integers, as [glowpy quantizes them](../quantization.md), from one ONNX file: convolutions between
a dequantization of its inputs and a quantization of its result.
"""
_DEFAULTS = """
All processors, as many threads as each runtime takes by itself, and the precision that it chooses; times of the wall.
glowpy has as many threads as there are processors (`threads=0`; by itself it takes one), and f32, its default; in bf16
it is beside that.
"""
_THREADS = """
By turns, times of the wall. Eight sessions have two threads each; they are called one after another, and then by eight
threads at once.
"""
_SETS = """
Code for processors with {what}, on this one. `ONEDNN_MAX_CPU_ISA` holds OpenVINO to {held}; onnxruntime has no such
switch, and uses what the processor has.
"""
_FIRST = """
Whole processes, from their start to their first result: they import a runtime, open the model, and run it once.
Kernels and functions that many networks have came with the installation.
glowpy's cache is empty; *again* is the same with what the first process has left there.
"""
_DECODERS = """
A random Llama of 8 layers, 2,048 wide, with weights of 4 bits in blocks of 32, on one core and with one thread: one
token after 128 others, and the 128 at the beginning. glowpy and onnxruntime run one ONNX file with all logits, in f32
and with products of numbers that are rounded to 8 bits (`accuracy_level` 4); llama.cpp runs weights in q4_0, always
rounds so, and computes the last token's logits only. Times of the process's clock.
"""
_LAYERS = """
Layers that reach less than 80 % of their roof and take more than 2 % of their network, in f32, on one core and with one
thread. A layer is what is computed in one loop or kernel, by the name of the node in the model.
"""
_BATCHES = """
So many images in one run, in f32, on one core and with one thread. ncnn has no batches, and computes one image after
another.
"""
_FIGURE = """
The networks of figure 11 of the [paper on Glow](https://arxiv.org/abs/1805.00907), which compares it with other
compilers at a batch of 8. With one thread they are in the table of eight images; here are two, times of the wall.
"""
_ALL = ("glowpy", *PEERS)
_SCALED = ("resnet50", "squeezenet", "vgg19", "bert")

SECTIONS: Mapping[str, Section] = {
    "f32": _race("One core, f32", _F32, _ALL),
    "bf16": _race(
        *("One core, bf16", _BF16, ("glowpy bf16", "glowpy", "openvino default", "openvino")),
        ours="glowpy bf16",
    ),
    "int8": _race(
        *("One core, int8", _INT8, ("glowpy", "onnxruntime", "openvino"), "--int8"),
        networks=("resnet50", "squeezenet", "vgg19"),
    ),
    "defaults": _race(
        "Everybody's defaults",
        _DEFAULTS,
        ("glowpy", "glowpy bf16", "onnxruntime", "openvino default", "ncnn"),
        *("--threads", "0"),
    ),
    "batch8": _race("Eight images", _BATCHES, _ALL, "--batch", "8", networks=NAMES),
    "batch32": _race("32 images", _BATCHES, _ALL, "--batch", "32", networks=NAMES),
    "figure11": _race(
        *("Eight images, two threads", _FIGURE, _ALL, "--batch", "8", "--threads", "2"),
        networks=("resnet50", "vgg19"),
    ),
    "threads": Section(
        "Two threads", _THREADS, ("tools.bench_threads",), _COMMON, _SCALED, _threads
    ),
    "first": Section(
        "First result", _FIRST, ("tools.bench_first",), ("rounds", "small", "keep"), NAMES, _first
    ),
    "decoders": Section(
        "Decoders",
        _DECODERS,
        ("tools.bench_decoders",),
        (*_COMMON, "core"),
        ("1", "128"),
        _decoders,
        option="--new",
        field="new",
    ),
    "layers": Section(
        "Layers far from their roof",
        _LAYERS,
        ("tools.bench_layers",),
        (*_COMMON, "clock", "core", "keep"),
        TABLE,
        _layers,
    ),
    "x86-64-v3": _race(
        "AVX2",
        _SETS.format(what="AVX2 (x86-64-v3)", held="AVX2"),
        ("glowpy", "openvino", "onnxruntime"),
        *("--cpu", "x86-64-v3"),
        networks=NAMES,
        fastest=False,
    ),
    "x86-64-v2": _race(
        "SSE 4.2",
        _SETS.format(what="SSE 4.2 (x86-64-v2)", held="SSE 4.1"),
        ("glowpy", "openvino", "onnxruntime"),
        *("--cpu", "x86-64-v2"),
        networks=NAMES,
        fastest=False,
    ),
}
"""Every section by the name that `--only` takes, in the order of the page."""
