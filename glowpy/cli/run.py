"""`glowpy run`: compiles a model, runs it, and checks the outputs if asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend, settings_option
from glowpy.cli.compare import CHECKERS, Difference, compare, expected_outputs
from glowpy.cli.completion import complete_file
from glowpy.cli.files import write_array
from glowpy.cli.help_model import print_model
from glowpy.cli.model import (
    Source,
    expect_onnx,
    is_text,
    read_inputs,
    shape_option,
    state_option,
)
from glowpy.cli.observers import DumpObserver, Observers, PrintObserver
from glowpy.cli.output import print_json, print_table, progress
from glowpy.cli.run_hosted import run_hosted
from glowpy.cli.verb import OutputFolder, Verb
from glowpy.core.extents import extents_of
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile_or_recall
from glowpy.executable import CompiledFunction, Observer
from glowpy.graph.function import Function
from glowpy.importer import HostModel, OnnxModel, open_model
from glowpy.quantization.fidelity import decibels_text
from glowpy.support.errors import UserError
from glowpy.support.names import UniqueNames
from glowpy.support.output_files import make_output_folder
from glowpy.support.symbolic import symbols_of

__all__ = ["run_model"]


@dataclass(frozen=True)
class _Run:
    """What one `glowpy run` found out."""

    model: str
    backend: str
    types: Mapping[str, Type]
    outputs: Mapping[str, Array]
    files: Mapping[str, Path]
    compile_seconds: float
    recalled: bool
    """Whether all of the network came from the cache."""
    cached_functions: int
    """How many of the functions of machine code came from there, if it was compiled now."""
    functions: int
    seconds: list[float]
    checked_with: str
    differences: list[Difference]
    quantized: bool
    """Whether what was compared computes on integers."""


@click.command("run", cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option("--input", "inputs", multiple=True, help="NAME=FILE.npy, NAME=FILE.pb, or FILE.npz.")
@shape_option()
@state_option()
@click.option(
    "--help-model",
    is_flag=True,
    help="Only say what MODEL takes and gives, what it leaves open, and what looks like state.",
)
@click.option("--constants", default="", help="A .npz file with the constants of a .glow file.")
@click.option("--function", "name", default="", help="Which function of a module with several.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="For inputs without a file.",
)
@backend_option("cpu")
@settings_option()
@click.option("--output", "folder", type=OutputFolder(), help="Save outputs as .npy there.")
@click.option(
    "--check-with",
    type=click.Choice(list(CHECKERS)),
    help="Run this as well and compare; exit with 1 beyond the tolerance.",
)
@click.option("--rtol", default=1e-3, show_default=True, help="Relative tolerance of the check.")
@click.option("--atol", default=1e-5, show_default=True, help="Absolute tolerance of the check.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs to time."
)
@click.option(
    "--threads",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Threads that compute; 0 for every processor.",
)
@click.option(
    "--instrument-ir", is_flag=True, help="Print every instruction and its operands' ranges."
)
@click.option(
    "--instrument-debug",
    "operand_folder",
    type=OutputFolder(),
    help="Write every operand of every instruction to .npy files there.",
)
@click.option(
    "--debug",
    type=OutputFolder(),
    help="Make debug information; the IR gdb shows is written to that folder.",
)
@click.option(
    "--perf-map", is_flag=True, help="Tell Linux's perf where each instruction's code is."
)
@click.option(
    "--jitdump", type=OutputFolder(), help="Write code for perf inject --jit to that folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run_model(
    model: str,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    state: tuple[str, ...],
    help_model: bool,
    constants: str,
    name: str,
    seed: int,
    backend: str,
    settings: tuple[str, ...],
    folder: Path | None,
    check_with: str | None,
    rtol: float,
    atol: float,
    repeat: int,
    instrument_ir: bool,
    operand_folder: Path | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Runs MODEL (.onnx, .glow text, or - for text on standard input) and prints what came out.

    Inputs without a file get random elements, the same ones every time; what --state keeps is zero or empty. Strings
    must be given (.npy, .pb, or .txt with a string in each line), and so must sequences (.npz); optionals need not.

    Examples:
      glowpy run model.onnx
      glowpy run model.onnx --input x=image.npy --output results
      glowpy run model.onnx --shape batch=1 --check-with onnxruntime
      glowpy run model.onnx --help-model
      glowpy run model.onnx --repeat 20 --json
      glowpy run model.onnx --instrument-debug operands
    """
    if help_model:
        print_model(model, as_json=as_json)
        return
    start = time.perf_counter()
    bound = bound_backend(backend, _cpu_options(**rest), settings)
    opened = _opened(model, constants)
    if isinstance(opened, HostModel):
        _refuse(state, check_with, name, instrument_ir, operand_folder)
        run_hosted(opened, inputs, shapes, seed, bound, folder, repeat, as_json)
        return
    source = Source(model, shapes, constants, name, backend, state, opened)
    observers = _observers(instrument_ir, operand_folder)
    read = partial(read_inputs, inputs, seed=seed)
    compiled, feeds, begun = _compiled(source, bound, bool(observers), read)
    compiled.observer = Observers(observers)
    compile_seconds = time.perf_counter() - start
    outputs, kept, seconds = _timed_runs(compiled, feeds, repeat)
    saved = {output: kept[name] for output, name in source.pairs.items()}
    differences = _differences(check_with, source, feeds, outputs | saved, (rtol, atol))
    result = _Run(
        *(model, backend, _output_types(compiled, outputs), outputs, _save(outputs, folder)),
        *(compile_seconds, "recall" in begun, *begun.get("compile", (0, 0))),
        *(seconds, check_with or "", differences),
        quantized=bool(differences) and _is_quantized(source.function),
    )
    _report(result, as_json)


