"""`glowpy check`: what a model needs, and everything that keeps it from running."""

from __future__ import annotations

from dataclasses import dataclass

import click

from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend, settings_option, target_options
from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.model import (
    constants_option,
    expect_own_constants,
    function_option,
    is_text,
)
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import parse_values, value_option
from glowpy.cli.verb import Verb
from glowpy.importer import survey_model
from glowpy.importer.shape_text import parse_shapes
from glowpy.session.checkup import Checkup, check_function, check_survey
from glowpy.support.console import print_json, print_table, progress
from glowpy.support.errors import Diagnostic, UserError

__all__ = ["check"]


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ModelOptions):
    """Options of `glowpy check`, by the names of its parameters."""

    backend: str
    settings: tuple[str, ...]
    cpu_options: CpuOptions
    as_json: bool


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@shape_option()
@value_option()
@constants_option()
@function_option()
@backend_option("cpu")
@settings_option()
@target_options()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(CheckOptions)
def check(options: CheckOptions) -> None:
    """Report whether a model can run, and everything that keeps it from running.

    MODEL is an .onnx file, .glow text, or - for text on standard input.

    All errors and unsupported features are listed at once, with their nodes and remedies: operators, opsets,
    attributes, element types, missing shapes and files, and operations that the backend does not support. Nothing of
    the model is run. Symbolic dimensions without a size are taken to be 1.

    Exits with 1 if anything is wrong.

    Examples:
      glowpy check model.onnx
      glowpy check model.onnx --shape batch=8 --target rpi4
      glowpy check model.onnx --json
    """
    model, bound = (
        options.model,
        bound_backend(options.backend, options.cpu_options, options.settings),
    )
    try:
        with progress(f"checking {model}"):
            survey = None if is_text(model) else survey_model(model)
            if survey is None:
                result = check_function(options.function(options.module(options.backend)), bound)
            else:
                expect_own_constants(options.constants)
                given = parse_shapes(options.shapes, survey.inputs)
                values = parse_values(options.values, survey.inputs)
                result = check_survey(survey, bound, *given, values)
    except UserError as error:  # the model cannot be read, and has no figures
        if not options.as_json:
            raise
        result = Checkup(bound.name, tuple(error.diagnostics), {}, 0, 0, None, None, None)
    if options.as_json:
        print_json(_figures(model, result))
    else:
        _print(model, result)
    if result.problems:
        raise click.exceptions.Exit(1)


def _print(model: str, result: Checkup) -> None:
    for problem in result.problems:
        click.echo(problem)
    assumed = ", ".join(f"{name} = {size}" for name, size in result.assumed.items())
    counts = {
        "parameters": result.parameters,
        "bytes of weights": result.weight_bytes,
        "multiply-adds": result.macs,
        "bytes of activations": result.peak_bytes,
        "bytes of constants": result.constant_bytes,
    }
    rows = [[what, "unknown" if n is None else f"{n:,}"] for what, n in counts.items()]
    print_table("", [model, f">{assumed and f'if {assumed}'}"], rows)
    for loop in result.counted_once:
        click.echo(f"one round of loop '{loop}' is counted: nothing says how many there are")
    count = len(result.problems)
    verdict = f"{count} problem{'s' if count > 1 else ''}" if count else "runs"
    click.echo(f"{verdict} on the {result.backend} backend")


def _figures(model: str, result: Checkup) -> dict[str, object]:
    return {
        "model": model,
        "backend": result.backend,
        "runs": not result.problems,
        "problems": [_problem(problem) for problem in result.problems],
        "assumed": {name: str(size) for name, size in result.assumed.items()},
        "parameters": result.parameters,
        "weight_bytes": result.weight_bytes,
        "macs": result.macs,
        "counted_once": list(result.counted_once),
        "peak_bytes": result.peak_bytes,
        "constant_bytes": result.constant_bytes,
    }


def _problem(problem: Diagnostic) -> dict[str, object]:
    place = problem.loc
    return {
        "message": problem.message,
        "node": place.node or None,
        "index": place.index if place.index >= 0 else None,
        "operator": place.operator or None,
        "place": str(place),
        "remedy": problem.note or None,
    }
