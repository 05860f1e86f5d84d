"""The stages of one compilation, in order: from a function to something that runs.

```
function --graph_recipe--> lowered --schedule, irgen, ir_recipe, runs--> ir --memory--> program --backend--> compiled
```

`Compilation` computes each stage once, when it is asked for, and prints it. Whoever compiles anything (the engine,
every verb of the command line, the bundler) asks a `Compilation`; the stages by themselves are for tools that
begin or end in the middle.
"""

from __future__ import annotations

import difflib
import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from typing import Any

from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.core.extents import check_bounds, check_known, unsupported
from glowpy.core.initial import Initial
from glowpy.core.schema import Trait
from glowpy.core.state import StatePort
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Placeholder, Variable
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.plan import MemoryPlan, print_plan
from glowpy.ir.printer import print_inst, print_irfunction
from glowpy.ir.runs import form_runs
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate
from glowpy.lower import LowerPass
from glowpy.memory import plan
from glowpy.memory_check import check
from glowpy.opt.pipelines import CALLS, GRAPH_DEFAULT, IR_DEFAULT, QUANTIZED
from glowpy.passes import Pass, PassContext, Pipeline
from glowpy.pipeline_file import Recipe, parse_recipe
from glowpy.runtime.artifact import Artifact
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.ports import Port, Ports
from glowpy.schedule import schedule
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.forks import Lock

__all__ = [
    "IRGEN",
    "Compilation",
    "Stage",
    "build_program",
    "check_disabled",
    "expect_pass",
    "generate_all",
    "generate_ir",
    "graph_recipe",
    "ir_recipe",
    "passes_of",
    "plan_all",
    "plan_memory",
    "put_in_runs",
    "recipe_of",
    "refusals",
    "run_on_all",
    "state_ports",
]

_CALLS = Pipeline("calls", CALLS)


class Stage(StrEnum):
    """Stages of a compilation that can be shown: those of every backend, and decisions and forms of code of some."""

    GRAPH = "graph"
    OPTIMIZED = "optimized"
    LOWERED = "lowered"
    SCHEDULED = "scheduled"
    IR = "ir"
    MEMORY = "memory"
    STRATEGY = "strategy"
    LLVM = "llvm"
    ASM = "asm"


