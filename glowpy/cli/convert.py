"""`glowpy convert`: a network in f32 becomes one in f16 or bf16, and what that costs is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click
import ml_dtypes
import numpy as np

from glowpy.backend import Backend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend
from glowpy.cli.completion import complete_file
from glowpy.cli.conversion import node_figures, print_conversion, print_unwritten
from glowpy.cli.files import constants_file, write_network
from glowpy.cli.gathered import gathered
from glowpy.cli.model import Source, constants_option, function_option
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.samples import read_samples
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.core.elemkind import ElemKind
from glowpy.core.random_array import random_array
from glowpy.graph.function import Function
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.fidelity import Fidelity, decibels_text, runner
from glowpy.quantization.halves import halve, output_fidelities
from glowpy.quantization.profiling import Sample
from glowpy.support.console import print_json, progress
from glowpy.support.errors import UserError

__all__ = ["DECIBELS", "convert"]

DECIBELS = {ElemKind.F16: 30.0, ElemKind.BF16: 20.0}
"""The least decibels of every output of floats: errors of a thirtieth and of a tenth."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(ModelOptions):
    """Options of `glowpy convert`, by the names of its parameters."""

    to: str
    output: str | None
    keep: tuple[str, ...]
    ports: bool
    inputs: str
    least: float | None
    backend: str
    as_json: bool

    @property
    def kind(self) -> ElemKind:
        """The kind that floats are converted to."""
        return ElemKind(self.to)

    @property
    def limit(self) -> float:
        """The decibels that every output of floats has at least in a file that is written."""
        return DECIBELS[self.kind] if self.least is None else self.least


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option(
    "--to",
    type=click.Choice([ElemKind.F16.value, ElemKind.BF16.value]),
    required=True,
    help="The kind of floats to convert to.",
)
@click.option(
    *("-o", "--output", "output"),
    type=OutputFile(binary=True),
    help="An .onnx file, or .glow text with its constants in a .npz file beside it.",
)
@click.option("--keep", multiple=True, metavar="NODE", help="A node or kind to keep in f32.")
@click.option("--ports", is_flag=True, help="Convert inputs, outputs and variables as well.")
@click.option(
    "--inputs",
    default="",
    metavar="FOLDER",
    help="The inputs to compare on: a folder, a .npz file, or module:name. One random input if left out.",
)
@click.option(
    "--min-decibels",
    "least",
    type=float,
    help="Write no file if the ratio of an output is below; 30 for f16 and 20 for bf16 if left out.",
)
@shape_option()
@value_option()
@constants_option()
@function_option()
@backend_option(
    "cpu", "The backend to run it: operations that it cannot run in halves stay in f32."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(ConvertOptions)
def convert(options: ConvertOptions) -> None:
    """Convert a model to 16-bit floats, and measure the loss of accuracy.

    MODEL is an .onnx file or .glow text.

    Nodes that compute positions and masks from integers stay in f32, and so do those that --keep names, by their
    names in MODEL or by their kinds. Inputs and outputs stay as they are without --ports.

    The error of each output is printed as a ratio of signal to noise against MODEL, in decibels: 60 dB is an
    error of a thousandth. If it is large, all values are measured, and those outside the range of halves stay in f32;
    if that does not help, no file is written.

    Examples:
      glowpy convert model.onnx --to f16
      glowpy convert model.onnx --to f16 -o half.onnx
      glowpy convert model.onnx --to bf16 --keep softmax --keep /head/MatMul -o half.glow
      glowpy convert model.onnx --to f16 --inputs samples --json
    """
    output, inputs, ports = options.output, options.inputs, options.ports
    blobs = None if output is None else constants_file(output)
    source = options.source(options.backend, samples=inputs)
    target = bound_backend(options.backend, CpuOptions())
    with progress(f"converting {options.model}"):
        samples = _samples(source, inputs)
        result, outputs = _measured(source, options, target, samples)
    if output is not None:
        for name in _lacking(source.function, outputs, options.limit):
            if ports:
                _refuse_overflow(name, source.function, samples, options.kind, target, output)
            raise UserError(
                f"output '{name}': expected at least {options.limit:g} dB in {options.to}, got "
                f"{decibels_text(outputs[name].decibels)}, so {output} is not written",
                note="--keep leaves nodes in f32, and --min-decibels says how much is enough",
            )
    write_network(result.module, output, blobs)
    if options.as_json:
        print_json(_figures(result, outputs, options.to, len(samples), output, blobs))
        return
    print_conversion(result, output, blobs, f"compute in {options.to}", "f32")
    what = f"{len(samples)} inputs" if inputs else "a random input"
    for port, fidelity in outputs.items():
        click.echo(f"output '{port}': {decibels_text(fidelity.decibels)} on {what}")
    print_unwritten(output)


def _measured(
    source: Source, options: ConvertOptions, target: Backend, samples: list[Sample]
) -> tuple[Conversion, dict[str, Fidelity]]:
    """The network in halves, and how near its outputs are; where need be, with what halves do not hold in f32."""
    f, kind, keep, ports = source.function, options.kind, options.keep, options.ports
    for seen in ([], samples):
        result = halve(f, kind, keep=keep, ports=ports, backend=target, samples=seen)
        halved = result.module.function(f.name)
        outputs = output_fidelities(f, halved, samples, target)
        if not _lacking(f, outputs, options.limit):
            break
    return result, outputs


def _refuse_overflow(
    name: str, f: Function, samples: list[Sample], kind: ElemKind, target: Backend, output: str
) -> None:
    """Raises UserError for an output that is beyond what halves hold, so that it has to stay in f32."""
    run = runner(f, target, [port.original for port in f.parameters])
    arrays = [np.abs(run(sample)[name]) for sample in samples]
    largest = max((float(array[np.isfinite(array)].max(initial=0)) for array in arrays), default=0)
    highest = float(ml_dtypes.finfo(kind.dtype).max)  # type: ignore[no-untyped-call]
    if largest > highest:
        raise UserError(
            f"output '{name}': expected at most {highest:g}, the largest {kind.value}, got {largest:g}, "
            f"so {output} is not written",
            note="leave out --ports: outputs stay f32",
        )


def _lacking(f: Function, outputs: Mapping[str, Fidelity], limit: float) -> list[str]:
    """The outputs of floats with fewer decibels than the limit. Integers differ in steps, however near floats are."""
    floats = {port.original for port in f.outputs if port.type.kind.is_float}
    return [n for n, fidelity in outputs.items() if n in floats and fidelity.decibels < limit]


def _samples(source: Source, inputs: str) -> list[Sample]:
    """Reads the samples of --inputs; without that option, makes a random one."""
    if inputs:
        return [sample for _, sample in read_samples(inputs, source.ports, source.advice).all]
    rng = np.random.default_rng(0)
    return [{port.name: random_array(port.type, rng) for port in source.ports}]


def _figures(
    result: Conversion,
    outputs: dict[str, Fidelity],
    to: str,
    samples: int,
    output: str | None,
    blobs: str | None,
) -> dict[str, object]:
    return {
        "file": output,
        "constants": blobs,
        "to": to,
        "converted": len(result.nodes) - len(result.floats),
        "kept": len(result.floats),
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "samples": samples,
        "outputs": [
            {"name": name, "decibels": fidelity.decibels, "exact": not fidelity.noise}
            for name, fidelity in outputs.items()
        ],
        "nodes": node_figures(result, "converted"),
    }
