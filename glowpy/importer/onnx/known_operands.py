"""Values that follow from constants alone and are nodes all the same: products take weights as they are stored.

`model` folds what has known inputs, except what DequantizeLinear gives. What is computed of that is settled here when
somebody has to know it: the value of a pad, a scale, the number of rounds. Integers and truth values, which no product
takes in another form, are settled at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glowpy.core.tensor import Tensor
from glowpy.engine import evaluate
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.node import Item, OnnxScope

__all__ = ["settled_results"]

_LARGEST = 1 << 16
"""Bytes of what is worth to be known: numbers that decide something, and no weights."""


def settled_results(
    scope: OnnxScope, inputs: Sequence[Item | None], results: Iterable[Item]
) -> list[Item]:
    """The results of a node, tensors in place of integers that follow from constants; the others are noted."""
    results = list(results)
    if not all(_is_settled(scope, item) for item in inputs):
        return results
    for index, item in enumerate(results):
        if not isinstance(item, NodeValue) or item.type.room > _LARGEST:
            continue
        if item.type.kind.has_fractions:
            scope.settled.add(item)
        else:
            results[index] = evaluate([item])[0]
    return results


def _is_settled(scope: OnnxScope, item: Item | None) -> bool:
    if isinstance(item, NodeValue):
        return item in scope.settled
    return item is None or isinstance(item, Tensor)
