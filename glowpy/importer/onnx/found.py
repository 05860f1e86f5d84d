"""Extents that elements decide, while importing: each is a symbol, which a node `define` says the extent of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import Dim, symbol
from glowpy.support.text import print_attrs, symbol_name

__all__ = ["Found"]


class Found:
    """What a function finds while it runs. `taken` are names of other symbols.

    Two counts that are computed alike are one extent: exporters write `x[mask] + y[mask]` as two searches of one mask.

    Attributes:
        counts: What each symbol is, by name.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.counts: dict[str, NodeValue] = {}
        self._names = UniqueNames()
        for name in taken:
            self._names.take(name)
        self._dims: dict[int, Dim] = {}
        self._numbers: dict[NodeValue, int] = {}
        self._alike: dict[Hashable, int] = {}

    def inner(self) -> Found:
        """The extents that a function finds which this one calls; with names of their own."""
        found = Found()
        found.counts, found._names = self.counts, self._names
        return found

    def extent(self, f: Function, count: NodeValue, name: str, low: int, high: int) -> Dim:
        """The extent that is the element of `count`; no symbol where the bounds leave one."""
        number = self._number(count)
        if number not in self._dims:
            dim = symbol(self._names.take(symbol_name(name)), low, high)
            self._dims[number] = dim
            if not isinstance(dim, int):
                f.create_define("define", count, (dim,))
                self.counts[str(dim)] = count
        return self._dims[number]

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


_SMALL = 1 << 12
"""Constants of fewer bytes are compared."""