def _opened(model: str, constants: str) -> OnnxModel | HostModel | None:
    """An ONNX file that is opened; None for text."""
    if is_text(model):
        return None
    expect_onnx(model, constants)
    return open_model(Path(model))


def _refuse(*values: object) -> None:
    """Raises UserError for options that models of strings, sequences, optionals and maps do not take."""
    options = "--state", "--check-with", "--function", "--instrument-ir", "--instrument-debug"
    for option in (option for option, value in zip(options, values, strict=True) if value):
        raise UserError(
            f"{option}: expected a model of tensors of numbers alone",
            note="one of strings, sequences, optionals or maps runs without it",
        )


def _differences(
    check_with: str | None,
    source: Source,
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Array],
    tolerances: tuple[float, float],
) -> list[Difference]:
    """How outputs differ from those of what a model is checked with, if with anything."""
    if not check_with:
        return []
    with progress(f"running {check_with}"):
        expected = expected_outputs(check_with, source.path, source.function, feeds)
    return compare(outputs, expected, *tolerances)


def _report(result: _Run, as_json: bool) -> None:
    """Prints what came out; the exit status says whether it is as it should be."""
    _print_json(result) if as_json else _print_tables(result)
    if not all(difference.within for difference in result.differences):
        raise click.exceptions.Exit(1)


def _is_quantized(f: Function) -> bool:
    """Whether a value stands for other numbers than itself."""
    values = (value for node in f.nodes for value in (*node.inputs, *node.results))
    return any(value.type.quant is not None for value in values)


def _compiled(
    source: Source,
    backend: Backend,
    instrument: bool,
    read: Callable[..., dict[str, Array]],
) -> tuple[CompiledFunction, dict[str, Array], Mapping[str, tuple[int, int]]]:
    """What to run, what to run it on, and how far each stage was when it began.

    Inputs are read before anything is compiled, so that a wrong one is reported at once.
    """
    feeds: dict[str, Array] = {}

    def build() -> Function:
        feeds.update(read(source.ports, model=source.path, state=source.state_ports))
        return source.function

    options = CompileOptions(instrument=instrument)
    with progress(f"compiling {source.path}") as begun:
        compiled = compile_or_recall(source.key, build, backend, options)
    if "recall" in begun:
        feeds = read(compiled.input_ports, model=source.path, state=compiled.state_ports)
    return compiled, feeds, begun


def _cpu_options(
    debug: Path | None, jitdump: Path | None, *, perf_map: bool, threads: int
) -> CpuOptions:
    return CpuOptions(
        debug=str(debug or ""), jitdump=str(jitdump or ""), perf_map=perf_map, threads=threads
    )


