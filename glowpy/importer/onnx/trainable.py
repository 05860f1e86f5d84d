"""Which initializers of a model become variables that training changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import onnx

from glowpy.core.tensor import Tensor
from glowpy.importer.onnx.order import names_read
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["running_averages", "trainable_names"]

_STATISTICS = slice(3, 5)
"""Inputs of a BatchNormalization that it has from batches, and that no gradient is to change."""
_MOVED = slice(1, 3)
"""Outputs of one in training, which these inputs are in the next step."""


def running_averages(graph: onnx.GraphProto, initializers: Mapping[str, Tensor]) -> dict[str, str]:
    """The statistics that batch normalizations in training move, and the names of what they are moved to."""
    pairs: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "BatchNormalization" and not node.domain:
            before, after = node.input[_STATISTICS], node.output[_MOVED]
            pairs |= {b: a for b, a in zip(before, after, strict=False) if a and b in initializers}
    return pairs


def trainable_names(
    graph: onnx.GraphProto,
    initializers: Mapping[str, Tensor],
    wanted: str | Sequence[str],
    file: str,
) -> list[str]:
    """The names of floating-point initializers that nodes read, in order: all, or those of names and patterns.

    Statistics of batch normalizations are taken only by their own names, and numbers of rank 0, which are those of
    formulas as a rule, not as part of all. Raises UserError for a name of none, and for a
    pattern that no name matches.
    """
    read = {name for node in graph.node for name in names_read(node)}
    floats = [n for n, t in initializers.items() if t.type.kind.is_float and n in read]
    statistics = {
        name
        for node in graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[_STATISTICS]
    }
    if wanted == "all":
        tensors = (name for name in floats if initializers[name].type.rank > 0)
        return [name for name in tensors if name not in statistics]
    chosen: set[str] = set()
    for pattern in [wanted] if isinstance(wanted, str) else wanted:
        exact = {pattern} & set(floats)
        matching = exact or {n for n in floats if fnmatchcase(n, pattern) and n not in statistics}
        if not matching:
            raise UserError(
                f"trainable: no weights of floating-point numbers match '{pattern}'", loc=Loc(file)
            )
        chosen |= matching
    return [name for name in floats if name in chosen]
