"""The interface of a backend: what it supports and keeps, and how it makes a program executable.

The engine turns a Function into a `Program` (IR, memory plan, constants) by the recipe; a backend
turns the Program into an `Artifact`, of which a `Device` makes a `CompiledFunction`; an `Instance`
of that has memory of its own and runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from glowpy.support.errors import InternalError, UserError

if TYPE_CHECKING:
    from glowpy.core.tensor import Tensor
    from glowpy.core.type import Type
    from glowpy.graph.node import Node
    from glowpy.ir.inst import Instruction
    from glowpy.ir.irfunction import IRFunction
    from glowpy.ir.plan import MemoryPlan
    from glowpy.llvm.bundle_compiler import BundleCompiler
    from glowpy.llvm.kernels import Kernels
    from glowpy.llvm.library import KernelLibrary
    from glowpy.measuring.meter import Meter
    from glowpy.measuring.tuned import Tuning
    from glowpy.passes import GraphPass, IRPass
    from glowpy.runtime.artifact import Artifact
    from glowpy.runtime.compiled import CompiledFunction
    from glowpy.runtime.device import Device
    from glowpy.runtime.ports import Ports
    from glowpy.support.text import Attr

__all__ = [
    "Backend",
    "CompileOptions",
    "Operation",
    "Program",
]


@dataclass(frozen=True)
class CompileOptions:
    """How to compile, for whatever backend; what only one understands is an option of that backend.

    Attributes:
        verify_each: Verify the graph and the IR after every pass.
        cache: Keep compiled code on disk between processes, where the backend makes any.
        instrument: Call the compiled function's `observer` before and after every instruction.
        sanitize: Check after every run of instructions that it wrote nothing but its operands, and that results do not
            depend on other memory: see `glowpy.sanitizer`. Runs many times slower, by code that is otherwise the same.
        stop_after: Leave out passes and rewrites that only make code better once so many steps have happened: see
            `glowpy.step_log`. None leaves out none.
        disabled: Names of such passes to leave out.
        pipeline: YAML with the passes to run, in order, in place of the backend's: see `glowpy.pipeline_file`.
        recorded: Keep a record of the steps, `ctx.steps.log` of the compilation.

    Raises UserError for `instrument` with `sanitize`, and for a negative number of steps.
    """

    verify_each: bool = False
    cache: bool = True
    instrument: bool = False
    sanitize: bool = False
    stop_after: int | None = None
    disabled: tuple[str, ...] = ()
    pipeline: str = ""
    recorded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "disabled", tuple(self.disabled))
        if self.stop_after is not None and self.stop_after < 0:
            raise UserError(f"stop_after: expected at least 0 steps, got {self.stop_after}")
        if self.instrument and self.sanitize:
            raise UserError(
                "expected either callbacks around instructions or a sanitizer around runs of them",
                note="leave out one of instrument and sanitize",
            )

    @property
    def code_key(self) -> str:
        """Text of the options that the graph and the IR depend on; empty for the defaults."""
        settings = {
            "stop_after": self.stop_after,
            "disabled": sorted(set(self.disabled)),
            "pipeline": self.pipeline,
        }
        given = {name: value for name, value in settings.items() if value not in (None, [], "")}
        return str(given) if given else ""


@dataclass(frozen=True)
class Program:
    """Everything a backend needs: the IR, where its memory lies, what its constants hold, what goes in and out.

    Variables lie in the mutable area as inputs and outputs do, but outlive a run. `callees` are the functions that it
    calls, each after those that it calls itself; their constants are those of this program, and they have no ports.
    `declined` says of instructions, by their names, why passes of the backend have not made something else of them.
    """

    ir: IRFunction
    plan: MemoryPlan
    constants: Mapping[str, Tensor]
    ports: Ports
    callees: tuple[Program, ...] = ()
    declined: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """An operator on operands of given types: what a backend is asked about, before there is a node or an instruction.

    Attributes:
        mnemonic: The operator. A node and the instruction that it becomes have the same.
        types: The type of every operand by its name in the schema: results, then inputs.
        attrs: The attributes.
    """

    mnemonic: str
    types: Mapping[str, Type]
    attrs: Mapping[str, Attr]

    @staticmethod
    def of_node(node: Node) -> Operation:
        """Returns the operation that a node computes. The inputs of a variadic node are numbered."""
        schema = node.SCHEMA
        names = [f"{schema.inputs[0]}{index}" for index in range(len(node.inputs))]
        inputs = zip(names if schema.variadic else schema.inputs, node.inputs, strict=True)
        results = [(schema.result_name(value.index), value) for value in node.results]
        types = {name: value.type for name, value in (*results, *inputs)}
        return Operation(schema.mnemonic, types, node.attrs)

    @staticmethod
    def of_inst(inst: Instruction) -> Operation:
        """Returns the operation that an instruction computes; scratch memory is no part of it."""
        refs = [ref for ref in inst.operands if not ref.is_scratch]
        types = {ref.name: ref.value.type for ref in refs}
        return Operation(inst.SCHEMA.mnemonic, types, inst.attrs)

    def __str__(self) -> str:
        return f"{self.mnemonic} on {', '.join(map(str, self.types.values()))}"


class Backend(ABC):
    """A target: says what it can run, may reshape the graph, and makes programs executable.

    An instance is bound to one machine and to the backend's own options: all it is asked, it answers for these.

    What it can run it says of operations, so that it can be asked at any level. Whether it can run a node that is
    lowered follows from what that becomes: see `engine.unsupported`.
    """

    name: ClassVar[str]
    nodes: ClassVar[tuple[type[Node], ...]] = ()
    """Node classes that only this backend knows."""
    instructions: ClassVar[tuple[type[Instruction], ...]] = ()
    """Instruction classes that only this backend knows."""
    symbolic: ClassVar[bool] = False
    """Whether it runs programs with symbolic extents."""
    stacks: ClassVar[bool] = False
    """Whether it computes several element-wise instructions in one loop: then `runs` of the program's functions say
    which, and what only one loop writes and reads is in `registers` of the memory plan. Instrumented programs have
    runs of one instruction only."""
    probes: ClassVar[frozenset[str]] = frozenset()
    """Options of `CompileOptions` that it honours among `instrument` and `sanitize`; the others are refused."""
    options_type: ClassVar[type | None] = None
    """The dataclass of the backend's own options, which its constructor takes; None if it has none. `--set` of the
    command line fills the fields that are str, int, float or bool; `--target`, `--exact` and the like fill those of
    these names."""
    libraries: ClassVar[tuple[KernelLibrary, ...]] = ()
    """Libraries of the kernels that its instructions call; none for one that computes without."""

    device: Device[Any, Any]
    """The device that loads and runs the artifacts which `compile` makes."""

    def __init__(self, options: object | None = None) -> None:
        if options is not None:
            raise UserError(f"the {self.name} backend has no options of its own")

    def expect_probes(self, options: CompileOptions, **spelled: str) -> None:
        """Raises UserError for `instrument` and `sanitize`, spelled as the user did, if it does not honour them."""
        for probe in ("instrument", "sanitize"):
            if getattr(options, probe) and probe not in self.probes:
                option = spelled.get(probe, probe)
                raise UserError(
                    f"{option}: the {self.name} backend does not tell of its runs",
                    note="leave it out, or take the cpu or interpreter backend",
                )

    @property
    def kernels(self) -> Kernels | None:
        """The kernels that there are for its machine; None for a backend that computes without."""
        return None

    @property
    def bundle_compiler(self) -> BundleCompiler | None:
        """The part that makes the code of bundles, which C programs call; None for a backend that makes none."""
        return None

    @property
    def meter(self) -> Meter | None:
        """The part that measures a machine and what runs there; None for a backend that measures nothing."""
        return None

    @property
    def tuning(self) -> Tuning | None:
        """Measurements of how products are computed best; None unless the options ask for any."""
        return None

    @cached_property
    def answers(self) -> dict[Hashable, tuple[str, ...]]:
        """Answers that `engine.unsupported` remembers about nodes, by everything that an answer depends on."""
        return {}

    @abstractmethod
    def unsupported(self, operation: Operation) -> str:
        """Why the backend has nothing that computes `operation` as it stands; empty if it has."""

    def supports(self, operation: Operation) -> bool:
        """Whether the backend has something that computes `operation` as it stands."""
        return not self.unsupported(operation)

    @abstractmethod
    def compile(self, program: Program, options: CompileOptions) -> Artifact:
        """Makes a checked program an artifact, which `device` loads."""

    def load(self, artifact: Artifact, options: CompileOptions) -> CompiledFunction:
        """Loads what `compile` has made with these options."""
        function = self.device.load(artifact, use_cache=options.cache)
        if function is None:
            raise InternalError("constants were lost before they were loaded")
        return function

    def function(self, program: Program, options: CompileOptions | None = None) -> CompiledFunction:
        """Compiles a checked program and loads it. Raises UserError as `expect_probes` does."""
        chosen = options or CompileOptions()
        self.expect_probes(chosen)
        return self.load(self.compile(program, chosen), chosen)

    def artifact_key(self, options: CompileOptions) -> str:
        """Names what the bytes of artifacts depend on beside the network and `CompileOptions.code_key`.

        The backend's name, class and package with version count anyway. Empty where artifacts are not to be kept in
        the cache; it is not asked about those with `instrument` or `sanitize`, or without `cache`, which never are.
        """
        del options
        return ""

    def keeps(self, node: Node) -> bool:
        """Whether lowering leaves this node alone: where the backend computes it as it stands."""
        return self.supports(Operation.of_node(node))

    def pipeline(self, default: Sequence[GraphPass]) -> Sequence[GraphPass]:
        """The graph passes this backend wants in place of `default`."""
        return default

    def post_lowering(self) -> Sequence[GraphPass]:
        """Passes that bring in the backend's own nodes; run once, after lowering."""
        return ()

    def ir_passes(self) -> Sequence[IRPass]:
        """Passes of the backend's own after the default IR passes."""
        return ()

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Gives back what compiled functions hold of the machine beside memory, such as threads."""

    def emit(self, program: Program, form: str) -> str:
        """The code that `program` becomes, as text in one of the backend's forms, such as `llvm` or `asm`.

        Raises UserError for a form that the backend does not have.
        """
        del program
        raise UserError(
            f"the {self.name} backend makes no machine code in the form '{form}'",
            note="its stages are graph, lowered, ir and memory; the cpu backend makes machine code",
        )
