"""The interpreter as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar, final

import numpy as np

from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.extents import Extents
from glowpy.core.schema import Access, Trait
from glowpy.core.tensor import Array, Tensor, address_of
from glowpy.ir.calls import branch_call, loop_call
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import INSTS, AllocInst, DeallocInst, DefineInst, IfInst, LoopInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value, WeightVar
from glowpy.operators import operator_sets
from glowpy.program_artifact import ProgramArtifact
from glowpy.runtime.compiled import CompiledFunction, Observer
from glowpy.runtime.device import Device
from glowpy.runtime.host_memory import HOST, aligned_array, elements_at, part_of
from glowpy.sanitizer import NumberedRuns, SanitizedFunction, Watch
from glowpy.support.symbolic import static, symbols_of

__all__ = ["InterpretedFunction", "InterpreterBackend", "InterpreterDevice"]

_MAX_PROGRAMS = 8
"""The number of sets of extents for which programs are kept."""

_KNOWN = frozenset(cls.SCHEMA.mnemonic for cls in INSTS)


@final
class InterpreterBackend(Backend):
    """Executes every instruction that all backends know with numpy.

    What only one backend knows has a meaning as well, so a program made for another backend runs, if its nodes were
    translated for that one.
    """

    name: ClassVar[str] = "interpreter"
    symbolic: ClassVar[bool] = True
    probes: ClassVar[frozenset[str]] = frozenset({"instrument", "sanitize"})

    def __init__(self, options: object | None = None) -> None:
        super().__init__(options)
        self.device = InterpreterDevice()

    def unsupported(self, operation: Operation) -> str:
        """Every instruction has a meaning, for every element kind that the verifier lets it have."""
        others = (inst for operators in operator_sets() for inst in operators.instructions)
        is_known = operation.mnemonic in _KNOWN or any(
            operation.mnemonic == inst.SCHEMA.mnemonic for inst in others
        )
        return "" if is_known else f"no instruction {operation.mnemonic}"

    def compile(self, program: Program, options: CompileOptions) -> ProgramArtifact:
        """The program as it stands."""
        return ProgramArtifact(program, options)


@final
class InterpreterDevice(Device[Array, ProgramArtifact]):
    """The interpreter in this process, which walks programs."""

    memory = HOST

    def executable(
        self, artifact: ProgramArtifact, *, use_cache: bool = True
    ) -> CompiledFunction | None:
        """Nothing to do but to find the constants."""
        program, options = artifact.whole(use_cache=use_cache), artifact.options
        if program is None:
            return None
        function = InterpretedFunction(program, instrumented=options.instrument)
        if options.sanitize:
            return SanitizedFunction(function, function, NumberedRuns(program))
        return function

    def parse(self, payload: bytes) -> ProgramArtifact:
        """The program whose bytes these are, of instructions that have a meaning here."""
        classes = [cls for cls in interpret.classes if issubclass(cls, Instruction)]
        return ProgramArtifact.parse(payload, classes)


@final
class InterpretedFunction(CompiledFunction):
    """Walks the program, each operand a numpy view at the offset the memory plan gave it.

    What other backends keep in registers, so that the plan of a program made for them has no place for it, has an array
    of its own.
    """

    def __init__(self, program: Program, *, instrumented: bool = False) -> None:
        constants = {name: Tensor(t.type, t.array) for name, t in program.constants.items()}
        super().__init__(program.ports, program.plan.peak)
        self.program = replace(program, constants=constants)
        self._instrumented = instrumented
        every = (program, *program.callees)
        counts = accumulate((len(function.ir.instructions) for function in every), initial=0)
        self._codes = {
            function.ir.name: _Code.of(function, constants, first)
            for function, first in zip(every, counts, strict=False)
        }

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs every instruction in order, of the program for these extents.

        What is not found yet is taken for the highest until it is: then the program is that for what was found.
        """
        return self._walk(bindings, arena, extents)

    def execute_watched(
        self, bindings: Mapping[str, Array], arena: Array, extents: Extents, watch: Watch
    ) -> Extents:
        """Executes while `watch` sees every run."""
        return self._walk(bindings, arena, extents, watch)

    def _walk(
        self,
        bindings: Mapping[str, Array],
        arena: Array,
        extents: Extents,
        watch: Watch | None = None,
    ) -> Extents:
        observer = self.observer if self._instrumented else None
        walk = _Walk(self._codes, observer, watch)
        with np.errstate(all="ignore"):
            current = walk.run(self.program.ir.name, bindings, arena, extents)
        return {name: n for name, n in current.items() if name not in extents}


@dataclass(frozen=True)
class _Code:
    """One function of a program: where its buffers are in its frame, and its instructions for some extents.

    Its instructions are numbered after those of the functions before it.
    """

    ir: IRFunction
    constants: Mapping[str, Tensor]
    offsets: Mapping[str, int]
    highest: Mapping[str, int]
    first_index: int
    at: Callable[[tuple[tuple[str, int], ...]], IRFunction]

    @classmethod
    def of(cls, program: Program, constants: Mapping[str, Tensor], first_index: int) -> _Code:
        symbols = program.ir.symbols

        @lru_cache(maxsize=_MAX_PROGRAMS)
        def at(extents: tuple[tuple[str, int], ...]) -> IRFunction:
            return program.ir.at(dict(extents))

        offsets = {slot.name: slot.start for slot in program.plan.activations.slots}
        highest = {name: symbols[name].high for name in program.ir.found}
        return cls(program.ir, constants, offsets, highest, first_index, at)


