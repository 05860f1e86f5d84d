"""`glowpy profile`: what the values of a network are like over some inputs, for quantization to choose ranges by."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from glowpy.cli.backends import backend_option
from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.model import Source, constants_option, function_option
from glowpy.cli.samples import Samples, read_samples
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.quantization.profile import Profile
from glowpy.quantization.profiling import GROWTH, RECENT, Profiler, located
from glowpy.support.console import print_json, progress
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.memory import peak_memory
from glowpy.support.progress import report

__all__ = ["profile"]

_SAVE_EVERY = 60.0
"""Seconds after which the file is written although there are more inputs."""

_NAMED = 3
"""Values that a warning names."""


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """Options of `glowpy profile`, by the names of its parameters."""

    files: tuple[str, ...]
    inputs: str
    output: str
    resume: bool
    force: bool
    merge: bool
    steps: int
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    constants: str
    name: str
    backend: str
    as_json: bool


@click.command(cls=Verb)
@click.argument("files", nargs=-1, required=True, shell_complete=complete_file)
@click.option("--inputs", default="", help="A folder, a .npz file, or module:name of a reader.")
@click.option(
    *("-o", "--output", "output"),
    type=OutputFile(binary=True),
    default="profile.yaml",
    show_default=True,
    help="The file for the profile.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Inputs in a row that are one sequence: variables begin anew after them.",
)
@click.option("--resume", is_flag=True, help="Add inputs to the profile in the output file.")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
@click.option("--merge", is_flag=True, help="Merge the profiles in FILES into one.")
@shape_option()
@value_option()
@constants_option()
@function_option()
@backend_option("cpu")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(ProfileOptions)
def profile(options: ProfileOptions) -> None:
    """Measure the ranges of a network's values over many inputs, for quantization.

    FILES is the model: an .onnx file or .glow text. The inputs should be some hundreds like those that the model will
    get in use. They are read from --inputs:

      FOLDER       a .npz file for each, with arrays named after the model's inputs;
                   or a folder for each, with files NAME.npy or NAME.pb;
                   or a .npy or .pb file for each, if the model has one input
      FILE.npz     arrays named after the inputs: all samples one after the other
      MODULE:NAME  an iterable of dicts, an object with get_next as onnxruntime's
                   CalibrationDataReader has it, or a function that returns one

    Equal inputs count once. Variables are as before the first run for each input, or with --steps N for every Nth,
    and the inputs between go on from what the one before has left. For --merge, FILES are profiles of one model over
    different inputs.

    Examples:
      glowpy profile model.onnx --inputs samples -o profile.yaml
      glowpy profile model.onnx --inputs more --resume
      glowpy profile model.onnx --inputs calibration:reader --shape batch=1
      glowpy profile --merge a.yaml b.yaml -o both.yaml
    """
    files, output, inputs, resume = options.files, options.output, options.inputs, options.resume
    if not (options.merge and output in files):
        _keep_what_is_there(output, resume=resume, force=options.force, merge=options.merge)
    if options.merge:
        given = {"shape": options.shapes, "function": options.name}
        _refuse_with_merge(inputs=inputs, resume=resume, **given)
        _merge(files, output, as_json=options.as_json)
        return
    if len(files) > 1:
        raise UserError(f"expected one model, got {len(files)} files", note="or --merge profiles")
    if not inputs:
        raise UserError(
            "expected inputs to profile the model with",
            note="--inputs FOLDER, FILE.npz or MODULE:NAME",
        )
    source = Source(
        *(files[0], options.shapes, options.constants, options.name, options.backend),
        samples=inputs,
        values=options.values,
    )
    start = Profile.load(output) if resume and Path(output).exists() else None
    begin = time.perf_counter()
    samples = read_samples(inputs, source.ports, source.advice)
    with progress(f"profiling {files[0]}"):
        try:
            profiler = Profiler(source.function, start, options.backend, options.steps)
        except UserError as error:
            raise located(error, output) if start is not None else error from None
        outcome = _run(profiler, samples, output)
    _print(profiler, outcome, output, time.perf_counter() - begin, as_json=options.as_json)


def _keep_what_is_there(output: str, *, resume: bool, force: bool, merge: bool) -> None:
    """Raises UserError for an output that is there: what others are made of in seconds, a profile may take hours."""
    if resume and force:
        raise UserError("--resume adds to the profile that --force replaces", note="leave one out")
    file = Path(output)
    if file.is_file() and file.stat().st_size and not (resume or force):
        add = "" if merge else "--resume adds inputs to it, "
        raise UserError(
            "there is a file already", loc=Loc(output), note=f"{add}--force replaces it"
        )


def _refuse_with_merge(**options: object) -> None:
    for option, value in options.items():
        if value:
            raise UserError(f"--merge reads profiles only, got --{option}", note="leave it out")


@dataclass
class _Outcome:
    """How a run over all samples went.

    Attributes:
        seen: How many were seen before.
        first: The most bytes of memory that were taken until after the first sample; None if that is not known.
        peak: Until after the last.
    """

    seen: int = 0
    first: int | None = None
    peak: int | None = None


def _run(profiler: Profiler, samples: Samples, output: str) -> _Outcome:
    """Runs all samples, and writes the profile every now and then."""
    outcome, saved = _Outcome(), time.monotonic()
    try:
        for index, (place, sample) in enumerate(samples.all):
            report("inputs", index, samples.total)
            try:
                outcome.seen += not profiler.add(sample)
            except UserError as error:
                raise located(error, place) from None
            outcome.first = outcome.first or peak_memory()
            if time.monotonic() - saved > _SAVE_EVERY:
                profiler.profile.save(output)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if profiler.runs:
            profiler.profile.save(output)
            click.echo(f"{output} has {profiler.runs} inputs more; --resume adds others", err=True)
        raise
    result = profiler.profile
    if not result.samples:
        raise UserError("--inputs: expected at least one input to profile with, got none")
    result.save(output)
    outcome.peak = peak_memory()
    return outcome


def _print(
    profiler: Profiler, outcome: _Outcome, output: str, seconds: float, *, as_json: bool
) -> None:
    result = profiler.profile
    growing = profiler.growing if profiler.runs else []
    odd = [
        value.name
        for value in result.values.values()
        if value.statistics.nans or value.statistics.infinities
    ]
    if as_json:
        print_json(
            {
                **_figures(result, output),
                "added": profiler.runs,
                "seen_before": outcome.seen,
                "growing": growing,
                "not_finite": odd,
                "unprofiled": list(profiler.unprofiled),
                "seconds": seconds,
                "peak_bytes_after_first": outcome.first,
                "peak_bytes": outcome.peak,
            }
        )
    else:
        click.echo(_line(result, output))
        again = f", {outcome.seen} were seen before" if outcome.seen else ""
        click.echo(f"{profiler.runs} inputs were added in {seconds:.1f} s{again}")
        if outcome.first is not None and outcome.peak is not None:
            first, peak = (f"{number / 1e6:,.0f} MB" for number in (outcome.first, outcome.peak))
            click.echo(f"memory was at most {peak}, {first} of it after the first input")
    if odd:
        _warn(f"{len(odd)} values had NaNs or infinities, which do not count", odd)
    if profiler.unprofiled:
        count = len(profiler.unprofiled)
        what = "nodes in branches and loops have no profile, and stay in floats"
        _warn(f"{count} {what}", list(profiler.unprofiled))
    if growing:
        _warn(
            f"the ranges of {len(growing)} values grew by more than {GROWTH:.0%} in the last "
            f"{RECENT:.0%} of the inputs: more are needed",
            growing,
        )


def _warn(message: str, names: list[str]) -> None:
    some = ", ".join(f"%{name}" for name in names[:_NAMED])
    click.echo(f"warning: {message} ({some}{', ...' if len(names) > _NAMED else ''})", err=True)


def _merge(files: tuple[str, ...], output: str, *, as_json: bool) -> None:
    result = Profile.load(files[0])
    for file in files[1:]:
        try:
            result = result.merge(Profile.load(file))
        except LoadError:
            raise
        except UserError as error:
            raise located(error, file) from None
    result.save(output)
    print_json(_figures(result, output)) if as_json else click.echo(_line(result, output))


def _figures(result: Profile, output: str) -> dict[str, object]:
    return {"file": output, "inputs": len(result.samples), "values": len(result.values)}


def _line(result: Profile, output: str) -> str:
    return f"{output}: {len(result.values)} values over {len(result.samples)} inputs"
