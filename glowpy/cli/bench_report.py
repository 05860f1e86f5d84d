"""The report of `glowpy bench` for people: the machine, the models, and their layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from glowpy.benchmark.figures import kernel_text, why
from glowpy.benchmark.measure import Plan
from glowpy.benchmark.measured import Measured
from glowpy.cli.tuning import tuning_text
from glowpy.measuring.meter import Meter
from glowpy.measuring.peaks import Peaks
from glowpy.support.console import print_table
from glowpy.support.cores import processor_name

__all__ = ["print_report"]

_GIGA = 1e9
_BUSY = 0.97
"""A process that is alone on its processor has it for more than this share of the time."""


def print_report(meter: Meter, plan: Plan, results: Sequence[Measured], *, layers: bool) -> None:
    """The machine, the models, and their layers if asked for."""
    _print_machine(meter, results[0].peaks, plan)
    _print_models(results, plan)
    for result in results if layers else ():
        _print_layers(result)


def _print_machine(meter: Meter, peaks: Peaks, plan: Plan) -> None:
    """One line on the machine, and one on its peaks."""
    where = "" if plan.core is None else f" on processor {plan.core}"
    if plan.threads > peaks.threads:  # which are as many as processors
        where = f" on {peaks.threads} processor{'s' * (peaks.threads > 1)}"
    threads = f"{plan.threads} thread{'s' * (plan.threads > 1)}{where}"
    click.echo(f"{processor_name()}, kernels for {meter.variant}, {threads}")
    rates = [
        f"{peaks.bandwidth('read', size * peaks.threads) / _GIGA:.0f} ({_bytes(size)})"
        for size in (1 << 14, 1 << 18, 1 << 22, 1 << 27)
    ]
    click.echo(f"peaks: {peaks.flops / _GIGA:.1f} GFLOP/s in f32, reading {', '.join(rates)} GB/s")


def _bytes(size: int) -> str:
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def _print_models(results: Sequence[Measured], plan: Plan) -> None:
    """A line for each model, and why other runtimes have no figure."""
    columns = ["model", ">median ms", ">p95 ms", ">runs"]
    columns += [">GFLOP/s", ">if direct", ">GB/s", ">of the roof"]
    columns += [column for name in plan.peers for column in (f">{name} ms", f">glowpy / {name}")]
    print_table("", columns, [_row(result, plan.peers) for result in results], whole=True)
    for result in results:
        if result.busy < _BUSY and result.threads == 1:
            click.echo(
                f"{result.path}: other processes had the processor for {1 - result.busy:.0%} of the time, which is "
                + (
                    "not in these figures"
                    if plan.clock == "cpu"
                    else "in these figures: --clock cpu leaves it out"
                )
            )
        if result.tuned is not None:
            click.echo(f"{result.path}: {tuning_text(result.tuned)}")
        for name, reason in result.missing.items():
            click.echo(f"{result.path}: {name} has no figure: {reason}")


def _row(result: Measured, peers: Sequence[str]) -> list[str]:
    columns: list[str] = []
    for name in peers:
        seconds = result.peers.get(name)
        is_timed = seconds is not None
        columns += [_milliseconds(seconds), f"{result.ratio(name):.2f}"] if is_timed else ["-", "-"]
    return [
        Path(result.path).name,
        _milliseconds(result.median),
        _milliseconds(result.p95),
        str(len(result.samples())),
        f"{result.flops / _GIGA:.1f}" if result.macs else "-",
        f"{result.direct_flops / _GIGA:.1f}" if result.macs else "-",
        f"{result.bandwidth / _GIGA:.1f}",
        f"{result.share_of_roof:.0%}",
        *columns,
    ]


def _milliseconds(seconds: float | None) -> str:
    """Formats milliseconds with at least four digits."""
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.3f}" if seconds >= 1e-3 else f"{seconds * 1e3:.4g}"


def _print_layers(result: Measured) -> None:
    """A line for each run of instructions, then what all of them take, beside the network without a clock.

    What was decided is a table of its own, as a terminal has no room for both side by side.
    """
    columns = ["layer", "in the model", "kernel", ">us", ">share", ">GFLOP/s", ">if direct"]
    columns += [">GB/s", ">of its roof", "bound by"]
    total = sum(layer.seconds for layer in result.layers)
    rows = [
        [
            layer.name,
            layer.origin,
            kernel_text(layer),
            f"{layer.seconds * 1e6:.1f}",
            f"{layer.seconds / total:.1%}",
            f"{layer.flops / _GIGA:.1f}" if layer.effort.macs else "",
            f"{layer.direct_flops / _GIGA:.1f}" if layer.effort.macs else "",
            f"{layer.bandwidth / _GIGA:.1f}",
            f"{layer.share_of_roof:.0%}",
            layer.bound,
        ]
        for layer in result.layers
    ]
    print_table(Path(result.path).name, columns, rows, whole=True)
    assert result.instrumented is not None
    click.echo(
        f"sum of layers {_milliseconds(total)} ms, a run that times them "
        f"{_milliseconds(result.instrumented)} ms, one that does not {_milliseconds(result.median)} ms"
    )
    decided = [[layer.name, text] for layer in result.layers if (text := why(layer))]
    if decided:
        print_table("", ["layer", "decided"], decided, whole=True)
