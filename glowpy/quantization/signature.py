"""Which network a profile is of, and in what another one differs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from glowpy.graph.function import Function
from glowpy.graph.printer import print_function

__all__ = ["Signature"]


@dataclass(frozen=True)
class Signature:
    """A network by its text, and what of it one can compare.

    Attributes:
        digest: SHA-256 of its text, its constants by their elements.
        function: Its name.
        inputs: The types of the inputs, by their names in the user's model.
        outputs: The types of the outputs.
        operators: How many nodes there are of each mnemonic.
    """

    digest: str
    function: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Mapping[str, int]

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
        )

    def differences(self, other: Signature) -> list[str]:
        """In what `other` differs from this network; empty if it is the same."""
        if self.digest == other.digest:
            return []
        differences = [
            *_renamed("function", self.function, other.function),
            *_changed("input", self.inputs, other.inputs),
            *_changed("output", self.outputs, other.outputs),
            *_changed("number of nodes", self.operators, other.operators),
        ]
        return differences or ["only weights, attributes or names of nodes differ"]


def _renamed(what: str, own: str, other: str) -> Iterator[str]:
    if own != other:
        yield f"{what}: expected {own}, got {other}"


def _changed(
    what: str, own: Mapping[str, str | int], others: Mapping[str, str | int]
) -> Iterator[str]:
    for name in {**own, **others}:
        if own.get(name) != others.get(name):
            yield f"{what} '{name}': expected {own.get(name, 'none')}, got {others.get(name, 'none')}"
