"""The operators that a straight-line segment may have, and the functions of Python and numpy that stand for them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from glowpy.frontends.python.elementwise import elementwise
from glowpy.frontends.python.graph_builder import Rule
from glowpy.frontends.python.tensors import tensors
from glowpy.support.errors import UserError

__all__ = ["bound_arguments", "method_of", "operator_of", "rule_of"]

_RULES = elementwise.rules | tensors.rules
_NAMES = elementwise.names | tensors.names
_METHODS = elementwise.methods | tensors.methods


def operator_of(callee: object) -> str | None:
    """The name of the operator that a Python object, such as a function of numpy, stands for; None if there is none."""
    try:
        return _NAMES.get(callee)
    except TypeError:  # not hashable
        return None


def method_of(name: str) -> str | None:
    """The name of the operator that a method of an array stands for."""
    return _METHODS.get(name)


def rule_of(name: str) -> Rule:
    """The rule of an operator."""
    return _RULES[name]


def bound_arguments(
    name: str, positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call as operands, None for one that is left out, and options of its operator.

    Raises UserError for such as it does not take.
    """
    parameters = list(inspect.signature(_RULES[name]).parameters.values())[1:]
    shown = [p for p in parameters if not p.name.startswith("_")]
    operands = [p.name for p in shown if p.kind is p.POSITIONAL_OR_KEYWORD]
    options = [p.name for p in shown if p.kind is p.KEYWORD_ONLY]
    given = dict(zip([*operands, *options], positional, strict=False))
    if len(positional) > len(given) or named.keys() & given.keys():
        raise UserError(f"{name}: expected {', '.join([*operands, *options])}")
    given |= named
    if unknown := [key for key in given if key not in (*operands, *options)]:
        raise UserError(f"{name} has no argument '{unknown[0]}' here")
    required = [p.name for p in shown if p.default is p.empty]
    if missing := [key for key in required if key not in given]:
        raise UserError(f"{name}: expected an argument '{missing[0]}'")
    return [given.get(key) for key in operands], {k: given[k] for k in options if k in given}
