"""`glowpy opt`: runs passes by name on text of either level."""

from __future__ import annotations

from dataclasses import dataclass

import click

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend, chosen_backend, settings_option
from glowpy.cli.completion import Items, beginning, complete_file, complete_target
from glowpy.cli.files import read_constants, read_text
from glowpy.cli.gathered import gathered
from glowpy.cli.model import constants_option
from glowpy.cli.pass_options import PassOptions, pass_options, summary_of
from glowpy.cli.verb import Verb
from glowpy.debugging.opt_driver import OptDriver
from glowpy.passes import Pass
from glowpy.pipeline_file import print_recipe
from glowpy.recipe import IRGEN, check_disabled, recipe_of
from glowpy.support.console import print_table
from glowpy.support.errors import UserError

__all__ = ["opt"]


def _complete_pass(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The passes and stages of the chosen backend, for the chosen target."""
    del param
    options = CpuOptions(str(ctx.params.get("target") or ""))
    passes = OptDriver(bound_backend(chosen_backend(ctx), options)).passes
    return beginning({name: summary_of(item) for name, item in passes.items()}, incomplete)


def _complete_passes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The last of several passes with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    items = _complete_pass(ctx, param, last)
    return beginning({f"{before}{comma}{item.value}": item.help or "" for item in items}, "")


@dataclass(frozen=True, kw_only=True)
class OptOptions:
    """Options of `glowpy opt`, by the names of its parameters."""

    file: str | None
    names: str
    constants: str
    backend: str
    settings: tuple[str, ...]
    target: str
    listing: bool
    as_yaml: bool
    passes: PassOptions


@click.command(cls=Verb)
@click.argument("file", required=False, shell_complete=complete_file)
@click.option(
    "-p",
    "--passes",
    "names",
    default="",
    help="The names of passes, separated by commas.",
    shell_complete=_complete_passes,
)
@constants_option()
@backend_option("interpreter", "The backend that adds its passes, and whose operators lower keeps.")
@settings_option()
@click.option(
    "--target",
    default="",
    shell_complete=complete_target,
    help="A preset (glowpy targets) or an LLVM triple; this machine if left out.",
)
@pass_options()
@click.option("--list", "listing", is_flag=True, help="List all passes and stop.")
@click.option(
    "--yaml",
    "as_yaml",
    is_flag=True,
    help="Print with --list the passes of a compilation, in order, for --pipeline of other verbs.",
)
@gathered(OptOptions)
def opt(options: OptOptions) -> None:
    """Run passes on a graph or an IR function, and print the result.

    FILE is text; - for standard input. The output of --print-before, --print-after, --time-passes and --explain goes
    to standard error.

    Examples:
      glowpy opt --list
      glowpy opt --list --yaml --backend cpu
      glowpy opt net.glow -p fold-transpose,dce
      glowpy dump model.onnx | glowpy opt - -p dce --explain
      glowpy opt model.glow --constants model.npz -p constant-fold
      glowpy opt net.glow --backend cpu --target x86-64-v3 -p lower,pack-products
    """
    file, passes = options.file, options.passes
    bound = bound_backend(options.backend, CpuOptions(options.target), options.settings)
    driver = OptDriver(bound)
    if options.as_yaml or passes.pipeline:
        _expect_listing(passes, listing=options.listing)
        click.echo(print_recipe(recipe_of(bound)), nl=False)
        return
    if options.listing:
        rows = [[name, summary_of(item)] for name, item in driver.passes.items()]
        print_table("", ["pass", "what it does"], rows)
        return
    if file is None:
        raise UserError("expected a file to work on", note="- reads standard input")
    pass_names = [name.strip() for name in options.names.split(",") if name.strip()]
    for name in pass_names:
        driver.named(name)
    for option, printed in (("before", passes.print_before), ("after", passes.print_after)):
        for name in printed:
            if name != "all" and (
                name not in pass_names
                or not (name == IRGEN or isinstance(driver.passes[name], Pass))
            ):
                raise UserError(
                    f"--print-{option}: expected a pass that -p names, got '{name}'",
                    note="the stages runs and memory show what they make when they are the last",
                )
    check_disabled(passes.disabled, bound)
    ctx = passes.plain_context(CompileOptions())
    shown = "<stdin>" if file == "-" else file
    blobs = read_constants(options.constants) if options.constants else {}
    click.echo(driver.run(read_text(file), shown, pass_names, ctx, blobs), nl=False)
    passes.report(ctx)


def _expect_listing(passes: PassOptions, *, listing: bool) -> None:
    """Raises UserError unless a pipeline is to be written."""
    if passes.pipeline:
        raise UserError("--pipeline: opt runs the passes that -p names", note="leave it out")
    if not listing:
        raise UserError("--yaml: expected --list beside it")
