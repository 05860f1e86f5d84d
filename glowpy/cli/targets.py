"""`glowpy targets`: the machines that code can be made for."""

from __future__ import annotations

import click

from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.presets import PRESETS
from glowpy.backends.cpu.target import resolve_target
from glowpy.backends.cpu.variant import VARIANTS
from glowpy.cli.verb import Verb
from glowpy.support.console import print_json, print_table

__all__ = ["targets"]


@click.command(cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def targets(as_json: bool) -> None:
    """List the targets that models can be compiled for: presets, and families of LLVM triples.

    A variant is a version of the kernels for one vector width and instruction set; the processor chooses it.

    Examples:
      glowpy targets
      glowpy targets --json
    """
    presets = [
        {
            "name": preset.name,
            "triple": preset.triple,
            "cpu": preset.cpu,
            "features": preset.features,
            "variant": resolve_target(CpuOptions(target=preset.name)).variant.name,
            "about": preset.about,
        }
        for preset in PRESETS.values()
    ]
    variants = [
        {
            "name": variant.name,
            "family": variant.family,
            "triple": variant.triple,
            "cpu": variant.cpu,
            "requires": sorted(variant.requires),
            "vector_bytes": variant.vector_bytes,
        }
        for variant in VARIANTS
    ]
    if as_json:
        print_json({"presets": presets, "variants": variants})
        return
    rows = [
        [
            preset["name"],
            preset["triple"],
            " ".join(filter(None, (preset["cpu"], preset["features"]))),
            preset["variant"],
            preset["about"],
        ]
        for preset in presets
    ]
    print_table("Presets", ["preset", "triple", "cpu", "kernels", ""], rows)
    print_table(
        "Families",
        ["family", "kernels", "cpu", ">vector bytes"],
        [
            [variant.family, variant.name, variant.cpu, str(variant.vector_bytes)]
            for variant in VARIANTS
        ],
    )
