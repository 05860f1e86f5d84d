"""`glowpy dump`: one stage of a compilation as text, or as a drawing."""

from __future__ import annotations

from dataclasses import dataclass

import click

from glowpy.backend import Backend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import (
    backend_option,
    bound_backend,
    computing_options,
    settings_option,
    target_options,
)
from glowpy.cli.completion import complete_file
from glowpy.cli.files import write_constants, write_named_constants, write_text
from glowpy.cli.gathered import gathered
from glowpy.cli.model import (
    constants_option,
    function_option,
    state_option,
)
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.pass_options import PassOptions, pass_options
from glowpy.cli.shapes import shape_option
from glowpy.cli.tuning import tuning_of, tuning_text
from glowpy.cli.values import value_option
from glowpy.cli.verb import OutputFile, Verb
from glowpy.exporter import dump_onnx
from glowpy.graph.dot import print_dot, render_svg
from glowpy.graph.function import Module
from glowpy.graph.printer import print_module
from glowpy.recipe import Compilation, Stage
from glowpy.support.console import progress
from glowpy.support.errors import UserError

__all__ = ["dump"]


@dataclass(frozen=True, kw_only=True)
class DumpOptions(ModelOptions):
    """Options of `glowpy dump`, by the names of its parameters."""

    stage: str
    form: str
    state: tuple[str, ...]
    backend: str
    settings: tuple[str, ...]
    cpu_options: CpuOptions
    save_constants: str | None
    output: str
    passes: PassOptions


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.option(
    "--stage",
    type=click.Choice([stage.value for stage in Stage]),
    default=Stage.GRAPH.value,
    show_default=True,
    help="The stage to print.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "dot", "svg", "onnx"]),
    default="text",
    show_default=True,
    help="The form: text, JSON (of the strategy), Graphviz source, a drawing made by Graphviz, or an ONNX file.",
)
@shape_option()
@value_option()
@state_option()
@constants_option()
@function_option()
@backend_option("cpu")
@settings_option()
@target_options()
@computing_options()
@pass_options()
@click.option(
    "--save-constants",
    type=OutputFile(binary=True),
    help="Write the constants to this .npz file, which --constants reads.",
)
@click.option("-o", "--output", type=OutputFile(), default="-", help="Write to this file.")
@gathered(DumpOptions)
def dump(options: DumpOptions) -> None:
    """Print a stage of the compilation: graph, IR, memory plan, tiling, LLVM IR or assembly.

    MODEL is an .onnx file, .glow text, or - for text on standard input. The stages are:

    graph     the model as it is read         optimized  the graph after optimization
    lowered   the graph for the backend       scheduled  the same in the order of execution
    ir        the program over buffers        memory     the place of each buffer
    strategy  the tiles of products, and the reasons
    llvm      LLVM IR                         asm        assembly

    The first four can be written as ONNX files by --format onnx, which viewers open and which are MODELs themselves:
    one operator of glowpy's own for each node, with a body of ONNX's where there is one.

    Examples:
      glowpy dump model.onnx
      glowpy dump model.onnx --stage memory --shape batch=1 --state auto
      glowpy dump model.onnx --stage lowered --format dot -o model.dot
      glowpy dump model.onnx --stage lowered --format onnx -o lowered.onnx
      glowpy dump model.onnx -o model.glow --save-constants model.npz
      glowpy dump model.onnx --stage strategy --target rpi4 --format json
      glowpy dump model.onnx --stage strategy --tune 0
      glowpy dump model.onnx --stage lowered --stop-after 12 --print-after cse
      glowpy dump net.glow --stage asm --target aarch64-linux-gnu
    """
    stage, form, passes = Stage(options.stage), options.form, options.passes
    module = options.module(options.backend, options.state)
    bound = bound_backend(options.backend, options.cpu_options, options.settings)
    passes.check(bound)
    if stage is Stage.GRAPH and form == "text" and not options.name:
        _write(print_module(module), module, stage, options)
        return
    stages = passes.compilation(options.function(module), bound)
    with progress(f"{stage} of {options.model}"):
        if form == "onnx":
            _write_onnx(stages, stage, options.output)
            return
        text = stages.text(stage) if form == "text" else _formatted(stages, stage, form)
        if stage is not Stage.GRAPH:
            is_graph = stage in (Stage.OPTIMIZED, Stage.SCHEDULED)
            module = (stages.graph(stage) if is_graph else stages.lowered).module
    _say_tuning(bound, stage)
    passes.report(stages.ctx)
    _write(text, module, stage, options)


def _write(text: str, module: Module, stage: Stage, options: DumpOptions) -> None:
    """Writes the text of a stage, and the constants that go with it."""
    if options.save_constants is not None:
        write = write_named_constants if stage is Stage.IR else write_constants
        write(options.save_constants, module.constants if stage is Stage.IR else module.stored)
    write_text(options.output, text)


def _write_onnx(stages: Compilation, stage: Stage, output: str) -> None:
    if output == "-":
        raise UserError("expected a file for --format onnx", note="name it: -o FILE.onnx")
    dump_onnx(stages.graph(stage), output)


def _say_tuning(backend: Backend, stage: Stage) -> None:
    """Prints what --tune has measured, beside the text."""
    tuned = tuning_of(backend)
    if tuned is not None and (tuned or stage is Stage.STRATEGY):
        click.echo(tuning_text(tuned), err=True)


def _formatted(stages: Compilation, stage: Stage, form: str) -> str:
    if form == "json":
        if stage is not Stage.STRATEGY:
            raise UserError(
                f"expected the stage strategy for --format json, got '{stage}'",
                note="leave out --format",
            )
        return stages.backend.emit(stages.program, "strategy-json")
    source = print_dot(stages.graph(stage))
    return source if form == "dot" else render_svg(source)
