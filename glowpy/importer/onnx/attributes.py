"""The attributes of one node of an ONNX graph, by their types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import AttributeProto

from glowpy.core.tensor import Tensor
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import decode, decode_sparse
from glowpy.support.errors import UnsupportedError, UserError

__all__ = ["NodeAttributes", "unsupported_attributes"]


def unsupported_attributes(names: Sequence[str]) -> str:
    """Says that some attributes are not supported."""
    quoted = ", ".join(f"'{name}'" for name in names)
    verb = f" {quoted} is" if len(names) == 1 else f"s {quoted} are"
    return f"attribute{verb} not supported"


class NodeAttributes:
    """Typed access to the attributes of a node. Raises UserError for one that is given with another type."""

    def __init__(self, proto: onnx.NodeProto, stores: Stores) -> None:
        self.proto = proto
        self.stores = stores
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}
        self._asked: dict[str, None] = {}

    def has_attribute(self, name: str) -> bool:
        """Whether the attribute is given."""
        self._asked[name] = None
        return name in self._attributes

    def expect_asked(self) -> None:
        """Raises UnsupportedError for attributes that nobody has asked for: an import function reads what it knows."""
        unknown = [name for name in self._attributes if name not in self._asked]
        if unknown:
            names = ", ".join(f"'{name}'" for name in self._asked) or "no attribute"
            raise UnsupportedError(
                unsupported_attributes(unknown), note=f"its import function asks for {names}"
            )

    def _attribute(self, name: str, kind: int) -> AttributeProto | None:
        attribute = self._attributes[name] if self.has_attribute(name) else None
        if attribute is not None and attribute.type != kind:
            kinds = {value: key for key, value in AttributeProto.AttributeType.items()}
            raise UserError(
                f"attribute '{name}': expected {kinds[kind]}, got {kinds.get(attribute.type, attribute.type)}"
            )
        return attribute

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        attribute = self._attribute(name, AttributeProto.INT)
        return default if attribute is None else attribute.i

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that means yes or no."""
        return self.integer(name, default) != 0

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute of several integers; None if it is not given."""
        attribute = self._attribute(name, AttributeProto.INTS)
        return None if attribute is None else tuple(attribute.ints)

    def real(self, name: str, default: float) -> float:
        """A floating-point attribute. The default is rounded to f32 as well, for all kinds of inputs."""
        attribute = self._attribute(name, AttributeProto.FLOAT)
        return float(np.float32(default if attribute is None else attribute.f))

    def reals(self, name: str) -> tuple[float, ...] | None:
        """An attribute of several floating-point numbers; None if it is not given."""
        attribute = self._attribute(name, AttributeProto.FLOATS)
        return None if attribute is None else tuple(attribute.floats)

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        attribute = self._attribute(name, AttributeProto.STRING)
        return default if attribute is None else attribute.s.decode("utf-8", "replace")

    def texts(self, name: str) -> tuple[str, ...]:
        """An attribute of several texts; none if it is not given."""
        attribute = self._attribute(name, AttributeProto.STRINGS)
        return (
            ()
            if attribute is None
            else tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        )

    def graph(self, name: str) -> onnx.GraphProto:
        """A graph attribute, which must be there."""
        attribute = self._attribute(name, AttributeProto.GRAPH)
        assert attribute is not None  # the check of the model's structure has found that out
        return attribute.g

    def ports(self, name: str) -> tuple[int, int]:
        """How many values a graph takes and gives."""
        graph = self.graph(name)
        return len(graph.input), len(graph.output)

    def tensor(self, name: str) -> Tensor | None:
        """A tensor attribute, dense or sparse; None if it is not given."""
        attribute = self._attributes[name] if self.has_attribute(name) else None
        if attribute is not None and attribute.type == AttributeProto.SPARSE_TENSOR:
            return decode_sparse(attribute.sparse_tensor, self.stores)
        attribute = self._attribute(name, AttributeProto.TENSOR)
        return None if attribute is None else decode(attribute.t, self.stores)
