"""`glowpy run --prepare`: fills the cache with what a session prepares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from glowpy.backend import Backend
from glowpy.cli.model import expect_onnx, parse_state
from glowpy.cli.output import print_json, progress
from glowpy.importer import HostModel, open_model
from glowpy.preparation import CompileEvent, parse_ranges
from glowpy.session import InferenceSession
from glowpy.support.errors import UserError

__all__ = ["prepare_model", "prepare_option"]

F = TypeVar("F", bound=Callable[..., Any])


def prepare_option() -> Callable[[F], F]:
    """The option --prepare of a verb."""
    return click.option(
        "--prepare",
        "ranges",
        multiple=True,
        help="DIMENSION=1..32: only compile, as session.prepare does, for the cache. 1,2..32: each by itself.",
    )


def prepare_model(
    path: str, ranges: Sequence[str], state: Sequence[str], backend: Backend, *, as_json: bool
) -> None:
    """Compiles a model for all extents within ranges, and says what was compiled. Raises as `prepare` does."""
    expect_onnx(path, "")
    model = open_model(Path(path))
    events: list[CompileEvent] = []
    pairs = None if isinstance(model, HostModel) or not state else parse_state(state, model)
    try:
        given = parse_ranges(ranges)
    except UserError as error:
        raise UserError(f"--prepare: {error.diagnostics[0].message}") from None
    with (
        progress(f"compiling {path}"),
        InferenceSession(model, backend=backend, state=pairs, on_compile=events.append) as session,
    ):
        session.prepare(given)
    if as_json:
        print_json([vars(event) | {"dims": dict(event.dims)} for event in events])
        return
    for event in events:
        click.echo(str(event))
