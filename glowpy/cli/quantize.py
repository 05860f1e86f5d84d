"""`glowpy quantize`: a network in floats and its profile become one that computes on integers."""

from __future__ import annotations

from pathlib import Path

import click

from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend
from glowpy.cli.completion import complete_file
from glowpy.cli.files import write_constants, write_text
from glowpy.cli.model import Source
from glowpy.cli.output import print_json, progress
from glowpy.cli.verb import OutputFile, Verb
from glowpy.core.elemkind import ElemKind
from glowpy.exporter import save
from glowpy.graph.function import Function, Module
from glowpy.graph.printer import print_module
from glowpy.quantization.calibration import (
    Calibration,
    Entropy,
    MeanSquaredError,
    MinMax,
    MovingAverage,
    Percentile,
)
from glowpy.quantization.convert import Conversion, convert
from glowpy.quantization.dynamic import quantize_dynamic
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile
from glowpy.quantization.schema import Schema
from glowpy.quantization.weights import quantize_weights
from glowpy.support.errors import UserError

__all__ = ["quantize"]

_SHOWN = 12
"""Nodes that stay in floats and are named on a terminal."""

_CALIBRATIONS = ("min-max", "average", "percentile", "entropy", "squared-error")


def _calibration(text: str, activations: ElemKind, schema: Schema) -> Calibration:
    """What --calibration says. Raises UserError."""
    name, separator, number = text.partition(":")
    if name not in _CALIBRATIONS or (separator and name != "percentile"):
        known = ", ".join(_CALIBRATIONS)
        raise UserError(
            f"--calibration: expected one of {known}, got '{text}'",
            note="percentile takes a number: percentile:99.9",
        )
    levels, symmetric = 1 << 8 * activations.size, schema is not Schema.ASYMMETRIC
    simple = {"min-max": MinMax(), "average": MovingAverage(), "percentile": Percentile()}
    searches = {"entropy": Entropy, "squared-error": MeanSquaredError}
    if name in searches:
        return searches[name](levels, symmetric)
    try:
        return Percentile(float(number)) if separator else simple[name]
    except ValueError:
        raise UserError(f"--calibration: expected a number, got '{number}'") from None


def _constants_file(output: str) -> str | None:
    """The file for the constants beside `output`, if that is text. Raises UserError for an output of another form."""
    if output.endswith(".onnx"):
        return None
    if not output.endswith(".glow"):
        raise UserError(f"-o: expected a file that ends in .onnx or .glow, got '{output}'")
    return str(Path(output).with_suffix(".npz"))


