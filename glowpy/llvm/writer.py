"""LLVM IR text under construction: a module, and the body of one function.

- Equal kernel functions are written once: a body that exists already is shared by its callers.
- `ints_t` constants (shapes, list attributes) and arrays of constant elements are written once each.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.debug_info import DebugInfo
from glowpy.llvm.machine import EXTERNAL
from glowpy.support.names import UniqueNames

__all__ = ["Body", "ModuleWriter", "literal", "memory_type", "register_type"]

_TYPES = {
    ElemKind.F16: "half",
    ElemKind.BF16: "bfloat",
    ElemKind.F32: "float",
    ElemKind.F64: "double",
}
_HALVES = {ElemKind.F16: "H", ElemKind.BF16: "R"}
"""The letters that say what a constant of 16 bits in hexadecimal is."""

_MAX_INTS = 16
_SCOPE = "!scope"
_ROLLED = 1_000_000
"""Metadata number, above all of the debug information's, of the hint not to unroll a loop."""
_SYMBOL = re.compile(r"@([\w.]+)")


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
    if kind in _HALVES:
        with np.errstate(over="ignore"):
            bits = np.array(value).astype(kind.dtype).view(np.uint16)
        return f"0x{_HALVES[kind]}{bits:04X}"
    if kind.is_float:
        rounded = (
            struct.unpack("f", struct.pack("f", value))[0] if kind is ElemKind.F32 else float(value)
        )
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    return str(int(value))


class ModuleWriter:
    """A module: types, constants, declarations, kernel functions."""

    def __init__(self, pointer_bits: int, vector_bytes: int, debug: DebugInfo | None) -> None:
        self.dim = f"i{pointer_bits}"
        self.attributes = f'nounwind "prefer-vector-width"="{8 * vector_bytes}"'
        self._debug = debug
        self._ints: dict[tuple[int, ...], str] = {}
        self._arrays: dict[tuple[ElemKind, tuple[int, ...]], str] = {}
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, _Function] = {}
        self._names = UniqueNames()

    @property
    def has_debug_info(self) -> bool:
        """Whether functions tell which line of the IR they come from."""
        return self._debug is not None

    def subprogram(self, name: str, line: int) -> str:
        """Debug information of a function; empty without debug information."""
        return self._debug.subprogram(name, line) if self._debug is not None else ""

    def location(self, line: int, scope: str) -> str:
        """The suffix that says which line an instruction belongs to; empty without debug information."""
        return self._debug.location(line, scope) if self._debug is not None else ""

    def attached(self, scope: str) -> str:
        """The part of a function's head that refers to its debug information."""
        return f" !dbg {scope}" if scope else ""

    def ints(self, values: Sequence[int]) -> str:
        """The address of a constant `ints_t` with these values."""
        key = tuple(values)
        return self._ints.setdefault(key, f"@ints.{len(self._ints)}")

    def array(self, kind: ElemKind, elements: Sequence[int]) -> str:
        """The address of constant elements of an integer kind."""
        key = kind, tuple(elements)
        return self._arrays.setdefault(key, f"@array.{len(self._arrays)}")

    def declare(
        self, symbol: str, result: str, arguments: Sequence[str], *, external: bool = False
    ) -> None:
        """Declares a function that a library defines, or an external one, which whoever links or loads the code has."""
        text = f"declare {result} @{symbol}({', '.join(arguments)})"
        self._declarations[symbol] = f"{text} {EXTERNAL}" if external else text

    def function(self, body: Body, *, inline: bool, work: int = 1) -> str:
        """The name of a private function with this body, written only if there is none yet.

        `work` says how long LLVM takes for it, roughly, beside a simple loop.
        Every function is written of its own where debug information tells them apart.
        """
        key = f"({body.parameters}) {body.text} {inline}"
        if key not in self._functions:
            prefix, _, stem = body.name.partition(".")
            name = f"{prefix}.{self._names.take(stem)}"
            text = body.text + f"  ret void{body.location}\n"
            scope = body.scope
            if scope:
                scope = self.subprogram(stem, body.first_line)
                text = text.replace(_SCOPE, scope)
            self._functions[key] = _Function(
                name, body.parameters, text, inline, self.attached(scope), work
            )
        return self._functions[key].name

    def render(self, entries: Sequence[str], parts: int, *, visible: bool = False) -> list[str]:
        """The modules: the first holds the entry points, the other functions are spread over at most `parts`.

        With `visible`, every function can be found by its name in the loaded code.
        """
        shared = [function for function in self._functions.values() if not function.inline]
        piles: list[list[_Function]] = [[] for _ in range(max(min(parts, len(shared)), 1))]
        loads = [(0, index) for index in range(len(piles))]
        for function in sorted(shared, key=lambda function: -function.work):
            load, index = loads[0]
            piles[index].append(function)
            heapreplace(loads, (load + function.work, index))
        linkage = "" if visible else "internal" if len(piles) == 1 else "hidden"
        return [
            self._module(pile, entries if index == 0 else (), linkage)
            for index, pile in enumerate(piles)
        ]

    def _module(self, pile: Sequence[_Function], visible: Sequence[str], linkage: str) -> str:
        """One module: the functions of the pile, and everything they and the visible texts refer to."""
        by_name = {function.name: function for function in self._functions.values()}
        texts = [*(function.text(linkage, self.attributes) for function in pile), *visible]
        own = {function.name for function in pile}
        for text in texts:
            for symbol in dict.fromkeys(_SYMBOL.findall(text)):
                if symbol in by_name and symbol not in own:
                    own.add(symbol)
                    function = by_name[symbol]
                    texts.append(
                        function.text("internal", self.attributes)
                        if function.inline
                        else function.declaration
                    )
        used = set(_SYMBOL.findall("".join(texts)))
        lines = [f"%ints_t = type {{ {self.dim}, [{_MAX_INTS} x {self.dim}] }}"]
        lines += [
            self._constant(name, values) for values, name in self._ints.items() if name[1:] in used
        ]
        lines += [_array(name, *key) for key, name in self._arrays.items() if name[1:] in used]
        lines += [text for symbol, text in self._declarations.items() if symbol in used]
        metadata = self._debug.render() if self._debug is not None else []
        metadata += [
            f"!{_ROLLED} = distinct !{{!{_ROLLED}, !{_ROLLED + 1}}}",
            f'!{_ROLLED + 1} = !{{!"llvm.loop.unroll.disable"}}',
        ]
        return "\n".join([*lines, *texts, *metadata]) + "\n"

    def _constant(self, name: str, values: Sequence[int]) -> str:
        items = ", ".join(
            f"{self.dim} {value}" for value in (*values, *[0] * (_MAX_INTS - len(values)))
        )
        array = f"[{_MAX_INTS} x {self.dim}]"
        head = f"{name} = private unnamed_addr constant %ints_t"
        return f"{head} {{ {self.dim} {len(values)}, {array} [{items}] }}"


