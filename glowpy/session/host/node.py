"""`HostNode`: a node that a session computes itself, and `on_host`, the table of the rules for such nodes.

A rule reads the attributes of a node, once, and returns the function that computes its outputs from its inputs:
arrays, lists, dicts, and None for what is not given. Where a node has graphs, as `Loop` does, the function also gets
what these read of the graph around them, by name, as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

import onnx
from onnx import AttributeProto

from glowpy.core.tensor import Array
from glowpy.importer.onnx.attributes import NodeAttributes
from glowpy.importer.onnx.host.types import HostValue
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.string_tensors import decoded
from glowpy.rounds import Rounds
from glowpy.support.errors import UserError

__all__ = ["RULES", "Body", "HostNode", "Rule", "number", "on_host"]


class Body(Protocol):
    """A graph of a node."""

    @property
    def output_types(self) -> Sequence[onnx.TypeProto | None]:
        """The types of its outputs, as far as they are known."""

    def __call__(
        self, inputs: Sequence[HostValue], outer: Mapping[str, HostValue]
    ) -> list[HostValue]:
        """Its outputs for inputs, and for values around it by name."""

    def advance(self, rounds: Rounds, outer: Mapping[str, HostValue]) -> bool:
        """Computes the next rounds of a loop whose body it is, if several can be computed at once; False if not."""


Rule: TypeAlias = Callable[["HostNode"], Callable[..., HostValue]]

RULES: dict[tuple[str, str], dict[int, Rule]] = {}
"""The rules of each operator, by domain and name, by the opset from which on they hold. `registry` fills it."""


def on_host(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule for operators from opset `since` on."""

    def add(rule: Rule) -> Rule:
        for op_type in op_types:
            RULES.setdefault((domain, op_type), {})[since] = rule
        return rule

    return add


@final
class HostNode(NodeAttributes):
    """A node: its attributes, its graphs as functions, and what is known of the types of its inputs."""

    def __init__(
        self,
        proto: onnx.NodeProto,
        stores: Stores,
        bodies: Mapping[str, Body],
        types: Sequence[onnx.TypeProto | None],
    ) -> None:
        super().__init__(proto, stores)
        self.bodies = bodies
        self.types = types

    @property
    def num_outputs(self) -> int:
        """How many outputs are listed."""
        return len(self.proto.output)

    def array(self, name: str) -> Array | None:
        """A tensor attribute, perhaps of strings; None if it is not given."""
        attribute = self._attribute(name, AttributeProto.TENSOR)
        return None if attribute is None else decoded(name, attribute.t, self.stores)


def number(what: str, array: Array) -> int:
    """The integer in an array of one element. Raises UserError for an array of others."""
    if array.size != 1 or array.dtype.kind not in "iu":
        raise UserError(f"expected one integer as {what}, got {array.dtype} {list(array.shape)}")
    return int(array.reshape(-1)[0])
