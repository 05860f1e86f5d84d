"""Options of a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from glowpy.bundling.c_names import problem_with
from glowpy.support.errors import UserError

__all__ = ["Api", "BundleOptions", "Emit", "InstrumentKind", "WeightsPlace"]

Api = Literal["static", "dynamic"]
InstrumentKind = Literal["", "ir", "debug"]
Emit = Literal["obj", "lib", "shared", "asm", "llvm"]
WeightsPlace = Literal["file", "embedded", "header"]


@dataclass(frozen=True)
class BundleOptions:
    """How to make a bundle.

    Attributes:
        name: Names the files, and the entry point of a bundle of one network; a C identifier.
        api: `static` describes the networks by macros alone, `dynamic` by a table in the object as well.
        emit: Object file, static library, shared library, assembly or LLVM IR.
        weights: In a file to load, inside the object, or as a header to include.
        selftest: Number of golden runs in `NAME_selftest`; 0 for none.
        guard: Surround the activations with canaries and report overruns.
        sanitize: Call what the variable NAME_hooks points to before and after every run of instructions, so that
            `glowpy verify` finds accesses outside their operands. Shared libraries only.
        debug: Debug information: the IR is the source file.
        instrument: `ir` calls NAME_before and NAME_after, which the user defines, around every instruction;
            `debug` comes with definitions that write every operand to a file.
        parallel: Every network has a second entry point, NETWORK_parallel, which takes the caller's `parallel_for`.
        channels_last: Inputs and outputs, as the model calls them, that are [N, ..., C] where they are [N, C, ...] in
            the model: see `glowpy.channels_last`.
        integer_ports: Inputs and outputs that a quantized model has in floats are stored integers: see
            `glowpy.integer_ports`.
        max_ram: Largest sum of the mutable area, activations, stack and writable data in bytes; None for no limit.
        max_flash: Largest sum of code, read-only data and weights in bytes; None for no limit.

    Raises UserError for a name that C has no place for, a word that is no choice, and options that do not go together.
    """

    name: str
    api: Api = "static"
    emit: Emit = "obj"
    weights: WeightsPlace = "file"
    selftest: int = 0
    guard: bool = False
    sanitize: bool = False
    debug: bool = False
    instrument: InstrumentKind = ""
    parallel: bool = False
    channels_last: tuple[str, ...] = ()
    integer_ports: bool = False
    max_ram: int | None = None
    max_flash: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels_last", tuple(self.channels_last))  # a manifest has lists
        if problem := problem_with(self.name):
            raise UserError(problem, note="give another with --name")
        for option, value, choices in (
            ("api", self.api, get_args(Api)),
            ("emit", self.emit, get_args(Emit)),
            ("weights", self.weights, get_args(WeightsPlace)),
            ("instrument", self.instrument, get_args(InstrumentKind)),
        ):
            if value not in choices:
                raise UserError(f"--{option}: expected one of {', '.join(choices)}, got '{value}'")
        if min(self.selftest, self.max_ram or 0, self.max_flash or 0) < 0:
            raise UserError("expected counts and limits of at least 0")
        if self.sanitize and self.emit != "shared":
            raise UserError(
                f"--sanitize: expected a shared library, which glowpy loads and watches, got '{self.emit}'",
                note="add --emit shared",
            )
        if self.sanitize and (self.guard or self.instrument or self.parallel):
            raise UserError(
                "--sanitize: expected none of --guard, --parallel, --instrument-ir and --instrument-debug beside it"
            )
        if self.emit in ("asm", "llvm") and self.weights == "embedded":
            raise UserError(
                f"--emit {self.emit}: a text cannot hold the weights",
                note="--weights file or header, or --emit obj",
            )
        if self.emit in ("asm", "llvm") and self.has_budget:
            raise UserError(
                f"--emit {self.emit}: the size of a text says nothing",
                note="leave the budgets out, or --emit obj",
            )

    @property
    def has_budget(self) -> bool:
        """Whether the size is limited."""
        return self.max_ram is not None or self.max_flash is not None