def _write(module: Module, output: str, blobs: str | None) -> None:
    if blobs is None:
        save(module, output)
        return
    write_constants(blobs, module.constants)
    write_text(output, print_module(module))


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option("--profile", "profile_file", help="What glowpy profile wrote.")
@click.option(
    "--weight-only",
    type=click.Choice(["4", "8"]),
    help="Store weights in so many bits, and compute in floats: no profile is needed.",
)
@click.option(
    "--dynamic",
    is_flag=True,
    help="Find the ranges of what products with weights read when the network runs: no profile is needed.",
)
@click.option(
    "--block",
    type=click.Choice(["32", "64", "128"]),
    default="32",
    show_default=True,
    help="With --weight-only: how many weights have a scale in common.",
)
@click.option(
    *("-o", "--output", "output"),
    type=OutputFile(binary=True),
    help="An .onnx file, or .glow text with its constants in a .npz file beside it.",
)
@click.option(
    "--schema",
    type=click.Choice([schema.value for schema in Schema]),
    default=Schema.ASYMMETRIC.value,
    show_default=True,
    help="How integers stand for the range of a value.",
)
@click.option(
    "--activations",
    type=click.Choice(["u8", "i8", "i16"]),
    default="u8",
    show_default=True,
    help="The integers that values are.",
)
@click.option(
    "--weights",
    type=click.Choice(["channel", "tensor"]),
    default="channel",
    show_default=True,
    help="What of the weights has a scale of its own.",
)
@click.option(
    "--bias",
    type=click.Choice(["i8", "i16", "i32", "float"]),
    default="i32",
    show_default=True,
    help="What a bias is rounded to.",
)
@click.option(
    "--calibration",
    default="min-max",
    show_default=True,
    metavar="NAME",
    help="How ranges are chosen: min-max, average, percentile, percentile:99.9, entropy, squared-error.",
)
@click.option("--keep", multiple=True, metavar="NODE", help="A node or kind to keep in floats.")
@click.option("--skip-first", is_flag=True, help="Keep the first product in floats.")
@click.option("--skip-last", is_flag=True, help="Keep the last product in floats.")
@click.option("--assert-all", is_flag=True, help="Fail if a node stays in floats.")
@click.option("--shape", "shapes", multiple=True, help="NAME=1x3x224x224 or DIMENSION=1.")
@click.option("--constants", default="", help="A .npz file with the constants of a .glow file.")
@click.option("--function", "name", default="", help="Which function of a module with several.")
@backend_option("cpu", "Whose integers: what it cannot run stays in floats.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quantize(
    model: str,
    profile_file: str | None,
    weight_only: str | None,
    dynamic: bool,
    block: str,
    output: str | None,
    schema: str,
    activations: str,
    weights: str,
    bias: str,
    calibration: str,
    keep: tuple[str, ...],
    skip_first: bool,
    skip_last: bool,
    assert_all: bool,
    shapes: tuple[str, ...],
    constants: str,
    name: str,
    backend: str,
    as_json: bool,
) -> None:
    """Makes integers of MODEL (.onnx, or .glow text) where its profile says how, and says what stays in floats.

    Without -o it only says so. What -o names, every other verb reads.

    Examples:
      glowpy quantize model.onnx --profile profile.yaml
      glowpy quantize model.onnx --profile profile.yaml -o quantized.glow
      glowpy run quantized.glow --constants quantized.npz
      glowpy quantize model.onnx --profile profile.yaml --keep softmax --skip-last --json
      glowpy quantize decoder.onnx --weight-only 4 --block 32 -o small.glow
      glowpy quantize encoder.onnx --dynamic -o encoder.glow
    """
    if (profile_file is not None) + (weight_only is not None) + dynamic != 1:
        raise UserError("expected one of --profile, --weight-only and --dynamic")
    blobs = None if output is None else _constants_file(output)
    kind, chosen = ElemKind(activations), Schema(schema)
    options = Options(
        schema=chosen,
        activations=kind,
        per_channel=weights == "channel",
        bias=ElemKind.F32 if bias == "float" else ElemKind(bias),
        calibration=_calibration(calibration, kind, chosen),
        keep=keep,
        skip_first=skip_first,
        skip_last=skip_last,
        assert_all=assert_all,
        backend=bound_backend(backend, CpuOptions()),
    )
    known = None if profile_file is None else Profile.load(profile_file)
    source = Source(model, shapes, constants, name, backend)
    with progress(f"quantizing {model}"):
        result = _converted(source.function, known, options, weight_only, int(block))
    if output is not None:
        _write(result.module, output, blobs)
    if as_json:
        print_json(_figures(result, output, blobs))
    else:
        _print(result, output, blobs, "read stored" if weight_only else "compute on")


def _converted(
    f: Function, profile: Profile | None, options: Options, bits: str | None, block: int
) -> Conversion:
    """What --profile, --weight-only or --dynamic makes of a function."""
    if profile is not None:
        return convert(f, profile, options)
    if bits is not None:
        return quantize_weights(f, bits=int(bits), block=block, keep=options.keep)
    return quantize_dynamic(f, keep=options.keep)


def _figures(result: Conversion, output: str | None, blobs: str | None) -> dict[str, object]:
    return {
        "file": output,
        "constants": blobs,
        "integer": len(result.nodes) - len(result.floats),
        "floats": len(result.floats),
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "origin": node.origin,
                "integer": not node.reason,
                "reason": node.reason,
            }
            for node in result.nodes
        ],
    }


def _print(result: Conversion, output: str | None, blobs: str | None, what: str) -> None:
    if blobs is not None:
        click.echo(f"{output}: read it with --constants {blobs}")
    count = len(result.nodes) - len(result.floats)
    click.echo(f"{count} of {len(result.nodes)} nodes {what} integers")
    click.echo(f"constants take {result.bytes_after:,} bytes, {result.bytes_before:,} in floats")
    for node in result.floats[:_SHOWN]:
        place = f", {node.origin}" if node.origin else ""
        click.echo(f"%{node.name} ({node.kind}{place}) stays in floats: {node.reason}")
    if len(result.floats) > _SHOWN:
        click.echo(f"... and {len(result.floats) - _SHOWN} others; --json lists all")
