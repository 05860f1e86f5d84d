"""--shape: what the user says about the shapes of a model's inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["shape_option"]

F = TypeVar("F", bound=Callable[..., Any])


def shape_option() -> Callable[[F], F]:
    """The option --shape of a verb."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        help="NAME=1x3x224x224, DIMENSION=1, or DIMENSION=1..8 to leave it open. By default "
        "shapes are the model's, with 1 for symbolic dimensions that no array for an input decides.",
    )
