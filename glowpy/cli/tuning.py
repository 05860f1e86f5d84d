"""How verbs report what --tune has found out."""

from __future__ import annotations

from collections.abc import Sequence

import click

from glowpy.backend import Backend
from glowpy.measuring.tuned import Tuned
from glowpy.support.cache_folder import cache_folder, why_off

__all__ = ["tuning_of", "tuning_text", "warn_of_tuning"]

_LEAST_BUSY = 0.9
"""The share of time for which a measurement must have its processor to itself."""


def tuning_of(backend: Backend) -> Sequence[Tuned] | None:
    """Returns the products that a backend has tuned, after `warn_of_tuning`; None unless it was to find them."""
    if backend.tuning is None:
        return None
    warn_of_tuning(backend)
    return backend.tuning.results


def warn_of_tuning(backend: Backend) -> None:
    """Says on standard error if other work had the processor while it measured, and if nothing keeps what it found."""
    tuning = backend.tuning
    if tuning is None:
        return
    if tuning.busy < _LEAST_BUSY:
        click.echo(
            f"warning: other processes had the processor for {1 - tuning.busy:.0%} of the time in which --tune "
            "measured, and its caches as well; to measure again: glowpy cache clear",
            err=True,
        )
    if cache_folder() is None and not all(product.kept for product in tuning.results):
        click.echo(
            f"warning: {why_off().diagnostics[0].message}; what --tune has measured is not kept",
            err=True,
        )


def tuning_text(tuned: Sequence[Tuned]) -> str:
    """One sentence."""
    num_kept, changed = (
        sum(product.kept for product in tuned),
        [product.gain for product in tuned if product.taken],
    )
    if not tuned:
        return (
            "tuning: nothing is known of any product; --tune with more seconds measures those of fixed shapes that "
            "there are several ways to compute"
        )
    subject = "1 product is" if len(tuned) == 1 else f"{len(tuned)} products are"
    text = f"tuning: {subject} known, {len(tuned) - num_kept} measured now"
    if not changed:
        return f"{text}; all are computed as without --tune"
    verb = "is" if len(changed) == 1 else "are"
    return f"{text}; {len(changed)} {verb} computed in another way, up to {max(changed):.0%} faster"
