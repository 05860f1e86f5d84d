"""`glowpy bench`: how fast models are, as a whole and run by run of their instructions, and how fast they could be."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from glowpy.backend import Backend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.benchmark.figures import figures_of, machine_figures
from glowpy.benchmark.measure import CLOCKS, Plan, Subject, measure, pinned
from glowpy.benchmark.page import bench_page
from glowpy.benchmark.peers import PEERS
from glowpy.benchmark.trace import trace_text
from glowpy.cli.backends import (
    backend_option,
    bound_backend,
    computing_options,
    settings_option,
)
from glowpy.cli.bench_report import print_report
from glowpy.cli.completion import complete_file
from glowpy.cli.files import write_text
from glowpy.cli.gathered import gathered
from glowpy.cli.model import (
    Source,
    constants_option,
    function_option,
    input_option,
    read_inputs,
    state_option,
)
from glowpy.cli.pass_options import PassOptions, pass_options
from glowpy.cli.shapes import shape_option
from glowpy.cli.tuning import warn_of_tuning
from glowpy.cli.values import value_option
from glowpy.cli.verb import Number, OutputFile, Verb
from glowpy.measuring.meter import meter_of
from glowpy.support.console import print_json, progress
from glowpy.support.cores import usable_cores
from glowpy.support.errors import UserError

__all__ = ["bench"]


class _Peers(click.ParamType[tuple[str, ...]]):
    """Names of other runtimes with commas between them."""

    name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names; fails for others than those of PEERS."""
        names = tuple(dict.fromkeys(name for name in str(value).split(",") if name))
        for name in names:
            if name not in PEERS:
                self.fail(f"expected some of {', '.join(PEERS)}, got '{name}'", param, ctx)
        return names


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options of `glowpy bench`, by the names of its parameters."""

    models: tuple[str, ...]
    layers: bool
    peers: tuple[str, ...]
    ncnn_models: Path | None
    threads: int
    core: int | None
    seconds: float
    repeat: int
    clock: Literal["wall", "cpu"]
    fresh_peaks: bool
    html: str | None
    trace: str | None
    inputs: tuple[str, ...]
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    state: tuple[str, ...]
    constants: str
    name: str
    seed: int
    backend: str
    settings: tuple[str, ...]
    cpu_options: CpuOptions
    as_json: bool
    passes: PassOptions

    def source(self, model: str) -> Source:
        """One of the models, which is read if something needs it."""
        return Source(
            *(model, self.shapes, self.constants, self.name, self.backend, self.state),
            inputs=self.inputs,
            values=self.values,
        )


@click.command(cls=Verb)
@click.argument("models", nargs=-1, required=True, shell_complete=complete_file)
@click.option("--layers", is_flag=True, help="Time every run of instructions as well.")
@click.option(
    "--vs",
    "peers",
    type=_Peers(),
    default="",
    help=f"Time other runtimes by turns: some of {','.join(PEERS)}.",
)
@click.option(
    "--ncnn-models",
    type=click.Path(path_type=Path),
    help="A folder with NAME.param and NAME.bin for ncnn; pnnx makes missing files.",
)
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The number of threads, of other runtimes too; 0 for every processor.",
)
@click.option(
    "--core",
    type=click.IntRange(0),
    help="The processor to stay on; with one thread, the last usable one if left out.",
)
@click.option(
    "--seconds",
    type=Number(),
    default=2.0,
    show_default=True,
    help="The least time for which every runtime is measured.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="The least number of runs.",
)
@click.option(
    "--clock",
    type=click.Choice(list(CLOCKS)),
    default="wall",
    show_default=True,
    help="The clock; cpu counts this process's time only, for a machine that others use as well.",
)
@click.option("--fresh-peaks", is_flag=True, help="Measure the peaks of the machine again.")
@click.option(
    "--html",
    type=OutputFile(),
    help="Write a page with a roofline plot, layers and memory to this file.",
)
@click.option(
    "--trace", type=OutputFile(), help="Write layers by time to this file, for ui.perfetto.dev."
)
@input_option()
@shape_option()
@value_option()
@state_option()
@constants_option()
@function_option()
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The seed of random inputs.",
)
@backend_option("cpu")
@settings_option()
@computing_options()
@pass_options()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(BenchOptions)
def bench(options: BenchOptions) -> None:
    """Time models, and compare them with the machine's peak and with other runtimes.

    MODELS are .onnx files or .glow text. Inputs that are not given are random.

    GFLOP/s counts the products of the model, two operations for each multiply-add. GB/s counts the bytes read and
    written in caches or memory. The roof is the least time for both: the machine's peaks are measured once and kept.

    Examples:
      glowpy bench model.onnx --layers
      glowpy bench a.onnx b.onnx --vs onnxruntime,openvino
      glowpy bench text.onnx --shape ids:1x128 --input ids=tokens.npy
      glowpy bench model.onnx --threads 2 --seconds 5 --json
      glowpy bench model.onnx --html bench.html --trace bench.trace.json
    """
    _expect_files(options.html, options.trace)
    plan = _plan(options)
    settings = replace(options.cpu_options, threads=plan.threads)
    backend = bound_backend(options.backend, settings, options.settings)
    meter = meter_of(backend)
    with pinned(plan.core), progress("measuring the machine"):
        peaks = meter.peaks(min(plan.threads, usable_cores()), fresh=options.fresh_peaks)
    layers = options.layers or options.html is not None or options.trace is not None
    sources = [options.source(model) for model in options.models]
    results = [
        measure(_subject(source, backend, options), backend, peaks, plan, layers=layers)
        for source in sources
    ]
    warn_of_tuning(backend)
    machine = machine_figures(meter, peaks, plan)
    if options.html is not None:
        write_text(options.html, bench_page(machine, results))
    if options.trace is not None:
        write_text(options.trace, trace_text(results))
    if options.as_json:
        print_json({"machine": machine, "models": list(map(figures_of, results))})
    else:
        print_report(meter, plan, results, layers=options.layers)


def _plan(options: BenchOptions) -> Plan:
    """How long to measure, and what. Raises UserError for processors and clocks that do not go together."""
    count = _count(options.threads, options.clock)
    core = _chosen_core(options.core, count)
    return Plan(
        *(options.seconds, options.repeat, options.peers, options.ncnn_models),
        *(count, core, options.clock),
    )


def _subject(source: Source, backend: Backend, options: BenchOptions) -> Subject:
    """Compiles a model, and reads its inputs or makes them. Raises as `load_model`, `compile` and `read_inputs` do."""
    tuning, passes = backend.tuning, options.passes
    before = 0 if tuning is None else len(tuning.results)
    with progress(f"compiling {source.path}"):
        stages = passes.compilation(source.function, backend)
        stages.compiled  # noqa: B018 - computed here, where progress is shown
    passes.report(stages.ctx)
    texts, ports, state = source.inputs, source.ports, source.state_ports
    feeds = read_inputs(texts, ports, options.seed, source.path, state, source.known)
    tuned = None if tuning is None else tuning.results[before:]
    return Subject(source.path, stages, feeds, tuned)


def _expect_files(html: str | None, trace: str | None) -> None:
    """Raises UserError for standard output, which has the report."""
    if "-" in (html, trace):
        raise UserError("expected files for --html and --trace", note="./- is a file")


def _count(threads: int, clock: str) -> int:
    """How many threads compute. Raises UserError where their time is not told by a clock."""
    count = CpuOptions(threads=threads).thread_count
    if clock == "cpu" and count > 1:
        raise UserError("--clock cpu: expected one thread", note="leave out --threads")
    return count


def _chosen_core(core: int | None, threads: int) -> int | None:
    """The core to pin the process to; several threads stay where they may be, unless a processor is named."""
    if core is not None and threads > 1:
        raise UserError("--core: expected one thread", note="leave out --core or --threads")
    if not hasattr(os, "sched_setaffinity"):
        if core is not None:
            raise UserError("--core: this system does not let a process choose its processor")
        return None
    return max(os.sched_getaffinity(0)) if core is None and threads == 1 else core
