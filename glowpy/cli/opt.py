"""`glowpy opt`: runs passes by name on text of either level."""

from __future__ import annotations

import inspect

import click

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend, chosen_backend, settings_option
from glowpy.cli.completion import Items, beginning, complete_file, complete_target
from glowpy.cli.files import read_constants, read_text
from glowpy.cli.model import constants_option
from glowpy.cli.opt_driver import OptDriver
from glowpy.cli.output import print_table
from glowpy.cli.verb import Verb
from glowpy.engine import context
from glowpy.graph.function import Function
from glowpy.graph.printer import print_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.printer import print_irfunction
from glowpy.passes import Pass
from glowpy.support.errors import UserError

__all__ = ["opt"]


def _complete_pass(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The passes and stages of the chosen backend, for the chosen target."""
    del param
    options = CpuOptions(str(ctx.params.get("target") or ""))
    passes = OptDriver(bound_backend(chosen_backend(ctx), options)).passes
    return beginning({name: _summary(item) for name, item in passes.items()}, incomplete)


def _complete_passes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The last of several passes with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    items = _complete_pass(ctx, param, last)
    return beginning({f"{before}{comma}{item.value}": item.help or "" for item in items}, "")


@click.command(cls=Verb)
@click.argument("file", required=False, shell_complete=complete_file)
@click.option(
    "-p",
    "--passes",
    default="",
    help="Names of passes with commas between them.",
    shell_complete=_complete_passes,
)
@constants_option()
@backend_option("interpreter", "Whose passes to know, and what lower keeps.")
@settings_option()
@click.option(
    "--target",
    default="",
    shell_complete=complete_target,
    help="A preset (glowpy targets) or an LLVM triple; this machine if left out.",
)
@click.option("--verify-each", is_flag=True, help="Verify after every pass.")
@click.option(
    "--print-after",
    multiple=True,
    metavar="PASS",
    help="Print what this pass left.",
    shell_complete=_complete_pass,
)
@click.option("--explain", is_flag=True, help="Say why rewrites did not apply.")
@click.option("--list", "listing", is_flag=True, help="List all passes and stop.")
def opt(
    file: str | None,
    passes: str,
    constants: str,
    backend: str,
    settings: tuple[str, ...],
    target: str,
    verify_each: bool,
    print_after: tuple[str, ...],
    explain: bool,
    listing: bool,
) -> None:
    """Runs passes on FILE (a graph or an IR function as text; - for standard input) and prints the result.

    What --print-after and --explain say goes to standard error.

    Examples:
      glowpy opt --list
      glowpy opt net.glow -p fold-transpose,dce
      glowpy dump model.onnx | glowpy opt - -p dce --explain
      glowpy opt model.glow --constants model.npz -p constant-fold
      glowpy opt net.glow --backend cpu --target x86-64-v3 -p lower,pack-products
    """
    driver = OptDriver(bound_backend(backend, CpuOptions(target), settings))
    if listing:
        rows = [[name, _summary(item)] for name, item in driver.passes.items()]
        print_table("", ["pass", "what it does"], rows)
        return
    if file is None:
        raise UserError("expected a file to work on", note="- reads standard input")
    names = [name.strip() for name in passes.split(",") if name.strip()]
    for name in names:
        driver.named(name)
    for name in print_after:
        if name not in names or not isinstance(driver.passes[name], Pass):
            raise UserError(
                f"--print-after: expected a pass that -p names, got '{name}'",
                note="a stage such as irgen shows what it makes when it is the last",
            )
    ctx = context(CompileOptions(verify_each=verify_each))
    if explain:
        ctx.explain = lambda reason: click.echo(reason, err=True)
    if print_after:
        ctx.after_pass = lambda name, f, changed: _print_after(print_after, name, f, changed)
    shown = "<stdin>" if file == "-" else file
    blobs = read_constants(constants) if constants else {}
    click.echo(driver.run(read_text(file), shown, names, ctx, blobs), nl=False)


def _summary(item: object) -> str:
    """The first line of a pass's docstring."""
    return (inspect.getdoc(item) or "").partition("\n")[0]


def _print_after(
    shown: tuple[str, ...], name: str, f: Function | IRFunction, changed: bool
) -> None:
    if name not in shown:
        return
    text = print_module(f.module) if isinstance(f, Function) else print_irfunction(f)
    click.echo(f"// after {name}{'' if changed else ' (no change)'}\n{text}", nl=False, err=True)