def _array(name: str, kind: ElemKind, elements: Sequence[int]) -> str:
    stored = memory_type(kind)
    items = ", ".join(f"{stored} {element}" for element in elements)
    return f"{name} = private unnamed_addr constant [{len(elements)} x {stored}] [{items}]"


@dataclass(frozen=True)
class _Function:
    """A private function: its body, whether it is inlined into its callers, and how long LLVM takes for it."""

    name: str
    parameters: str
    body: str
    inline: bool
    debug: str
    work: int

    @property
    def declaration(self) -> str:
        return f"declare hidden void @{self.name}({self.parameters}) {EXTERNAL}"

    def text(self, linkage: str, attributes: str) -> str:
        inlining = "alwaysinline" if self.inline else "noinline"
        head = f"define {linkage} void @{self.name}({self.parameters}) {inlining} {attributes}{self.debug}"
        return f"{head} {{\nentry:\n{self.body}}}\n"


class Body:
    """The body of one private function: its parameters are the distinct pieces of memory it touches."""

    def __init__(
        self,
        module: ModuleWriter,
        name: str,
        lines: Mapping[Instruction, int],
        parameters: str | None = None,
    ) -> None:
        self.module = module
        self.name = name
        """The network's name, a dot, and the wanted name of the function."""
        self.lines = lines
        """Where in the IR's text each instruction stands."""
        self._parameters = parameters
        self.memories: list[Value] = []
        self._pointers: dict[Hashable, str] = {}
        self.first_line = 0
        self._line = 0
        self._lines: list[str] = []
        self._label = "entry"
        self._count = 0

    def at(self, inst: Instruction) -> None:
        """What is written from now on belongs to `inst`."""
        self._line = self.lines[inst]
        self.first_line = self.first_line or self._line

    @property
    def scope(self) -> str:
        """A place holder for the function's debug information; empty without it."""
        return _SCOPE if self.module.has_debug_info else ""

    @property
    def location(self) -> str:
        """The suffix that says which instruction the current line belongs to."""
        return self.module.location(self._line, _SCOPE)

    @property
    def parameters(self) -> str:
        """The parameter list; distinct memories never overlap where one of them is written."""
        if self._parameters is not None:
            return self._parameters
        return ", ".join(f"ptr noalias %p{index}" for index in range(len(self.memories)))

    @property
    def text(self) -> str:
        """All lines so far."""
        return "".join(f"{line}\n" for line in self._lines)

    def pointer(self, value: Value) -> str:
        """The parameter that points to the first element of `value`."""
        place = value.place
        if place not in self._pointers:
            self._pointers[place] = f"%p{len(self.memories)}"
            self.memories.append(value)
        return self._pointers[place]

    def register(self) -> str:
        """A new register."""
        self._count += 1
        return f"%r{self._count}"

    def line(self, text: str) -> None:
        """Appends an instruction."""
        self._lines.append(f"  {text}{self.location}")

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
    def loop(self, count: int | str, *, unroll: bool = True) -> Iterator[str]:
        """A loop of `count` (at least 1) rounds around what is written inside the `with`; yields the index.

        A loop that must not be unrolled is vectorised itself, not the loop around it.
        """
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
        hint = "" if unroll else f", !llvm.loop !{_ROLLED}"
        self.line(f"br i1 {index}.more, label %{head}, label %{out}{hint}")
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
