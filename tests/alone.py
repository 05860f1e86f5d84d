"""Work in a process of its own, whose memory ends with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def run_alone(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function of a module returns, or raises, in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *args, **kwargs).result()
