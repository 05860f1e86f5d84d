"""`Conversion`: a quantized network, and what became of the nodes of the one in floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node
from glowpy.graph.nodes_gen import DequantizeBlocksNode
from glowpy.support.symbolic import ceil_div

__all__ = ["Conversion", "Outcome", "bytes_of_constants", "outcome_of"]


@dataclass(frozen=True)
class Outcome:
    """The form in which one node was converted.

    Attributes:
        name: In the optimized graph.
        kind: Its mnemonic.
        origin: Where it is from in the user's model; empty if that is not known.
        reason: Why it stays in floats; empty if it became integer.
        function: The function that it is in, if others call it; empty for the network itself.
    """

    name: str
    kind: str
    origin: str
    reason: str
    function: str = ""


@dataclass(frozen=True)
class Conversion:
    """A quantized network, and what became of the nodes of the one in floats.

    Attributes:
        module: The network: optimized, with nodes on integers.
        nodes: The nodes that computed with floats; not those that only move them.
        bytes_before: The bytes of all constants of the optimized network in floats.
        bytes_after: The bytes of those of the quantized one; two weights of 4 bits are one.
        types: The types of the values that are stored integers, by the names that the profile has.
        weights_only: Whether it computes in floats, and `nodes` are those that read weights: became integer means that
            these are stored so.
    """

    module: Module
    nodes: tuple[Outcome, ...]
    bytes_before: int
    bytes_after: int
    types: Mapping[str, Type] = field(default_factory=dict)
    weights_only: bool = False

    @property
    def floats(self) -> list[Outcome]:
        """The nodes that stayed in floats."""
        return [node for node in self.nodes if node.reason]


def outcome_of(node: Node, reason: str, f: Function | None = None) -> Outcome:
    """Notes the outcome of a node, which stays in floats if there is a reason, of a function that others may call."""
    origin = str(replace(node.loc, file="")) if node.loc.node else ""
    function = f.name if f is not None and f.is_called else ""
    return Outcome(node.name, node.SCHEMA.mnemonic, origin, reason, function)


def bytes_of_constants(f: Function) -> int:
    """How large all constants of a function, and of what it calls, are where they are stored."""
    return sum(map(_stored_size, f.all_constants))


def _stored_size(constant: Constant) -> int:
    """In bytes. Weights of 4 bits are a byte each as constants, but two in a byte in ONNX files and on the CPU."""
    users = constant.value.users
    packed = users and all(
        isinstance(user, DequantizeBlocksNode) and user.bits == 4 and user.input is constant.value
        for user in users
    )
    size = constant.type.room
    return ceil_div(size, 2) if packed else size
