"""The command lines of the tools that time networks: the values that options take, and how errors are printed."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from glowpy.backends.cpu.options import MOST_THREADS
from glowpy.support.errors import UserError
from glowpy.support.output_files import check_output_file

__all__ = [
    "existing_file",
    "number",
    "output_file",
    "saying_errors",
    "threads",
    "usable_core",
    "whole_number",
]

T = TypeVar("T")
P = ParamSpec("P")


def _of(kind: click.ParamType[T]) -> Callable[[str], T]:
    """A type of click's options, for those of argparse."""

    def convert(text: str) -> T:
        try:
            return kind.convert(text, None, None)
        except click.BadParameter as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return convert


def number(text: str) -> float:
    """A number of at least 0, and of less than infinity."""
    try:
        parsed = float(text)
    except ValueError:
        parsed = math.nan
    if not 0 <= parsed < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text}")
    return parsed


whole_number = _of(click.IntRange(1))
"""A whole number of at least 1."""

threads = _of(click.IntRange(0, MOST_THREADS))
"""A number of threads; 0 for as many as a runtime takes by itself."""


def output_file(text: str) -> Path:
    """A file that can be written, as far as one can tell before. Raises UserError for one that cannot."""
    check_output_file(text)
    return Path(text)


def usable_core(text: str) -> int:
    """A processor that this process may use."""
    core, usable = _of(click.IntRange(0))(text), sorted(os.sched_getaffinity(0))
    if core not in usable:
        processors = ", ".join(map(str, usable))
        raise argparse.ArgumentTypeError(f"expected one of the processors {processors}, got {core}")
    return core


def existing_file(text: str) -> Path:
    """A file that can be read; what is in it is another question."""
    try:
        with Path(text).open("rb"):
            return Path(text)
    except OSError as error:
        message = f"cannot read the file '{text}': {error.strerror}; check the path"
        raise argparse.ArgumentTypeError(message) from None


def saying_errors(main: Callable[P, int]) -> Callable[P, int]:
    """A command that says what is wrong with its input in place of a traceback, as glowpy's verbs do; then it is 1."""

    @wraps(main)
    def run(*arguments: P.args, **named: P.kwargs) -> int:
        try:
            return main(*arguments, **named)
        except UserError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1

    return run
