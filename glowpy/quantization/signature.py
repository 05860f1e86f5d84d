"""Which network a profile is of, and in what another one differs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from glowpy.core.extents import symbols_of_types
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.printer import print_function
from glowpy.support.text import print_attrs, print_symbol

__all__ = ["Signature", "without_extents"]

_DIGITS = 16
_OPEN, _STATIC = " x ", "(?<=[0-9])x(?=[0-9])"
"""Separators of dimensions in the text of a type, as `spelled` has it."""

_WITHOUT_EXTENTS = ("float", "flag", "text")
"""The kinds of attributes that do not follow from extents, but for some."""

_OF_WINDOWS = ("ceil", "count_include_pads")
"""Flags that may follow from extents: they have no effect where windows fit."""

_STEPS = ("strides", "dilation", "group")
"""Lists and numbers that do not either; others, such as kernels, may."""

_NUMBER = "splat"
"""A node that is one number, such as that of the elements that a mean is of: it may follow from extents."""

_SHOWN = 3
"""A message names at most so many nodes, and so many weights, that are others."""


@dataclass(frozen=True)
class Signature:
    """A network by its text, and what of it one can compare.

    Attributes:
        digest: SHA-256 of its text, its constants by their elements.
        function: Its name.
        inputs: The types of the inputs, by their names in the user's model.
        outputs: The types of the outputs.
        operators: How many nodes there are of each mnemonic.
        weights: The first digits of the digests of constants that are weights, by name and type.
        nodes: A description of each node, whatever the extents; empty in files of earlier versions.
        symbols: The symbols of the inputs, with their bounds.
    """

    digest: str
    function: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Mapping[str, int]
    weights: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, f: Function) -> Signature:
        """Computes the signature of an optimized function."""
        text = "".join(print_function(g) for g in (*f.called, f))
        digest = hashlib.sha256(text.encode())
        for constant in f.all_constants:
            digest.update(f"{constant.name} {constant.type} {constant.digest}\n".encode())
        return cls(
            digest.hexdigest(),
            f.name,
            {p.original: str(p.type) for p in f.parameters},
            {p.original: str(p.type) for p in f.outputs},
            dict(sorted(Counter(node.SCHEMA.mnemonic for node in f.nodes).items())),
            {
                f"{constant.name} {constant.type}": constant.digest[:_DIGITS]
                for constant in f.all_constants
                if constant.type.kind.has_fractions and constant.type.count > 1
            },
            {node.name: _described(node) for node in f.nodes},
            {
                symbol.name: print_symbol(symbol)
                for symbol in symbols_of_types(p.type for p in f.parameters).values()
            },
        )

    def is_at_other_extents(self, other: Signature) -> bool:
        """Whether `other` is this network with inputs of other extents, as far as these tell.

        What is folded may differ with the extents, and so may constants that follow from them. Inputs and outputs are
        alike, most nodes and weights are in both, and what is in both is the same.
        """
        return (
            self._has_other_extents(other)
            and bool(self.nodes)
            and self.function == other.function
            and _are_alike(self.inputs, other.inputs)
            and _are_alike(self.outputs, other.outputs)
            and _are_mostly_shared(self.weights, other.weights)
            and _are_mostly_shared(self.nodes, other.nodes)
            and not [*self._other_nodes(other), *self._other_weights(other)]
        )

    def differences(self, other: Signature) -> list[str]:
        """In what `other` differs from this network; empty if it is the same, perhaps at other extents."""
        if self.digest == other.digest or self.is_at_other_extents(other):
            return []
        differences = [
            *_renamed("function", self.function, other.function),
            *_changed("input", self.inputs, other.inputs),
            *_changed("output", self.outputs, other.outputs),
            *_changed("number of nodes", self.operators, other.operators),
            *islice(self._other_nodes(other), _SHOWN),
            *islice(self._other_weights(other), _SHOWN),
        ]
        return differences or ["only weights, attributes or names of nodes differ"]

    def _has_other_extents(self, other: Signature) -> bool:
        return self.inputs != other.inputs or self.symbols != other.symbols

    def _other_nodes(self, other: Signature) -> Iterator[str]:
        """The nodes of one name and operator that have other attributes."""
        for name in sorted(self.nodes.keys() & other.nodes.keys()):
            text, its = self.nodes[name], other.nodes[name]
            if text != its and text.split()[:1] == its.split()[:1]:
                yield f"node '{name}': expected {text}, got {its}"

    def _other_weights(self, other: Signature) -> Iterator[str]:
        """The weights of one name and type that have other elements."""
        for name in sorted(self.weights.keys() & other.weights.keys()):
            if self.weights[name] != other.weights[name]:
                yield f"the elements of '{name}' are others"


def _described(node: Node) -> str:
    """The operator with those of its attributes that do not follow from extents."""
    attrs = {
        spec.name: node.attrs[spec.name]
        for spec in node.SCHEMA.attrs
        if (spec.kind in _WITHOUT_EXTENTS and spec.name not in _OF_WINDOWS) or spec.name in _STEPS
    }
    mnemonic = node.SCHEMA.mnemonic
    return mnemonic if mnemonic == _NUMBER else f"{mnemonic}{print_attrs(attrs)}"


def _are_mostly_shared(own: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether more than half of the names of each are the other's, or there are none."""
    most = max(len(own), len(others))
    return not most or 2 * len(own.keys() & others.keys()) > most


def _are_alike(own: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two sets of types, by name, differ in extents at most."""
    return own.keys() == others.keys() and all(
        without_extents(own[name]) == without_extents(others[name]) for name in own
    )


def without_extents(type: str) -> tuple[str, int, str]:
    """The element kind, the rank and the rest of a type's text."""
    kind, _, rest = type.partition("[")
    shape, _, more = rest.partition("]")
    between = _OPEN if _OPEN in shape else _STATIC
    return kind, len(re.split(between, shape)) if shape else 0, more


def _renamed(what: str, own: str, other: str) -> Iterator[str]:
    if own != other:
        yield f"{what}: expected {own}, got {other}"


def _changed(
    what: str, own: Mapping[str, str | int], others: Mapping[str, str | int]
) -> Iterator[str]:
    for name in {**own, **others}:
        if own.get(name) != others.get(name):
            yield f"{what} '{name}': expected {own.get(name, 'none')}, got {others.get(name, 'none')}"
