"""Epilogues: what finishes a product, as the function that its kernel calls for each tile of sums.

The ABI is in libjit/README.md. See docs/adr/0008-epilogues-by-runs.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.stack import StackContext, element_steps, emit_members, linear, merged_axes
from glowpy.llvm.writer import Body
from glowpy.opt.ir.stack import loop_shape

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
    module = caller.module
    dim = module.dim
    parameters = f"ptr %env, ptr %tile, {dim} %ld, {dim} %row, {dim} %col, {dim} %rows, {dim} %cols"
    body = Body(module, f"{caller.name}_epilogue", caller.lines, parameters)
    body.at(head)
    result = head.operands[0].value
    values = [ref.value for inst in members for ref in inst.operands]
    if context.needed(head):
        values.append(result)
    pointers = dict.fromkeys(
        caller.pointer(value) for value in values if value.base not in context.immediates
    )
    slots = {pointer: slot for slot, pointer in enumerate(pointers)}
    inside = {
        pointer: body.let(f"load ptr, ptr {_slot(body, '%env', slot)}")
        for pointer, slot in slots.items()
    }

    shape = loop_shape([head, *members])
    steps = {value: element_steps(value, shape) for value in (result, *values)}

    def loops(columns: str, ld: str) -> None:
        with body.loop("%rows") as row:
            at = body.let(f"mul nuw nsw {dim} {row}, {ld}")
            starts = _row_starts(body, body.let(f"add nuw nsw {dim} %row, {row}"), shape, steps)
            with body.loop(columns, unroll=False) as col:
                place = body.let(f"add nuw nsw {dim} {at}, {col}")
                column = body.let(f"add nuw nsw {dim} %col, {col}")

                def index(value: Value) -> str:
                    inner = linear(body, [column], steps[value][-1:])
                    return body.let(f"add nuw nsw {dim} {starts[value]}, {inner}")

                def pointer(value: Value) -> str:
                    return inside[caller.pointer(value)]

                total = body.load(result.type.kind, "%tile", place)
                emit_members(body, members, context, index, pointer, (head, total))

    if result.type.shape[-1] >= block:
        with body.returning_if(body.let(f"icmp eq {dim} %cols, {block}")):
            loops(str(block), str(block))
    loops("%cols", "%ld")
    function = module.function(body, inline=False)
    environment = caller.let(f"alloca [{max(len(slots), 1)} x ptr]")
    for pointer, slot in slots.items():
        caller.line(f"store ptr {pointer}, ptr {_slot(caller, environment, slot)}")
    return f"@{function}", environment


def _row_starts(
    body: Body, row: str, shape: Shape, steps: Mapping[Value, Shape]
) -> dict[Value, str]:
    """Where the elements of row number `row` of `shape` begin in every value."""
    dim, outer = body.module.dim, shape[:-1]
    axes, counts = merged_axes(outer, [step[:-1] for step in steps.values()])
    indices: list[str] = []
    for count in reversed(counts[1:]):
        indices.insert(0, body.let(f"urem {dim} {row}, {count}"))
        row = body.let(f"udiv {dim} {row}, {count}")
    indices.insert(0, row)
    return {
        value: linear(body, indices, [step[axis] for axis in axes] or [0])
        for value, step in steps.items()
    }


def _slot(body: Body, environment: str, slot: int) -> str:
    return body.let(f"getelementptr inbounds ptr, ptr {environment}, {body.module.dim} {slot}")
