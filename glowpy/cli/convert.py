"""`glowpy convert`: a network in f32 becomes one in f16 or bf16, and what that costs is measured."""

from __future__ import annotations

import click
import numpy as np

from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend
from glowpy.cli.completion import complete_file
from glowpy.cli.conversion import node_figures, print_conversion, print_unwritten
from glowpy.cli.files import constants_file, write_network
from glowpy.cli.model import Source, constants_option, function_option, random_array, shape_option
from glowpy.cli.output import print_json, progress
from glowpy.cli.samples import read_samples
from glowpy.cli.verb import OutputFile, Verb
from glowpy.core.elemkind import ElemKind
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.fidelity import Fidelity, decibels_text
from glowpy.quantization.halves import halve, output_fidelities
from glowpy.quantization.profiling import Sample

__all__ = ["convert"]


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option(
    "--to",
    type=click.Choice([ElemKind.F16.value, ElemKind.BF16.value]),
    required=True,
    help="What floats become.",
)
@click.option(
    *("-o", "--output", "output"),
    type=OutputFile(binary=True),
    help="An .onnx file, or .glow text with its constants in a .npz file beside it.",
)
@click.option("--keep", multiple=True, metavar="NODE", help="A node or kind to keep in f32.")
@click.option("--ports", is_flag=True, help="Convert inputs, outputs and variables, too.")
@click.option(
    "--inputs",
    default="",
    metavar="FOLDER",
    help="What to compare on: a folder, a .npz file, or module:name. One random input if left out.",
)
@shape_option()
@constants_option()
@function_option()
@backend_option("cpu", "What is to run it: what that cannot run in halves stays in f32.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def convert(
    model: str,
    to: str,
    output: str | None,
    keep: tuple[str, ...],
    ports: bool,
    inputs: str,
    shapes: tuple[str, ...],
    constants: str,
    name: str,
    backend: str,
    as_json: bool,
) -> None:
    """Makes 16-bit floats of the 32-bit floats of MODEL (.onnx, or .glow text), and says what that costs.

    What computes positions and masks from integers stays in f32, and so does what --keep names: nodes by their
    names in MODEL, or kinds. Inputs and outputs stay as they are without --ports.

    The error is said for each output: the ratio of signal to noise against MODEL, in decibels. 60 dB is an
    error of a thousandth.

    Examples:
      glowpy convert model.onnx --to f16
      glowpy convert model.onnx --to f16 -o half.onnx
      glowpy convert model.onnx --to bf16 --keep softmax --keep /head/MatMul -o half.glow
      glowpy convert model.onnx --to f16 --inputs samples --json
    """
    blobs = None if output is None else constants_file(output)
    source, target = (
        Source(model, shapes, constants, name, backend),
        bound_backend(backend, CpuOptions()),
    )
    with progress(f"converting {model}"):
        result = halve(source.function, ElemKind(to), keep=keep, ports=ports, backend=target)
        samples = _samples(source, inputs)
        outputs = output_fidelities(
            source.function, result.module.function(source.function.name), samples, target
        )
    write_network(result.module, output, blobs)
    if as_json:
        print_json(_figures(result, outputs, to, len(samples), output, blobs))
        return
    print_conversion(result, output, blobs, f"compute in {to}", "f32")
    what = f"{len(samples)} inputs" if inputs else "a random input"
    for port, fidelity in outputs.items():
        click.echo(f"output '{port}': {decibels_text(fidelity.decibels)} on {what}")
    print_unwritten(output)


def _samples(source: Source, inputs: str) -> list[Sample]:
    """What --inputs says; else one random sample."""
    if inputs:
        return [sample for _, sample in read_samples(inputs, source.ports).all]
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
