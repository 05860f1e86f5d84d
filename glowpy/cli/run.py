"""`glowpy run`: compiles a model, runs it, and checks the outputs if asked to."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import (
    backend_option,
    bound_backend,
    computing_options,
    settings_option,
)
from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.help_model import print_model
from glowpy.cli.model import (
    Source,
    constants_option,
    function_option,
    input_option,
    is_instructions,
    open_file,
    read_inputs,
    state_option,
)
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.pass_options import PassOptions, pass_options
from glowpy.cli.preparation import prepare_model, prepare_options
from glowpy.cli.run_hosted import run_hosted
from glowpy.cli.run_ir import run_ir
from glowpy.cli.run_plan import RunPlan
from glowpy.cli.run_report import HALVES, Run, RunReport, report_run, save_outputs
from glowpy.cli.shapes import shape_option
from glowpy.cli.tuning import tuning_of
from glowpy.cli.values import value_option
from glowpy.cli.verb import Number, OutputFolder, Verb
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.debugging.compare import (
    CHECKERS,
    compare,
    expected_outputs,
    interpreted,
)
from glowpy.debugging.observers import DumpObserver, Observers, PrintObserver
from glowpy.engine import compile
from glowpy.graph.function import Function
from glowpy.importer.model import HostedModel
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.recall import compile_or_recall
from glowpy.runtime.compiled import CompiledFunction, Observer
from glowpy.support.console import progress
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbols_of

__all__ = ["run_model"]


_RTOL, _ATOL, _SHARE = 1e-3, 1e-5, 1e-4
"""Tolerances for f32; the last is a share of an output's largest element, whose roundings are in small sums as well."""
_STEPS = 16
"""How many roundings of its largest element an output may be off, if its network computes in halves."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(ModelOptions):
    """Options of `glowpy run`, by the names of its parameters."""

    inputs: tuple[str, ...]
    state: tuple[str, ...]
    ranges: tuple[str, ...]
    check_indices: bool
    help_model: bool
    seed: int
    backend: str
    settings: tuple[str, ...]
    folder: Path | None
    check_with: str | None
    rtol: float | None
    atol: float | None
    repeat: int
    threads: int
    cpu_options: CpuOptions
    passes: PassOptions
    instrument_ir: bool
    operand_folder: Path | None
    sanitize: bool
    debug: Path | None
    perf_map: bool
    jitdump: Path | None
    as_json: bool

    def bound(self) -> Backend:
        """The backend that the model is compiled for. Raises as `bound_backend` does."""
        options = replace(
            self.cpu_options,
            threads=self.threads,
            debug=str(self.debug or ""),
            perf_map=self.perf_map,
            jitdump=str(self.jitdump or ""),
        )
        return bound_backend(self.backend, options, self.settings)

    def plan(self, backend: Backend) -> RunPlan:
        """How the model is run. Raises UserError for options that do not go together."""
        observers: list[Observer] = [PrintObserver()] if self.instrument_ir else []
        if self.operand_folder is not None:
            observers.append(DumpObserver(self.operand_folder))
        option = "--instrument-ir" if self.instrument_ir else "--instrument-debug"
        if observers and self.sanitize:
            raise UserError(f"expected at most one of {option} and --sanitize")
        options = CompileOptions(instrument=bool(observers), sanitize=self.sanitize)
        backend.expect_probes(options, instrument=option, sanitize="--sanitize")
        return RunPlan(self.seed, backend, observers, self.passes.on(options), self.repeat)


@click.command("run", cls=Verb)
@click.argument("model", shell_complete=complete_file)
@input_option()
@shape_option()
@value_option()
@state_option()
@prepare_options()
@click.option(
    "--help-model",
    is_flag=True,
    help="Only describe the inputs and outputs of MODEL, its open dimensions, and inputs that look like state.",
)
@constants_option()
@function_option()
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The seed of inputs without a file.",
)
@backend_option("cpu")
@settings_option()
@click.option(
    "--output", "folder", type=OutputFolder(), help="Save outputs as .npy files to this folder."
)
@click.option(
    "--check-with",
    type=click.Choice(list(CHECKERS)),
    help="Run this as well, and compare the outputs; exit with 1 beyond the tolerance.",
)
@click.option(
    "--rtol",
    type=Number(),
    help=f"Relative tolerance of the check; {_RTOL:g} if left out, and more for large outputs and halves if both are.",
)
@click.option(
    "--atol", type=Number(), help=f"Absolute tolerance of the check; {_ATOL:g} if left out."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The number of runs to time.",
)
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The number of threads; 0 for every processor.",
)
@computing_options()
@pass_options()
@click.option(
    "--instrument-ir", is_flag=True, help="Print every instruction with the ranges of its operands."
)
@click.option(
    "--instrument-debug",
    "operand_folder",
    type=OutputFolder(),
    help="Write every operand of every instruction to a .npy file in this folder.",
)
@click.option(
    "--sanitize",
    is_flag=True,
    help="Check after every run of instructions that it wrote only its own results.",
)
@click.option(
    "--debug",
    type=OutputFolder(),
    help="Make debug information, and write the IR that gdb shows to this folder.",
)
@click.option(
    "--perf-map", is_flag=True, help="Write a map of each instruction's code for Linux's perf."
)
@click.option(
    "--jitdump", type=OutputFolder(), help="Write code for perf inject --jit to this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(RunOptions)
def run_model(options: RunOptions) -> None:
    """Run a model, time it, and compare it with onnxruntime or ONNX's reference.

    MODEL is an .onnx file, .glow text, - for text on standard input, or an IR function (.ir) as dump --stage ir
    prints it.

    Inputs without a file get random elements, the same ones every time; variables begin with their initial values, and
    without any zero or empty. Strings must be given (.txt with one in each line, .npy, .json, .pb), and so must
    sequences (.npz, .json) and maps (.json).

    Examples:
      glowpy run model.onnx --input x=image.npy --output results
      glowpy run model.onnx --shape batch=1 --check-with onnxruntime
      glowpy run model.onnx --help-model
      glowpy run model.onnx --prepare batch=1..32 --prepare length=1..512
      glowpy run model.onnx --instrument-debug operands
      glowpy run model.ir --constants model.npz
    """
    model, as_json = options.model, options.as_json
    if options.help_model:
        print_model(model, as_json=as_json)
        return
    start = time.perf_counter()
    backend = options.bound()
    if options.ranges or options.check_indices:
        prepare_model(
            *(model, options.ranges, options.state, options.values, backend),
            check_indices=options.check_indices,
            as_json=as_json,
        )
        return
    plan = options.plan(backend)
    source = options.source(options.backend, state=options.state, inputs=options.inputs)
    run = _run(source, plan, start, options.passes)
    saved = save_outputs(run.outputs, options.folder)
    report = RunReport(model, options.backend, run, saved, tuned=tuning_of(backend))
    report_run(_checked(report, options) if options.check_with else report, as_json=as_json)


def _run(source: Source, plan: RunPlan, start: float, passes: PassOptions) -> Run:
    """Runs whatever kind of model it is; `start` is when the command began."""
    passes.check(plan.backend)
    model, inputs, shapes = source.path, source.inputs, source.shapes
    if is_instructions(model):
        given: dict[str, object] = {"--shape": shapes, "--state": source.state}
        given |= {"--function": source.name, "--value": source.values, **passes.given}
        return run_ir(model, source.constants, inputs, plan, given)
    opened = open_file(model, source.constants)
    if isinstance(opened, HostedModel):
        _refuse(source.state, source.name)
        _refuse_watching(passes)
        return run_hosted(opened, inputs, shapes, source.values, plan)
    try:
        return _run_compiled(replace(source, opened=opened), plan, start, passes)
    except (RoundsError, ValueNeededError) as error:
        if opened is None or source.state:
            raise
        _refuse_watching(passes)
        split = opened.in_parts(error)
        if split is None:
            raise
        return run_hosted(split, inputs, shapes, source.values, plan)


def _checked(report: RunReport, options: RunOptions) -> RunReport:
    """Adds the differences from the outputs of --check-with to the report."""
    checker = options.check_with or ""
    run = report.run
    with progress(f"running {checker}"):
        expected = expected_outputs(checker, report.model, run.interpret, run.feeds)
    kinds = {*run.kinds(), *_asked_for(options.cpu_options)}
    differences = compare(run.compared, expected, *_tolerances(options.rtol, options.atol, kinds))
    return replace(report, checked_with=checker, differences=differences, inexact=bool(kinds))


def _refuse(state: Sequence[str], name: str) -> None:
    """Raises UserError for options that models of strings, sequences, optionals and maps do not take."""
    if state:
        raise UserError(
            "--state: a model of strings, sequences, optionals or maps keeps nothing",
            note="give what a run before it wrote by --output: --input NAME=FILE",
        )
    if name:
        raise UserError("--function: an ONNX file has one", note="leave out --function")


def _refuse_watching(passes: PassOptions) -> None:
    """Raises UserError for options about passes of which a model that a session runs has many compilations."""
    for option in passes.watching:
        raise UserError(
            f"{option}: expected one network, got a model that is compiled in parts while it runs",
            note="--stop-after and --disable-pass hold for all of them",
        )


def _tolerances(
    rtol: float | None, atol: float | None, kinds: Collection[ElemKind | None]
) -> tuple[float, float, float]:
    """The given tolerances; else those of the coarsest kind that a network computes in: as `compare` takes them."""
    steps = [_STEPS * HALVES.get(kind, 0.0) for kind in kinds if kind]
    given = rtol is not None or atol is not None
    return (
        _RTOL if rtol is None else rtol,
        _ATOL if atol is None else atol,
        0.0 if given else max([_SHARE, *steps]),
    )


def _asked_for(options: CpuOptions) -> set[ElemKind]:
    """The halves that products are computed in, whatever the model has."""
    return {ElemKind.BF16} if options.precision == "bf16" else set()


def _inexact_kinds(f: Function) -> set[ElemKind | None]:
    """The halves that it computes in, and None if a value stands for other numbers than itself."""
    values = (value for node in f.nodes for value in (*node.inputs, *node.results))
    kinds = {None if value.type.quant is not None else value.type.kind for value in values}
    return kinds & {None, *HALVES}


def _run_compiled(source: Source, plan: RunPlan, start: float, passes: PassOptions) -> Run:
    """Runs a network of numbers; `start` is when the command began."""
    compiled, feeds, begun = _compiled(source, plan, passes)
    compiled.observer = Observers(plan.observers)
    compile_seconds = time.perf_counter() - start
    outputs, state, seconds = _timed_runs(compiled, feeds, plan.repeat)
    saved = {output: state[name] for output, name in source.pairs.items()}
    return Run(
        feeds,
        outputs,
        _output_types(compiled, outputs),
        compile_seconds,
        seconds,
        recalled="recall" in begun,
        compiled=begun.get("compile", (0, 0)),
        compared=outputs | saved,
        interpret=lambda feeds: interpreted(source.function, feeds),
        kinds=lambda: _inexact_kinds(source.function),
    )


def _compiled(
    source: Source, plan: RunPlan, passes: PassOptions
) -> tuple[CompiledFunction, dict[str, Array], Mapping[str, tuple[int, int]]]:
    """Compiles a model and reads its inputs; also returns how far each stage was when it began.

    Inputs are read before anything is compiled, so that a wrong one is reported at once.
    """
    feeds: dict[str, Array] = {}
    backend, options = plan.backend, plan.options
    texts, seed, path, known = source.inputs, plan.seed, source.path, source.known
    read = partial(read_inputs, texts, seed=seed, model=path, values=known)

    def build() -> Function:
        feeds.update(read(source.ports, state=source.state_ports))
        return source.function

    ctx = passes.context(options, backend) if passes.is_watched else None
    with progress(f"compiling {source.path}") as begun:
        if ctx is None:
            compiled = compile_or_recall(source.key, build, backend, options)
        else:  # the passes have to run to be watched
            compiled = compile(build(), backend, options, ctx=ctx)
            passes.report(ctx)
    if "recall" in begun:
        feeds = read(compiled.input_ports, state=compiled.state_ports)
    return compiled, feeds, begun


def _extents(compiled: CompiledFunction, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Values of symbols for these inputs and variables."""
    shapes = {port.name: port.type.shape for port in compiled.input_ports}
    shapes |= {port.name: port.type.shape for port in compiled.state_ports}
    return extents_of({name: (shape, feeds[name].shape) for name, shape in shapes.items()})


