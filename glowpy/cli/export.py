"""`glowpy export`: a model as an ONNX file."""

from __future__ import annotations

import click

from glowpy.cli.completion import complete_file
from glowpy.cli.model import (
    choose_function,
    constants_option,
    function_option,
    load_model,
)
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.exporter import save
from glowpy.support.console import progress

__all__ = ["export"]


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option(
    "-o", "--output", type=OutputFile(binary=True), required=True, help="Write this .onnx file."
)
@shape_option()
@value_option()
@constants_option()
@function_option()
@click.option("--optimize", is_flag=True, help="Write what the optimizer makes of the model.")
def export(
    model: str,
    output: str,
    shapes: tuple[str, ...],
    values: tuple[str, ...],
    constants: str,
    name: str,
    optimize: bool,
) -> None:
    """Writes MODEL (.onnx, .glow text, or - for text on standard input) as an ONNX file of opset 21.

    Quantized arithmetic is written between DequantizeLinear and QuantizeLinear. A dimension that --shape gives a range
    stays open; the file does not have the bounds. A model of more than 2 GiB has its
    weights in a second file, FILE.data.

    Examples:
      glowpy export net.glow -o net.onnx
      glowpy export model.onnx --optimize --shape batch=1 -o small.onnx
    """
    module = load_model(model, shapes, constants, values=values)
    with progress(f"writing {output}"):
        save(choose_function(module, name), output, optimize=optimize)
