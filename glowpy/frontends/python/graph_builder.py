"""How operators of the source become nodes of a graph: `GraphBuilder`, and tables of rules.

Numbers of the source have no element kind of their own: beside a tensor they have the tensor's, as in numpy (NEP 50).
What is computed of such numbers alone is `WeaklyTyped`: i64, f64 or bool until it meets a tensor. Kinds of tensors are
never converted silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.frontends.python.code import Block
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = [
    "Check",
    "GraphBuilder",
    "GraphValue",
    "Known",
    "NeedsNumberError",
    "Number",
    "Opaque",
    "Rule",
    "Table",
    "WeaklyTyped",
    "common_kind",
    "described",
]


@dataclass(frozen=True)
class WeaklyTyped:
    """A value that gives way to the element kind of the tensors it meets."""

    value: NodeValue


@dataclass(frozen=True)
class Opaque:
    """A value that is not computed with, such as a function: number `index` of what the segment reads."""

    index: int


class NeedsNumberError(Exception):
    """Raised where the code depends on the number `value`."""

    def __init__(self, value: NodeValue) -> None:
        super().__init__()
        self.value = value


Number: TypeAlias = "int | float | bool"
Known: TypeAlias = "Number | slice | np.dtype[Any] | EllipsisType | None"
GraphValue: TypeAlias = "NodeValue | WeaklyTyped | Known | Opaque | Block | tuple[GraphValue, ...]"
"""An operand or result of an operator: a tensor, something known while compiling, a function, or a tuple of these."""


@dataclass(frozen=True)
class Check:
    """A place along an axis that is computed: it has to be within the extent, or count from its end."""

    place: NodeValue
    extent: int
    loc: Loc


@dataclass(frozen=True)
class GraphBuilder:
    """Adds nodes for one operator of the source to a graph."""

    f: Function
    name: str
    loc: Loc
    checks: list[Check] = field(default_factory=list)

    def node(self, mnemonic: str, *arguments: Any) -> NodeValue:
        """The result of a new node."""
        create = getattr(self.f, f"create_{mnemonic}")
        value: NodeValue = create(self.name, *arguments, loc=self.loc).result
        return value

    def check(self, place: NodeValue, extent: int) -> None:
        """Has a run refused in which a scalar is no place along an axis of that extent."""
        self.checks.append(Check(place, extent, self.loc))

    def lifted(self, operand: GraphValue, kind: ElemKind) -> NodeValue:
        """An operand as a tensor of a kind. Raises UserError for one of another kind that does not give way."""
        if not isinstance(operand, NodeValue | WeaklyTyped | int | float):
            raise UserError(f"expected a tensor or a number, got {described(operand)}")
        if isinstance(operand, NodeValue):
            if operand.type.kind is not kind:
                raise UserError(
                    f"expected one element kind, got {kind.value} and {operand.type}",
                    note=f"convert one of them, as with .astype(np.{kind.dtype.name})",
                )
            return operand
        if isinstance(operand, WeaklyTyped):
            type = operand.value.type
            if type.kind is kind:
                return operand.value
            if type.kind.is_float and not kind.is_float:
                raise _fraction("a float", kind)
            return self.node("convert", type.with_kind(kind), operand.value)
        if isinstance(operand, float) and not kind.is_float:
            raise _fraction(repr(operand), kind)
        return self.splat(operand, kind)

    def splat(self, number: Number, kind: ElemKind) -> NodeValue:
        """A scalar that is the same in every run. Raises UserError where the kind has no such number."""
        if kind.is_integer:
            low, high = kind.limits
            if not low <= number <= high:
                raise UserError(f"expected a number from {low} to {high}, got {number}")
        if isinstance(number, int) and abs(number) >= 1 << 53:  # attributes are doubles
            constant = self.f.module.create_constant(self.name, np.array(number, kind.dtype))
            return constant.value
        return self.node("splat", Type(kind, ()), number)

    def tensor(self, operand: GraphValue) -> NodeValue:
        """An operand as a tensor of its own kind."""
        return self.lifted(operand, common_kind([operand]))

    def joint(self, operands: Sequence[GraphValue]) -> tuple[list[NodeValue], bool]:
        """Operands in their common kind, and whether all of them give way."""
        kind = common_kind(operands)
        weak = not any(isinstance(operand, NodeValue) for operand in operands)
        return [self.lifted(operand, kind) for operand in operands], weak

    def known(self, operand: GraphValue) -> Any:
        """Returns an operand as a Python object.

        Raises NeedsNumberError for a number that is not known while compiling, UserError for tensors.
        """
        if isinstance(operand, tuple):
            return tuple([self.known(item) for item in operand])
        if isinstance(operand, slice):
            bounds = operand.start, operand.stop, operand.step
            return slice(*[self.known(bound) for bound in bounds])
        if isinstance(operand, WeaklyTyped):
            raise NeedsNumberError(operand.value)
        if isinstance(operand, NodeValue):
            note = "numbers and what x.shape says are known, elements of tensors are not"
            raise UserError(f"expected a Python number, got {operand.type}", note=note)
        return operand

    def wrapped(self, value: NodeValue, weak: bool) -> GraphValue:
        """A result, which gives way if all its operands did."""
        return WeaklyTyped(value) if weak else value


def described(operand: GraphValue) -> str:
    """Describes an operand in messages."""
    match operand:
        case None:
            return "None"
        case tuple():
            return "a tuple"
        case Opaque() | Block():
            return "a function"
        case WeaklyTyped():
            return "a number"
        case NodeValue():
            return str(operand.type)
        case _:
            return repr(operand)


def _fraction(what: str, kind: ElemKind) -> UserError:
    return UserError(
        f"expected integers for a tensor of kind {kind.value}, got {what}",
        note="convert the tensor, as with .astype(np.float32)",
    )


def common_kind(operands: Sequence[GraphValue]) -> ElemKind:
    """The kind of the first tensor; without one that of the numbers."""
    for operand in operands:
        if isinstance(operand, NodeValue):
            return operand.type.kind
    kinds = [
        operand.value.type.kind
        if isinstance(operand, WeaklyTyped)
        else ElemKind.of(np.dtype(type(operand)).type)
        for operand in operands
        if isinstance(operand, WeaklyTyped | int | float)
    ]
    order = (ElemKind.BOOL, ElemKind.I64, ElemKind.F64)
    return max(kinds, key=order.index, default=ElemKind.F64)


Rule: TypeAlias = Callable[..., GraphValue]
"""Takes a builder, operands by position, options by name; gives the result. Raises UserError for what does not fit."""


class Table:
    """The rules of some operators, by name, and what they stand for in Python."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}
        self.names: dict[Any, str] = {}
        self.methods: dict[str, str] = {}

    def __call__(self, *callees: Any, name: str = "", method: str = "") -> Callable[[Rule], Rule]:
        """Adds a rule for calls of these objects, and for a method of arrays; it has its function's name, or `name`."""

        def add(rule: Rule) -> Rule:
            operator_name = name or rule.__name__.strip("_")
            self.rules[operator_name] = rule
            self.names.update(dict.fromkeys(callees, operator_name))
            if method:
                self.methods[method] = operator_name
            return rule

        return add
