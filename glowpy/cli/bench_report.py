"""What `glowpy bench` prints: tables for people, and figures for programs."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from glowpy.backends.cpu.measuring.peaks import Peaks
from glowpy.backends.cpu.strategy.explain import Explanation
from glowpy.backends.cpu.target import CpuTarget
from glowpy.cli.bench_model import Layer, Measured, Plan
from glowpy.cli.bench_peers import PEERS
from glowpy.cli.output import print_table
from glowpy.cli.tuning import tuning_figures, tuning_text
from glowpy.support.cores import processor_name

__all__ = [
    "figures_of",
    "kernel_text",
    "layer_figures",
    "machine_figures",
    "print_report",
    "why",
]

_GIGA = 1e9
_BUSY = 0.97
"""A process that is alone on its processor has it for more than this share of the time."""


def machine_figures(target: CpuTarget, peaks: Peaks, plan: Plan) -> dict[str, Any]:
    """What the figures depend on besides the models."""
    return {
        "processor": processor_name(),
        "llvm": target.machine.cpu,
        "variant": target.variant.name,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "core": plan.core,
        "clock": plan.clock,
        "threads": plan.threads,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": {name: text for name in ("glowpy", *PEERS) if (text := _version(name))},
        "peak_threads": peaks.threads,
        "gflops": peaks.flops / _GIGA,
        "read_gbytes": {str(size): rate / _GIGA for size, rate in peaks.read},
        "write_gbytes": {str(size): rate / _GIGA for size, rate in peaks.write},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def figures_of(result: Measured) -> dict[str, Any]:
    """All that was measured of a model. Seconds are seconds, shares are between 0 and 1."""
    tuning = {} if result.tuned is None else {"tuning": tuning_figures(result.tuned)}
    return {
        "model": result.path,
        "seconds": {"median": result.median, "p95": result.p95, "runs": len(result.samples())},
        "macs": result.macs,
        "direct_macs": result.direct_macs,
        "bytes": sum(effort.bytes for effort in result.efforts),
        "gflops": result.flops / _GIGA,
        "direct_gflops": result.direct_flops / _GIGA,
        "gbytes": result.bandwidth / _GIGA,
        "roof_seconds": result.least,
        "roof": result.share_of_roof,
        "busy": result.busy,
        "vs": {
            name: {"seconds": seconds, "ratio": result.ratio(name)}
            for name, seconds in result.peers.items()
        },
        "missing": result.missing,
        **tuning,
        "instrumented_seconds": result.instrumented,
        "layers": [layer_figures(layer) for layer in result.layers],
    }


def layer_figures(layer: Layer) -> dict[str, Any]:
    """All that was measured of a run of instructions."""
    return {
        "name": layer.name,
        "origin": layer.origin,
        "kernel": layer.kernel,
        "fused": layer.fused,
        "start": layer.start,
        "seconds": layer.seconds,
        "macs": layer.effort.macs,
        "direct_macs": layer.effort.direct_macs,
        "bytes": layer.effort.bytes,
        "gflops": layer.flops / _GIGA,
        "direct_gflops": layer.direct_flops / _GIGA,
        "gbytes": layer.bandwidth / _GIGA,
        "roof_seconds": layer.least,
        "roof": layer.share_of_roof,
        "bound": layer.bound,
        "decision": dict(layer.explanation.decision) if layer.explanation else {},
        "declined": dict(layer.declined),
        "why": why(layer),
    }


def why(layer: Layer) -> str:
    """What was decided about a layer, what its inner loop waits for, and what else was not done for which reason."""
    declined = [f"not by {name}: {reason}" for name, reason in layer.declined.items()]
    return "; ".join([*_decided(layer.explanation), *declined])


def _decided(explanation: Explanation | None) -> list[str]:
    """One text on a product; none on anything else."""
    if explanation is None:
        return []
    texts = [explanation.tile] if explanation.tile else []
    texts += [
        f"{name} {value}"
        for name, value in explanation.decision.items()
        if value and name not in ("tile_pixels", "tile_vectors")
    ]
    texts.append(f"{explanation.units} units")
    if explanation.tuned:
        texts.insert(0, "tuned")
    for row in explanation.rows:
        if row.in_use:
            best = explanation.rows[0].cycles or 1.0
            more = f" (+{row.cycles / best - 1:.1%})" if row.cycles > best else ""
            texts += [f"{row.cycles:,.0f} cycles{more}", f"waits for {row.limit}"]
    return [", ".join(texts)]


def print_report(
    target: CpuTarget, plan: Plan, results: Sequence[Measured], *, layers: bool
) -> None:
    """The machine, the models, and their layers if asked for."""
    _print_machine(target, results[0].peaks, plan)
    _print_models(results, plan)
    for result in results if layers else ():
        _print_layers(result)


def _print_machine(target: CpuTarget, peaks: Peaks, plan: Plan) -> None:
    """One line on the machine, and one on its peaks."""
    where = "" if plan.core is None else f" on processor {plan.core}"
    if plan.threads > peaks.threads:  # which are as many as processors
        where = f" on {peaks.threads} processor{'s' * (peaks.threads > 1)}"
    threads = f"{plan.threads} thread{'s' * (plan.threads > 1)}{where}"
    click.echo(f"{processor_name()}, kernels for {target.variant.name}, {threads}")
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
    others: list[str] = []
    for name in peers:
        seconds = result.peers.get(name)
        known = seconds is not None
        others += [_milliseconds(seconds), f"{result.ratio(name):.2f}"] if known else ["-", "-"]
    return [
        Path(result.path).name,
        _milliseconds(result.median),
        _milliseconds(result.p95),
        str(len(result.samples())),
        f"{result.flops / _GIGA:.1f}" if result.macs else "-",
        f"{result.direct_flops / _GIGA:.1f}" if result.macs else "-",
        f"{result.bandwidth / _GIGA:.1f}",
        f"{result.share_of_roof:.0%}",
        *others,
    ]


def _milliseconds(seconds: float | None) -> str:
    """With four digits at least."""
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


def kernel_text(layer: Layer) -> str:
    """The kernel of a layer, and what is computed in the same loop: each once, with how often it is there."""
    counts = Counter(layer.fused)
    others = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    return " + ".join([layer.kernel, *others])
