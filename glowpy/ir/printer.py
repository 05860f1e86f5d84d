"""The text of an IR function; `parser` reads it back."""

from __future__ import annotations

from collections.abc import Iterator

from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.irfunction import IRFunction
from glowpy.support.text import print_attrs, print_symbol

__all__ = ["instruction_lines", "placed", "print_inst", "print_irfunction"]


def print_inst(inst: Instruction) -> str:
    """One instruction: `%c = alloc f32[4]`, `add @out %c, @in %a, @in %b`."""
    operands = [f"{ref.access.value} %{ref.value.name}" for ref in inst.operands]
    if inst.predicate is not None:
        operands.append(f"@predicate %{inst.predicate.name}")
    text = inst.SCHEMA.mnemonic
    if isinstance(inst, ValueInstruction):
        text = f"%{inst.value.name} = {text} {inst.value.type}"
        text += "".join(f", {operand}" for operand in operands)
    elif operands:
        text += " " + ", ".join(operands)
    silent = {spec.name for spec in inst.SCHEMA.attrs if spec.optional}
    return text + print_attrs({k: v for k, v in inst.attrs.items() if k not in silent or v})


def placed(f: IRFunction, first: int = 1) -> dict[str, tuple[IRFunction, int]]:
    """Every function in the text of a program, by name, with the line it begins on: what it calls, then itself."""
    lines: dict[str, tuple[IRFunction, int]] = {}
    for g in (*f.callees.values(), f):
        lines[g.name] = g, first
        first += _text(g).count("\n")
    return lines


def instruction_lines(f: IRFunction, first: int = 1) -> dict[Instruction, int]:
    """The line of every instruction in the text of a function whose own first line is `first`."""
    start = first + 3 + len(f.symbols) + len(f.weights)
    lines = enumerate(_program_lines(f), start)
    return {inst: number for number, (inst, _) in lines if inst is not None}


def print_irfunction(f: IRFunction) -> str:
    """The functions that it needs, and then it. Deterministic; `parse_irfunction` of it prints the same."""
    return "".join(_text(g) for g in (*f.callees.values(), f))


def _text(f: IRFunction) -> str:
    takes, gives = (", ".join(f"%{name}" for name in names) for names in (f.takes, f.gives))
    lines = [f"irfunction @{f.name}{f'({takes}) -> ({gives})' if f.gives else ''} {{"]
    lines += [f"  {print_symbol(extent)}" for extent in f.symbols.values()]
    lines.append("  declare")
    lines += [f"    %{w.name} = weight {w.type} {w.mutability.value}" for w in f.weights.values()]
    lines.append("  program")
    lines += [text for _, text in _program_lines(f)]
    return "\n".join([*lines, "}"]) + "\n"


def _program_lines(f: IRFunction) -> Iterator[tuple[Instruction | None, str]]:
    """The lines after `program`, each with the instruction that it is."""
    ends = {run.members[-1] for run in f.groups}
    heads = {run.head: run for run in f.groups}
    indent = "    "
    for inst in f.instructions:
        if inst in heads:
            yield None, f"    run @{heads[inst].name} {{"
            indent = "      "
        yield inst, f"{indent}{print_inst(inst)}"
        if inst in ends:
            yield None, "    }"
            indent = "    "
