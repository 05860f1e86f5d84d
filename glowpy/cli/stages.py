"""The stages of one compilation, each computed once and when it is asked for, and the text of each."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Literal

from glowpy.backend import Backend, CompiledFunction, CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.engine import backend_of, context
from glowpy.graph.function import Function
from glowpy.graph.node import Placeholder
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.plan import MemoryPlan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.passes import PassContext
from glowpy.recipe import build_program, generate_ir, graph_recipe
from glowpy.support.errors import UserError

__all__ = ["Stage", "Stages", "model_inputs", "plan_text"]


class Stage(StrEnum):
    """What `glowpy dump --stage` can show."""

    GRAPH = "graph"
    LOWERED = "lowered"
    IR = "ir"
    MEMORY = "memory"
    LLVM = "llvm"
    ASM = "asm"


class Stages:
    """One function on its way to one backend.

    Attributes:
        function: As the user's model has it; never changed.
        ctx: Holds the seconds spent by every pass and stage.
    """

    def __init__(
        self,
        function: Function,
        backend: str = "cpu",
        options: CompileOptions | None = None,
        ctx: PassContext | None = None,
    ) -> None:
        self.function = function
        self.backend: Backend = backend_of(backend)
        self.options = options or CompileOptions()
        self.ctx = ctx or context(self.options)

    @cached_property
    def lowered(self) -> Function:
        """Optimized, lowered to what the backend keeps, and optimized again."""
        work = self.function.module.clone().function(self.function.name)
        verify_module(work.module)
        graph_recipe(self.backend, self.options).run(work, self.ctx)
        return work

    @cached_property
    def ir(self) -> IRFunction:
        """Scheduled, generated, and optimized."""
        return generate_ir(self.lowered, self.backend, self.ctx)

    @cached_property
    def program(self) -> Program:
        """With its memory planned and the plan checked."""
        names = {placeholder.name for placeholder in model_inputs(self.function)}
        inputs = [p for p in self.lowered.module.placeholders if p.name in names]
        return build_program(self.lowered, self.ir, self.backend, self.ctx, inputs=inputs)

    @cached_property
    def compiled(self) -> CompiledFunction:
        """Ready to run."""
        program = self.program
        with self.ctx.timed(f"{self.backend.name} codegen"):
            return self.backend.compile(program, self.options)

    def text(self, stage: Stage) -> str:
        """What `stage` looks like. Raises UserError for machine code of a backend that makes none."""
        match stage:
            case Stage.GRAPH:
                return print_module(self.function.module)
            case Stage.LOWERED:
                return print_module(self.lowered.module)
            case Stage.IR:
                return print_irfunction(self.ir)
            case Stage.MEMORY:
                return plan_text(self.program.plan)
            case Stage.LLVM:
                return self._emitted("llvm")
            case Stage.ASM:
                return self._emitted("asm")

    def _emitted(self, form: Literal["llvm", "asm"]) -> str:
        if not isinstance(self.backend, CpuBackend):
            raise UserError(
                f"the {self.backend.name} backend makes no machine code", note="use --backend cpu"
            )
        return self.backend.emit(self.program, self.options, form)


def model_inputs(f: Function) -> list[Placeholder]:
    """What the function reads, and what no function has a use for: a model may have inputs it does not read."""
    read = set(f.inputs)
    used = {p for each in f.module.functions for p in (*each.inputs, *each.outputs)}
    return [p for p in f.module.placeholders if p in read or p not in used]


def plan_text(plan: MemoryPlan) -> str:
    """The plan, and as comments behind it how good it is."""
    return f"{print_plan(plan)}// peak {plan.peak} bytes\n// lower bound {plan.lower_bound} bytes\n"
