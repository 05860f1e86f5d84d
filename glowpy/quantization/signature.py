"""Which network a profile is of, and in what another one differs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from glowpy.graph.function import Function
from glowpy.graph.printer import print_function

__all__ = ["Signature", "without_extents"]

_DIGITS = 16
_OPEN, _STATIC = " x ", "(?<=[0-9])x(?=[0-9])"
"""What is between dimensions in the text of a type, as `spelled` has it."""


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
    """

    digest: str
    function: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Mapping[str, int]
    weights: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, f: Function) -> Signature:
        """That of an optimized function."""
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
        )

    def is_at_other_extents(self, other: Signature) -> bool:
        """Whether `other` is this network with inputs of other extents, as far as these tell.

        What is folded may differ with the extents, and so may constants that follow from them. Weights of one name and
        type are the same, inputs and outputs are alike, and there is a weight that both have, or as many nodes of each.
        """
        shared = self.weights.keys() & other.weights.keys()
        return (
            self.function == other.function
            and _are_alike(self.inputs, other.inputs)
            and _are_alike(self.outputs, other.outputs)
            and bool(shared or self.operators == other.operators)
            and all(self.weights[name] == other.weights[name] for name in shared)
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
        ]
        return differences or ["only weights, attributes or names of nodes differ"]


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
