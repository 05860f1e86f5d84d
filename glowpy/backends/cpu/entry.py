"""The visible functions of a network: the entry point, and what checks around it.

```c
int NAME(const uint8_t *constants, uint8_t *mutable, uint8_t *activations);
```

returns 0, or one of the codes of `Status`. `NAME_bound` takes a table of pointers, one for each placeholder in the
order of the plan, in place of the mutable area, and checks nothing: that is how the JIT binds arrays without copying.
Where it is visible, the constants are laid out as `constants` says, and there is no `NAME`.

With `parallel`, functions that are cut into units of work are handed to

```c
void parallel_for(void *context, void (*task)(void *pointers, size_t first, size_t last), void *pointers, size_t units);
```

which and whose context are the next two pointers of the table; NULL computes all units at once. `NAME_parallel` takes
them as its last arguments.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from glowpy.backend import Program
from glowpy.backends.cpu.abi import Status
from glowpy.backends.cpu.constants import Block, block_of
from glowpy.backends.cpu.instrument import Callbacks, Instrument, descriptions
from glowpy.backends.cpu.tasks import (
    PARALLEL_SLOTS,
    Call,
    direct_call,
    prepare_tasks,
    task_call,
)
from glowpy.ir.inst import Instruction
from glowpy.ir.plan import ALIGNMENT, Slot
from glowpy.ir.value import Value, WeightVar
from glowpy.llvm.writer import ModuleWriter

__all__ = ["GUARD_BYTES", "EntryOptions", "Status", "check_areas", "entry_texts"]

GUARD_BYTES = 64
"""Canary bytes before and after the activations."""


@dataclass(frozen=True)
class EntryOptions:
    """How the entry points behave.

    Attributes:
        bound: `NAME_bound` is visible, and `NAME` is not there.
        checks: `NAME` checks its pointers.
        guard: `NAME` surrounds the activations with canaries; the area it is given is larger by twice GUARD_BYTES.
        instrument: Callbacks before and after every instruction: in the table, or the functions BUNDLE_before and
            BUNDLE_after.
        bundle: The name those begin with.
        parallel: The table holds a `parallel_for`; where there is a `NAME`, there is a `NAME_parallel`.
    """

    bound: bool = False
    checks: bool = False
    guard: bool = False
    instrument: Instrument = ""
    bundle: str = ""
    parallel: bool = False


def entry_texts(
    program: Program, module: ModuleWriter, name: str, calls: Sequence[Call], options: EntryOptions
) -> list[str]:
    """The texts of `NAME_bound`, which does the calls, of `NAME`, and of what describes the instructions."""
    texts = [_bound(program, module, name, calls, options)]
    if not options.bound:
        texts += _plain(program, module, name, options)
    if options.instrument == "symbols":
        lines = {call.inst: call.line for call in calls}
        texts += descriptions(name, lines, _indices(program, lines))
    return texts


def _indices(program: Program, chosen: Container[Instruction]) -> dict[Instruction, int]:
    """Where instructions stand in the program."""
    return {inst: index for index, inst in enumerate(program.ir.instructions) if inst in chosen}


def _bound(
    program: Program, module: ModuleWriter, name: str, calls: Sequence[Call], options: EntryOptions
) -> str:
    plan, dim = program.plan, module.dim
    lines: list[str] = []
    pointers: dict[tuple[str, int], str] = {}
    whole = Block((), plan.constant.slots, plan.constant.size)
    block = block_of(plan, module.pointer_bytes) if options.bound else whole
    places = _addresses("%table", plan.mutable.slots) | _addresses("%constants", block.large)
    offsets = {slot.name: slot.start for slot in (*block.small, *plan.activations.slots)}
    scope = module.subprogram(f"{name}_bound", 1)

    def pointer(value: Value) -> str:
        base, offset = value.base, value.byte_offset
        key = (base.name, offset)
        if key in pointers:
            return pointers[key]
        register = f"%m{len(pointers)}"
        if base.name in places:
            table, index = places[base.name]
            slot = f"getelementptr inbounds ptr, ptr {table}, {dim} {index}"
            lines.append(f"  {register}.slot = {slot}")
            lines.append(f"  {register}.base = load ptr, ptr {register}.slot")
            start = f"{register}.base"
        else:
            start = "%constants" if isinstance(base, WeightVar) else "%activations"
            offset += offsets[base.name]
        lines.append(f"  {register} = getelementptr inbounds i8, ptr {start}, {dim} {offset}")
        pointers[key] = register
        return register

    slots, callbacks = len(plan.mutable.slots), None
    if options.parallel:
        lines += prepare_tasks(module, slots, calls)
        slots += PARALLEL_SLOTS
    if options.instrument:
        indices = _indices(program, {call.inst for call in calls})
        callbacks = Callbacks(module, options.instrument, options.bundle, name, slots, indices)
        lines += callbacks.prepare()
    for index, call in enumerate(calls):
        arguments = [pointer(memory) for memory in call.memories]
        where = module.location(call.line, scope)
        text = (
            task_call(module, call, arguments, f"%task.{index}", where)
            if options.parallel and call.units > 1
            else direct_call(module, call, arguments, where)
        )
        if callbacks is None:
            lines.append(text)
        else:
            operands = [pointer(ref.value) for ref in call.inst.operands]
            lines += callbacks.around(call.inst, operands, text, where)
    areas = "ptr noalias %constants, ptr noalias %table, ptr noalias %activations"
    linkage, inline = ("", "") if options.bound else ("internal ", "alwaysinline ")
    head = f"define {linkage}i32 @{name}_bound({areas}) {inline}{module.attributes}"
    text = "".join(f"{line}\n" for line in lines)
    return f"{head}{module.attached(scope)} {{\n{text}  ret i32 0{module.location(1, scope)}\n}}\n"


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
    body = "\n".join(lines)
    yield (
        f"define i32 @{own}({areas}) {module.attributes}{module.attached(scope)} {{\n{body}\n}}\n"
    )


def _alone(module: ModuleWriter, name: str, parallel: str, areas: str) -> str:
    """The entry point without a `parallel_for`."""
    scope = module.subprogram(name, 1)
    where = module.location(1, scope)
    arguments = "ptr %constants, ptr %mutable, ptr %activations, ptr null, ptr null"
    return (
        f"define i32 @{name}({areas}) {module.attributes}{module.attached(scope)} {{\n"
        f"  %code = call i32 @{parallel}({arguments}){where}\n  ret i32 %code{where}\n}}\n"
    )


def check_areas(sizes: dict[str, int], dim: str) -> list[str]:
    """LLVM IR that returns early where an area that is not empty is NULL or misaligned; their bytes are in `sizes`."""
    lines = []
    for area, size in sizes.items():
        if size == 0:
            continue
        lines += [
            f"  %{area}.missing = icmp eq ptr %{area}, null",
            f"  br i1 %{area}.missing, label %{area}.none, label %{area}.some",
            f"{area}.none:",
            f"  ret i32 {Status.MISSING_AREA:d}",
            f"{area}.some:",
            f"  %{area}.number = ptrtoint ptr %{area} to {dim}",
            f"  %{area}.low = and {dim} %{area}.number, {ALIGNMENT - 1}",
            f"  %{area}.aligned = icmp eq {dim} %{area}.low, 0",
            f"  br i1 %{area}.aligned, label %{area}.good, label %{area}.odd",
            f"{area}.odd:",
            f"  ret i32 {Status.MISALIGNED:d}",
            f"{area}.good:",
        ]
    return lines
