"""`glowpy run --prepare`: fills the cache with what a session prepares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from glowpy.backend import Backend
from glowpy.cli.model import parse_state
from glowpy.cli.values import parse_values
from glowpy.importer import open_model
from glowpy.importer.model import HostedModel, Model
from glowpy.session.preparation import CompileEvent, parse_ranges
from glowpy.session.session import InferenceSession
from glowpy.support.console import print_json, progress
from glowpy.support.errors import UserError

__all__ = ["prepare_model", "prepare_options"]

F = TypeVar("F", bound=Callable[..., Any])


_COMPILING = frozenset(
    {
        *("model", "ranges", "check_indices", "state", "values", "backend", "settings"),
        *("threads", "precision", "exact"),
        *("low_memory", "tune", "as_json"),
    }
)
"""The options that have an effect where nothing is run."""
_UNKEPT = frozenset({"debug", "perf_map", "jitdump"})
"""Those with which code comes with files beside it, which the cache does not have."""


def prepare_options() -> Callable[[F], F]:
    """The options --prepare and --check-indices of a verb."""
    ranges = click.option(
        "--prepare",
        "ranges",
        multiple=True,
        help="DIMENSION=1..32: only compile for these sizes, into the cache, as session.prepare. 1,2..32: separately.",
    )
    check_indices = click.option(
        "--check-indices",
        is_flag=True,
        help="Prepare for sessions that check indices, as the drop-in; also without --prepare if no dimension is open.",
    )
    return lambda verb: ranges(check_indices(verb))


def prepare_model(
    path: str,
    ranges: Sequence[str],
    state: Sequence[str],
    values: Sequence[str],
    backend: Backend,
    *,
    check_indices: bool,
    as_json: bool,
) -> None:
    """Compiles a model for all extents within ranges, and says what was compiled.

    Raises UserError as `prepare` does, and for options of the verb that are for runs.
    """
    _refuse_others(click.get_current_context())
    model = open_model(path)
    events: list[CompileEvent] = []
    pairs = None if isinstance(model, HostedModel) or not state else parse_state(state, model)
    try:
        given = parse_ranges(ranges)
    except UserError as error:
        raise UserError(f"--prepare: {error.diagnostics[0].message}") from None
    elements = parse_values(values, model.inputs)
    models = [model]
    if check_indices and isinstance(model, Model) and not pairs and model.keeps_caches:
        models.append(
            model.for_session(checked=False, shares_caches=True)
        )  # as the drop-in opens it, too
    with progress(f"compiling {path}"):
        for variant in models:
            with InferenceSession(
                variant,
                backend=backend,
                state=pairs,
                on_compile=events.append,
                check_indices=check_indices,
            ) as session:
                session.prepare(given, values=elements)
    if as_json:
        print_json([vars(event) | {"dims": dict(event.dims)} for event in events])
        return
    for event in events:
        click.echo(str(event))


def _refuse_others(context: click.Context) -> None:
    """Raises UserError for an option that is given and would have no effect."""
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name in _UNKEPT:
            raise UserError(
                f"{option.opts[0]}: --prepare and --check-indices fill the cache, which keeps no such code",
                note="leave it out",
            )
        if given and option.name not in _COMPILING:
            raise UserError(
                f"{option.opts[0]}: --prepare and --check-indices only compile", note="leave it out"
            )
