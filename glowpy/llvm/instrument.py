"""Instrumentation: callbacks before and after every instruction, with the addresses of its operands.

- In JIT code the callbacks are the two last pointers of the table, and take the index of the instruction.
- In a bundle they are functions the user defines, NAME_before and NAME_after; they take a description.
- In a sanitized bundle they are what the variable NAME_hooks points to, and take the index of the instruction.

An instrumented network is not stacked: every instruction is computed by itself, and every result is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access, Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.writer import ModuleWriter
from glowpy.support.symbolic import Dim, highest

__all__ = [
    "HEADER_TYPES",
    "KIND_NUMBERS",
    "Callbacks",
    "Instrument",
    "description_types",
    "descriptions",
    "string_constant",
]

Instrument = Literal["", "table", "symbols", "hooks"]
"""Kinds of instrumentation: none, callbacks in the table, the user's functions, or those in a bundle's variable."""

KIND_NUMBERS = {kind: number for number, kind in enumerate(ElemKind)}
"""How C code tells element kinds apart."""

_ACCESS_NUMBERS = {Access.OUT: 0, Access.INOUT: 1, Access.IN: 2, Access.SCRATCH: 3}
_OPERAND_TYPE = "%glowpy_operand_t = type { ptr, [8 x i64], [8 x i64], i64, i32, i32, i32, i32 }"
_INSTRUCTION_TYPE = "%glowpy_instruction_t = type { ptr, ptr, ptr, i32, i32 }"

HEADER_TYPES = """\
/* An operand of an instruction: access is 0 for @out, 1 for @inout, 2 for @in, 3 for @scratch; strides say how many
   elements apart neighbours along each dimension are; size is in bytes, without what may lie between elements. */
typedef struct {
  const char *name;
  uint64_t dims[8];
  uint64_t strides[8];
  uint64_t size;
  uint32_t kind;
  uint32_t rank;
  uint32_t access;
  uint32_t reserved;
} glowpy_operand_t;
/* An instruction: the name of its node, its mnemonic, and its line in the IR's text. */
typedef struct {
  const char *name;
  const char *mnemonic;
  const glowpy_operand_t *operands;
  uint32_t num_operands;
  uint32_t line;
} glowpy_instruction_t;"""


@dataclass
class Callbacks:
    """Writes the calls around the instructions of one network.

    Attributes:
        instrument: Where the callbacks are.
        bundle: The bundle's name, which begins the names of the callbacks, for `symbols`.
        network: The network's name, which begins the names of the descriptions.
        slot: Where in the table the callbacks are, for `table`.
        indices: Where each instruction stands in the program.
        most: The largest number of operands that a callback is told of.
    """

    module: ModuleWriter
    instrument: Instrument
    bundle: str
    network: str
    slot: int
    indices: Mapping[Instruction, int]
    most: int = 0

    def prepare(self) -> list[str]:
        """Returns the lines at the beginning of the network's function."""
        dim = self.module.dim
        lines = [f"  %operands = alloca [{max(self.most, 16)} x ptr]"]
        if self.instrument == "table":
            for offset, name in enumerate(("before", "after")):
                lines.append(
                    f"  %{name}.slot = getelementptr inbounds ptr, ptr %table, {dim} {self.slot + offset}"
                )
                lines.append(f"  %{name} = load ptr, ptr %{name}.slot")
        elif self.instrument == "hooks":
            for place, name in enumerate(("before", "after")):
                hook = f"getelementptr inbounds ([2 x ptr], ptr @{self.bundle}_hooks, i32 0, i32 {place})"
                lines.append(f"  %{name} = load ptr, ptr {hook}")
        else:
            for name in ("before", "after"):
                self.module.declare(f"{self.bundle}_{name}", "void", ["ptr", "ptr"], external=True)
            most = max((len(inst.operands) for inst in self.indices if _is_open(inst)), default=0)
            if most:
                lines.append("  %description = alloca %glowpy_instruction_t")
                lines.append(f"  %described = alloca [{most} x %glowpy_operand_t]")
        return lines

    def around(
        self,
        inst: Instruction,
        pointers: list[str],
        call: str,
        where: str,
        number: Callable[[Dim], str],
    ) -> list[str]:
        """The call of an instruction's function between the two callbacks.

        `number` writes before these lines what a dimension is.
        """
        index, dim = self.indices[inst], self.module.dim
        lines = []
        described = f"@{self.network}.instruction.{index}"
        if self.instrument == "symbols" and _is_open(inst):
            lines += self._describe(inst, described, number)
            described = "%description"
        for place, pointer in enumerate(pointers):
            slot = f"%operand.{index}.{place}"
            lines.append(f"  {slot} = getelementptr inbounds ptr, ptr %operands, {dim} {place}")
            lines.append(f"  store ptr {pointer}, ptr {slot}")
        for name in ("before", "after"):
            if name == "after":
                lines.append(call)
            if self.instrument != "symbols":
                lines.append(f"  call void %{name}(i32 {index}, ptr %operands){where}")
            else:
                lines.append(
                    f"  call void @{self.bundle}_{name}(ptr {described}, ptr %operands){where}"
                )
        return lines

    def _describe(
        self, inst: Instruction, described: str, number: Callable[[Dim], str]
    ) -> list[str]:
        """Copies the description of an instruction, and says in it what symbolic dimensions are in this run."""
        dim, count = self.module.dim, len(inst.operands)
        copy = f"llvm.memcpy.p0.p0.{dim}"
        self.module.declare(copy, "void", ["ptr", "ptr", dim, "i1"])

        def size(type: str) -> str:
            return f"{dim} ptrtoint (ptr getelementptr ({type}, ptr null, i32 1) to {dim})"

        items = f"[{count} x %glowpy_operand_t]"
        description = f"%description.{self.indices[inst]}"
        lines = [
            f"  call void @{copy}(ptr %description, ptr {described}, {size('%glowpy_instruction_t')}, i1 false)",
            f"  call void @{copy}(ptr %described, ptr {described}.operands, {size(items)}, i1 false)",
            f"  {description} = getelementptr %glowpy_instruction_t, ptr %description, i32 0, i32 2",
            f"  store ptr %described, ptr {description}",
        ]
        for place, ref in enumerate(inst.operands):
            for field, value in _open_fields(ref.value):
                register = f"{description}.{place}.{field.replace(', i32 ', '.')}"
                extent = number(value)
                if dim != "i64":
                    lines.append(f"  {register}.wide = zext {dim} {extent} to i64")
                    extent = f"{register}.wide"
                lines += [
                    f"  {register} = getelementptr {items}, ptr %described, i32 0, i32 {place}, i32 {field}",
                    f"  store i64 {extent}, ptr {register}",
                ]
        return lines


