"""`glowpy export`: a model as an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass

import click

from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.model import (
    constants_option,
    function_option,
)
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.exporter import save
from glowpy.support.console import progress

__all__ = ["export"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(ModelOptions):
    """Options of `glowpy export`, by the names of its parameters."""

    output: str
    optimize: bool


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option(
    "-o", "--output", type=OutputFile(binary=True), required=True, help="Write this .onnx file."
)
@shape_option()
@value_option()
@constants_option()
@function_option()
@click.option("--optimize", is_flag=True, help="Write the model as optimized.")
@gathered(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a model, quantized or not, as an ONNX file for other runtimes.

    MODEL is an .onnx file, .glow text, or - for text on standard input. The file has opset 21; quantized arithmetic
    lies between DequantizeLinear and QuantizeLinear in it. A dimension that --shape gives a range stays open; the file
    does not have the bounds. A model of more than 2 GiB has its weights in a second file, FILE.data.

    Examples:
      glowpy export net.glow -o net.onnx
      glowpy export model.onnx --optimize --shape batch=1 -o small.onnx
    """
    module = options.module()
    with progress(f"writing {options.output}"):
        save(options.function(module), options.output, optimize=options.optimize)
