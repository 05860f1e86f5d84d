"""The report of verbs that convert a network: which nodes became something else, which did not, and why."""

from __future__ import annotations

import click

from glowpy.quantization.conversion import Conversion

__all__ = ["node_figures", "print_conversion", "print_unwritten"]

_SHOWN = 12
"""Nodes that stay as they were and are named on a terminal."""


def node_figures(result: Conversion, what: str) -> list[dict[str, object]]:
    """A dict for each node; `what` is its key for whether the node was converted."""
    return [
        {
            "name": node.name,
            "kind": node.kind,
            "origin": node.origin,
            "function": node.function,
            what: not node.reason,
            "reason": node.reason,
        }
        for node in result.nodes
    ]


def print_conversion(
    result: Conversion, output: str | None, blobs: str | None, what: str, before: str
) -> None:
    """Counts, sizes, and the nodes that stay in what the network computed in `before`.

    Args:
        result: The conversion of the network.
        output: The file it was written to.
        blobs: The file of its constants, if they are in one of their own.
        what: The form of the others, such as `compute in f16`.
        before: The element kind or kinds of the network before, such as `f32`.
    """
    if blobs is not None:
        click.echo(f"{output}: read it with --constants {blobs}")
    count = len(result.nodes) - len(result.floats)
    click.echo(f"{count} of {len(result.nodes)} nodes {what}")
    click.echo(f"constants take {result.bytes_after:,} bytes, {result.bytes_before:,} in {before}")
    for node in result.floats[:_SHOWN]:
        place = f", {node.origin}" if node.origin else ""
        click.echo(f"%{node.name} ({node.kind}{place}) stays in {before}: {node.reason}")
    if len(result.floats) > _SHOWN:
        click.echo(f"... and {len(result.floats) - _SHOWN} others; --json lists all")


def print_unwritten(output: str | None) -> None:
    """Says so if the network that was made is in no file."""
    if output is None:
        click.echo("the network was not written: -o FILE writes it")
