"""The `glowpy` command: its verbs, and what its exit code says.

* 0: done. 1: the user's input is wrong (a UserError), or a check failed. 2: a bug in glowpy.
* 130: interrupted by Ctrl-C.
* Results go to standard output, diagnostics to standard error.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from typing import Any, TextIO

import click

from glowpy.cli.bench import bench
from glowpy.cli.bundle import bundle
from glowpy.cli.cache import cache
from glowpy.cli.check import check
from glowpy.cli.convert import convert
from glowpy.cli.demo import demo
from glowpy.cli.doctor import doctor
from glowpy.cli.dump import dump
from glowpy.cli.export import export
from glowpy.cli.history import history
from glowpy.cli.interrupt import INTERRUPTED
from glowpy.cli.opt import opt
from glowpy.cli.profile import profile
from glowpy.cli.quantize import quantize
from glowpy.cli.run import run_model
from glowpy.cli.targets import targets
from glowpy.cli.verb import Described
from glowpy.cli.verify import verify
from glowpy.support.errors import AccessError, InternalError, UserError
from glowpy.support.limits import of_limits

__all__ = ["VERBS", "command", "run"]


def _version() -> str:
    try:
        return version("glowpy")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


class _Interruptible(Described, click.Group):
    """Verbs that end as soon as they are interrupted; click alone would write an empty line then."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb. Raises click.Abort for KeyboardInterrupt."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None


@click.group(cls=_Interruptible, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="glowpy")
def _glowpy() -> None:
    """Compile neural networks to machine code, run them, and inspect every stage.

    Start with `glowpy demo`; every verb has --help with examples.
    """


VERBS = {
    str(verb.name): verb
    for verb in (
        demo,
        run_model,
        bench,
        check,
        profile,
        quantize,
        convert,
        bundle,
        verify,
        export,
        targets,
        dump,
        history,
        opt,
        cache,
        doctor,
    )
}
"""Every verb by its name."""

_UNEXPECTED = "this is a bug in glowpy; please report it with the model that causes it"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk."""

for verb in VERBS.values():
    _glowpy.add_command(verb)


def _invoke(argv: Sequence[str]) -> int:
    """Runs one command on the standard streams; the exit code."""
    try:
        status = _glowpy.main(args=list(argv), prog_name="glowpy", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _misused(error)
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away: `glowpy dump ... | head`. Python would complain again when it flushes at exit.
        sys.stdout = None
        return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, it is ours, and the user must be told so
        return _unexpected(error)


def _misused(error: click.ClickException) -> int:
    click.echo(f"error: {error.format_message()}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"note: see {error.ctx.command_path} --help", err=True)
    return 1


def _unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in _FULL:
        return _disk_full(error)
    if (limit := of_limits(error)) is not None:
        click.echo(f"error: {limit}", err=True)
        return 1
    if isinstance(error, AccessError):
        click.echo(f"error: {error}", err=True)
        return 1 if error.package else 2
    return _bug(str(error) if isinstance(error, InternalError) else _UNEXPECTED)


def _disk_full(error: OSError) -> int:
    click.echo(f"error: cannot write the results: {error.strerror}", err=True)
    sys.stdout = None  # what is left in its buffer cannot be written either
    return 1


def _bug(message: str) -> int:
    traceback.print_exc()
    click.echo(f"error: {message}", err=True)
    return 2


def command() -> int:
    """Runs what the command line of this process says; the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know a model's names
    return _invoke(sys.argv[1:])


def run(argv: Sequence[str], stdin: TextIO, stdout: TextIO, stderr: TextIO | None = None) -> int:
    """Runs one command in this process on streams of the caller's; the exit code.

    Args:
        argv: The words after `glowpy` on the command line.
        stdin: The stream that a file named `-` reads.
        stdout: Takes the results.
        stderr: Takes the diagnostics; `stdout` if absent.
    """
    before, sys.stdin = sys.stdin, stdin
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr or stdout):
            return _invoke(argv)
    finally:
        sys.stdin = before
