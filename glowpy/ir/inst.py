"""`Instruction`: what the program does, with operands that say how each is accessed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final, overload

from glowpy.core.schema import Access, InstSchema, Layout, Trait
from glowpy.core.type import Type
from glowpy.ir.value import Value
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc
from glowpy.support.text import Attr, print_attrs

__all__ = ["Instruction", "OperandField", "OperandRef", "ValueInstruction"]


@dataclass(frozen=True, slots=True)
class OperandRef:
    """One operand of an instruction: what the schema says of it, and the value."""

    name: str
    access: Access
    value: Value
    layout: Layout = Layout.DENSE
    """Gaps that the instruction allows between the value's elements."""

    @property
    def is_scratch(self) -> bool:
        """Whether it is memory to work in."""
        return self.access is Access.SCRATCH


class Instruction:
    """A step of the program. The generated subclasses add a schema and typed fields, nothing else."""

    SCHEMA: ClassVar[InstSchema]
    BACKEND: ClassVar[str] = ""

    __slots__ = ("attrs", "loc", "name", "operands", "predicate")

    def __init__(
        self,
        operands: Sequence[Value],
        attrs: Mapping[str, Attr],
        *,
        name: str = "",
        loc: Loc = UNKNOWN,
        predicate: Value | None = None,
    ) -> None:
        self.attrs: dict[str, Any] = dict(attrs)
        self.operands = self._refs(operands)
        """The operands in schema order, without the predicate."""
        for spec in self.SCHEMA.attrs:
            if spec.optional:
                self.attrs.setdefault(spec.name, ())
        self.name = name
        """The node this instruction was generated for; names its kernel in machine code."""
        self.loc = loc
        self.predicate = predicate
        """A bool value that says where the result matters, or None."""

    def _refs(self, values: Sequence[Value]) -> tuple[OperandRef, ...]:
        specs = self.SCHEMA.operands
        if self.SCHEMA.variadic or len(specs) != len(values):
            try:
                specs = self.SCHEMA.operands_of(len(values), self.attrs)
            except UserError as error:
                message = error.diagnostics[0].message
                raise InternalError(f"{self.SCHEMA.mnemonic}: {message}") from None
        return tuple(
            OperandRef(spec.name, spec.access, value, spec.layout)
            for spec, value in zip(specs, values, strict=True)
        )

    @property
    def callees(self) -> tuple[str, ...]:
        """The names of the functions that the instruction calls."""
        return tuple(self.attrs[name] for name in self.SCHEMA.functions)

    def those(self, access: Access) -> list[Value]:
        """The values of all operands with this access, in order."""
        return [ref.value for ref in self.operands if ref.access is access]

    def has(self, trait: Trait) -> bool:
        """Whether the class has the trait."""
        return trait in self.SCHEMA.traits

    def replace_value(self, old: Value, new: Value) -> None:
        """Makes every operand (and the predicate) that is `old` refer to `new`."""
        self.operands = self._refs(
            [new if ref.value is old else ref.value for ref in self.operands]
        )
        if self.predicate is old:
            self.predicate = new

    def reads(self) -> Iterator[Value]:
        """The values whose content before the instruction matters, the predicate among them."""
        for ref in self.operands:
            if ref.access.reads:
                yield ref.value
        if self.predicate is not None:
            yield self.predicate

    def writes(self) -> Iterator[Value]:
        """The values whose content changes."""
        for ref in self.operands:
            if ref.access.writes:
                yield ref.value

    def structural_key(self) -> Hashable:
        """Equal for two instructions iff they do the same to the same memory."""
        operands = tuple(id(ref.value) for ref in self.operands)
        return (type(self), print_attrs(self.attrs), operands, id(self.predicate))

    def is_equal(self, other: Instruction) -> bool:
        """Whether both instructions do the same to the same memory."""
        return self.structural_key() == other.structural_key()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


@final
class OperandField:
    """Operand `index` of an instruction: `result = OperandField(0)` in the class, read as `inst.result`."""

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    @overload
    def __get__(self, inst: None, cls: type) -> Self: ...
    @overload
    def __get__(self, inst: Instruction, cls: type) -> Value: ...
    def __get__(self, inst: Instruction | None, cls: type) -> Self | Value:
        return self if inst is None else inst.operands[self._index].value


class ValueInstruction(Instruction):
    """An instruction that makes a value: alloc and view."""

    __slots__ = ("value",)

    def __init__(
        self,
        operands: Sequence[Value],
        attrs: Mapping[str, Attr],
        *,
        name: str,
        type: Type,
        loc: Loc = UNKNOWN,
    ) -> None:
        super().__init__(operands, attrs, name=name, loc=loc)
        self.value = Value(name, type, self)
