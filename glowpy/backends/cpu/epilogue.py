"""Epilogues: what finishes a product, as the function that its kernel calls for each tile of sums.

The ABI is in libjit/README.md. See docs/adr/0016-tiles-and-epilogues.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glowpy.core.schema import Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.runs import loop_shape
from glowpy.ir.value import Value
from glowpy.llvm.stack import StackContext, element_steps, emit_members, linear, merged_axes
from glowpy.llvm.writer import Body
from glowpy.support.symbolic import highest

__all__ = ["emit_epilogue"]


def emit_epilogue(
    head: Instruction,
    members: Sequence[Instruction],
    context: StackContext,
    caller: Body,
    block: int,
) -> tuple[str, str]:
    """The epilogue of a product: (function, environment with the pointers it needs).

    The function runs the members on a tile of sums, which it is handed, and stores what is needed of them, and of the
    sums. A row of a tile lies in one row of the result, whose last dimension is a row. Most tiles have `block` columns:
    for these there is a loop of its own, which LLVM makes whole vectors of.
    """
    module, dim = caller.module, caller.module.dim
    numbers = [f"{dim} %{name}" for name in ("ld", "row", "col", "rows", "cols")]
    body = Body(
        module, f"{caller.name}_tile", caller.lines, ["ptr noalias %tile", *numbers], caller.symbols
    )
    body.at(head)
    result, shape = head.operands[0].value, loop_shape([head, *members])
    values = [result, *(ref.value for inst in members for ref in inst.operands)]
    steps = {value: element_steps(value, shape) for value in values}

    def loops(columns: int | str, ld: str) -> None:
        with body.loop("%rows") as row:
            at = body.let(f"mul nuw nsw {dim} {row}, {ld}")
            starts = _row_starts(body, body.let(f"add nuw nsw {dim} %row, {row}"), shape, steps)
            with body.loop(columns, unroll=False) as col:
                place = body.let(f"add nuw nsw {dim} {at}, {col}")
                column = body.let(f"add nuw nsw {dim} %col, {col}")

                def index(value: Value) -> str:
                    inner = linear(body, [column], steps[value][-1:])
                    return body.let(f"add nuw nsw {dim} {starts[value]}, {inner}")

                total = body.load(result.type.kind, "%tile", place)
                emit_members(body, members, context, index, body.pointer, (head, total))

    if highest(result.type.shape[-1]) >= block:
        with body.returning_if(body.let(f"icmp eq {dim} %cols, {block}")):
            loops(block, str(block))
    loops("%cols", "%ld")
    finish = module.function(body, inline=True)

    function = Body(
        module, f"{caller.name}_epilogue", caller.lines, ["ptr %env", "ptr %tile", *numbers]
    )
    function.at(head)
    environment = caller.let(f"alloca [{max(len(body.memories), 1)} x ptr]")
    pointers = []
    for index, value in enumerate(body.memories):
        address = _slot(function, "%env", index)
        pointers.append("ptr " + function.let(f"load ptr, ptr {address}"))
        caller.line(f"store ptr {caller.pointer(value)}, ptr {_slot(caller, environment, index)}")
    function.line(f"call void @{finish}({', '.join([*pointers, 'ptr %tile', *numbers])})")
    # A kernel without units is called nowhere else.
    inline = module.has_debug_info or not head.has(Trait.UNITS)
    return f"@{module.function(function, inline=inline)}", environment


def _row_starts(
    body: Body, row: str, shape: Shape, steps: Mapping[Value, Shape]
) -> dict[Value, str]:
    """Where the elements of row number `row` of `shape` begin in every value."""
    dim, outer = body.module.dim, shape[:-1]
    axes, counts = merged_axes(outer, [step[:-1] for step in steps.values()])
    indices: list[str] = []
    for count in reversed(counts[1:]):
        number = body.number(count)
        indices.insert(0, body.let(f"urem {dim} {row}, {number}"))
        row = body.let(f"udiv {dim} {row}, {number}")
    indices.insert(0, row)
    return {
        value: linear(body, indices, [step[axis] for axis in axes] or [0])
        for value, step in steps.items()
    }


def _slot(body: Body, environment: str, slot: int) -> str:
    return body.let(f"getelementptr inbounds ptr, ptr {environment}, {body.module.dim} {slot}")
