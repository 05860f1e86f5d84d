"""Extents that elements decide, while importing: each is a symbol, which a node `define` says the extent of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import (
    UNBOUNDED,
    Dim,
    Expr,
    highest,
    lowest,
    substituted,
    symbol,
    symbols_of,
)
from glowpy.support.text import print_attrs, symbol_name

__all__ = ["Found", "UnlimitedError"]


class Found:
    """Extents that a function finds while it runs. `taken` are names of other symbols.

    Two counts that are computed alike are one extent: exporters write `x[mask] + y[mask]` as two searches of one mask.
    What is `supposed` of extents bounds those that nothing else bounds, or says what others equal; whoever supposes it
    has to look at the counts after a run.

    Attributes:
        counts: The value of each symbol, by name.
        supposed: The meaning supposed for symbols, by name: themselves between bounds, or other dimensions.
        to_check: The counts of those.
    """

    def __init__(
        self, taken: Iterable[str] = (), supposed: Mapping[str, Dim] | None = None
    ) -> None:
        self.counts: dict[str, NodeValue] = {}
        self.supposed = supposed or {}
        self.to_check: dict[str, NodeValue] = {}
        self._names = UniqueNames()
        for name in taken:
            self._names.take(name)
        self._dims: dict[int, Dim] = {}
        self._numbers: dict[NodeValue, int] = {}
        self._alike: dict[Hashable, int] = {}

    def inner(self, *, supposes: bool = False) -> Found:
        """The extents that a function finds which this one calls; with names of their own.

        What it `supposes` the caller has to check, who gets its counts.
        """
        found = Found(supposed=self.supposed if supposes else None)
        found.counts, found._names = self.counts, self._names
        return found

    def extent(self, f: Function, count: NodeValue, name: str, low: int, high: int | None) -> Dim:
        """The extent that is the element of `count`; no symbol where the bounds leave one.

        Raises UnlimitedError where nothing bounds it.
        """
        number = self._number(count)
        if number not in self._dims:
            symbol_of_count = self._names.take(symbol_name(name))
            supposed = self.supposed.get(symbol_of_count)
            if supposed is None and high is None:
                raise UnlimitedError(symbol_of_count)
            if supposed is not None:
                self.to_check[symbol_of_count] = count
            self._dims[number] = dim = self._dim(symbol_of_count, low, high, supposed)
            if isinstance(dim, Expr) and symbol_of_count in dim.symbols:
                f.create_define("define", count, (dim,))
                self.counts[symbol_of_count] = count
        return self._dims[number]

    def fitting(self, name: str) -> Dim:
        """An extent that is as supposed."""
        supposed = self.supposed[name]
        return lowest(supposed) if name in symbols_of([supposed]) else supposed

    def _dim(self, name: str, low: int, high: int | None, supposed: Dim | None) -> Dim:
        """A symbol with bounds, or what it is supposed to be."""
        if supposed is None or name in symbols_of([supposed]):
            ends = (lowest(supposed), highest(supposed)) if supposed is not None else (0, UNBOUNDED)
            low, high = max(low, ends[0]), min(UNBOUNDED if high is None else high, ends[1])
            return symbol(name, low, max(low, high))
        dims = {str(dim): dim for dim in self._dims.values() if str(dim) in symbols_of([supposed])}
        return substituted(supposed, dims)

    def _number(self, value: NodeValue) -> int:
        """Equal for values that are computed alike. Every value is looked at once."""
        work = [value]
        while work:
            node = work[-1].node
            missing = (
                [] if node is None else [v for v in node.operand_values if v not in self._numbers]
            )
            if missing and work[-1] not in self._numbers:
                work += missing
                continue
            done = work.pop()
            if done not in self._numbers:
                self._numbers[done] = self._alike.setdefault(self._key(done), len(self._alike))
        return self._numbers[value]

    def _key(self, value: NodeValue) -> Hashable:
        node = value.node
        if isinstance(node, Node):
            operands = tuple(self._numbers[operand] for operand in node.operand_values)
            return type(node), print_attrs(node.attrs), operands, value.index, value.type
        storage = value.producer
        if isinstance(storage, Constant) and storage.type.size < _SMALL:
            return storage.tensor.key
        return storage


class UnlimitedError(Exception):
    """A symbol, whose name is the argument, has no bound."""


_SMALL = 1 << 12
"""Constants of fewer bytes are compared."""