class Compilation:
    """One function on its way to one backend: every stage is computed once, when it is asked for.

    The program takes every input that the model has, even one that nothing reads or that the optimizer has no use for:
    what a network is called with follows from the model alone.

    Attributes:
        function: As the user's model has it; never changed.
        backend: The backend that it is compiled for.
        options: How it is compiled.
        ctx: Runs constant nodes, verifies and reports as the options say; holds the seconds spent by every pass and
            stage, and counts the steps.

    Raises UserError for a disabled pass that the recipe does not have, or cannot do without.
    """

    def __init__(
        self, function: Function, backend: Backend, options: CompileOptions, ctx: PassContext
    ) -> None:
        self.function = function
        self.backend = backend
        self.options = options
        self.ctx = ctx
        check_disabled(options.disabled, backend)

    @cached_property
    def recipe(self) -> Recipe:
        """The backend's passes, or those of them that the options name. Raises UserError as `parse_recipe` does."""
        default = recipe_of(self.backend)
        given = self.options.pipeline
        return parse_recipe(given, default, self.backend.name) if given else default

    @cached_property
    def lowered(self) -> Function:
        """Optimized, lowered to what the backend keeps, and optimized again; in a module of its own.

        Raises VerifyError for a malformed graph.
        """
        with _collector_paused():
            work = self.function.module.clone().function(self.function.name)
            verify_module(work.module)
            run_on_all(self.recipe.graph, work, self.ctx, self.recipe.calls)
        return work

    @cached_property
    def optimized(self) -> Function:
        """The function to lower, in a module of its own: made of nodes that every backend knows.

        The steps to it are counted by themselves; those of a network without functions that it calls are the first
        steps to `lowered`.
        """
        with _collector_paused():
            work = self.function.module.clone().function(self.function.name)
            verify_module(work.module)
            ctx = replace(self.ctx, steps=self.ctx.steps.afresh())
            first = takewhile(lambda step: not step.is_required, self.recipe.graph.passes)
            run_on_all(Pipeline("optimize", tuple(first)), work, ctx, self.recipe.calls)
        return work

    @cached_property
    def scheduled(self) -> Function:
        """The lowered function with its nodes in the order of execution, in a module of its own."""
        work = self.lowered.module.clone().function(self.lowered.name)
        for f in (*work.called, work):
            f.arrange(schedule(f))
        return work

    @cached_property
    def ir(self) -> IRFunction:
        """Scheduled, generated, optimized, and put in runs if the backend stacks."""
        with _collector_paused():
            return generate_ir(
                self.lowered,
                self.backend,
                self.ctx,
                inputs=self._inputs,
                instrumented=self.options.instrument,
                passes=self.recipe.ir,
            )

    @cached_property
    def program(self) -> Program:
        """The program, its memory planned and the plan checked.

        Raises UnsupportedError for what the backend cannot run.
        """
        with _collector_paused():
            return build_program(
                self.lowered,
                self.ir,
                self.backend,
                self.ctx,
                inputs=self._inputs,
            )

    @cached_property
    def artifact(self) -> Artifact:
        """Compiled, for a device to load.

        Raises UserError as `Backend.expect_probes` does.
        """
        self.backend.expect_probes(self.options)
        program = self.program
        with self.ctx.timed(f"{self.backend.name} codegen"):
            return self.backend.compile(program, self.options)

    @cached_property
    def compiled(self) -> CompiledFunction:
        """Ready to run."""
        artifact = self.artifact
        with self.ctx.timed(f"{self.backend.name} load"):
            return self.backend.load(artifact, self.options)

    def close(self) -> None:
        """Lets go of the weights, of which the lowered function's module may hold the last reference."""
        if "lowered" in self.__dict__:
            self.lowered.module.forget()

    @property
    def _inputs(self) -> list[Placeholder]:
        """The model's inputs, as placeholders of the lowered function's module."""
        names = {placeholder.name for placeholder in self.function.parameters}
        return [p for p in self.lowered.module.placeholders if p.name in names]

    def graph(self, stage: Stage) -> Function:
        """The function at a stage that is a graph. Raises UserError for another stage."""
        match stage:
            case Stage.GRAPH:
                return self.function
            case Stage.OPTIMIZED:
                return self.optimized
            case Stage.LOWERED:
                return self.lowered
            case Stage.SCHEDULED:
                return self.scheduled
            case Stage.IR | Stage.MEMORY | Stage.STRATEGY | Stage.LLVM | Stage.ASM:
                raise UserError(
                    f"expected a stage that is a graph (graph, optimized, lowered, scheduled), got '{stage}'",
                    note="leave out --format",
                )

    def text(self, stage: str) -> str:
        """Returns the text of a `Stage`.

        Raises UserError for an unknown stage, and for machine code of a backend that makes none.
        """
        try:
            shown = Stage(stage)
        except ValueError:
            stages = ", ".join(Stage)
            raise UserError(f"expected one of the stages {stages}, got {stage!r}") from None
        match shown:
            case Stage.GRAPH:
                return print_module(self.function.module)
            case Stage.OPTIMIZED | Stage.LOWERED | Stage.SCHEDULED:
                return print_module(self.graph(shown).module)
            case Stage.IR:
                return print_irfunction(self.ir)
            case Stage.MEMORY:
                return _plan_text(self.program)
            case Stage.STRATEGY | Stage.LLVM | Stage.ASM:
                return self.backend.emit(self.program, shown.value)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python's cyclic collector from running inside, unless it is off anyway.

    A graph and its use lists grow while they are worked on; the collector would walk all of it again and again, which
    alone makes twice the graph cost more than twice the time. What a stage leaves is collected after it.
    """
    with _pauses_lock:
        if not _pauses and not gc.isenabled():
            pausing = False
        else:
            pausing = True
            _pauses.append(None)
            gc.disable()
    try:
        yield
    finally:
        if pausing:
            with _pauses_lock:
                _pauses.pop()
                if not _pauses:
                    gc.enable()


_pauses: list[None] = []
"""An entry for each thread that compiles with the collector paused: the last one lets it run again."""
_pauses_lock = Lock()


def optimizing(backend: Backend) -> Pipeline[Function]:
    """Returns the pipeline that optimizes a function before it is lowered, and again after it."""
    return Pipeline("optimize", tuple(backend.pipeline(GRAPH_DEFAULT)), fixpoint=True)


def graph_recipe(backend: Backend) -> Pipeline[Function]:
    """Everything that happens to a function before it is scheduled, in order."""
    optimize = optimizing(backend)
    return Pipeline(
        "graph",
        (
            optimize,
            *QUANTIZED,
            LowerPass(backend.keeps),
            optimize,
            *backend.post_lowering(),
            optimize,
        ),
    )


def ir_recipe(backend: Backend) -> Pipeline[IRFunction]:
    """The passes over the IR, in order, before its runs are formed."""
    return Pipeline("ir", (*IR_DEFAULT, *backend.ir_passes()))


def recipe_of(backend: Backend) -> Recipe:
    """All passes that a compilation for a backend runs."""
    return Recipe(_CALLS, graph_recipe(backend), ir_recipe(backend))


IRGEN = "irgen"
"""The name of the step from a graph to instructions: no pass, and never left out, but shown as passes are."""

_SHOWN_BY = {"runs": Stage.IR, "memory": Stage.MEMORY}
"""Stages of `dump` that show what one that works on a whole program makes."""


def passes_of(backend: Backend) -> dict[str, Pass[Any]]:
    """Every pass of a backend's recipe by its name; `rewrite` is those of them that run as one."""
    return recipe_of(backend).passes


