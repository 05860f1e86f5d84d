"""LLVM IR text under construction: a module, and the body of one function.

- Equal kernel functions are written once: a body that exists already is shared by its callers.
- `ints_t` constants (shapes, list attributes) are written once each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from glowpy.core.elemkind import ElemKind
from glowpy.ir.value import Value
from glowpy.support.names import UniqueNames

__all__ = ["Body", "ModuleWriter", "literal", "memory_type", "register_type"]

_TYPES = {
    ElemKind.F16: "half",
    ElemKind.BF16: "bfloat",
    ElemKind.F32: "float",
    ElemKind.F64: "double",
}
_MAX_INTS = 16


def memory_type(kind: ElemKind) -> str:
    """The LLVM type of an element in memory."""
    return _TYPES.get(kind) or f"i{8 * kind.size}"


def register_type(kind: ElemKind) -> str:
    """The LLVM type of an element in a register: bool is i1."""
    return "i1" if kind is ElemKind.BOOL else memory_type(kind)


def literal(kind: ElemKind, value: float | int) -> str:
    """`value` as an LLVM constant of the register type of `kind`: floats exactly, in hexadecimal."""
    if kind is ElemKind.BOOL:
        return "true" if value else "false"
    if kind.is_float:
        rounded = (
            struct.unpack("f", struct.pack("f", value))[0] if kind is ElemKind.F32 else float(value)
        )
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    return str(int(value))


class ModuleWriter:
    """A module: types, constants, declarations, kernel functions."""

    def __init__(self, entry: str, pointer_bits: int, vector_bytes: int) -> None:
        self.entry = entry
        self.dim = f"i{pointer_bits}"
        self._attributes = f'nounwind "prefer-vector-width"="{8 * vector_bytes}"'
        self._ints: dict[tuple[int, ...], str] = {}
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, tuple[str, str]] = {}
        self._names = UniqueNames()

    def ints(self, values: Sequence[int]) -> str:
        """The address of a constant `ints_t` with these values."""
        key = tuple(values)
        return self._ints.setdefault(key, f"@ints.{len(self._ints)}")

    def declare(self, symbol: str, result: str, arguments: Sequence[str]) -> None:
        """Declares a function of the kernel library."""
        self._declarations[symbol] = f"declare {result} @{symbol}({', '.join(arguments)})"

    def function(self, wanted: str, parameters: str, body: str, *, inline: bool) -> str:
        """The name of a private function with this body, written only if there is none yet."""
        key = f"({parameters}) {body} {inline}"
        if key not in self._functions:
            name = f"{self.entry}.{self._names.take(wanted)}"
            how = "alwaysinline" if inline else "noinline"
            head = f"define internal void @{name}({parameters}) {how} {self._attributes}"
            text = f"{head} {{\nentry:\n{body}  ret void\n}}\n"
            self._functions[key] = (name, text)
        return self._functions[key][0]

    def render(self, entries: Sequence[str]) -> str:
        """The whole module, with the texts of the visible functions at its end."""
        lines = [f"%ints_t = type {{ {self.dim}, [{_MAX_INTS} x {self.dim}] }}"]
        for values, name in self._ints.items():
            padded = [*values, *[0] * (_MAX_INTS - len(values))]
            items = ", ".join(f"{self.dim} {value}" for value in padded)
            lines.append(
                f"{name} = private unnamed_addr constant %ints_t "
                f"{{ {self.dim} {len(values)}, [{_MAX_INTS} x {self.dim}] [{items}] }}"
            )
        lines += self._declarations.values()
        lines += [text for _, text in self._functions.values()]
        return (
            "\n".join(
                [*lines, *(entry.replace("#attributes", self._attributes) for entry in entries)]
            )
            + "\n"
        )


class Body:
    """The body of one private function: its parameters are the distinct pieces of memory it touches."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.memories: list[Value] = []
        self._lines: list[str] = []
        self._label = "entry"
        self._count = 0

    @property
    def parameters(self) -> str:
        """The parameter list; distinct memories never overlap where one of them is written."""
        return ", ".join(f"ptr noalias %p{index}" for index in range(len(self.memories)))

    @property
    def text(self) -> str:
        """All lines so far."""
        return "".join(f"{line}\n" for line in self._lines)

    def pointer(self, value: Value) -> str:
        """The parameter that points to the memory of `value`."""
        for index, memory in enumerate(self.memories):
            if memory.same_memory(value):
                return f"%p{index}"
        self.memories.append(value)
        return f"%p{len(self.memories) - 1}"

    def register(self) -> str:
        """A new register."""
        self._count += 1
        return f"%r{self._count}"

    def line(self, text: str) -> None:
        """Appends an instruction."""
        self._lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """Appends an instruction with a result; returns its register."""
        register = self.register()
        self.line(f"{register} = {text}")
        return register

    def load(self, kind: ElemKind, pointer: str, index: str) -> str:
        """Loads element `index`."""
        stored = memory_type(kind)
        address = self.let(
            f"getelementptr inbounds {stored}, ptr {pointer}, {self.module.dim} {index}"
        )
        value = self.let(f"load {stored}, ptr {address}, align {kind.size}")
        return self.let(f"trunc i8 {value} to i1") if kind is ElemKind.BOOL else value

    def store(self, kind: ElemKind, value: str, pointer: str, index: str) -> None:
        """Stores element `index`."""
        stored = memory_type(kind)
        if kind is ElemKind.BOOL:
            value = self.let(f"zext i1 {value} to i8")
        address = self.let(
            f"getelementptr inbounds {stored}, ptr {pointer}, {self.module.dim} {index}"
        )
        self.line(f"store {stored} {value}, ptr {address}, align {kind.size}")

    @contextmanager
    def loop(self, count: int | str) -> Iterator[str]:
        """A loop of `count` (at least 1) rounds around what is written inside the `with`; yields the index."""
        self._count += 1
        number, before, dim = self._count, self._label, self.module.dim
        head, latch, out = f"loop{number}", f"next{number}", f"done{number}"
        index = f"%i{number}"
        self.line(f"br label %{head}")
        self._lines.append(f"{head}:")
        self._label = head
        self.line(f"{index} = phi {dim} [ 0, %{before} ], [ {index}.next, %{latch} ]")
        yield index
        self.line(f"br label %{latch}")
        self._lines.append(f"{latch}:")
        self.line(f"{index}.next = add nuw nsw {dim} {index}, 1")
        self.line(f"{index}.more = icmp ult {dim} {index}.next, {count}")
        self.line(f"br i1 {index}.more, label %{head}, label %{out}")
        self._lines.append(f"{out}:")
        self._label = out

    def nest(self, counts: Sequence[int], inner: Callable[[list[str]], None]) -> None:
        """Nested loops, the first outermost, around what `inner` writes for their indices."""

        def descend(level: int, indices: list[str]) -> None:
            if level == len(counts):
                inner(indices)
                return
            with self.loop(counts[level]) as index:
                descend(level + 1, [*indices, index])

        descend(0, [])
