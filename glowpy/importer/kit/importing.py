"""`Importing`: where an operator of a model is imported, as whatever makes nodes of it sees it.

A reader makes a `Scope` for each function and an `Importing` for each operator. Helpers of this package take that,
and know neither the format nor its operators.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np

from glowpy.core.tensor import Tensor
from glowpy.engine import evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.importer.kit.found import Found, UnlimitedError
from glowpy.importer.kit.needs import value_needed
from glowpy.importer.kit.values import Ratio, SymbolicTensor, Value
from glowpy.importer.needs import ValueNeededError
from glowpy.support.errors import UnsupportedError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim

__all__ = ["Importing", "Scope"]


@dataclass
class Scope:
    """Where nodes are created: a function, and the constants made from known tensors in its module."""

    f: Function
    _: KW_ONLY
    folding: bool = False
    """Whether everything is known, and computed now."""
    found: Found = field(default_factory=Found)
    origins: dict[Placeholder, NodeValue | None] = field(default_factory=dict)
    """Operands for placeholders of called functions; None for those that change from round to round."""
    rounds: dict[NodeValue, Dim] = field(default_factory=dict)
    """The most rounds that there are of a loop, for values that are the number of one."""
    _constants: dict[int, tuple[Tensor, NodeValue]] = field(default_factory=dict)
    _computed: dict[int, tuple[SymbolicTensor, NodeValue]] = field(default_factory=dict)

    def _elements(self, value: SymbolicTensor, name: str) -> NodeValue:
        items = value.array.reshape(-1)
        if any(isinstance(item, Ratio | float) for item in items):
            return self._quotients(value, name)
        flat = self.f.create_extents(name, tuple(items)).result
        if flat.type.kind is not value.type.kind:
            flat = self.f.create_convert(name, flat.type.with_kind(value.type.kind), flat).result
        if flat.type.shape != value.type.shape:
            flat = self.f.create_reshape(name, value.type, flat).result
        return flat

    def _quotients(self, value: SymbolicTensor, name: str) -> NodeValue:
        """Floats, some of them fractions of extents."""
        pairs = [
            (item.dividend, item.divisor)
            if isinstance(item, Ratio)
            else item.as_integer_ratio()
            if isinstance(item, float)
            else (item, 1)
            for item in value.array.reshape(-1)
        ]
        dividends = np.array([dividend for dividend, _ in pairs], object)
        divisors = np.array([divisor for _, divisor in pairs]).astype(value.type.kind.dtype)
        quotients = self._elements(
            SymbolicTensor(value.type, dividends.reshape(value.array.shape)), name
        )
        divisor = self.materialize(Tensor.of(divisors.reshape(value.array.shape)), name)
        return self.f.create_div(name, quotients, divisor).result

    def materialize(self, value: Value | SymbolicTensor, name: str) -> NodeValue:
        """The value as an operand; a known tensor becomes a constant, once, and a symbolic one is computed, once."""
        if isinstance(value, NodeValue):
            return value
        if isinstance(value, SymbolicTensor):
            if id(value) not in self._computed:
                self._computed[id(value)] = value, self._elements(value, name)
            return self._computed[id(value)][1]
        if id(value) not in self._constants:
            self._constants[id(value)] = (value, self.f.module.create_constant(name, value).value)
        return self._constants[id(value)][1]


class Importing:
    """One operator that is imported: its scope, the name for nodes made of it, and where it is in the model."""

    def __init__(self, name: str, loc: Loc, scope: Scope) -> None:
        self.name = name
        self.loc = loc
        self.scope = scope

    @property
    def f(self) -> Function:
        """The function in which to create nodes."""
        return self.scope.f

    def operand(self, value: Value | SymbolicTensor, name: str = "") -> NodeValue:
        """A value as an operand; a known tensor becomes a constant called `name`."""
        return self.scope.materialize(value, name or self.name)

    def input_name(self, index: int) -> str:
        """The name of input `index` in messages."""
        return f"input {index} of {self.name}"

    def found(
        self, count: Value, name: str, high: int | None, low: int = 0, *, source: int = 0
    ) -> Dim:
        """An extent that the network finds: the element of `count`, an i64[1], which is within the bounds.

        It is one symbol wherever the same is computed. Raises ValueNeededError, which names the input that is its
        `source`, where nothing bounds it.
        """
        if isinstance(count, NodeValue) and self.scope.folding:
            count = evaluate([count])[0]
        if isinstance(count, Tensor):
            return int(count.array[0])
        try:
            return self.scope.found.extent(self.f, count, name, low, high)
        except UnlimitedError as error:
            what = f"'{self.input_name(source)}'"
            needed = value_needed(what, count, self.loc, self.scope.origins)
            if isinstance(needed, ValueNeededError):
                needed.counts = tuple(error.args)
                (name,) = error.args
                bound = f"or bound the extent: --shape {name}=0..100, as docs/shapes.md says"
                needed.diagnostics = [
                    replace(d, note=f"{d.note}, {bound}") for d in needed.diagnostics
                ]
            raise needed from None

    def unsupported(self, what: str, note: str = "") -> UnsupportedError:
        """The error that says this node does something that cannot be imported."""
        return UnsupportedError(f"{what} is not supported", note=note)