def expect_pass(name: str, backend: Backend) -> Pass[Any]:
    """The pass of the recipes called `name`. Raises UserError, which says which name is the closest."""
    passes = passes_of(backend)
    if name not in passes:
        closest = difflib.get_close_matches(name, passes, 1)
        listing = f"glowpy opt --list --backend {backend.name} shows all passes"
        if name in _SHOWN_BY:
            listing = f"glowpy dump --stage {_SHOWN_BY[name]} shows what this stage makes"
        raise UserError(
            f"expected a pass of the {backend.name} backend, got '{name}'",
            note=f"did you mean {closest[0]}? {listing}" if closest else listing,
        )
    return passes[name]


def check_disabled(names: Collection[str], backend: Backend) -> None:
    """Raises UserError for what is no pass of the recipes, or one that they cannot do without."""
    for name in names:
        if name == IRGEN or expect_pass(name, backend).is_required:
            raise UserError(
                f"the pass {name} cannot be disabled: without it networks do not run, or compute other numbers",
                note="leave it out",
            )


def run_on_all(
    pipeline: Pipeline[Function],
    f: Function,
    ctx: PassContext,
    calls: Pipeline[Function] = _CALLS,
) -> None:
    """Runs passes on all that a function calls, and on itself; what is called no more is gone.

    What `calls` has runs first, on all of them, so that the others know more.
    """
    for g in reversed([*f.called, f]):
        if g in f.module:
            calls.run(g, ctx)
    for g in (*f.called, f):
        pipeline.run(g, ctx)
    f.module.erase_uncalled()


def generate_ir(
    f: Function,
    backend: Backend,
    ctx: PassContext,
    *,
    inputs: Collection[Placeholder] = (),
    instrumented: bool = False,
    passes: Pipeline[IRFunction] | None = None,
) -> IRFunction:
    """Schedules a lowered function with all that it calls, generates its IR, optimizes that, and forms its runs.

    `inputs` have memory even if the optimizer left nothing that reads them. What is `instrumented` is computed
    instruction by instruction, with every result in memory. `passes` are those of the backend if left out.
    """
    optimize, stacks = passes or ir_recipe(backend), backend.stacks and not instrumented

    def finish(ir: IRFunction) -> None:
        optimize.run(ir, ctx)
        if stacks:
            put_in_runs(ir, ctx)

    return generate_all(f, backend, ctx, finish, inputs=inputs)


def put_in_runs(ir: IRFunction, ctx: PassContext) -> None:
    """Says which instructions of a function are computed together; what it calls has been asked before."""
    with ctx.timed("runs"):
        form_runs(ir)


def generate_all(
    f: Function,
    backend: Backend,
    ctx: PassContext,
    finish: Callable[[IRFunction], None],
    *,
    inputs: Collection[Placeholder] = (),
) -> IRFunction:
    """Schedules a lowered function with all that it calls, and generates its IR, on which it calls `finish`.

    What it calls is finished first: how much memory that needs is part of the IR of its callers.
    """
    programs: dict[str, IRFunction] = {}
    frames: dict[str, int] = {}
    for g in (*f.called, f):
        with ctx.timed("schedule"):
            order = schedule(g)
        needed = {callee.name: programs[callee.name] for callee in g.called}
        if ctx.before_pass is not None:
            ctx.before_pass(IRGEN, g)
        with ctx.timed(IRGEN):
            ir = generate(
                g,
                order,
                backend.instructions,
                inputs=inputs if g is f else (),
                backend=backend.name,
                callees=needed,
                frames=frames,
            )
        ctx.steps.translated(g, ir)
        if ctx.after_pass is not None:
            ctx.after_pass(IRGEN, ir, True)
        finish(ir)
        programs[g.name] = ir
        if g is not f:
            frames[g.name] = plan(ir).peak
    return programs[f.name]


