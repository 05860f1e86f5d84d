"""The visible functions of a network: the entry point, and what checks around it.

```c
int NAME(const uint8_t *constants, uint8_t *mutable, uint8_t *activations);
```

returns 0, or one of the codes of `Status`. Where the network has symbols, an array of their extents is one argument
more, in the order of `Symbols.names`; one outside its bounds is refused before any memory is touched.

`NAME_bound` takes a table of pointers, one for each placeholder in the
order of the plan, in place of the mutable area, and checks nothing: that is how the JIT binds arrays without copying.
The extents of symbols, if there are any, are an array that the next pointer of the table is to.
Where it is visible, the constants are laid out as `constants` says, and there is no `NAME`.

With `parallel`, functions that are cut into units of work are handed to

```c
void parallel_for(void *context, void (*task)(void *pointers, size_t first, size_t last), void *pointers, size_t units);
```

which and whose context are the next two pointers of the table; NULL computes all units at once. `NAME_parallel` takes
them as its last arguments.

With `timed`, the last pointer is to 64-bit stamps of the processor's counter of time: when the network begins, then for
each instruction when the call of its run has ended. By the thread's clock, each stamp is two such numbers, seconds and
nanoseconds, and one more pointer is that of `clock_gettime`.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from glowpy.backend import Program
from glowpy.ir.inst import Instruction, OperandRef
from glowpy.ir.plan import ALIGNMENT, Slot
from glowpy.ir.value import Value, WeightVar
from glowpy.llvm.code_options import Counter, EntryOptions
from glowpy.llvm.constant_block import Block, block_of
from glowpy.llvm.control import CONSTANTS, TABLE, callee_symbol
from glowpy.llvm.extents import Symbols, emit_dim
from glowpy.llvm.head import Head
from glowpy.llvm.instrument import Callbacks, descriptions
from glowpy.llvm.status import Status
from glowpy.llvm.tasks import (
    PARALLEL_SLOTS,
    Call,
    direct_call,
    prepare_tasks,
    task_call,
)
from glowpy.llvm.writer import ModuleWriter
from glowpy.support.symbolic import Dim, Symbol

__all__ = [
    "GUARD_BYTES",
    "callee_texts",
    "check_areas",
    "entry_texts",
    "shared_slots",
]

_BOUND_AREAS = "ptr noalias %constants, ptr noalias %table, ptr noalias %activations"
"""Parameters of `NAME_bound`, and of functions that others call."""

GUARD_BYTES = 64
"""Canary bytes before and after the activations."""


def shared_slots(options: EntryOptions, symbols: Symbols | None) -> int:
    """How many pointers follow those to weights in every table."""
    callbacks = 2 if options.instrument == "table" else 0
    return bool(symbols) + (PARALLEL_SLOTS if options.parallel else 0) + callbacks


def entry_texts(
    program: Program,
    module: ModuleWriter,
    name: str,
    calls: Sequence[Call],
    options: EntryOptions,
    symbols: Symbols | None = None,
) -> list[str]:
    """The texts of `NAME_bound`, which does the calls, of `NAME`, and of what describes the instructions."""
    linkage, words = ("", ()) if options.bound else ("internal", ("alwaysinline",))
    head = Head("i32", f"{name}_bound", _BOUND_AREAS, linkage, words)
    texts = _body(program, module, name, calls, options, symbols, head)
    if not options.bound:
        texts += _plain(program, module, name, options)
    return texts


def callee_texts(
    program: Program,
    module: ModuleWriter,
    name: str,
    calls: Sequence[Call],
    options: EntryOptions,
    symbols: Symbols | None,
    first_index: int,
) -> list[str]:
    """The text of the function that other functions of the network `name` call, and of what describes the instructions.

    It takes what `NAME_bound` takes, in a table of its own. `first_index` is the number of its first instruction.
    """
    head = Head("i32", callee_symbol(name, program.ir.name), _BOUND_AREAS, "internal")
    untimed = replace(options, timed="")
    return _body(program, module, name, calls, untimed, symbols, head, first_index)


def _body(
    program: Program,
    module: ModuleWriter,
    name: str,
    calls: Sequence[Call],
    options: EntryOptions,
    symbols: Symbols | None,
    head: Head,
    first_index: int = 0,
) -> list[str]:
    """A function that does the calls, and what describes their instructions."""
    lines = {call.run.head: call.line for call in calls}
    numbered = enumerate(program.ir.instructions, first_index)
    indices = {inst: index for index, inst in numbered if inst in lines}
    texts = [_bound(program, module, name, calls, options, symbols, head, indices)]
    if options.instrument == "symbols" and not options.runs:
        texts += descriptions(name, lines, indices)
    return texts


class _Addresses:
    """Addresses of memory at the beginning of an entry point: appends LLVM IR that finds them to `lines`.

    Attributes:
        lines: The text of the entry point so far.
        slots: How many pointers of the table are known.
    """

    def __init__(
        self, program: Program, module: ModuleWriter, symbols: Symbols | None, *, bound: bool
    ) -> None:
        plan = program.plan
        whole = Block((), plan.constant.slots, plan.constant.size)
        block = block_of(plan, module.pointer_bytes) if bound else whole
        self.lines: list[str] = []
        self.slots = len(plan.mutable.slots)
        self._dim = module.dim
        self._symbols = symbols
        self._pointers: dict[tuple[str, Dim], str] = {
            (CONSTANTS.name, 0): "%constants",
            (TABLE.name, 0): "%table",
        }
        self._places = _addresses("%table", plan.mutable.slots)
        self._places |= _addresses("%constants", block.large)
        self._offsets = {slot.name: slot.start for slot in (*block.small, *plan.activations.slots)}
        if symbols is not None:
            self._places[symbols.memory.name] = "%table", self.slots
            self.slots += 1

    def pointer(self, value: Value) -> str:
        """The register that points to the first element of a value."""
        base, offset = value.base, value.byte_offset
        key = (base.name, offset)
        if key in self._pointers:
            return self._pointers[key]
        register = self._pointers[key] = f"%m{len(self._pointers)}"
        if base.name in self._places:
            table, index = self._places[base.name]
            slot = f"getelementptr inbounds ptr, ptr {table}, {self._dim} {index}"
            self.lines.append(f"  {register}.slot = {slot}")
            self.lines.append(f"  {register}.base = load ptr, ptr {register}.slot")
            start = f"{register}.base"
        else:
            start = "%constants" if isinstance(base, WeightVar) else "%activations"
            offset = offset + self._offsets[base.name]
        step = self.number(offset)
        address = f"getelementptr inbounds i8, ptr {start}, {self._dim} {step}"
        self.lines.append(f"  {register} = {address}")
        return register

    def number(self, dim: Dim) -> str:
        """A dimension as an operand."""
        return emit_dim(dim, self._extent, self._let, self._dim)

    def _extent(self, symbol: Symbol) -> str:
        assert self._symbols is not None
        index, array = self._symbols.names.index(symbol.name), self.pointer(self._symbols.memory)
        dim = self._dim
        place = self._let(f"getelementptr inbounds {dim}, ptr {array}, {dim} {index}")
        return self._let(f"load {dim}, ptr {place}")

    def _let(self, text: str) -> str:
        register = f"%n{len(self.lines)}"
        self.lines.append(f"  {register} = {text}")
        return register


def _bound(
    program: Program,
    module: ModuleWriter,
    name: str,
    calls: Sequence[Call],
    options: EntryOptions,
    symbols: Symbols | None,
    head: Head,
    indices: Mapping[Instruction, int],
) -> str:
    addresses = _Addresses(program, module, symbols, bound=options.bound)
    lines, slots, callbacks = addresses.lines, addresses.slots, None
    scope = module.subprogram(head.name, 1)
    if options.parallel:
        lines += prepare_tasks(module, slots, calls)
        slots += PARALLEL_SLOTS
    if options.instrument:
        callbacks = Callbacks(module, options.instrument, options.bundle, name, slots, indices)
        callbacks.most = max((len(_told(call, program, options)) for call in calls), default=0)
        lines += callbacks.prepare()
        slots += 2 * (options.instrument == "table")
    if options.timed:
        lines += _stamps(module, options.timed, slots)
    for index, call in enumerate(calls):
        arguments = [addresses.pointer(memory) for memory in call.memories]
        where, units = module.location(call.line, scope), addresses.number(call.units)
        text = (
            task_call(module, call, arguments, units, f"%task.{index}", where)
            if options.parallel and call.is_cut
            else direct_call(module, call, arguments, units, where)
        )
        if callbacks is None:
            lines.append(text)
        else:
            told = _told(call, program, options)
            operands = [addresses.pointer(ref.value) for ref in told]
            lines += callbacks.around(call.run.head, operands, text, where, addresses.number)
        if options.timed:
            lines += _stamp(module, options.timed, indices[call.run.head] + 1)
    body = "".join(f"{line}\n" for line in lines)
    return f"{module.begin(head, scope)}\n{body}  ret i32 0{module.location(1, scope)}\n}}\n"


def _told(call: Call, program: Program, options: EntryOptions) -> Sequence[OperandRef]:
    """The operands that the callbacks around a call are told of."""
    run = call.run
    return run.operands_beside(program.plan.registers) if options.runs else run.head.operands


def _stamps(module: ModuleWriter, counter: Counter, slot: int) -> list[str]:
    """Finds the stamps by the pointer in the table, and what tells the time, and makes the first one."""
    lines = []
    if counter == "clock_gettime":
        lines = _loaded(module, "%clock", slot + 1)
    else:
        module.declare(f"llvm.{counter}", "i64", [])
    return [*_loaded(module, "%stamps", slot), *lines, *_stamp(module, counter, 0)]


def _loaded(module: ModuleWriter, name: str, slot: int) -> list[str]:
    """A pointer of the table."""
    return [
        f"  {name}.slot = getelementptr inbounds ptr, ptr %table, {module.dim} {slot}",
        f"  {name} = load ptr, ptr {name}.slot",
    ]


def _stamp(module: ModuleWriter, counter: Counter, index: int) -> list[str]:
    """Notes the time."""
    stamp = f"%stamp.{index}"
    if counter == "clock_gettime":
        place = (
            f"  {stamp}.place = getelementptr inbounds i64, ptr %stamps, {module.dim} {2 * index}"
        )
        clock = time.CLOCK_THREAD_CPUTIME_ID
        return [place, f"  {stamp} = call i32 %clock(i32 {clock}, ptr {stamp}.place)"]
    return [
        f"  {stamp} = call i64 @llvm.{counter}()",
        f"  {stamp}.place = getelementptr inbounds i64, ptr %stamps, {module.dim} {index}",
        f"  store volatile i64 {stamp}, ptr {stamp}.place",
    ]


def _addresses(table: str, slots: Sequence[Slot]) -> dict[str, tuple[str, int]]:
    """The table and the place in it where the address of each buffer is."""
    return {slot.name: (table, index) for index, slot in enumerate(slots)}


def _plain(
    program: Program, module: ModuleWriter, name: str, options: EntryOptions
) -> Iterator[str]:
    plan, dim = program.plan, module.dim
    slots = plan.mutable.slots
    areas = "ptr noalias %constants, ptr noalias %mutable, ptr noalias %activations"
    pointers = [f"i8, ptr %mutable, {dim} {slot.start}" for slot in slots]
    symbols = tuple(program.ir.symbols.values())
    if symbols:
        areas += ", ptr noalias %extents"
        pointers.append(f"i8, ptr %extents, {dim} 0")
    own = name
    if options.parallel:
        own = f"{name}_parallel"
        yield _alone(module, name, own, areas)
        areas += ", ptr %parallel, ptr %context"
        pointers += [f"i8, ptr %{argument}, {dim} 0" for argument in ("parallel", "context")]
    scope = module.subprogram(own, 1)
    lines = ["entry:", f"  %table = alloca [{max(len(pointers), 1)} x ptr]"]
    sizes = {"constants": plan.constant.size, "mutable": plan.mutable.size}
    arena = "%activations"
    if options.guard:
        arena = "%arena"
        lines.append(f"  %arena = getelementptr inbounds i8, ptr %activations, {dim} {GUARD_BYTES}")
    if options.checks:
        sizes["activations"] = plan.peak + (2 * GUARD_BYTES if options.guard else 0)
        lines += check_areas(sizes, dim)
    lines += _check_extents(symbols, program.ir.found, dim, missing=options.checks)
    for index, pointer in enumerate(pointers):
        lines += [
            f"  %p{index} = getelementptr inbounds {pointer}",
            f"  %s{index} = getelementptr inbounds ptr, ptr %table, {dim} {index}",
            f"  store ptr %p{index}, ptr %s{index}",
        ]
    where = module.location(1, scope)
    guard = f"(ptr %activations, {dim} {plan.peak + 2 * GUARD_BYTES})"
    if options.guard:
        module.declare("libjit_guard_fill", "void", ["ptr", dim])
        lines.append(f"  call void @libjit_guard_fill{guard}{where}")
    lines.append(
        f"  %code = call i32 @{name}_bound(ptr %constants, ptr %table, ptr {arena}){where}"
    )
    if options.guard:
        module.declare("libjit_guard_intact", "i1", ["ptr", dim])
        lines.append(f"  %intact = call i1 @libjit_guard_intact{guard}{where}")
        lines.append(f"  %status = select i1 %intact, i32 %code, i32 {Status.OVERRUN:d}")
    lines.append(f"  ret i32 {'%status' if options.guard else '%code'}{where}")
    yield "\n".join([module.begin(Head("i32", own, areas), scope), *lines, "}"]) + "\n"


def _alone(module: ModuleWriter, name: str, parallel: str, areas: str) -> str:
    """The entry point without a `parallel_for`."""
    scope = module.subprogram(name, 1)
    where = module.location(1, scope)
    arguments = f"{areas.replace(' noalias', '')}, ptr null, ptr null"
    return (
        f"{module.begin(Head('i32', name, areas), scope)}\n"
        f"  %code = call i32 @{parallel}({arguments}){where}\n  ret i32 %code{where}\n}}\n"
    )


def check_areas(sizes: dict[str, int], dim: str) -> list[str]:
    """LLVM IR that returns early where an area that is not empty is NULL or misaligned; their bytes are in `sizes`."""
    lines = []
    for area, size in sizes.items():
        if size == 0:
            continue
        lines += [
            *_check_missing(area),
            f"  %{area}.number = ptrtoint ptr %{area} to {dim}",
            f"  %{area}.low = and {dim} %{area}.number, {ALIGNMENT - 1}",
            f"  %{area}.aligned = icmp eq {dim} %{area}.low, 0",
            f"  br i1 %{area}.aligned, label %{area}.good, label %{area}.odd",
            f"{area}.odd:",
            f"  ret i32 {Status.MISALIGNED:d}",
            f"{area}.good:",
        ]
    return lines


def _check_missing(area: str) -> list[str]:
    """LLVM IR that returns early where an area is NULL."""
    return [
        f"  %{area}.missing = icmp eq ptr %{area}, null",
        f"  br i1 %{area}.missing, label %{area}.none, label %{area}.some",
        f"{area}.none:",
        f"  ret i32 {Status.MISSING_AREA:d}",
        f"{area}.some:",
    ]


def _check_extents(
    symbols: Sequence[Symbol], found: Container[str], dim: str, *, missing: bool
) -> list[str]:
    """LLVM IR that returns early where an extent lies outside its bounds; with `missing`, where the array is NULL.

    What the network finds may be anything before.
    """
    if not symbols:
        return []
    lines = _check_missing("extents") if missing else []
    wrong = "false"
    for index, symbol in enumerate(symbols):
        if symbol.name in found:
            continue
        extent = f"%extent{index}"
        lines += [
            f"  {extent}.place = getelementptr inbounds {dim}, ptr %extents, {dim} {index}",
            f"  {extent} = load {dim}, ptr {extent}.place",
            f"  {extent}.below = icmp ult {dim} {extent}, {symbol.low}",
            f"  {extent}.above = icmp ugt {dim} {extent}, {symbol.high}",
            f"  {extent}.outside = or i1 {extent}.below, {extent}.above",
            f"  {extent}.wrong = or i1 {wrong}, {extent}.outside",
        ]
        wrong = f"{extent}.wrong"
    return [
        *lines,
        f"  br i1 {wrong}, label %extents.outside, label %extents.inside",
        "extents.outside:",
        f"  ret i32 {Status.OUT_OF_BOUNDS:d}",
        "extents.inside:",
    ]
