"""The runs of a program as functions: what every target writes alike.

A run of element-wise instructions is a loop (`glowpy.llvm.stack`), some instructions need no kernel
(`glowpy.llvm.builtin`), and for all others a target says what is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from glowpy.core.schema import Trait
from glowpy.core.tensor import Tensor, stored
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import InsertTensorInst, SplatInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.run import Run
from glowpy.ir.value import Value, WeightVar
from glowpy.llvm.builtin import emit_builtin, is_builtin
from glowpy.llvm.stack import StackContext, emit_stack
from glowpy.llvm.writer import Body

__all__ = ["emit_run", "runs_to_compute", "stack_context"]


def runs_to_compute(f: IRFunction, context: StackContext) -> Iterator[Run]:
    """The runs for which there is code: neither those of no elements nor those that are constants in others' code."""
    for run in f.runs:
        is_empty = all(_writes_nothing(inst) for inst in run.members)
        if not (is_empty or all(_is_immediate(inst, context) for inst in run.members)):
            yield run


def _writes_nothing(inst: Instruction) -> bool:
    """Whether what an instruction writes, of which there is something, has no elements."""
    if isinstance(inst, InsertTensorInst):
        return inst.input.type.is_empty
    written = list(inst.writes())
    return bool(written) and all(value.type.is_empty for value in written)


def emit_run(
    body: Body, run: Run, context: StackContext, emit_other: Callable[[Body, Run], None]
) -> None:
    """Writes a run; `emit_other` does unless it is a loop or an instruction that needs no kernel."""
    head = run.head
    body.at(head)
    if head.has(Trait.ELEMENTWISE):
        emit_stack(body, run.members, run.shape, context)
    elif is_builtin(head):
        emit_builtin(body, head)
    else:
        emit_other(body, run)


def stack_context(
    f: IRFunction, constants: Mapping[str, Tensor], symbol: Callable[[Instruction], str]
) -> StackContext:
    """Looks for one-element memory that never changes, and for results that nobody reads.

    `symbol` says the kernel of an instruction: see `StackContext`.
    """
    lives = lifetimes(f)
    position = {inst: index for index, inst in enumerate(f.instructions)}
    last_of_run = {inst: position[run.members[-1]] for run in f.runs for inst in run.members}
    immediates: dict[Value, float | int] = {}
    for value, life in lives.items():
        if value.type.count != 1:
            continue
        if isinstance(value, WeightVar):
            if value.is_constant:
                item = constants[value.name].array.reshape(-1)[0]
                immediates[value] = float(item) if value.type.kind.has_fractions else int(item)
        elif len(life.writes) == 1:
            writer = f.instructions[life.writes[0]]
            readers = [f.instructions[index] for index in life.reads]
            if isinstance(writer, SplatInst) and all(
                reader.has(Trait.ELEMENTWISE) for reader in readers
            ):
                immediates[value] = stored(writer.result.type, writer.value).item()

    def needed(inst: Instruction) -> bool:
        base = inst.operands[0].value.base
        reads = lives[base].reads
        return isinstance(base, WeightVar) or (bool(reads) and reads[-1] > last_of_run[inst])

    return StackContext(symbol, immediates, needed)


def _is_immediate(inst: Instruction, context: StackContext) -> bool:
    return isinstance(inst, SplatInst) and inst.result.base in context.immediates