@dataclass(frozen=True)
class _Walk:
    """One run of a program: functions that call each other."""

    codes: Mapping[str, _Code]
    observer: Observer | None
    watch: Watch | None

    def run(
        self, name: str, bindings: Mapping[str, Array], frame: Array, extents: Extents
    ) -> Extents:
        """Runs a function in a frame, and returns all extents that it knows at the end."""
        code = self.codes[name]
        current = {**code.highest, **extents}
        ir = code.at(tuple(current.items()))
        memory = _Memory(code, bindings, frame)
        told = None if self.watch is None else _Told(self.watch, code, memory)
        for index, symbolic in enumerate(code.ir.instructions):
            inst = ir.instructions[index]
            memory.keep_registers(inst)
            if inst.has(Trait.MEMORY):
                continue
            tensors = [memory.tensor(ref.value) for ref in inst.operands]
            if told is not None:
                told.before(index, ir, current)
            self._step(inst, tensors, current)
            if told is not None:
                told.after(index)
            if isinstance(symbolic, DefineInst):
                symbols = symbols_of(symbolic.symbols).values()
                numbers = zip(symbols, tensors[0].array.tolist(), strict=True)
                current |= {
                    extent.name: min(max(n, extent.low), extent.high) for extent, n in numbers
                }
                ir = code.at(tuple(current.items()))
        return current

    def _step(self, inst: Instruction, tensors: list[Tensor], extents: Extents) -> None:
        named = {ref.name: tensor.array for ref, tensor in zip(inst.operands, tensors, strict=True)}
        if self.observer is not None:
            self.observer.before(inst, named)
        if isinstance(inst, IfInst | LoopInst):
            pairs = zip(inst.operands, tensors, strict=True)
            arrays = {ref.value: tensor.array for ref, tensor in pairs}
            if isinstance(inst, IfInst):
                self._branch(inst, arrays, extents)
            else:
                self._loop(inst, arrays, extents)
        else:
            interpret.required(type(inst), f"%{inst.name}")(*tensors, **inst.attrs)
        if self.observer is not None:
            self.observer.after(inst, named)

    def _branch(self, inst: IfInst, arrays: Mapping[Value, Array], extents: Extents) -> None:
        condition, *_ = inst.those(Access.IN)
        name = inst.then if arrays[condition] else inst.otherwise
        call = branch_call(inst, self.codes[name].ir)
        bindings = {weight: arrays[value] for weight, value in call.items()}
        self.run(name, bindings, arrays[inst.operands[-1].value], extents)

    def _loop(self, inst: LoopInst, arrays: Mapping[Value, Array], extents: Extents) -> None:
        call = loop_call(inst, self.codes[inst.body].ir)
        stacked = {weight: arrays[value] for weight, value in call.stacked.items()}
        limit = min([int(arrays[call.limit]), *(len(array) for array in stacked.values())])
        keep, number = np.array(arrays[call.first]), np.zeros((), np.int64)
        bindings = {weight: arrays[value] for weight, value in call.whole.items()}
        bindings |= {call.keep: keep, call.round: number}
        done = 0
        while done < limit and keep:
            number[...] = done
            bindings |= {weight: array[done : done + 1] for weight, array in stacked.items()}
            self.run(inst.body, bindings, arrays[inst.operands[-1].value], extents)
            done += 1
        arrays[call.count][...] = done


class _Told:
    """Tells a watch about the runs in one call of a function, before and after each."""

    def __init__(self, watch: Watch, code: _Code, memory: _Memory) -> None:
        self._watch = watch
        self._code = code
        self._memory = memory
        self._end = -1
        self._run: tuple[int, list[int], Sequence[Instruction]] = -1, [], ()

    def before(self, index: int, ir: IRFunction, extents: Extents) -> None:
        """Is called before every instruction, with the program for these extents."""
        number = self._code.first_index + index
        step = self._watch.runs.steps.get(number)
        if step is None:
            return
        self._end = step.end
        values = [ref.value for i in ir.instructions[index : step.end] for ref in i.operands]
        tensors = [self._memory.tensor(v) for v in values if not self._memory.keeps(v)]
        addresses = [address_of(tensor.array) for tensor in tensors]
        self._run = number, addresses, self._watch.runs.instructions(extents)
        self._watch.before(*self._run)

    def after(self, index: int) -> None:
        """Is called after every instruction."""
        if index + 1 == self._end:
            self._watch.after(*self._run)


class _Memory:
    """Memory of the values of a function in one call of it."""

    def __init__(self, code: _Code, bindings: Mapping[str, Array], frame: Array) -> None:
        self._code = code
        self._bindings = bindings
        self._frame = frame
        self._registers: dict[str, Array] = {}

    def keep_registers(self, inst: Instruction) -> None:
        """Begins or ends the life of a buffer that has no place in the plan."""
        if isinstance(inst, AllocInst) and inst.value.name not in self._code.offsets:
            self._registers[inst.value.name] = aligned_array(inst.value.type.room)
        elif isinstance(inst, DeallocInst):
            self._registers.pop(inst.buffer.name, None)

    def keeps(self, value: Value) -> bool:
        """Whether a value is in no place of the plan."""
        return value.base.name in self._registers

    def tensor(self, value: Value) -> Tensor:
        """A value, in memory."""
        base = value.base
        if isinstance(base, WeightVar):
            array = (
                self._code.constants[base.name].array
                if base.is_constant
                else self._bindings[base.name]
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
            flat = self._registers.get(base.name, self._frame)
            start = self._code.offsets.get(base.name, 0) + offset
        return Tensor(value.type, elements_at(flat, start, value))
