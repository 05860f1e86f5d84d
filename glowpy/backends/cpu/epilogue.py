"""Epilogues: a run of element-wise instructions after a product, as the function that its kernel calls for each tile.

The ABI is in libjit/README.md. See docs/adr/0008-epilogues-by-runs.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.stack import StackContext, emit_members
from glowpy.llvm.writer import Body

__all__ = ["emit_epilogue"]


def emit_epilogue(
    head: Instruction,
    members: Sequence[Instruction],
    context: StackContext,
    caller: Body,
) -> tuple[str, str]:
    """The epilogue of a run after a product: (function, environment with the pointers it needs).

    The function runs the members on a tile of the head's result.
    """
    module = caller.module
    dim = module.dim
    parameters = f"ptr %env, {dim} %offset, {dim} %col, {dim} %rows, {dim} %cols"
    body = Body(module, f"{caller.name}_epilogue", caller.lines, parameters)
    body.at(members[0])
    result = head.operands[0].value
    width = result.type.shape[-1]
    pointers = {
        caller.pointer(v): None
        for i in members
        for ref in i.operands
        if (v := ref.value).base not in context.immediates
    }
    pointers |= {caller.pointer(result): None}
    slots = {pointer: slot for slot, pointer in enumerate(pointers)}
    inside = {
        pointer: body.let(f"load ptr, ptr {_slot(body, '%env', slot)}")
        for pointer, slot in slots.items()
    }
    with body.loop("%rows") as row:
        start = body.let(f"mul nuw nsw {dim} {row}, {width}")
        base = body.let(f"add nuw nsw {dim} %offset, {start}")
        with body.loop("%cols", unroll=False) as col:
            flat = body.let(f"add nuw nsw {dim} {base}, {col}")
            column = body.let(f"add nuw nsw {dim} %col, {col}")

            def index(value: Value) -> str:
                if value.type.count == 1 and result.type.count != 1:
                    return "0"
                return flat if value.type.count == result.type.count else column

            emit_members(
                body, members, context, index, lambda value: inside[caller.pointer(value)], result
            )
    function = module.function(body, inline=True)
    environment = caller.let(f"alloca [{len(slots)} x ptr]")
    for pointer, slot in slots.items():
        caller.line(f"store ptr {pointer}, ptr {_slot(caller, environment, slot)}")
    return f"@{function}", environment


def _slot(body: Body, environment: str, slot: int) -> str:
    return body.let(f"getelementptr inbounds ptr, ptr {environment}, {body.module.dim} {slot}")
