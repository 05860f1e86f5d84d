"""Constants that are made of others: weights in another layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node

__all__ = ["derived"]


def derived(
    f: Function,
    n: Node,
    part: str,
    type: Type,
    source: Constant,
    operation: str,
    compute: Callable[[Array], Array | Iterable[Array]],
) -> Constant:
    """Derives a constant from another by `compute`, which `operation` describes, together with the type."""
    tensor = Tensor.derived(type, operation, [source.tensor], compute)
    return f.module.create_constant(f"{n.name}_{part}", tensor, loc=n.loc)
