"""`Value`: a named, typed piece of memory that instructions work on; `WeightVar`: one that outlives the program."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, final

from glowpy.core.strides import Loops, merged_loops, share_elements, span_of, strides_of
from glowpy.core.type import Shape, Type
from glowpy.support.symbolic import Dim, is_at_most

if TYPE_CHECKING:
    from glowpy.ir.inst import ValueInstruction

__all__ = ["Mutability", "Value", "WeightVar"]


class Mutability(Enum):
    """Whether the program may write a weight. The value is its spelling."""

    CONSTANT = "constant"
    MUTABLE = "mutable"


class Value:
    """A piece of memory: a weight, an allocated buffer, or a view of another. Compared by identity.

    The elements of a view may have gaps between them: it is strided. Its strides count elements of its base.

    The base of a view may be replaced, but what is a view of a view stays one: so chains of views are
    shortened on the way to the base (path halving, Tarjan and van Leeuwen 1984).
    """

    __slots__ = ("_above", "_offset", "definition", "name", "type")

    def __init__(self, name: str, type: Type, definition: ValueInstruction | None = None) -> None:
        self.name = name
        self.type = type
        self.definition = definition
        """The alloc or view that made this value; None for a weight."""
        self._above: Value | None = None
        self._offset: Dim = 0

    @property
    def source(self) -> Value | None:
        """The value that this one is a view of; None if it has memory of its own."""
        operands = self.definition.operands if self.definition is not None else ()
        return operands[0].value if operands else None

    @property
    def base(self) -> Value:
        """The weight or allocated buffer whose memory this value lies in."""
        definition = self.definition
        return self._place()[0] if definition is not None and definition.operands else self

    @property
    def byte_offset(self) -> Dim:
        """The offset of this value in the memory of its base, in bytes."""
        definition = self.definition
        return self._place()[1] if definition is not None and definition.operands else 0

    def _place(self) -> tuple[Value, Dim]:
        """The base, and where this value begins in it."""
        value = self
        offset: Dim = 0
        while (source := value.source) is not None and value.definition is not None:
            if value._above is None:
                step: Dim = value.definition.attrs["offset"] * value.type.kind.size
                if source.source is None:
                    return source, offset + step
                value._above, value._offset = source, step
            elif value._above._above is not None:
                value._offset += value._above._offset
                value._above = value._above._above
            offset += value._offset
            value = value._above
        return value, offset

    def relocate(self, offset: Dim, strides: Shape) -> None:
        """Makes a view begin at another element of its source, with other strides.

        Values that are views of this one must be relocated as well.
        """
        assert self.definition is not None
        self.definition.attrs.update(offset=offset, strides=strides)
        self._above, self._offset = None, 0

    @property
    def _own_strides(self) -> Shape:
        definition = self.definition
        if definition is None or not definition.operands:
            return ()
        strides: Shape = definition.attrs["strides"]
        return strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return not self._own_strides

    @property
    def strides(self) -> Shape:
        """How far apart neighbours along each dimension are, in elements."""
        return self._own_strides or strides_of(self.type.shape)

    @property
    def span(self) -> Dim:
        """How many bytes there are from the first one to the last."""
        strides = self._own_strides
        return (
            span_of(self.type.shape, strides) * self.type.kind.size if strides else self.type.size
        )

    @property
    def place(self) -> tuple[Value, Dim, Dim, Loops]:
        """Equal for two values iff they are the same elements in the same order.

        The base, the first byte, the number of bytes, and the loops over the elements if these have gaps.
        """
        strides = self._own_strides
        loops = merged_loops(self.type.shape, strides) if strides else ()
        return self.base, self.byte_offset, self.type.size, loops

    def overlaps(self, other: Value) -> bool:
        """Whether both lie in the same base and share at least one byte, for some extents of symbols.

        Exact for boxes of one row-major tensor: ranges of channels lie between each other and do not overlap. Of other
        strided values it may say so although they do not.
        """
        if self.base is not other.base:
            return False
        mine, theirs = self.byte_offset, other.byte_offset
        if is_at_most(theirs + other.span, mine) or is_at_most(mine + self.span, theirs):
            return False
        size = self.type.kind.size
        if size != other.type.kind.size or (self.is_contiguous and other.is_contiguous):
            return True
        return share_elements(
            mine // size,
            merged_loops(self.type.shape, self.strides),
            theirs // size,
            merged_loops(other.type.shape, other.strides),
        )

    def same_memory(self, other: Value) -> bool:
        """Whether both are exactly the same bytes, in the same order."""
        return self.place == other.place

    def __repr__(self) -> str:
        return f"%{self.name} : {self.type}"


@final
class WeightVar(Value):
    """Memory that belongs to the module: a constant, or a placeholder that is bound at run time."""

    __slots__ = ("mutability",)

    def __init__(self, name: str, type: Type, mutability: Mutability) -> None:
        super().__init__(name, type)
        self.mutability = mutability

    @property
    def is_constant(self) -> bool:
        """Whether the program only reads it."""
        return self.mutability is Mutability.CONSTANT
