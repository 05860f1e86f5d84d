"""`glowpy quantize --estimate`: what quantization would bring on this machine, as a table."""

from __future__ import annotations

from dataclasses import asdict

import click
import numpy as np

from glowpy.cli.model import Source
from glowpy.core.random_array import random_array
from glowpy.quantization.estimate import Estimate, LayerEstimate, estimate
from glowpy.quantization.method import Method
from glowpy.quantization.options import Options
from glowpy.support.console import print_json, print_table, progress

__all__ = ["print_estimate"]


def print_estimate(source: Source, how: Options | Method, *, as_json: bool) -> None:
    """Measures a model on random inputs and prints what quantization would bring. Raises as `estimate` does."""
    rng = np.random.default_rng(0)
    sample = {port.name: random_array(port.type, rng) for port in source.ports}
    with progress(f"measuring {source.path}"):
        result = estimate(source.function, sample, how)
    if as_json:
        print_json(asdict(result) | {"ratio": result.ratio, "verdict": result.verdict})
        return
    columns = ["layer", "in the model", "result", ">floats", ">integers", ">ratio"]
    rows = [*map(_row, result.layers), _total(result)]
    print_table("milliseconds", columns, rows)
    click.echo(f"constants take {result.bytes_after:,} bytes, {result.bytes_before:,} in floats")
    click.echo(result.verdict)


def _row(layer: LayerEstimate) -> list[str]:
    names = [layer.name, layer.origin, layer.result, _milliseconds(layer.floats)]
    if layer.integers is None:
        return [*names, layer.reason, ""]
    return [*names, _milliseconds(layer.integers), f"{layer.integers / layer.floats:.2f}"]


def _total(result: Estimate) -> list[str]:
    times = [_milliseconds(result.floats), _milliseconds(result.integers)]
    return ["the whole network", "", "", *times, f"{result.ratio:.2f}"]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
