"""`glowpy quantize`: a network in floats and its profile become one that computes on integers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from glowpy.cli.accuracy import Accuracy, Quantized, accuracy_options
from glowpy.cli.completion import complete_file
from glowpy.cli.conversion import node_figures, print_conversion, print_unwritten
from glowpy.cli.estimate import print_estimate
from glowpy.cli.files import constants_file, write_network
from glowpy.cli.gathered import gathered
from glowpy.cli.model import Source, constants_option, function_option
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.quantization_options import OF_PROFILES, quantization_options
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.inspect import inspect
from glowpy.quantization.method import AtRunTime, ByProfile, Method, WeightsOnly
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile
from glowpy.support.console import print_json, progress
from glowpy.support.errors import UserError

__all__ = ["quantize"]


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(ModelOptions):
    """Options of `glowpy quantize`, by the names of its parameters."""

    profile_file: str | None
    weight_only: str | None
    dynamic: bool
    estimate: bool
    block: str
    output: str | None
    quantization: Options
    accuracy: Accuracy
    backend: str
    as_json: bool


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option("--profile", "profile_file", help="The profile, as glowpy profile writes it.")
@click.option(
    "--weight-only",
    type=click.Choice(["4", "8"]),
    help="Store weights in so many bits, and compute in floats; no profile is needed.",
)
@click.option(
    "--dynamic",
    is_flag=True,
    help="Measure the ranges of inputs of products with weights at run time; no profile is needed.",
)
@click.option(
    "--estimate",
    is_flag=True,
    help="Measure the gain in speed on this machine; no profile is needed.",
)
@click.option(
    "--block",
    type=click.Choice(["32", "64", "128"]),
    default="32",
    show_default=True,
    help="The number of weights that share a scale, for --weight-only.",
)
@click.option(
    *("-o", "--output", "output"),
    type=OutputFile(binary=True),
    help="An .onnx file, or .glow text with its constants in a .npz file beside it.",
)
@quantization_options
@accuracy_options
@shape_option()
@value_option()
@constants_option()
@function_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(QuantizeOptions)
def quantize(options: QuantizeOptions) -> None:
    """Quantize a model to integers, using a profile.

    MODEL is an .onnx file or .glow text. The nodes that stay in floats are listed with the reasons, also without -o,
    where nothing is written. Every other verb reads the output. For a model that is quantized already, the nodes on
    integers are listed.

    Given --inputs, the quantized network is compared with the one in floats, by value and by layer: --report
    writes a page, --json prints the figures. Given --max-drop, layers return to floats until the metric is at
    most that much lower than in floats. The metric is a function whose argument is the network, a function from a
    dict of arrays to another; it returns a number, higher for better. An interrupted search can be resumed.

    Examples:
      glowpy quantize model.onnx --estimate
      glowpy quantize quantized.onnx
      glowpy quantize model.onnx --profile profile.yaml
      glowpy quantize model.onnx --profile profile.yaml -o quantized.glow
      glowpy run quantized.glow --constants quantized.npz
      glowpy quantize model.onnx --profile profile.yaml --keep softmax --skip-last --json
      glowpy quantize model.onnx --profile profile.yaml --inputs samples --report report.html
      glowpy quantize model.onnx --profile profile.yaml --max-drop 0.5 --metric score:accuracy
      glowpy quantize decoder.onnx --weight-only 4 --block 32 -o small.glow
      glowpy quantize encoder.onnx --dynamic --inputs samples --report report.html
      glowpy quantize decoder.onnx --weight-only 4 --estimate
    """
    output, accuracy, profile_file = options.output, options.accuracy, options.profile_file
    blobs = None if output is None else constants_file(output)
    source = options.source(options.backend, samples=accuracy.inputs)
    method = _method(options)
    if options.estimate:
        accuracy.refuse("leave it out with --estimate", {"-o": output, "--profile": profile_file})
        print_estimate(source, method or options.quantization, as_json=options.as_json)
        return
    with progress(f"quantizing {options.model}"):
        if method is None:
            quantized = _as_it_is(source, accuracy)
        else:
            quantized = accuracy.quantized(source, method, profile_file or options.model)
    write_network(quantized.conversion.module, output, blobs)
    accuracy.write_page(quantized, Path(options.model).name)
    if options.as_json:
        print_json({**_figures(quantized.conversion, output, blobs), **quantized.figures})
        return
    _print(quantized, accuracy, output, blobs)
    if method is not None:
        print_unwritten(output)


def _print(quantized: Quantized, accuracy: Accuracy, output: str | None, blobs: str | None) -> None:
    result = quantized.conversion
    verb = "read stored" if result.weights_only else "compute on"
    print_conversion(result, output, blobs, f"{verb} integers", "floats")
    accuracy.print(quantized)


def _method(options: QuantizeOptions) -> Method | None:
    """How the model is to be quantized; None if that is not said.

    Raises UserError if it is said twice, and for an option that goes with another way.
    """
    profile_file, bits, how = options.profile_file, options.weight_only, options.quantization
    if (profile_file is not None) + (bits is not None) + options.dynamic > 1:
        raise UserError("expected one of --profile, --weight-only and --dynamic")
    method: Method | None = None
    if profile_file is not None:
        method = ByProfile(Profile.load(profile_file), how)
    elif bits is not None:
        method = WeightsOnly(how.keep, how.backend, int(bits), int(options.block))
    elif options.dynamic:
        method = AtRunTime(how.keep, how.backend)
    _check_options(method)
    return method


def _check_options(method: Method | None) -> None:
    """Raises UserError for an option that goes with another way to quantize; --estimate may have no way."""
    context = click.get_current_context()
    by_profile = isinstance(method, ByProfile) or (method is None and context.params["estimate"])
    for option in context.command.params:
        name = option.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name == "block" and not isinstance(method, WeightsOnly):
            raise UserError("--block: expected --weight-only with it")
        if name in OF_PROFILES and not by_profile:
            raise UserError(f"{option.opts[0]}: expected --profile with it")


def _as_it_is(source: Source, accuracy: Accuracy) -> Quantized:
    """The model, which is quantized already. Raises UserError if it is not, or is to be compared."""
    accuracy.refuse("expected --profile, --weight-only or --dynamic with it")
    result = inspect(source.function)
    if len(result.floats) == len(result.nodes):
        raise UserError(
            f"{source.path}: the model neither computes on integers nor stores weights so",
            note="say how with --profile, --weight-only or --dynamic, or --estimate what it brings",
        )
    return Quantized(result)


def _figures(result: Conversion, output: str | None, blobs: str | None) -> dict[str, object]:
    return {
        "file": output,
        "constants": blobs,
        "integer": len(result.nodes) - len(result.floats),
        "floats": len(result.floats),
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "nodes": node_figures(result, "integer"),
    }
