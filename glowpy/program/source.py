"""The source of Python functions, and what names around a function stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Sequence
from types import FunctionType
from typing import Any, final

from glowpy.program.code import Block
from glowpy.support.errors import UserError

__all__ = ["UNKNOWN_VALUE", "Outside", "argument_names", "assigned", "source_of"]

UNKNOWN_VALUE = object()
"""Stands for what is not known while reading."""


def source_of(function: FunctionType) -> tuple[str, str, int]:
    """The source, its file, and the line before its first. Raises UserError for a function that another one wraps."""
    if hasattr(function, "__wrapped__"):
        raise UserError(
            f"expected a function without other decorators, got '{function.__qualname__}'",
            note="what a decorator adds would not be compiled",
        )
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise UserError(
            f"expected a function whose source is in a file, got '{function.__qualname__}'"
        ) from None
    return textwrap.dedent("".join(lines)), inspect.getsourcefile(function) or "", first - 1


@final
class Outside:
    """The names around a function: those it closes over, of its module, and Python's own."""

    def __init__(self, function: FunctionType, known: dict[FunctionType, Block]) -> None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        closed = {}
        for name, cell in cells:
            try:
                closed[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        self._names = {**vars(builtins), **function.__globals__, **closed}
        self.known = known

    def find(self, name: str) -> Any:
        """The object of that name; UNKNOWN_VALUE if there is none."""
        return self._names.get(name, UNKNOWN_VALUE)


def assigned(statements: Sequence[ast.stmt]) -> dict[str, int]:
    """How often each name is assigned, at least: several times in a loop. Functions inside are left out."""
    counts: dict[str, int] = {}
    pending: list[tuple[ast.AST, int]] = [(statement, 1) for statement in statements]
    while pending:
        node, times = pending.pop()
        name = None
        if isinstance(node, ast.FunctionDef):
            name = node.name
        elif not isinstance(node, ast.Lambda):
            times = 2 if isinstance(node, ast.For | ast.While) else times
            pending += [(child, times) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if name is not None:
            counts[name] = counts.get(name, 0) + times
    return counts


def argument_names(tree: ast.FunctionDef | ast.Lambda) -> list[str]:
    """The names of the arguments that are given by position."""
    return [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
