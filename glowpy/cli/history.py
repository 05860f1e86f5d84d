"""`glowpy history`: the steps of a compilation, and what became of a node of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import (
    backend_option,
    bound_backend,
    computing_options,
    settings_option,
    target_options,
)
from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.model import (
    constants_option,
    function_option,
    state_option,
)
from glowpy.cli.model_options import ModelOptions
from glowpy.cli.pass_options import PassOptions, pass_options
from glowpy.cli.shapes import shape_option
from glowpy.cli.values import value_option
from glowpy.cli.verb import Verb
from glowpy.node_history import Event, History, histories
from glowpy.recipe import Compilation
from glowpy.step_log import Change, Step
from glowpy.support.console import print_json, print_table, progress

__all__ = ["history"]

_SHOWN = 3
"""Number of changes of a step up to which the list of all steps names them."""


@dataclass(frozen=True, kw_only=True)
class HistoryOptions(ModelOptions):
    """Options of `glowpy history`, by the names of its parameters."""

    node: str | None
    state: tuple[str, ...]
    backend: str
    settings: tuple[str, ...]
    cpu_options: CpuOptions
    passes: PassOptions
    as_json: bool


@click.command(cls=Verb)
@click.argument("model", shell_complete=complete_file)
@click.argument("node", required=False)
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(HistoryOptions)
def history(options: HistoryOptions) -> None:
    """List the steps of a compilation, or trace a node of the model through them.

    MODEL is an .onnx file or .glow text. NODE is a node of the model, which may be several of the graph, or one of
    those, as glowpy dump or the list of steps shows them: the steps that changed it are listed, and the run of the
    program that computes it. Without NODE, all steps of the compilation are listed. --stop-after N, here and in other
    verbs, leaves out those whose number is above N, and no other number changes. Those without a number always happen.

    Examples:
      glowpy history model.onnx
      glowpy history model.onnx conv1
      glowpy history model.onnx conv1 --target cortex-m7 --json
    """
    node, passes = options.node, options.passes
    module = options.module(options.backend, options.state)
    bound = bound_backend(options.backend, options.cpu_options, options.settings)
    stages = passes.compilation(options.function(module), bound, recorded=True)
    with progress(f"compiling {options.model}"):
        stages.program  # noqa: B018 - computed for the steps
    passes.report(stages.ctx)
    if node is None:
        _show_steps(stages, as_json=options.as_json)
    elif options.as_json:
        print_json({"model": options.model, "node": node, "parts": list(_figures(stages, node))})
    else:
        for part in histories(stages, node):
            _show(part)


def _show_steps(stages: Compilation, *, as_json: bool) -> None:
    steps = stages.ctx.steps.log
    if as_json:
        print_json(
            [_step_figures(step) | {"changes": _change_figures(step.changes)} for step in steps]
        )
        return
    rows = [
        [
            _number(step),
            step.title,
            f"@{step.function}",
            step.node and f"%{step.node}",
            step.origin,
            _summary(step),
        ]
        for step in steps
    ]
    print_table("", [">step", "pass", "in", "at", "of the model's", "what became of what"], rows)


def _number(step: Step) -> str:
    return str(step.number or "always")


def _summary(step: Step) -> str:
    """The first few changes of a step."""
    texts = [_change(change) for change in step.changes[:_SHOWN]]
    rest = len(step.changes) - len(texts)
    return "; ".join([*texts, *([f"{rest} more"] if rest else [])])


def _change(change: Change) -> str:
    return f"%{change.name} ({change.operator}) -> {_names(change.successors)}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"%{name}" for name in names) or "nothing"


def _show(part: History) -> None:
    click.echo(f"%{part.name}: {part.operator} in @{part.function}{_origin(part.origin)}")
    rows = [
        [_number(event.step), event.step.title, _was(event), _names(event.successors)]
        for event in part.events
    ]
    print_table("", [">step", "pass", "was", "is"], rows)
    for line in _outcome(part):
        click.echo(f"  {line}")
    click.echo()


def _origin(node: str) -> str:
    return f", of the model's '{node}'" if node else ""


def _was(event: Event) -> str:
    return ", ".join(f"%{change.name} ({change.operator})" for change in event.changes)


def _outcome(part: History) -> Iterator[str]:
    """Yields the remains of a node in the program."""
    for run in part.runs:
        members = ", ".join(f"{mnemonic} %{name}" for name, mnemonic in run.instructions)
        yield f"computed in run {run.number} of @{run.function}, {run.name}: {members}"
    for name in part.views:
        yield f"%{name} is a view of memory that others write"
    for name in part.constants:
        yield f"%{name} is a constant of the program"
    if part.removed_by is not None:
        step = part.removed_by.step
        number = f"step {step.number}, " if step.number else ""
        yield f"removed by {number}{step.title}: nothing reads it"
    elif not (part.runs or part.views or part.constants):
        yield f"{_names(part.names)}: known while compiling, and part of what was made of it"


def _figures(stages: Compilation, node: str) -> Iterator[dict[str, object]]:
    for part in histories(stages, node):
        removed = part.removed_by
        yield {
            "name": part.name,
            "operator": part.operator,
            "function": part.function,
            "origin": part.origin,
            "steps": [
                _step_figures(event.step) | {"changes": _change_figures(event.changes)}
                for event in part.events
            ],
            "successors": list(part.names),
            "runs": [
                {
                    "function": run.function,
                    "number": run.number,
                    "name": run.name,
                    "instructions": [
                        {"name": name, "operator": mnemonic} for name, mnemonic in run.instructions
                    ],
                }
                for run in part.runs
            ],
            "views": list(part.views),
            "constants": list(part.constants),
            "removed_by": None if removed is None else _step_figures(removed.step),
        }


def _step_figures(step: Step) -> dict[str, object]:
    return {
        "number": step.number,
        "pass": step.name,
        "rule": step.rule,
        "function": step.function,
        "at": step.node,
        "origin": step.origin,
    }


def _change_figures(changes: Sequence[Change]) -> list[dict[str, object]]:
    return [
        {"name": change.name, "operator": change.operator, "successors": list(change.successors)}
        for change in changes
    ]