def _open_fields(value: Value) -> Iterator[tuple[str, Dim]]:
    """Yields the fields of an operand's description that depend on symbols, as LLVM's indices, with their values."""
    fields: list[tuple[str, Dim]] = [
        (f"1, i32 {axis}", n) for axis, n in enumerate(value.type.shape)
    ]
    fields += [(f"2, i32 {axis}", n) for axis, n in enumerate(value.strides)]
    yield from (
        (field, dim) for field, dim in (*fields, ("3", value.type.size)) if not isinstance(dim, int)
    )


def _is_open(inst: Instruction) -> bool:
    return any(True for ref in inst.operands for _ in _open_fields(ref.value))


def descriptions(
    network: str, lines: Mapping[Instruction, int], indices: Mapping[Instruction, int]
) -> Iterator[str]:
    """LLVM constants that describe every instruction with operands."""
    for inst, index in indices.items():
        if inst.has(Trait.MEMORY):
            continue
        description = f"@{network}.instruction.{index}"
        yield f"{description}.name = private constant {string_constant(inst.name)}"
        yield f"{description}.mnemonic = private constant {string_constant(inst.SCHEMA.mnemonic)}"
        items = []
        for place, ref in enumerate(inst.operands):
            type = ref.value.type
            dims, strides = (
                ", ".join(f"i64 {highest(number)}" for number in (*numbers, *[0] * (8 - type.rank)))
                for numbers in (type.shape, ref.value.strides)
            )
            yield f"{description}.operand{place} = private constant {string_constant(ref.value.name)}"
            items.append(
                f"%glowpy_operand_t {{ ptr {description}.operand{place}, [8 x i64] [{dims}], "
                f"[8 x i64] [{strides}], i64 {type.room}, "
                f"i32 {KIND_NUMBERS[type.kind]}, i32 {type.rank}, i32 {_ACCESS_NUMBERS[ref.access]}, i32 0 }}"
            )
        yield f"{description}.operands = private constant [{len(items)} x %glowpy_operand_t] [{', '.join(items)}]"
        yield (
            f"{description} = private constant %glowpy_instruction_t {{ ptr {description}.name, "
            f"ptr {description}.mnemonic, ptr {description}.operands, i32 {len(items)}, i32 {lines[inst]} }}"
        )


def description_types() -> str:
    """The LLVM types of the descriptions."""
    return f"{_OPERAND_TYPE}\n{_INSTRUCTION_TYPE}"


def string_constant(text: str) -> str:
    """A C string as an LLVM constant."""
    data = text.encode() + b"\0"
    return f'[{len(data)} x i8] c"' + "".join(f"\\{byte:02X}" for byte in data) + '"'
