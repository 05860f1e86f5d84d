"""The interpreter as a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.extents import Extents
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.executable import CompiledFunction, aligned_array, elements_at, part_of
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import INSTS, AllocInst, DeallocInst, DefineInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value, WeightVar
from glowpy.operators import operator_sets
from glowpy.support.symbolic import static, symbols_of

__all__ = ["InterpretedFunction", "InterpreterBackend"]

_MAX_PROGRAMS = 8
"""For so many extents, programs are kept."""

_KNOWN = frozenset(cls.SCHEMA.mnemonic for cls in INSTS)


@final
class InterpreterBackend(Backend):
    """Executes every instruction that all backends know with numpy.

    What only one backend knows has a meaning as well, so a program made for another backend runs, if its nodes were
    translated for that one.
    """

    name: ClassVar[str] = "interpreter"
    symbolic: ClassVar[bool] = True

    def unsupported(self, operation: Operation) -> str:
        """Every instruction has a meaning, for every element kind that the verifier lets it have."""
        others = (inst for operators in operator_sets() for inst in operators.instructions)
        known = operation.mnemonic in _KNOWN or any(
            operation.mnemonic == inst.SCHEMA.mnemonic for inst in others
        )
        return "" if known else f"no instruction {operation.mnemonic}"

    def compile(self, program: Program, options: CompileOptions) -> CompiledFunction:
        """Nothing to do but to keep the program."""
        return InterpretedFunction(program, instrumented=options.instrument)


@final
class InterpretedFunction(CompiledFunction):
    """Walks the program, each operand a numpy view at the offset the memory plan gave it.

    What other backends keep in registers, so that the plan of a program made for them has no place for it, has an array
    of its own.
    """

    def __init__(self, program: Program, *, instrumented: bool = False) -> None:
        constants = {name: Tensor(t.type, t.array) for name, t in program.constants.items()}
        super().__init__(program.inputs, program.outputs, program.plan.peak, program.state)
        self.program = replace(program, constants=constants)
        self._instrumented = instrumented
        self._offsets = {slot.name: slot.start for slot in program.plan.activations.slots}

        symbols = program.ir.symbols
        self._highest = {name: symbols[name].high for name in program.ir.definitions}

        @lru_cache(maxsize=_MAX_PROGRAMS)
        def at(extents: tuple[tuple[str, int], ...]) -> IRFunction:
            return program.ir.at(dict(extents))

        self._at = at

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs every instruction in order, of the program for these extents.

        What is not found yet is taken for the highest until it is: then the program is that for what was found.
        """
        current = {**self._highest, **extents}
        ir = self._at(tuple(current.items()))
        registers: dict[str, Array] = {}
        with np.errstate(all="ignore"):
            for index, symbolic in enumerate(self.program.ir.instructions):
                inst = ir.instructions[index]
                if isinstance(inst, AllocInst) and inst.value.name not in self._offsets:
                    registers[inst.value.name] = aligned_array(inst.value.type.room)
                elif isinstance(inst, DeallocInst):
                    registers.pop(inst.buffer.name, None)
                if inst.has(Trait.MEMORY):
                    continue
                tensors = [
                    self._tensor(ref.value, bindings, arena, registers) for ref in inst.operands
                ]
                self._step(inst, tensors)
                if isinstance(symbolic, DefineInst):
                    symbols = symbols_of(symbolic.symbols).values()
                    numbers = zip(symbols, tensors[0].array.tolist(), strict=True)
                    current |= {one.name: min(max(n, one.low), one.high) for one, n in numbers}
                    ir = self._at(tuple(current.items()))
        return {name: n for name, n in current.items() if name not in extents}

    def _step(self, inst: Instruction, tensors: list[Tensor]) -> None:
        observer = self.observer if self._instrumented else None
        named = {ref.name: tensor.array for ref, tensor in zip(inst.operands, tensors, strict=True)}
        if observer is not None:
            observer.before(inst, named)
        interpret.required(type(inst), f"%{inst.name}")(*tensors, **inst.attrs)
        if observer is not None:
            observer.after(inst, named)

    def _tensor(
        self,
        value: Value,
        bindings: Mapping[str, Array],
        arena: Array,
        registers: Mapping[str, Array],
    ) -> Tensor:
        base = value.base
        if isinstance(base, WeightVar):
            array = (
                self.program.constants[base.name].array if base.is_constant else bindings[base.name]
            )
            if value is base:
                return Tensor(value.type, part_of(array, value.type.extents))
            flat = (
                np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                if base.is_constant
                else array.reshape(-1).view(np.uint8)
            )
            (start,) = static([value.byte_offset])
        else:
            (offset,) = static([value.byte_offset])
            flat, start = registers.get(base.name, arena), self._offsets.get(base.name, 0) + offset
        return Tensor(value.type, elements_at(flat, start, value))
