"""The source of Python functions, and what names around a function stand for."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any, TypeAlias, final

from glowpy.frontends.python.code import Block
from glowpy.graph.function import Function
from glowpy.support.errors import UserError

__all__ = [
    "UNKNOWN_VALUE",
    "Outside",
    "Tree",
    "argument_names",
    "assigned",
    "explained",
    "free_names",
    "shared",
    "source_of",
]

Tree: TypeAlias = ast.FunctionDef | ast.Lambda

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


def explained(error: UserError) -> UserError:
    """An error in words of the source: with the line it is about, without names of nodes."""
    diagnostics = []
    for diagnostic in error.diagnostics:
        what, _, rest = diagnostic.message.partition(": ")
        message = rest if hasattr(Function, f"create_{what}") else diagnostic.message
        line = linecache.getline(diagnostic.loc.file, diagnostic.loc.line).strip()
        diagnostics.append(replace(diagnostic, message=message, context=line))
    return type(error).of(diagnostics)


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


def argument_names(tree: Tree) -> list[str]:
    """The names of the arguments that are given by position."""
    return [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]


def assigned(tree: Tree) -> set[str]:
    """The variables of a function: its arguments and what it assigns."""
    return {*argument_names(tree), *_assignments(tree)} - _others(tree)


def free_names(tree: Tree) -> set[str]:
    """The names that a function, and the functions in it, use but do not assign."""
    names = {node.id for node in _own_nodes(tree) if isinstance(node, ast.Name)}
    inside = [free_names(node) for node in _own_nodes(tree) if isinstance(node, Tree)]
    return names.union(*inside) - assigned(tree)


def shared(tree: Tree) -> set[str]:
    """The variables that functions inside use, unless their only value is there before these are defined."""
    settled = _assignments(tree)
    for name in argument_names(tree):
        settled[name] = _NEVER if name in settled else (0, 0)
    names: set[str] = set()
    for node in _own_nodes(tree):
        if isinstance(node, Tree):
            place = node.lineno, node.col_offset
            changed = set().union(*(_others(n) for n in ast.walk(node) if isinstance(n, Tree)))
            names |= {n for n in free_names(node) if n in changed or settled.get(n, _NEVER) > place}
    return names & settled.keys()


_NEVER = (1 << 62, 0)


def _others(tree: Tree) -> set[str]:
    """The variables of functions around it that a function assigns."""
    declared = [node.names for node in _own_nodes(tree) if isinstance(node, ast.Nonlocal)]
    return {name for names in declared for name in names}


def _body(tree: Tree) -> list[ast.AST]:
    return [*tree.body] if isinstance(tree, ast.FunctionDef) else [tree.body]


def _own_nodes(tree: Tree) -> Iterator[ast.AST]:
    """The nodes of a function; a function inside is one node."""
    pending = _body(tree)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Tree):
            pending += ast.iter_child_nodes(node)


def _assignments(tree: Tree) -> dict[str, tuple[int, int]]:
    """The line and column after which each name has its value; `_NEVER` if it is assigned twice, or in a loop."""
    places: dict[str, tuple[int, int]] = {}
    pending: list[tuple[ast.AST, tuple[int, int]]] = [(node, (0, 0)) for node in _body(tree)]
    while pending:
        node, place = pending.pop()
        if isinstance(node, ast.For | ast.While):
            place = _NEVER
        elif isinstance(node, ast.stmt) and place != _NEVER:
            place = node.end_lineno or 0, node.end_col_offset or 0
        name = node.name if isinstance(node, ast.FunctionDef) else None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if name is not None:
            places[name] = _NEVER if name in places else place
        if not isinstance(node, Tree):
            pending += [(child, place) for child in ast.iter_child_nodes(node)]
    return places