def _observers(print_each: bool, folder: Path | None) -> list[Observer]:
    """What watches the run."""
    observers: list[Observer] = [PrintObserver()] if print_each else []
    return observers if folder is None else [*observers, DumpObserver(folder)]


def _extents(compiled: CompiledFunction, feeds: Mapping[str, Array]) -> dict[str, int]:
    """What symbols are for these inputs and variables."""
    shapes = {port.name: port.type.shape for port in compiled.input_ports}
    shapes |= {port.name: port.type.shape for port in compiled.state_ports}
    return extents_of({name: (shape, feeds[name].shape) for name, shape in shapes.items()})


def _output_types(compiled: CompiledFunction, outputs: Mapping[str, Array]) -> dict[str, Type]:
    """The types of what came out."""
    return {
        name: Type(type.kind, outputs[name].shape, type.quant)
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
    said = symbols_of(dim for _, dims, _ in state.known() for dim in dims)
    instance = compiled.instance(state, **{n: e for n, e in extents.items() if n not in said})
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


def _save(outputs: Mapping[str, Array], folder: Path | None) -> dict[str, Path]:
    """Writes the outputs to a folder, if there is one; the file of each."""
    if folder is None:
        return {}
    make_output_folder(folder)
    names = UniqueNames()
    files = {port: folder / f"{names.take(port)}.npy" for port in outputs}
    for port, file in files.items():
        write_array(file, outputs[port])
    return files


def _print_tables(run: _Run) -> None:
    rows = [
        [
            *(name, str(run.types[name])),
            *("-" if figure is None else f"{figure:.6g}" for figure in _statistics(array)),
            str(run.files.get(name, "")),
        ]
        for name, array in run.outputs.items()
    ]
    columns = ["output", "type", ">min", ">max", ">mean", "file"]
    if not run.files:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table("", columns, rows)
    if run.differences:
        columns = ["output", ">largest error", ">relative", "within tolerance", ">signal to noise"]
        rows = [
            [
                *(d.name, f"{d.absolute:.3g}", f"{d.relative:.3g}", "yes" if d.within else "no"),
                decibels_text(d.decibels),
            ]
            for d in run.differences
        ]
        if not run.quantized:
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        print_table(f"compared with {run.checked_with}", columns, rows)
    best = f"{min(run.seconds) * 1e3:.3f} ms"
    timing = f"{_origin(run)}, run in {best}"
    if len(run.seconds) > 1:
        timing = f"{timing} at best, {median(run.seconds) * 1e3:.3f} ms in the median of {len(run.seconds)}"
    click.echo(timing)


def _origin(run: _Run) -> str:
    """How long it took to have something that runs, and what of that the cache had."""
    took = f"in {run.compile_seconds:.2f} s"
    if run.recalled:
        return f"taken from the cache {took}"
    if not run.cached_functions:
        return f"compiled {took}"
    return (
        f"compiled {took} (machine code of {run.cached_functions} of {run.functions} functions"
        " from the cache)"
    )


def _print_json(run: _Run) -> None:
    outputs = []
    for name, array in run.outputs.items():
        low, high, mean = _statistics(array)
        outputs.append(
            {
                "name": name,
                "type": str(run.types[name]),
                "min": low,
                "max": high,
                "mean": mean,
                "file": str(run.files[name]) if name in run.files else None,
            }
        )
    figures: dict[str, object] = {
        "model": run.model,
        "backend": run.backend,
        "compile_seconds": run.compile_seconds,
        "recalled": run.recalled,
        "functions": run.functions,
        "cached_functions": run.cached_functions,
        "run_seconds": run.seconds,
        "outputs": outputs,
    }
    if run.checked_with:
        figures["checked_with"] = run.checked_with
        figures["differences"] = [
            {
                "name": d.name,
                "absolute": d.absolute,
                "relative": d.relative,
                "within": d.within,
                "decibels": d.decibels,
            }
            for d in run.differences
        ]
    print_json(figures)


def _statistics(array: Array) -> tuple[float | None, float | None, float | None]:
    """Smallest, largest and mean element; None for each of an empty array."""
    if array.size == 0:
        return None, None, None
    wide = array.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(wide.min()), float(wide.max()), float(wide.mean())