def _output_types(compiled: CompiledFunction, outputs: Mapping[str, Array]) -> dict[str, str]:
    """The types of what came out."""
    return {
        name: str(Type(type.kind, outputs[name].shape, type.quant))
        for name, type in compiled.outputs.items()
    }


def _timed_runs(
    compiled: CompiledFunction, feeds: Mapping[str, Array], repeat: int
) -> tuple[dict[str, Array], dict[str, Array], list[float]]:
    """The outputs, what variables hold after a run, and the seconds of every run: all runs begin with the same."""
    extents, state = _extents(compiled, feeds), compiled.state()
    variables = [port.name for port in compiled.state_ports]
    for name in variables:
        state[name] = feeds[name]
    symbols = symbols_of(dim for _, dims, _ in state.known() for dim in dims)
    instance = compiled.instance(state, **{n: e for n, e in extents.items() if n not in symbols})
    seconds = []
    for _ in range(repeat):
        for name in variables:
            state[name] = feeds[name]
        for name in compiled.inputs:
            instance.write(name, feeds[name])  # each time: an output may be an input as well
        start = time.perf_counter()
        instance.run()
        seconds.append(time.perf_counter() - start)
    outputs = {port: instance[port].copy() for port in compiled.outputs}
    return outputs, state.contents(), seconds
