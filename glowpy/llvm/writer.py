"""LLVM IR text under construction: a network's functions, and the body of one function.

- Equal functions are written once: a body that exists already is shared by its callers.
- Constants (`ints_t` with shapes and list attributes, arrays of elements) are named after what they hold, and so are
  functions that are compiled one by one: the text of one does not depend on the network it is part of.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd

from glowpy.core.elemkind import ElemKind
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.debug_info import DebugInfo
from glowpy.llvm.element_types import memory_type
from glowpy.llvm.extents import Symbols, emit_dim
from glowpy.llvm.head import Head, Heads
from glowpy.llvm.loop_hints import hint_metadata, hint_suffix
from glowpy.llvm.machine import CALLS_ONLY, EXTERNAL
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import Dim, Expr, Symbol, ceil_div, depends_on_symbols, highest, static

__all__ = ["Body", "ModuleWriter"]

_MAX_INTS = 16
_SCOPE = "!scope"
_UNROLLED = 512
"""A loop over a row is unrolled once it is vectorised if so many elements or fewer are computed in all its rounds.

That is for the few vectors of a tile's row. Unrolling more gains nothing, and LLVM goes on until there are thousands
of instructions, whose number its time is not linear in.
"""
_MOST_COMMON = 4
"""The largest size that is a literal even where sizes are parameters: LLVM makes other loops of it."""

_WHOLE_VECTORS = 64
"""Elements that LLVM computes in one round of a loop at most: it is told of shares of them in a size."""

_SYMBOL = re.compile(r"@([-\w.]+)")
_DIGEST = 32
"""Hexadecimal digits that tell contents apart."""


class ModuleWriter:
    """The functions of one or more networks with what they use: types, constants, declarations.

    With `by_content`, functions are named after what they are made of, not after the instruction they were first
    written for. Where debug information tells them apart they keep their names. With `merge`, functions may become
    part of those that call them. With `shares_sizes`, functions that differ in sizes alone are one, which takes these
    as arguments. Loops that call one of the functions `in_vectors`, which LLVM wrongly takes to be slow
    with several elements at a time, are made of whole vectors.
    """

    def __init__(
        self,
        pointer_bits: int,
        vector_bytes: int,
        debug: DebugInfo | None,
        *,
        by_content: bool = False,
        merge: bool = False,
        shares_sizes: bool = False,
        heads: Heads | None = None,
        in_vectors: Sequence[str] = (),
    ) -> None:
        self.dim = f"i{pointer_bits}"
        self.pointer_bytes = pointer_bits // 8
        self.vector_bytes = vector_bytes
        self._heads = heads or Heads.for_vectors(vector_bytes)
        self._debug = debug
        self._by_content = by_content and debug is None
        self._merge = merge and debug is None
        self.shares_sizes = shares_sizes and debug is None
        self._in_vectors = tuple(f"@{symbol}(" for symbol in in_vectors)
        self._globals: dict[str, str] = {}
        self._functions: dict[str, _Function] = {}
        self._by_name: dict[str, _Function] = {}
        self._names = UniqueNames()

    @property
    def merges(self) -> bool:
        """Whether functions may become part of those that call them, since code is to be small."""
        return self._merge

    def hint(self, lines: Sequence[str], *, rolled: bool, then: bool) -> str:
        """The suffix of a branch back to lines, `rolled` while vectors are made, and unrolled `then` or not at all."""
        is_called = any(symbol in line for line in lines for symbol in self._in_vectors)
        in_vectors = is_called and not any(line.endswith(":") for line in lines)
        return hint_suffix(rolled=rolled, then=then, in_vectors=in_vectors)

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

    def begin(self, head: Head, scope: str = "") -> str:
        """The first line of a function with this head, whose debug information is `scope`."""
        return f"{self._heads.text(head)}{f' !dbg {scope}' if scope else ''} {{"

    def ints(self, values: Sequence[int]) -> str:
        """The address of a constant `ints_t` with these values."""
        name = ".".join(("ints", *map(str, values)))
        items = ", ".join(
            f"{self.dim} {value}" for value in (*values, *[0] * (_MAX_INTS - len(values)))
        )
        array = f"[{_MAX_INTS} x {self.dim}]"
        return self._constant(name, f"%ints_t {{ {self.dim} {len(values)}, {array} [{items}] }}")

    def array(self, kind: ElemKind, elements: Sequence[int]) -> str:
        """The address of constant elements of an integer kind."""
        stored = memory_type(kind)
        items = ", ".join(f"{stored} {element}" for element in elements)
        content = f"[{len(elements)} x {stored}] [{items}]"
        return self._constant(f"array.{_digest(content)}", content)

    def _constant(self, name: str, content: str) -> str:
        self._globals.setdefault(name, f"@{name} = private unnamed_addr constant {content}")
        return f"@{name}"

    def define(self, name: str, text: str) -> str:
        """The address of a function with this text, which modules that use it hold a copy of."""
        self._globals.setdefault(name, text)
        return f"@{name}"

    def pointers(self, functions: Sequence[str]) -> str:
        """The address of a constant table of functions of this module; an empty name is NULL."""
        if not any(functions):
            return "null"
        items = ", ".join(f"ptr @{function}" if function else "ptr null" for function in functions)
        content = f"[{len(functions)} x ptr] [{items}]"
        return self._constant(f"table.{_digest(content)}", content)

    def declare(
        self, symbol: str, result: str, arguments: Sequence[str], *, external: bool = False
    ) -> None:
        """Declares a function that a library defines, or an external one, which whoever links or loads the code has."""
        text = f"declare {result} @{symbol}({', '.join(arguments)})"
        self._globals[symbol] = f"{text} {EXTERNAL}" if external else text

    def function(
        self,
        body: Body,
        *,
        inline: bool,
        work: int = 1,
        members: Sequence[tuple[str, int]] = (),
    ) -> str:
        """The name of a private function with this body, written only if there is none yet.

        `work` says how long LLVM takes for it, roughly, beside a simple loop.
        Every function is written of its own where debug information tells them apart. `members` are the names and
        lines of the instructions that it computes beside the one that it is named after.
        """
        key = f"({body.parameters}) {body.text} {inline}{' loops' * body.loops_only}"
        if key not in self._functions:
            prefix, _, stem = body.name.partition(".")
            readable = f"{prefix}.{self._names.take(stem)}"
            name = f"function.{_digest(key)}" if self._by_content else readable
            text = body.text + f"  ret void{body.location}\n"
            scope = body.scope
            if self._debug is not None:
                scope = self.subprogram(stem, body.first_line)
                entry = self._debug.entry(body.first_line, scope)
                entry += "".join(
                    self._debug.member(name, line, body.first_line, scope) for name, line in members
                )
                text = entry + text.replace(_SCOPE, scope)
            words = ["alwaysinline"] if inline else [] if self._merge else ["noinline"]
            words += ['"no-builtin-memcpy"'] if body.loops_only else []
            head = Head("void", name, body.parameters, "", tuple(words), is_launched=not inline)
            function = _Function(head, text, inline, scope, 0 if body.calls_only else work)
            self._functions[key] = self._by_name[name] = function
        return self._functions[key].name

    def whole(self, entries: Sequence[str]) -> str:
        """One module with the entry points and all functions."""
        functions = [function for function in self._by_name.values() if not function.inline]
        return self._module(functions, entries, "internal")

    def separate(self, entries: Sequence[str], *, visible: bool = False) -> list[str]:
        """Modules to be loaded together: the entry points, then one for each function, the most work first.

        Functions that do nothing but call others are one module, to which the entry points belong if they are such.
        With `visible`, every function can be found by its name in the loaded code.
        """
        functions = [function for function in self._by_name.values() if not function.inline]
        functions.sort(key=lambda function: -function.work)
        linkage = "" if visible else "hidden"
        calls = [function for function in functions if function.work == 0]
        texts = [self._module([], entries, linkage)]
        if "alwaysinline" in texts[0] or self._debug is not None:
            texts += [CALLS_ONLY + self._module(calls, [], linkage)] * bool(calls)
        else:
            texts = [CALLS_ONLY + self._module(calls, entries, linkage)]
        return texts + [self._module([f], [], linkage) for f in functions if f.work]

    def _module(self, functions: Sequence[_Function], entries: Sequence[str], linkage: str) -> str:
        """One module: the functions and entry points, and everything they refer to."""
        texts = [*(self._text(function, linkage) for function in functions), *entries]
        written = {function.name for function in functions}
        symbols: dict[str, None] = {}
        unread = deque(texts)
        while unread:
            for symbol in dict.fromkeys(_SYMBOL.findall(unread.popleft())):
                if symbol in symbols or symbol in written:
                    continue
                symbols[symbol] = None
                if symbol in self._globals:
                    unread.append(self._globals[symbol].partition("=")[2])
                elif symbol in self._by_name:
                    function = self._by_name[symbol]
                    texts.append(
                        self._text(function, "internal")
                        if function.inline
                        else function.declaration
                    )
                    unread.append(texts[-1])
        lines = [f"%ints_t = type {{ {self.dim}, [{_MAX_INTS} x {self.dim}] }}"]
        lines += [self._globals[symbol] for symbol in symbols if symbol in self._globals]
        metadata = self._debug.render("".join(texts)) if self._debug is not None else []
        metadata += hint_metadata(self.vector_bytes // 4 if self._in_vectors else 0)
        return "\n".join([*lines, *texts, *metadata]) + "\n"

    def _text(self, function: _Function, linkage: str) -> str:
        first = self.begin(replace(function.head, linkage=linkage), function.scope)
        return f"{first}\nentry:\n{function.body}}}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


@dataclass(frozen=True)
class _Function:
    """A private function.

    Attributes:
        inline: Whether all callers have it inlined.
        scope: Its debug information, if there is any.
        work: How long LLVM takes for it; 0 if it does nothing but call others.
    """

    head: Head
    body: str
    inline: bool
    scope: str
    work: int

    @property
    def name(self) -> str:
        return self.head.name

    @property
    def declaration(self) -> str:
        return f"declare hidden void @{self.name}({self.head.parameters}) {EXTERNAL}"


class Body:
    """The body of one private function. Its parameters are the distinct pieces of memory it touches, then others."""

    def __init__(
        self,
        module: ModuleWriter,
        name: str,
        lines: Mapping[Instruction, int],
        parameters: Sequence[str] = (),
        symbols: Symbols | None = None,
    ) -> None:
        self.module = module
        self.symbols = symbols
        """The network's symbols; None for a function that knows nothing of them."""
        self.name = name
        """The network's name, a dot, and the wanted name of the function."""
        self.lines = lines
        """Lines of instructions in the IR's text."""
        self._parameters = parameters
        self.memories: list[Value] = []
        self.units: Dim = 1
        """The number of units of work in which the function is called: see `split`."""
        self._head: list[str] = []
        """Lines that compute with extents, before all others."""
        self._numbers: dict[Dim | Symbol, str] = {}
        self.sizes: list[int] = []
        """The values of parameters for sizes: see `size`."""
        self._shared: dict[tuple[int, str, int], str] = {}
        """The registers of sizes, by the arguments of `size`."""
        self._pointers: dict[Hashable, str] = {}
        self.loops_only = False
        """Whether loops that copy stay loops, and are not made calls."""
        self.takes_sizes = False
        """Whether sizes are parameters, which whoever calls the function knows of: see `size`."""
        self.calls_only = False
        """Whether nothing is done but to call functions that are no kernels."""
        self.first_line = 0
        self._line = 0
        self._lines: list[str] = []
        self._label = "entry"
        self._count = 0

    def at(self, inst: Instruction) -> None:
        """Attributes the lines written from now on to `inst`."""
        self._line = self.lines[inst]
        self.first_line = self.first_line or self._line

    def follow(self, caller: Body) -> None:
        """Attributes the lines written from now on to the place where `caller` is."""
        self._line = caller._line
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
        parameters = [f"ptr noalias %p{index}" for index in range(len(self.memories))]
        parameters += [f"{self.module.dim} %size{index}" for index in range(len(self.sizes))]
        if highest(self.units) > 1:
            parameters += [f"{self.module.dim} %first", f"{self.module.dim} %last"]
        return ", ".join((*parameters, *self._parameters))

    @property
    def text(self) -> str:
        """All lines so far."""
        return "".join(f"{line}\n" for line in (*self._head, *self._lines))

    def pointer(self, value: Value) -> str:
        """The parameter that points to the first element of `value`."""
        place = value.place
        if place not in self._pointers:
            self._pointers[place] = f"%p{len(self.memories)}"
            self.memories.append(value)
        return self._pointers[place]

    def number(self, dim: Dim) -> str:
        """A dimension as an operand: a literal, or the register of what it is for the extents of this run."""
        if isinstance(dim, int):
            return str(dim)
        if dim not in self._numbers:
            self._numbers[dim] = emit_dim(dim, self._extent, self._let_first, self.module.dim)
        return self._numbers[dim]

    def size(self, dim: Dim, what: str, divisor: int = 1) -> str:
        """A dimension as an operand, as `number` has it, but a known one is a parameter of what `takes_sizes`.

        One parameter is never two that are the same by chance: `what` it is tells them apart. LLVM is told of the
        `divisor` of a parameter. Sizes of which many networks have the same stay literals.
        """
        if not isinstance(dim, int) or dim <= _MOST_COMMON or not self.takes_sizes:
            return self.number(dim)
        key = dim, what, divisor
        if key not in self._shared:
            register = f"%size{len(self.sizes)}"
            self.sizes.append(dim // divisor)
            if divisor > 1:
                register = self._let_first(f"mul nuw nsw {self.module.dim} {register}, {divisor}")
            self._shared[key] = register
        return self._shared[key]

    @property
    def extents(self) -> str:
        """The parameter that points to the array of extents."""
        assert self.symbols is not None
        return self.pointer(self.symbols.memory)

    def place_of(self, symbol: str) -> int:
        """Returns the index of a symbol's extent in that array."""
        assert self.symbols is not None
        return self.symbols.names.index(symbol)

    def _extent(self, symbol: Symbol) -> str:
        if symbol not in self._numbers:
            integer = self.module.dim
            place = self._let_first(
                f"getelementptr inbounds {integer}, ptr {self.extents}, {integer} {self.place_of(symbol.name)}"
            )
            self._numbers[symbol] = self._let_first(f"load {integer}, ptr {place}")
        return self._numbers[symbol]

    def alloca(self, type: str) -> str:
        """Room on the stack; returns the pointer to it."""
        return self._let_first(f"alloca {type}")

    def _let_first(self, text: str) -> str:
        """Computes something before all else; returns its register."""
        register = self.register()
        self._head.append(f"  {register} = {text}{self.location}")
        return register

    def ints(self, dims: Sequence[Dim]) -> str:
        """The address of an `ints_t` with these values: a constant, unless one is symbolic."""
        if not depends_on_symbols(tuple(dims)):
            return self.module.ints(static(dims))
        integer = self.module.dim
        numbers = [len(dims), *dims]
        struct = self._let_first("alloca %ints_t")
        for index, dim in enumerate(numbers):
            number = self.number(dim)
            place = self._let_first(
                f"getelementptr inbounds {integer}, ptr {struct}, {integer} {index}"
            )
            self._head.append(f"  store {integer} {number}, ptr {place}{self.location}")
        return struct

    def split(self, count: Dim, together: int = 1) -> tuple[str, str]:
        """Makes the function compute `count` rounds of a loop, in any order and by any number of threads.

        Returns which of them a call computes: the first, and the one after the last. There are none only if `count` is
        0. Units are `together` rounds, which do not depend on others and write different memory; how many there are
        follows from shapes, so that results do not depend on threads.
        """
        dim, self.units = self.module.dim, ceil_div(count, together)
        if highest(self.units) <= 1:
            return "0", self.number(count)
        if together == 1:
            return "%first", "%last"
        rounds, end = self.size(together, "units"), self.size(count, "count")
        first = self.let(f"mul nuw nsw {dim} %first, {rounds}")
        last = self.let(f"mul nuw nsw {dim} %last, {rounds}")
        fits = self.let(f"icmp ult {dim} {last}, {end}")
        return first, self.let(f"select i1 {fits}, {dim} {last}, {dim} {end}")

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
    def loop(
        self,
        count: Dim | str,
        *,
        unroll: bool = True,
        wholly: bool = False,
        may_be_none: bool = False,
    ) -> Iterator[str]:
        """A loop of `count` rounds around what is written inside the `with`; yields the index.

        A number must be at least 1, and so must a register unless there `may_be_none`. A loop that must not be unrolled
        is vectorised itself, not the loop around it. Rounds of vectors that are left of a constant count are unrolled
        then: if they are few, or `wholly`.
        """
        self._count += 1
        number, before, dim = self._count, self._label, self.module.dim
        head, latch, out = f"loop{number}", f"next{number}", f"done{number}"
        index = f"%i{number}"
        if may_be_none or (isinstance(count, Expr) and count.low < 1):
            rounds = count if isinstance(count, str) else self.number(count)
            some = self.let(f"icmp ne {dim} {rounds}, 0")
            self.line(f"br i1 {some}, label %{head}, label %{out}")
        else:
            self.line(f"br label %{head}")
        self._lines.append(f"{head}:")
        self._label = head
        self.line(f"{index} = phi {dim} [ 0, %{before} ], [ {index}.next, %{latch} ]")
        start = len(self._lines)
        yield index
        inside = self._lines[start:]
        calls = sum(" = call " in line for line in inside)
        self.line(f"br label %{latch}")
        self._lines.append(f"{latch}:")
        self.line(f"{index}.next = add nuw nsw {dim} {index}, 1")
        then = isinstance(count, int) and (wholly or count * max(calls, 1) <= _UNROLLED)
        self.line(
            f"{index}.more = icmp ult {dim} {index}.next, {self._rounds(count, inside, then)}"
        )
        hint = self.module.hint(inside, rolled=not unroll, then=then)
        self.line(f"br i1 {index}.more, label %{head}, label %{out}{hint}")
        self._lines.append(f"{out}:")
        self._label = out

    def _rounds(self, count: Dim | str, lines: Sequence[str], then: bool) -> str:
        """How often some lines run, which are unrolled `then` or not."""
        if isinstance(count, str):
            return count
        if then or not isinstance(count, int):
            return self.number(count)
        is_innermost = not any(line.endswith(":") for line in lines)
        return self.size(count, "count", gcd(count, _WHOLE_VECTORS) if is_innermost else 1)

    @contextmanager
    def only_if(self, condition: str) -> Iterator[None]:
        """Runs the code written inside the `with` only if a condition holds."""
        self._count += 1
        then, out = f"then{self._count}", f"after{self._count}"
        self.line(f"br i1 {condition}, label %{then}, label %{out}")
        self._lines.append(f"{then}:")
        self._label = then
        yield
        self.line(f"br label %{out}")
        self._lines.append(f"{out}:")
        self._label = out

    @contextmanager
    def rounds(self, goes_on: Callable[[str], str]) -> Iterator[str]:
        """Repeats the code written inside the `with` while a condition of the i64 iteration number holds; yields that.

        After the `with`, it is the number of rounds.
        """
        self._count += 1
        number, before = self._count, self._label
        head, body, latch, out = (
            f"{part}{number}" for part in ("rounds", "round", "again", "ended")
        )
        index = f"%n{number}"
        self.line(f"br label %{head}")
        self._lines.append(f"{head}:")
        self._label = head
        self.line(f"{index} = phi i64 [ 0, %{before} ], [ {index}.next, %{latch} ]")
        self.line(f"br i1 {goes_on(index)}, label %{body}, label %{out}")
        self._lines.append(f"{body}:")
        self._label = body
        yield index
        self.line(f"br label %{latch}")
        self._lines.append(f"{latch}:")
        self.line(f"{index}.next = add nuw nsw i64 {index}, 1")
        self.line(f"br label %{head}")
        self._lines.append(f"{out}:")
        self._label = out

    @contextmanager
    def returning_if(self, condition: str) -> Iterator[None]:
        """Runs the code written inside the `with` if a condition holds, and then returns from the function."""
        self._count += 1
        then, out = f"then{self._count}", f"else{self._count}"
        self.line(f"br i1 {condition}, label %{then}, label %{out}")
        self._lines.append(f"{then}:")
        self._label = then
        yield
        self.line("ret void")
        self._lines.append(f"{out}:")
        self._label = out

    def nest(
        self, counts: Sequence[Dim], inner: Callable[[list[str]], None], *, unroll: bool = True
    ) -> None:
        """Nested loops, the first outermost, around what `inner` writes for their indices.

        `unroll` is about the innermost.
        """

        def descend(level: int, indices: list[str]) -> None:
            if level == len(counts):
                inner(indices)
                return
            with self.loop(counts[level], unroll=unroll or level < len(counts) - 1) as index:
                descend(level + 1, [*indices, index])

        descend(0, [])
