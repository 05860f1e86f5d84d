"""`glowpy verify`: builds and runs a bundle's example, and compares it with the interpreter."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from glowpy.bundling.link import MissingToolError
from glowpy.bundling.verify import Verification, verify_bundle
from glowpy.cli.verb import Verb
from glowpy.support.console import print_json, print_table, progress

__all__ = ["verify"]

_NOT_VERIFIED = 3


@click.command(cls=Verb)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="The seed of the random inputs.")
@click.option("--zig", is_flag=True, help="Build with zig even if the system has a compiler.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(directory: Path, seed: int, zig: bool, as_json: bool) -> None:
    """Build and run a bundle's example, and compare its outputs with the interpreter's.

    DIRECTORY is the bundle's folder. Foreign programs run under QEMU's user mode or Node. On this machine the example
    runs once more with the compiler's checks for memory errors and undefined behaviour, if it has them. A bundle made
    with --sanitize is watched as well, run by run of its instructions, at the lowest and highest extents, 1, 2 and
    random ones.

    Exits with 1 if an output is wrong or the example fails, with 3 if a compiler or emulator is missing.

    Examples:
      glowpy verify build/net
      glowpy verify build/net --json
    """
    try:
        with progress(f"verifying {directory}"):
            verification = verify_bundle(directory, seed, system=not zig)
    except MissingToolError as error:
        if as_json:
            print_json({"verified": False, "reason": str(error)})
        click.echo(f"not verified: {error}", err=True)
        raise click.exceptions.Exit(_NOT_VERIFIED) from None
    if as_json:
        print_json({"verified": True, "passed": verification.passed, **asdict(verification)})
    else:
        _print(verification)
    if not verification.passed:
        raise click.exceptions.Exit(1)


def _print(verification: Verification) -> None:
    rows = [
        [
            check.build,
            check.network,
            check.output,
            ", ".join(f"{name}={extent}" for name, extent in check.extents.items()),
            f"{check.error:.3g}",
            f"{check.scale:.3g}",
            "right" if check.within else "WRONG",
        ]
        for check in verification.checks
    ]
    columns = ["built with", "network", "output", "extents", ">largest error", ">largest value", ""]
    if not any(check.extents for check in verification.checks):
        columns.remove("extents")
        rows = [[*row[:3], *row[4:]] for row in rows]
    print_table(f"{verification.name} for {verification.target}", columns, rows)
    if verification.sanitized:
        click.echo(f"sanitized in {verification.sanitized} runs: every access was to operands")
    if verification.selftest:
        click.echo("the self-test passed")
    for build, seconds in verification.seconds.items():
        click.echo(f"{build}: built and run in {seconds:.1f} s")
