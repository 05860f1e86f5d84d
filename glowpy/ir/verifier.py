"""The rules of the address level. `verify_irfunction` collects everything that is broken, then raises once.

- Every operand is a weight of the function or a value made by an earlier instruction.
- An allocated buffer is deallocated exactly once, after its last access, and never accessed
  outside its life.
- A view lies inside its source, in an element kind of the same size, and quantized elements keep their meaning.
  No element occurs twice in it, and it has no strides where it has no gaps.
- An operand is strided only where the spec allows it; a predicate never is.
- Constant weights are never written; a buffer is written before it is read. An instruction that
  only moves elements may add to a buffer nobody has written: what it does not move stays
  undefined.
- An output shares memory with an input only where the class has the `inplace` trait and both are
  exactly the same bytes.
- An instruction that depends on a symbol comes after the one that defines it, if there is one; there are no two.
- A predicate is of kind bool. Attributes are those of the schema, of their kinds.
- Operands are quantized as the spec allows.
- Instructions that only move or combine elements agree about kinds; copies agree about types.
- A call names functions of the program, whose weights have the types of its operands, and all symbols on which they
  depend. A function that is called takes or gives all its mutable weights.
- A run is consecutive instructions, none of them about memory, that `glowpy.ir.runs.RunBuilder` takes for one loop.
- Operands have the types that inference gives the node the instruction was declared with, and
  what else the class's own rule says: `@verify_inst(XInst)` in `ops/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from glowpy.core.channel_axis import keeps_parameters
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access, Layout, Trait, check_attrs
from glowpy.core.strides import are_distinct, canonical_strides, span_of
from glowpy.ir.calls import call_problems
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import (
    AllocInst,
    CopyInst,
    DeallocInst,
    DefineInst,
    IfInst,
    LoopInst,
    ViewInst,
)
from glowpy.ir.irfunction import IRFunction, symbols_needed
from glowpy.ir.printer import print_inst
from glowpy.ir.runs import misfits
from glowpy.ir.value import Value, WeightVar
from glowpy.support.errors import Diagnostic, UserError, VerifyError
from glowpy.support.rules import Rules
from glowpy.support.symbolic import symbols_of

__all__ = ["verify_inst", "verify_irfunction"]

verify_inst: Rules[Callable[..., Iterator[str]]] = Rules("verify_inst")
"""`@verify_inst(XInst)` functions take the instruction, and yield what is wrong with its operands' types."""


def verify_irfunction(f: IRFunction) -> None:
    """Checks the function, and those that it calls. Raises VerifyError with all diagnostics."""
    diagnostics = [problem for g in (*f.callees.values(), f) for problem in _program(g)]
    if diagnostics:
        raise VerifyError.of(diagnostics)


def _program(f: IRFunction) -> Iterator[Diagnostic]:
    yield from _definitions(f)
    yield from _ports(f)
    values: set[Value] = set(f.weights.values())
    live: dict[Value, bool] = dict.fromkeys(f.weights.values(), True)
    written: set[Value] = set(f.weights.values())
    for inst in f.instructions:
        for message in (*_operands(inst, values, live), *_accesses(inst, written)):
            yield _broken(inst, message)
        yield from _own(inst)
        if isinstance(inst, IfInst | LoopInst):
            yield from (_broken(inst, message) for message in call_problems(inst, f))
        if isinstance(inst, ValueInstruction):
            values.add(inst.value)
        if isinstance(inst, AllocInst):
            live[inst.value] = True
        elif isinstance(inst, DeallocInst):
            live[inst.buffer.base] = False
        else:
            written.update(value.base for value in inst.writes())
    yield from _runs(f)
    for value, alive in live.items():
        if alive and not isinstance(value, WeightVar):
            yield Diagnostic(
                f"buffer %{value.name} is never deallocated", context=f"irfunction @{f.name}"
            )


def _runs(f: IRFunction) -> Iterator[Diagnostic]:
    """Runs that cannot be computed as one, or are no part of the program."""
    places = {inst: place for place, inst in enumerate(f.instructions)}
    after = 0
    for run in f.groups:
        start = places.get(run.head, -1)
        members = f.instructions[start : start + len(run.members)]
        if start < after or members != list(run.members):
            message = (
                f"run @{run.name} is not consecutive instructions of the program, in its order"
            )
            yield Diagnostic(message, context=f"irfunction @{f.name}")
            continue
        after = start + len(members)
        for inst in misfits(run):
            yield _broken(inst, f"cannot be computed in one loop with the rest of run @{run.name}")


def _ports(f: IRFunction) -> Iterator[Diagnostic]:
    """Yields problems of the ports of a function that callers cannot bind."""
    for name in dict.fromkeys((*f.takes, *f.gives)):
        if name not in f.weights or f.weights[name].is_constant:
            message = f"@{f.name} takes or gives %{name}, expected one of its mutable weights"
            yield Diagnostic(message, context=f"irfunction @{f.name}")
    for weight in f.weights.values() if f.gives else ():
        if not (weight.is_constant or weight.name in f.takes or weight.name in f.gives):
            message = f"expected @{f.name} to take or give %{weight.name}, which is mutable"
            yield Diagnostic(message, context=f"irfunction @{f.name}")