def refusals(ir: IRFunction, backend: Backend) -> list[tuple[Instruction, str]]:
    """The instructions that a backend cannot run, and why; none of those about memory, which the plan has answered."""
    functions = (*ir.callees.values(), ir)
    computing = [i for f in functions for i in f.instructions if not i.has(Trait.MEMORY)]
    reasons = ((inst, backend.unsupported(Operation.of_inst(inst))) for inst in computing)
    return [(inst, reason) for inst, reason in reasons if reason]


def plan_memory(ir: IRFunction) -> MemoryPlan:
    """The memory plan of verified IR. Raises as `plan_all` does."""
    return plan_all(ir)[ir.name]


def plan_all(ir: IRFunction) -> dict[str, MemoryPlan]:
    """The memory plans of verified IR: those of what it calls, then its own; see `memory.plan`.

    Raises VerifyError for malformed IR and for a plan that is wrong.
    """
    verify_irfunction(ir)
    plans: dict[str, MemoryPlan] = {}
    for f in (*ir.callees.values(), ir):
        memory = plan(f)
        check(f, memory, {name: callee.peak for name, callee in plans.items()})
        plans[f.name] = memory
    return plans


def build_program(
    f: Function,
    ir: IRFunction,
    backend: Backend,
    ctx: PassContext,
    *,
    inputs: Collection[Placeholder] = (),
) -> Program:
    """Plans memory for the optimized IR of `f` and checks the result.

    `inputs` are what the program takes even if the optimizer left nothing that reads them; they have memory in `ir`.

    Raises UnsupportedError that lists every instruction the backend cannot run: its node, place and text, and why;
    UserError where no input says what a symbol is, or it has two ranges.
    """
    if refused := refusals(ir, backend):
        raise unsupported(
            (
                Diagnostic(
                    f"%{inst.name}: {backend.name} backend: {reason}", inst.loc, print_inst(inst)
                )
                for inst, reason in refused
            ),
            [ref.value.type for inst, _ in refused for ref in inst.operands],
        )
    ports = Ports(_ports(f, {*inputs, *f.inputs}), _ports(f, f.outputs), state_ports(f))
    taken: list[Port | StatePort] = [*ports.inputs, *ports.state]
    types = [value.type for g in (*ir.callees.values(), ir) for value in g.values]
    check_bounds([*types, *(port.type for port in taken)])
    shapes = {port.name: port.type.shape for port in taken}
    found = ir.found
    given = {name: extent for name, extent in ir.symbols.items() if name not in found}
    check_known(given, shapes)
    with ctx.timed("memory"):
        plans = plan_all(ir)
    constants = {c.name: c.tensor for c in f.module.constants if c.name in ir.weights}
    callees = tuple(
        Program(g, plans[g.name], constants, Ports(), declined=_declined(g, backend, ctx))
        for g in ir.callees.values()
    )
    declined = _declined(ir, backend, ctx)
    return Program(ir, plans[ir.name], constants, ports, callees, declined)


def _declined(ir: IRFunction, backend: Backend, ctx: PassContext) -> dict[str, dict[str, str]]:
    """Why passes of the backend have not made something else of instructions: reasons by pass, by instruction."""
    reasons: dict[str, dict[str, str]] = {}
    for name in (one.name for one in backend.post_lowering()):
        for (function, node), reason in ctx.refused.get(name, {}).items():
            if function == ir.name:
                reasons.setdefault(node, {})[name] = reason
    return {inst.name: reasons[inst.name] for inst in ir.instructions if inst.name in reasons}


def _ports(f: Function, placeholders: Collection[Placeholder]) -> tuple[Port, ...]:
    """Returns the ports of placeholders, in the order of the module, which is that of the user's model."""
    members = set(placeholders)
    return tuple(Port(p.original, p.name, p.type) for p in f.module.placeholders if p in members)


def state_ports(f: Function) -> tuple[StatePort, ...]:
    """The variables of a function, in the order of the module; what no node saves stays as it is."""
    saved = {save.output.producer: save.input.type for save in f.saves}
    return tuple(
        StatePort(v.original, v.name, v.type, saved.get(v, v.type), v.memory, _initial(v))
        for v in f.variables
    )


def _initial(variable: Variable) -> Initial:
    """Returns the initial contents of a variable. Raises UserError if only the digest of its elements is known."""
    initial = variable.initial
    return initial.tensor if isinstance(initial, Constant) else initial


def _plan_text(program: Program) -> str:
    """The plans of what it calls and its own, and as comments after these how good that is."""
    memory = program.plan
    plans = "".join(print_plan(function.plan) for function in (*program.callees, program))
    return f"{plans}// peak {memory.peak} bytes\n// lower bound {memory.lower_bound} bytes\n"
