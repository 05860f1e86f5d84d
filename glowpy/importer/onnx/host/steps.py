"""Steps of a graph that is split, as the reader has them: what is compiled together, and nodes of the session's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from glowpy.core.tensor import Array
from glowpy.importer.onnx.source import Source

__all__ = ["HostNode", "Part", "SplitGraph"]


@dataclass(frozen=True)
class Part:
    """Nodes that are compiled together.

    Attributes:
        source: The model that they are.
        inputs: Which values it reads.
        outputs: Which it computes.
        strings: The inputs and outputs that are strings, and numbers in the model.
    """

    source: Source
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    strings: frozenset[str]


@dataclass(frozen=True)
class HostNode:
    """A node that the session computes.

    Attributes:
        node: The node.
        place: Its position in its graph.
        within: The graph of a node that it is in, such as `loop/body`; empty for that of the model.
        opset: The opset of its domain.
        bodies: Its graphs, by the names of the attributes.
    """

    node: onnx.NodeProto
    place: int
    within: str
    opset: int
    bodies: Mapping[str, SplitGraph]

    @property
    def outer(self) -> tuple[str, ...]:
        """The values of the graph around it that its graphs read."""
        return tuple(dict.fromkeys(name for graph in self.bodies.values() for name in graph.outer))


@dataclass(frozen=True)
class SplitGraph:
    """A graph as steps, in order.

    Attributes:
        inputs: The inputs of the graph.
        outputs: The outputs of the graph.
        outer: The values that it reads of the graph around it.
        constants: The constants that steps and outputs read.
        steps: The steps, in order.
        types: The types of all values, as far as they are known.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    outer: tuple[str, ...]
    constants: Mapping[str, Array]
    steps: tuple[Part | HostNode, ...]
    types: Mapping[str, onnx.TypeProto]

    @property
    def output_types(self) -> list[onnx.TypeProto | None]:
        """The types of the outputs, as far as they are known."""
        return [self.types.get(name) for name in self.outputs]

    @property
    def host_nodes(self) -> list[HostNode]:
        """The steps that the session computes."""
        return [step for step in self.steps if isinstance(step, HostNode)]
