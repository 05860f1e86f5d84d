"""`Term`: values in the notation of formulas, for rules that compute element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, Operand, value_of
from glowpy.ops.elementwise import scalar
from glowpy.ops.operands import widened

__all__ = ["Term", "term"]

Factor: TypeAlias = "Term | float"
"""A value, or a number that becomes a scalar of the other side's kind."""


@dataclass(frozen=True, eq=False)
class Term:
    """A value of the function that a rule builds; arithmetic on it creates nodes called `name`."""

    f: Function
    name: str
    value: Operand

    @property
    def type(self) -> Type:
        """The type of the value."""
        return value_of(self.value).type

    def scalar(self, number: float) -> Operand:
        """`number` in the kind of the value; it broadcasts."""
        return scalar(self.f, f"{self.name}_scalar", self.type, number)

    def _operand(self, other: Factor) -> Operand:
        return other.value if isinstance(other, Term) else self.scalar(other)

    def _of(self, value: Operand) -> Term:
        return Term(self.f, self.name, value)

    def __neg__(self) -> Term:
        return self._of(self.f.create_neg(self.name, self.value))

    def __add__(self, other: Factor) -> Term:
        return self._of(self.f.create_add(self.name, self.value, self._operand(other)))

    def __sub__(self, other: Factor) -> Term:
        return self._of(self.f.create_sub(self.name, self.value, self._operand(other)))

    def __mul__(self, other: Factor) -> Term:
        return self._of(self.f.create_mul(self.name, self.value, self._operand(other)))

    def __truediv__(self, other: Factor) -> Term:
        return self._of(self.f.create_div(self.name, self.value, self._operand(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Term:
        return self._of(self.f.create_sub(self.name, self.scalar(other), self.value))

    def __lt__(self, other: Factor) -> Term:
        return self._of(self.f.create_lt(self.name, self.value, self._operand(other)))

    def __gt__(self, other: Factor) -> Term:
        return self._of(self.f.create_lt(self.name, self._operand(other), self.value))

    def __abs__(self) -> Term:
        return self._of(self.f.create_abs(self.name, self.value))

    def exp(self) -> Term:
        """The exponential function of the value."""
        return self._of(self.f.create_exp(self.name, self.value))

    def log(self) -> Term:
        """The natural logarithm."""
        return self._of(self.f.create_log(self.name, self.value))

    def tanh(self) -> Term:
        """The hyperbolic tangent."""
        return self._of(self.f.create_tanh(self.name, self.value))

    def erf(self) -> Term:
        """The error function."""
        return self._of(self.f.create_erf(self.name, self.value))

    def sigmoid(self) -> Term:
        """1 / (1 + exp(-value)), without overflow."""
        return self._of(self.f.create_sigmoid(self.name, self.value))

    def sqrt(self) -> Term:
        """The square root; NaN below 0."""
        return self._of(self.f.create_sqrt(self.name, self.value))

    def sign(self) -> Term:
        """-1, 0 or 1."""
        return self._of(self.f.create_sign(self.name, self.value))

    def power(self, exponent: Factor) -> Term:
        """The value to the power of another."""
        return self._of(self.f.create_pow(self.name, self.value, self._operand(exponent)))

    def to(self, kind: ElemKind) -> Term:
        """The value in another element kind."""
        return self._of(self.as_type(self.type.with_kind(kind)))

    def max(self, other: Factor) -> Term:
        """The larger of both; NaN if one is NaN."""
        return self._of(self.f.create_max(self.name, self.value, self._operand(other)))

    def min(self, other: Factor) -> Term:
        """The smaller of both; NaN if one is NaN."""
        return self._of(self.f.create_min(self.name, self.value, self._operand(other)))

    def where(self, condition: Term, other: Factor) -> Term:
        """The value where `condition` holds, else `other`."""
        selected = self.f.create_select(
            self.name, condition.value, self.value, self._operand(other)
        )
        return self._of(selected)

    def as_type(self, type: Type) -> Operand:
        """The value in the element kind of `type`."""
        if self.type.kind is type.kind:
            return self.value
        return self.f.create_convert(self.name, self.type.with_kind(type.kind), self.value)


def term(f: Function, n: Node, operand: Operand) -> Term:
    """`operand` in a rule for `n`: halves in f32, so that only the result is rounded to 16 bits."""
    return Term(f, n.name, widened(f, n.name, operand))
