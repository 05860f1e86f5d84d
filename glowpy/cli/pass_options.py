"""The options of verbs about passes: which steps happen, and what is shown of them. One group for all that compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import bound_backend, chosen_backend
from glowpy.cli.completion import Items, beginning, complete_file
from glowpy.cli.files import read_text
from glowpy.cli.gathered import gathered
from glowpy.engine import compilation, context
from glowpy.graph.function import Function
from glowpy.graph.printer import print_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.printer import print_irfunction
from glowpy.passes import PassContext, Rewrites
from glowpy.pipeline_file import parse_recipe
from glowpy.recipe import IRGEN, Compilation, check_disabled, expect_pass, passes_of, recipe_of
from glowpy.support.errors import UserError

__all__ = ["PassOptions", "complete_pass", "pass_options", "summary_of"]

F = TypeVar("F", bound=Callable[..., Any])

_ALL = "all"


@dataclass(frozen=True)
class PassOptions:
    """Options about the passes of a compilation.

    Attributes:
        stop_after: The last step that may happen; None for no limit.
        disabled: Passes to leave out.
        verify_each: Verify after every pass.
        print_before: Passes before which the function is printed; `all` for every one.
        print_after: Passes after which it is.
        time_passes: Print how long each took.
        explain: Print why rewrites did not apply.
        pipeline: A YAML file with the passes to run; empty for the backend's.
    """

    stop_after: int | None = None
    disabled: tuple[str, ...] = ()
    verify_each: bool = False
    print_before: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    time_passes: bool = False
    explain: bool = False
    pipeline: str = ""

    def on(self, options: CompileOptions) -> CompileOptions:
        """The options of a compilation, with these."""
        return replace(
            options,
            stop_after=self.stop_after,
            disabled=self.disabled,
            verify_each=self.verify_each,
            pipeline=read_text(self.pipeline) if self.pipeline else "",
        )

    @property
    def given(self) -> dict[str, bool]:
        """Whether each option is given, by its spelling."""
        spelled = {"disabled": "disable-pass"}
        return {
            f"--{spelled.get(name, name).replace('_', '-')}": value is not None
            and value is not False  # 0 is a number of steps
            and value not in ((), "")
            for name, value in vars(self).items()
        }

    @property
    def watching(self) -> list[str]:
        """The options that are given and say or verify something, for which passes have to run."""
        steering = ("--stop-after", "--disable-pass", "--pipeline")
        return [name for name, value in self.given.items() if value and name not in steering]

    @property
    def is_watched(self) -> bool:
        """Whether there are such."""
        return bool(self.watching)

    def context(self, options: CompileOptions, backend: Backend) -> PassContext:
        """Creates the context of a compilation for a backend; it prints what is asked for on standard error.

        Raises UserError for an unknown pass.
        """
        grouped = self.check(backend)
        ctx = self.plain_context(options)
        if not grouped.isdisjoint(self.print_after):
            ctx.after_rewrite = self._print_rewritten
        return ctx

    def compilation(self, f: Function, backend: Backend, *, recorded: bool = False) -> Compilation:
        """The compilation of a function in that context. Raises UserError for an unknown pass."""
        options = self.on(CompileOptions(recorded=recorded))
        return compilation(f, backend, options, ctx=self.context(options, backend))

    def check(self, backend: Backend) -> set[str]:
        """The passes of a backend that run as one. Raises UserError for an unknown pass, and one that is required."""
        if not any(self.given.values()):
            return set()
        check_disabled(self.disabled, backend)
        if self.pipeline == "-":
            raise UserError("--pipeline: expected a file, got standard input")
        if self.pipeline:
            text = read_text(self.pipeline)
            parse_recipe(text, recipe_of(backend), backend.name, self.pipeline)
        grouped = {member for step in passes_of(backend).values() for member in _members(step)}
        for name in (*self.print_before, *self.print_after):
            if name not in (_ALL, IRGEN):
                expect_pass(name, backend)
            if name in grouped and name in self.print_before:
                raise UserError(
                    f"--print-before: {name} runs with others as one pass, expected 'rewrite'",
                    note=f"--print-after {name} shows what each of its rewrites left",
                )
        return grouped

    def plain_context(self, options: CompileOptions) -> PassContext:
        """The same where every pass runs by itself, and has been looked at."""
        ctx = context(self.on(options))
        if self.explain:
            ctx.explain = _Once()
        if self.print_before:
            ctx.before_pass = self._print_before
        if self.print_after:
            ctx.after_pass = self._print_after
        return ctx

    def report(self, ctx: PassContext) -> None:
        """Prints the times of passes and stages on standard error, if they are asked for."""
        if not self.time_passes:
            return
        total = sum(ctx.times.values())
        width = max(map(len, ctx.times), default=0)
        for name, seconds in sorted(ctx.times.items(), key=lambda item: -item[1]):
            runs = f"{ctx.runs[name]} runs" if ctx.runs[name] else ""
            applied = f"{ctx.applied[name]} of {ctx.tried[name]} applied" if ctx.tried[name] else ""
            line = f"{name:<{width}} {seconds * 1e3:10.3f} ms {seconds / total:6.1%}  {runs or applied}"
            click.echo(line.rstrip(), err=True)
        click.echo(f"{'total':<{width}} {total * 1e3:10.3f} ms", err=True)

    def _print_before(self, name: str, f: Function | IRFunction) -> None:
        if name in self.print_before or _ALL in self.print_before:
            _print(f"before {name}", f)

    def _print_after(self, name: str, f: Function | IRFunction, changed: bool) -> None:
        if name in self.print_after:
            _print(f"after {name}{'' if changed else ' (no change)'}", f)
        elif _ALL in self.print_after and changed:
            _print(f"after {name}", f)
        elif _ALL in self.print_after:
            click.echo(f"// after {name} (no change)", err=True)

    def _print_rewritten(self, name: str, node: str, f: Function) -> None:
        if name in self.print_after:
            _print(f"after {name} of %{node}", f)


class _Once:
    """Prints lines on standard error, each the first time: passes that run again refuse the same nodes."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            click.echo(line, err=True)


