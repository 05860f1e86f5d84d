"""Numbers in a row: known while importing, or computed of symbolic extents when the network runs.

Where the elements of a resized image lie follows from its size alone. If that is constant, these numbers are a known
tensor, and leave no nodes; else they are nodes. Formulas are the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.importer.kit.importing import Importing
from glowpy.importer.kit.moves import convert, reshape, slice_axis
from glowpy.importer.kit.values import SymbolicTensor, Value
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, Expr, highest

__all__ = ["Number", "Numbers", "counted"]

Number: TypeAlias = "float | Expr | Numbers"
"""An operand of arithmetic on numbers: one number for all, or others."""


@final
@dataclass(frozen=True, eq=False)
class Numbers:
    """A tensor of numbers of one kind, with arithmetic. Others in a formula become of the same kind.

    Attributes:
        n: The node that is imported.
        value: The numbers.
    """

    n: Importing
    value: Value

    @classmethod
    def of(cls, n: Importing, number: Dim, kind: ElemKind) -> Numbers:
        """One number, of rank 0."""
        if not isinstance(number, Expr):
            return cls(n, Tensor.of(np.array(number, kind.dtype)))
        extent = SymbolicTensor(Type(ElemKind.I64, ()), np.array(number, object))
        return cls(n, convert(n, n.operand(extent), kind))

    @property
    def kind(self) -> ElemKind:
        """The kind of all of them."""
        return self.value.type.kind

    @property
    def known(self) -> Array | None:
        """The numbers, if they are known."""
        return self.value.array if isinstance(self.value, Tensor) else None

    @property
    def operand(self) -> NodeValue:
        """The numbers as an operand."""
        return self.n.operand(self.value)

    def to(self, kind: ElemKind) -> Numbers:
        """The same in another kind."""
        return Numbers(self.n, convert(self.n, self.value, kind))

    def reshaped(self, *shape: Dim) -> Numbers:
        """The same in another shape."""
        return Numbers(self.n, reshape(self.n, self.value, shape))

    def rows(self) -> list[Numbers]:
        """The rows of a matrix, as vectors."""
        count, size = self.value.type.shape
        values = [slice_axis(self.n, self.value, 0, row, 1, 1) for row in range(highest(count))]
        return [Numbers(self.n, reshape(self.n, value, (size,))) for value in values]

    def total(self) -> Numbers:
        """The sums of the columns of a matrix, as a matrix of one row."""
        if self.known is not None:
            return Numbers(self.n, Tensor.of(self.known.sum(axis=0, keepdims=True)))
        return Numbers(self.n, self.n.f.create_reduce_add(self.n.name, self.operand, (0,)).result)

    def __add__(self, other: Number) -> Numbers:
        return self._with(np.add, self.n.f.create_add, other)

    __radd__ = __add__

    def __mul__(self, other: Number) -> Numbers:
        return self._with(np.multiply, self.n.f.create_mul, other)

    __rmul__ = __mul__

    def __sub__(self, other: Number) -> Numbers:
        return self._with(np.subtract, self.n.f.create_sub, other)

    def __rsub__(self, other: Number) -> Numbers:
        return self._like(other) - self

    def __neg__(self) -> Numbers:
        return self._with(np.negative, self.n.f.create_neg)

    def __truediv__(self, other: Number) -> Numbers:
        return self._with(np.divide, self.n.f.create_div, other)

    def __rtruediv__(self, other: Number) -> Numbers:
        return self._like(other) / self

    def __floordiv__(self, other: Number) -> Numbers:
        """The quotients of integers that are not negative."""
        return self._with(np.floor_divide, self.n.f.create_div, other)

    def __mod__(self, other: Number) -> Numbers:
        """The rest of a division of integers that are not negative."""
        return self - self // other * other

    def __lt__(self, other: Number) -> Numbers:
        return self._with(np.less, self.n.f.create_lt, other)

    def __gt__(self, other: Number) -> Numbers:
        return self._like(other) < self

    def __le__(self, other: Number) -> Numbers:
        return self._with(np.less_equal, self.n.f.create_le, other)

    def __ge__(self, other: Number) -> Numbers:
        return self._like(other) <= self

    def equals(self, other: Number) -> Numbers:
        """Whether each is another."""
        return self._with(np.equal, self.n.f.create_eq, other)

    def __and__(self, other: Numbers) -> Numbers:
        return self._with(np.logical_and, self.n.f.create_and, other)

    def __or__(self, other: Numbers) -> Numbers:
        return self._with(np.logical_or, self.n.f.create_or, other)

    def __abs__(self) -> Numbers:
        return self._with(np.abs, self.n.f.create_abs)

    def floor(self) -> Numbers:
        """Each rounded down."""
        return self._with(np.floor, self.n.f.create_floor)

    def ceil(self) -> Numbers:
        """Each rounded up."""
        return self._with(np.ceil, self.n.f.create_ceil)

    def at_least(self, other: Number) -> Numbers:
        """The greater of each and another."""
        return self._with(np.maximum, self.n.f.create_max, other)

    def at_most(self, other: Number) -> Numbers:
        """The less of each and another."""
        return self._with(np.minimum, self.n.f.create_min, other)

    def where(self, condition: Numbers, other: Number) -> Numbers:
        """Each where the condition holds, else another."""
        values = (condition.value, self.value, self._like(other).value)
        return self._computed(np.where, self.n.f.create_select, values)

    def _like(self, number: Number) -> Numbers:
        if isinstance(number, Numbers):
            return number.to(self.kind)
        if isinstance(number, Expr):
            return Numbers.of(self.n, number, self.kind)
        return Numbers(self.n, Tensor.of(np.array(number, self.kind.dtype)))

    def _with(
        self, compute: Callable[..., Any], create: Callable[..., Operand], *others: Number
    ) -> Numbers:
        values = [self.value, *(self._like(other).value for other in others)]
        return self._computed(compute, create, values)

    def _computed(
        self, compute: Callable[..., Any], create: Callable[..., Operand], values: Sequence[Value]
    ) -> Numbers:
        arrays = [value.array for value in values if isinstance(value, Tensor)]
        if len(arrays) == len(values):
            return Numbers(self.n, Tensor.of(np.asarray(compute(*arrays))))
        node = create(self.n.name, *(self.n.operand(value) for value in values))
        return Numbers(self.n, value_of(node))


_MOST = 1 << 28
"""The most numbers that are created on a model's word; it is checked before memory is taken for them."""


def counted(n: Importing, count: Dim) -> Numbers:
    """0, 1, 2 and so on: so many numbers, as a vector of i64. Raises UserError if they are too many."""
    if not isinstance(count, Expr):
        if count > _MOST:
            raise UserError(f"expected an extent of at most {_MOST}, got {count}")
        return Numbers(n, Tensor.of(np.arange(count, dtype=np.int64)))
    ones = n.f.create_splat(f"{n.name}_ones", Type(ElemKind.I64, (count,)), 1.0)
    places = n.f.create_cum_sum(f"{n.name}_places", ones, 0, exclusive=True, reverse=False)
    return Numbers(n, places.result)
