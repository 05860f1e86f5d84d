"""Calls of functions that are cut into units of work: through a `parallel_for`, where the caller brings one.

A task is a function and an array with what it needs: the function of the network, its memory, and its sizes. One task
function for each number of pointers and sizes unpacks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.ir.run import Run
from glowpy.ir.value import Value
from glowpy.llvm.head import Head
from glowpy.llvm.writer import ModuleWriter
from glowpy.support.symbolic import Dim, highest

__all__ = ["PARALLEL_SLOTS", "Call", "direct_call", "prepare_tasks", "task_call"]

PARALLEL_SLOTS = 2
"""Pointers in the table: `parallel_for` and its context."""


@dataclass(frozen=True)
class Call:
    """One call the network makes: a function, the memory it works on, the run that it computes, the line of its head.

    A function that is shared takes `sizes` after its memory. One of more than one unit of work takes, after these, the
    first unit to compute, and the one after the last.
    """

    function: str
    memories: tuple[Value, ...]
    run: Run
    line: int
    units: Dim = 1
    sizes: tuple[int, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether there may be several units."""
        return highest(self.units) > 1


def direct_call(
    module: ModuleWriter, call: Call, pointers: Sequence[str], units: str, where: str
) -> str:
    """The call of a function, which computes all units; `units` is how many that are."""
    numbers = [*call.sizes, *([0, units] if call.is_cut else [])]
    arguments = [f"ptr {pointer}" for pointer in pointers]
    arguments += [f"{module.dim} {number}" for number in numbers]
    return f"  call void @{call.function}({', '.join(arguments)}){where}"


def prepare_tasks(module: ModuleWriter, slot: int, calls: Sequence[Call]) -> list[str]:
    """Returns the first lines of a network's function, which read the table at `slot` and reserve a task's pointers."""
    cut = [call for call in calls if call.is_cut]
    most = max((len(call.memories) + len(call.sizes) for call in cut), default=-1)
    if most < 0:
        return []
    lines = [f"  %pointers = alloca [{most + 1} x ptr]"]
    for offset, name in enumerate(("parallel", "context")):
        lines += [
            f"  %{name}.slot = getelementptr inbounds ptr, ptr %table, {module.dim} {slot + offset}",
            f"  %{name} = load ptr, ptr %{name}.slot",
        ]
    return lines


def task_call(
    module: ModuleWriter, call: Call, pointers: Sequence[str], units: str, name: str, where: str
) -> str:
    """The call of a function of several units: by whoever `parallel_for` gives them to. Registers begin with `name`."""
    dim, lines = module.dim, []
    items = [f"ptr {pointer}" for pointer in (f"@{call.function}", *pointers)]
    for index, item in enumerate((*items, *(f"{dim} {size}" for size in call.sizes))):
        place = f"{name}.{index}"
        lines.append(f"  {place} = getelementptr inbounds ptr, ptr %pointers, {dim} {index}")
        lines.append(f"  store {item}, ptr {place}")
    types = ["ptr"] * len(pointers) + [dim] * len(call.sizes)
    kind = f"task.{len(pointers)}.{len(call.sizes)}"
    task = module.define(kind, _task(module, kind, types))
    share = module.define("share", _share(module))
    arguments = f"ptr %parallel, ptr %context, ptr {task}, ptr %pointers, {dim} {units}"
    lines.append(f"  call void {share}({arguments}){where}")
    return "\n".join(lines)


def _share(module: ModuleWriter) -> str:
    """Gives all units of a task to `parallel_for`, or computes them if that is NULL."""
    dim = module.dim
    parameters = f"ptr %parallel, ptr %context, ptr %task, ptr %pointers, {dim} %units"
    return "\n".join(
        (
            module.begin(Head("void", "share", parameters, "internal", ("noinline",))),
            "  %alone = icmp eq ptr %parallel, null",
            "  br i1 %alone, label %here, label %elsewhere",
            "here:",
            f"  call void %task(ptr %pointers, {dim} 0, {dim} %units)",
            "  ret void",
            "elsewhere:",
            f"  call void %parallel(ptr %context, ptr %task, ptr %pointers, {dim} %units)",
            "  ret void",
            "}",
        )
    )


def _task(module: ModuleWriter, name: str, types: Sequence[str]) -> str:
    """Calls the first of some pointers with the others, which are of these types, and the units."""
    dim = module.dim
    parameters = f"ptr %pointers, {dim} %first, {dim} %last"
    lines = [
        module.begin(Head("void", name, parameters, "internal")),
        "  %function = load ptr, ptr %pointers",
    ]
    for index, type in enumerate(types):
        lines += [
            f"  %s{index} = getelementptr inbounds ptr, ptr %pointers, {dim} {index + 1}",
            f"  %p{index} = load {type}, ptr %s{index}",
        ]
    items = [f"{type} %p{index}" for index, type in enumerate(types)]
    arguments = ", ".join((*items, f"{dim} %first", f"{dim} %last"))
    return "\n".join([*lines, f"  call void %function({arguments})", "  ret void", "}"])