def _members(step: object) -> list[str]:
    """The names of the passes that run as this one."""
    return [member.name for member in step.passes] if isinstance(step, Rewrites) else []


def _print(title: str, f: Function | IRFunction) -> None:
    text = print_module(f.module) if isinstance(f, Function) else print_irfunction(f)
    click.echo(f"// {title}\n{text}", nl=False, err=True)


def summary_of(step: object) -> str:
    """The first line of a pass's docstring."""
    return (inspect.getdoc(step) or "").partition("\n")[0]


def complete_pass(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The passes of the chosen backend, for the chosen target."""
    backend = bound_backend(chosen_backend(ctx), CpuOptions(str(ctx.params.get("target") or "")))
    names = {name: summary_of(step) for name, step in passes_of(backend).items()}
    shown = {} if param.name == "disabled" else {IRGEN: "Turns the graph into instructions."}
    return beginning(names | shown, incomplete)


def pass_options() -> Callable[[F], F]:
    """The options about passes of a verb, which takes them as one argument: `passes`, of type `PassOptions`."""
    options = (
        click.option(
            "--stop-after",
            type=click.IntRange(0),
            metavar="N",
            help="Leave out optimizations after number N (see history); results stay correct.",
        ),
        click.option(
            "--disable-pass",
            "disabled",
            multiple=True,
            metavar="PASS",
            shell_complete=complete_pass,
            help="Leave out a pass; may be given several times.",
        ),
        click.option("--verify-each", is_flag=True, help="Verify after every pass."),
        click.option(
            "--print-before",
            multiple=True,
            metavar="PASS|all",
            shell_complete=complete_pass,
            help="Print the function before this pass on standard error.",
        ),
        click.option(
            "--print-after",
            multiple=True,
            metavar="PASS|all",
            shell_complete=complete_pass,
            help="Print the function after this pass on standard error.",
        ),
        click.option("--time-passes", is_flag=True, help="Print the time of each pass and stage."),
        click.option(
            "--explain", is_flag=True, help="Print which rewrites did not apply, and why."
        ),
        click.option(
            "--pipeline",
            default="",
            metavar="FILE",
            shell_complete=complete_file,
            help="Run the passes that this YAML file names, as opt --list --yaml writes them.",
        ),
    )

    def add(verb: F) -> F:
        decorated = gathered(PassOptions, "passes")(verb)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add
