"""Has a function count the elements of its values while it runs.

Values are those of the graph that is quantized, optimized and not lowered, and those that its nodes are lowered to. The
former have the names that dumps show; the latter say whose part they are, whatever backend lowers the node or keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from glowpy.core.elemkind import ElemKind
from glowpy.core.histogram import BINS
from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Placeholder, Variable
from glowpy.lower import lowering
from glowpy.opt.graph.lower_quantized import is_quantized_arithmetic
from glowpy.opt.known import is_known
from glowpy.quantization.islands import computes_with_floats

__all__ = ["Watched", "instrument", "unprofiled"]


@dataclass(frozen=True)
class Watched:
    """A value whose elements are counted.

    Attributes:
        name: As dumps show it.
        type: The type of the value.
        origin: Where it comes from in the user's model.
        part_of: The value that it is a step on the way to, of a node that was lowered; empty for a value of the graph
            that is quantized.
        outputs: The names of the outputs with the results of its `quantization_profile`.
    """

    name: str
    type: str
    origin: str
    part_of: str
    outputs: tuple[str, str, str]


def instrument(f: Function) -> list[Watched]:
    """Lowers a function to the end, and gives it outputs that say where the elements of its values are.

    Every value of a floating-point kind is counted whose elements are not known before. Halves and doubles are
    counted as f32. What is quantized already stays as it is.
    """
    watched = _Watch(f)
    for value in _computed(f):
        watched.add(value, "")
    parts: dict[Node, str] = {}
    for lowered, created in lowering(f, is_quantized_arithmetic):
        parts.update(dict.fromkeys(created, parts.get(lowered, lowered.name)))
    values = watched.values
    for value in _computed(f):
        if value.node in parts and value not in values:
            watched.add(value, parts[value.node])
    return watched.all


def unprofiled(f: Function) -> list[tuple[Function, Node]]:
    """Lists the nodes with floats in the functions that `f` calls: nothing shows the values of a call."""
    return [
        (g, node)
        for g, node in f.all_nodes
        if g is not f and computes_with_floats(node) and not node.has(Trait.SHAPE_ONLY)
    ]


class _Watch:
    """The values whose elements are counted, and the nodes that count them."""

    def __init__(self, f: Function) -> None:
        self.all: list[Watched] = []
        self._f = f
        self._readers: list[Node] = []

    @property
    def values(self) -> set[NodeValue]:
        """The values that are counted, which after lowering other nodes compute."""
        return {reader.inputs[0] for reader in self._readers}

    def add(self, value: NodeValue, part_of: str) -> None:
        """Counts the elements of `value`, if it has any and they are floats."""
        if not value.type.kind.is_float or value.type.is_empty:
            return
        f, stem = self._f, f"{value.name}_profile"
        name, place = value.name, _origin(value)
        with f.at(value.producer.loc):
            readers: list[Node] = []
            if value.type.kind is not ElemKind.F32:
                type = value.type.with_kind(ElemKind.F32)
                readers.append(f.create_convert(stem, type, value))
            node = f.create_quantization_profile(stem, readers[0] if readers else value, BINS)
            outputs = []
            for index, result in enumerate(node.results):
                port = f"profile {len(self.all)}.{index}"
                f.create_save("save", result, f.module.create_placeholder(port, result.type))
                outputs.append(port)
        self._readers.append(readers[0] if readers else node)
        histogram, range, grid = outputs
        watched = Watched(name, str(value.type), place, part_of, (histogram, range, grid))
        self.all.append(watched)


def _computed(f: Function) -> list[NodeValue]:
    """The inputs, variables, and what is computed of them or of open extents alone: each after what it reads.

    Of a variable, the elements before the run are counted.
    """
    values = [storage.value for storage in (*f.inputs, *f.variables)]
    values += (value for node in f.topological() for value in node.results)
    return [value for value in values if not is_known(value)]


def _origin(value: NodeValue) -> str:
    """Where a value comes from, without the name of a file."""
    if isinstance(value.producer, Placeholder):
        return f"input '{value.producer.original}'"
    if isinstance(value.producer, Variable):
        return f"variable '{value.producer.original}'"
    return str(replace(value.producer.loc, file="")) if value.producer.loc.node else ""
