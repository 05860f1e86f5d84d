"""Changes of a Python source: cosmic-ray's operators, where a change is plausible and matters.

cosmic-ray is the one maintained library whose operators can be used without its runner: `mutation_positions` says where
one applies, `mutate_code` applies it. Its 200 operators replace every arithmetic operator and comparison by every other
one. Most of these changes are noticed by any test that reaches the line, so that they would only raise the score; taken
are those a programmer might make: the neighbour of a comparison, a sign, an off-by-one, a condition turned round.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
from typing import Protocol

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from tools.mutate.mutant import Change, MutationError

__all__ = ["python_changes"]

Position = tuple[int, int]
"""Line, from 1, and column in characters, from 0."""
Span = tuple[Position, Position]

_REPLACED = {
    "Binary": [
        *("Add_Sub", "Sub_Add", "Mul_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "Mod_Mul"),
        *("Mod_FloorDiv", "Pow_Mul", "LShift_RShift", "RShift_LShift"),
        *("BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitOr"),
    ],
    "Comparison": [
        *("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is"),
    ],
    "Unary": ["Delete_Not", "Delete_USub"],
}
_OTHERS = [
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse"),
    *("ReplaceFalseWithTrue", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop"),
]


class _Operator(Protocol):
    """The part of a cosmic-ray operator that is used here."""

    def mutation_positions(self, node: object) -> Iterator[Span]: ...


def python_changes(source: str) -> list[list[Change]]:
    """The changes of a source, one list for each span of text that can be changed."""
    excluded = list(_excluded(source))
    places: dict[Span, list[Change]] = defaultdict(list)
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in _operators().items():
        occurrence = 0
        for node in nodes:
            for start, stop in operator.mutation_positions(node):
                if not any(first <= start and stop <= last for first, last in excluded):
                    apply = partial(_apply, source, operator, occurrence)
                    places[start, stop].append(Change(start[0], name, apply))
                occurrence += 1
    return [places[span] for span in sorted(places)]


@cache
def _operators() -> dict[str, _Operator]:
    names = [f"Replace{kind}Operator_{pair}" for kind, pairs in _REPLACED.items() for pair in pairs]
    names += _OTHERS
    return {name: get_operator(f"core/{name}")() for name in names}


def _apply(source: str, operator: _Operator, occurrence: int) -> str:
    mutated = mutate_code(source, operator, occurrence)
    if not isinstance(mutated, str):
        raise MutationError(f"cosmic-ray: no occurrence {occurrence} of {type(operator).__name__}")
    return mutated


def _excluded(source: str) -> Iterator[Span]:
    """Where a change has no effect, or none but on a type checker, a reader or the text of an error."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        yield from (_span(lines, part) for part in _untouched(node))
        if isinstance(node, ast.Starred):  # its star is none of the expression's operators
            (line, column), _ = _span(lines, node)
            yield (line, column), (line, column + 1)
        yield from (_stars(lines, mapping) for mapping in _unpacked(node))


def _untouched(node: ast.AST) -> list[ast.expr | ast.stmt]:
    match node:
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
            return [annotation]
        case ast.FunctionDef(returns=ast.expr() as returns):
            return [returns]
        case ast.ClassDef(decorator_list=decorators):
            return list(decorators)
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Assign(targets=[ast.Name("__all__")]):
            return [node]
        case ast.Raise():
            return [node]
        case ast.Call(func=ast.Name(name)) if name.endswith("Error"):
            return [node]
        case ast.keyword("strict", ast.Constant(True) as strict):
            return [strict]  # of `zip`: asserts equal lengths; the pairs are the same
        case _:
            return []


def _unpacked(node: ast.AST) -> list[ast.expr]:
    """The mappings that stand after two stars in a call or in a dictionary."""
    match node:
        case ast.Call():
            return [keyword.value for keyword in node.keywords if keyword.arg is None]
        case ast.Dict():
            return [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
        case _:
            return []


def _stars(lines: list[str], mapping: ast.expr) -> Span:
    (line, column), _ = _span(lines, mapping)
    return (line, column - 2), (line, column)


def _span(lines: list[str], node: ast.expr | ast.stmt) -> Span:
    """The place of a node, its columns in characters: `ast` counts the bytes of UTF-8."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None

    def position(line: int, column: int) -> Position:
        return line, len(lines[line - 1].encode()[:column].decode())

    return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)