def _definitions(f: IRFunction) -> Iterator[Diagnostic]:
    """Symbols that are defined twice, or after an instruction that depends on them."""
    late = f.definitions
    for inst in f.instructions if late else ():
        if isinstance(inst, DefineInst):
            for name in symbols_of(inst.symbols):
                if late.pop(name, None) is not inst:
                    yield _broken(inst, f"symbol '{name}' is defined twice")
        elif not inst.has(Trait.MEMORY):
            for name in symbols_needed(inst):
                if name in late:
                    yield _broken(inst, f"symbol '{name}' is used before it is defined")


def _broken(inst: Instruction, message: str, note: str = "") -> Diagnostic:
    text = print_inst(inst)
    context = f"{text}\n{'^' * len(text.split(' ', 1)[0])}"
    return Diagnostic(f"{inst.SCHEMA.mnemonic}: {message}", inst.loc, context, note)


def _operands(inst: Instruction, known: set[Value], live: dict[Value, bool]) -> Iterator[str]:
    values = [ref.value for ref in inst.operands]
    if inst.predicate is not None:
        values.append(inst.predicate)
        if inst.predicate.type.kind is not ElemKind.BOOL:
            yield f"expected a predicate of kind bool, got {inst.predicate.type}"
    for value in values:
        if value not in known:
            yield f"%{value.name} is used before it is made"
        elif not live.get(value.base, False):
            yield f"%{value.name} is used after its buffer was deallocated"
    if isinstance(inst, DeallocInst) and (
        isinstance(inst.buffer, WeightVar) or inst.buffer.source is not None
    ):
        yield f"expected an allocated buffer, got %{inst.buffer.name}"


def _accesses(inst: Instruction, written: set[Value]) -> Iterator[str]:
    if isinstance(inst, (DeallocInst, ViewInst)):
        return
    fills = {ref.value for ref in inst.operands if ref.access is Access.INOUT}
    for value in inst.reads():
        if value.base not in written and not (value in fills and inst.has(Trait.SHAPE_ONLY)):
            yield f"%{value.name} is read before it is written"
    outs = [ref for ref in inst.operands if ref.access.writes]
    for out in outs:
        base = out.value.base
        if isinstance(base, WeightVar) and base.is_constant:
            yield f"constant %{base.name} is written"
        for other in inst.operands:
            if (
                other is out
                or (other.access.writes and other.name <= out.name)
                or not out.value.overlaps(other.value)
            ):
                continue
            in_place = (
                inst.has(Trait.INPLACE)
                and out.access is Access.OUT
                and out.value.same_memory(other.value)
            )
            if not in_place:
                yield f"{out.name} %{out.value.name} shares memory with {other.name} %{other.value.name}"


def _own(inst: Instruction) -> Iterator[Diagnostic]:
    try:
        for message in _rules(inst):
            yield _broken(inst, message)
    except UserError as error:
        first = error.diagnostics[0]
        yield _broken(inst, first.message, first.note)


def _rules(inst: Instruction) -> Iterator[str]:
    """Yields violations of the schema and of the class's own rule. Raises UserError where checks must end."""
    check_attrs(inst.SCHEMA.attrs, inst.attrs)
    inst.SCHEMA.check_stored([ref.value.type for ref in inst.operands])
    for ref in inst.operands:
        if not (ref.value.is_contiguous or ref.layout.takes(ref.value.strides)):
            expected = "rows" if ref.layout is Layout.ROWS else "elements"
            yield f"{ref.name} %{ref.value.name} is strided, expected {expected} without gaps"
    if inst.predicate is not None and not inst.predicate.is_contiguous:
        yield f"predicate %{inst.predicate.name} is strided, expected elements without gaps"
    rule = verify_inst.get(type(inst))
    if rule is not None:
        yield from rule(inst)
    if isinstance(inst, ViewInst):
        yield from _view(inst)
    elif isinstance(inst, CopyInst) and inst.result.type != inst.input.type:
        yield f"result has type {inst.result.type}, expected {inst.input.type}"
    elif (
        inst.has(Trait.SHAPE_ONLY)
        and inst.operands[0].value.type.kind is not inst.operands[1].value.type.kind
    ):
        result, source = (ref.value.type.kind.value for ref in inst.operands[:2])
        yield f"result has kind {result}, expected {source}"


def _view(inst: ViewInst) -> Iterator[str]:
    source, type = inst.source.type, inst.value.type
    if source.kind.size != type.kind.size:
        yield f"expected an element kind as wide as {source.kind.value}, got {type.kind.value}"
    if inst.strides and (len(inst.strides) != type.rank or any(step < 1 for step in inst.strides)):
        yield f"expected {type.rank} strides of at least 1, got {list(inst.strides)}"
        return
    if inst.strides and not canonical_strides(type.shape, inst.strides):
        yield f"expected no strides where there are no gaps, got {list(inst.strides)}"
    elif not are_distinct(type.shape, inst.value.strides):
        yield f"expected strides with which no element occurs twice, got {list(inst.strides)}"
    span = span_of(type.shape, inst.strides)
    if inst.offset < 0 or inst.offset + span > inst.source.span // source.kind.size:
        yield f"elements {inst.offset} to {inst.offset + span} lie outside {source}"
    elif not keeps_parameters(source, inst.offset, type, inst.source.strides, inst.value.strides):
        yield f"expected the quantization parameters of {source} from element {inst.offset} on, got {type}"
