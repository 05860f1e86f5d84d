"""Compiler of the CPU backend: kernels, passes, strategies and LLVM, for one target.

All of it is imported when something has to be compiled: a network that is in the cache needs none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, final

import glowpy.backends.cpu.operations  # noqa: F401 - fills the tables of rules
from glowpy.backend import CompileOptions, Operation, Program
from glowpy.backends.cpu.bf16_products import is_tiled_in_bf16
from glowpy.backends.cpu.block_weights import is_read_in_blocks
from glowpy.backends.cpu.bundle_code import CpuBundleCompiler
from glowpy.backends.cpu.codegen import entry_name, generate_llvm
from glowpy.backends.cpu.image import Image, Probes
from glowpy.backends.cpu.measuring.jitdump import write_jitdump
from glowpy.backends.cpu.measuring.perf_map import write_perf_map
from glowpy.backends.cpu.measuring.trial import timed_runs
from glowpy.backends.cpu.measuring.tuning import Tuner
from glowpy.backends.cpu.options import CpuOptions, Timed
from glowpy.backends.cpu.passes.band_depthwise import BandDepthwisePass
from glowpy.backends.cpu.passes.fit_scratch import FitScratchPass
from glowpy.backends.cpu.passes.fold_shuffle import FoldShufflePass
from glowpy.backends.cpu.passes.fuse_attention import FuseAttentionPass
from glowpy.backends.cpu.passes.fuse_norm import FuseNormPass
from glowpy.backends.cpu.passes.fuse_resize import FuseResizePass
from glowpy.backends.cpu.passes.fuse_rotary import FuseRotaryPass
from glowpy.backends.cpu.passes.merge_phases import MergePhasesPass
from glowpy.backends.cpu.passes.merge_pixels import MergePixelsPass
from glowpy.backends.cpu.passes.merge_products import MergeProductsPass
from glowpy.backends.cpu.passes.pack_products import PackProductsPass, is_packed
from glowpy.backends.cpu.passes.pack_recurrence import PackRecurrencePass, is_cell
from glowpy.backends.cpu.passes.pool_patches import PoolPatchesPass
from glowpy.backends.cpu.passes.raise_elementwise import RaiseElementwisePass
from glowpy.backends.cpu.passes.read_rounded import ReadRoundedPass
from glowpy.backends.cpu.passes.round_in_integers import RoundInIntegersPass
from glowpy.backends.cpu.passes.round_parts import RoundPartsPass
from glowpy.backends.cpu.passes.split_pools import SplitPoolsPass
from glowpy.backends.cpu.passes.split_sums import SplitSumsPass
from glowpy.backends.cpu.passes.tune_products import TuneProductsPass
from glowpy.backends.cpu.passes.widen_halves import WidenHalvesPass, in_f32
from glowpy.backends.cpu.strategy.explain import Explanation, explain, explanations_text
from glowpy.backends.cpu.strategy.ways import BY_MODEL, Chooser
from glowpy.backends.cpu.target import CpuTarget, portable_machine, resolve_target
from glowpy.backends.cpu.verify import mismatch
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.llvm.code_image import Functions, joined
from glowpy.llvm.code_options import CodeOptions, Counter, EntryOptions
from glowpy.llvm.constant_block import block_of, small_constants
from glowpy.llvm.debug_info import ir_text
from glowpy.llvm.kernels import Kernels
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.machine import LLVM_VERSION, Form, host_features
from glowpy.llvm.objects import compile_objects, compile_whole, load_objects
from glowpy.llvm.stock import Stock, open_stock
from glowpy.llvm.variant import STOCK_FOLDER
from glowpy.operators import operator_sets
from glowpy.passes import GraphPass, IRPass, PassContext
from glowpy.recipe import Compilation
from glowpy.runtime.weights import Weights, weights_of
from glowpy.sanitizer import NumberedRuns
from glowpy.support.cache import Key
from glowpy.support.cores import processor_name
from glowpy.support.errors import UserError
from glowpy.support.identity import package_identity
from glowpy.support.progress import report

if TYPE_CHECKING:
    from glowpy.backends.cpu.backend import CpuBackend

__all__ = ["Compiler", "counter_of"]


@final
class Compiler:
    """Compiles for one target.

    Attributes:
        options: Those of the backend.
        target: The processor that comes out of them.
        chooser: Who decides between several ways to compute a product.
    """

    def __init__(
        self,
        options: CpuOptions,
        libraries: tuple[KernelLibrary, ...],
        backend_of: Callable[[CpuOptions], CpuBackend],
    ) -> None:
        self.options = options
        self._backend_of = backend_of
        self.target = resolve_target(options)
        self._libraries = libraries
        self._kernels = Kernels(libraries, self.target.variant)
        self.chooser: Chooser = BY_MODEL
        if options.tune is not None:
            self.chooser = self._tuner(options.tune)

    @property
    def code_identity(self) -> str:
        """Identity of the code for a program: made of this package, LLVM, the kernels, and the target."""
        kernels = [library.identity(self.target.variant) for library in self.kernels.libraries]
        kernels += [operators.identity for operators in operator_sets()]
        target = (self.target.variant.name, *map(str, astuple(self.target.machine)))
        return Key.of("target", package_identity(), LLVM_VERSION, *target, *kernels).digest

    @property
    def kernels(self) -> Kernels:
        """The kernels there are for the target: those of other packages' operators, too, as soon as they are known."""
        others = [library for operators in operator_sets() for library in operators.libraries]
        libraries = (
            *self._libraries,
            *(library for library in others if isinstance(library, KernelLibrary)),
        )
        if self._kernels.libraries != libraries:
            self._kernels = Kernels(libraries, self.target.variant)
        return self._kernels

    @property
    def for_bundles(self) -> CpuBundleCompiler:
        """The part that makes the code of bundles."""
        return CpuBundleCompiler(self.options, self.target, self.kernels)

    @property
    def tuning(self) -> Tuner | None:
        """Who measures the products of networks that are compiled with the option `tune`."""
        return self.chooser if isinstance(self.chooser, Tuner) else None

    def unsupported(self, operation: Operation) -> str:
        """Explains why kernels for this processor lack an operation, or why its weights are packed for another one."""
        return (
            mismatch(operation, self.target.variant)
            or self._lacks_bf16(operation)
            or self.kernels.unsupported(operation)
        )

    def _lacks_bf16(self, operation: Operation) -> str:
        """Why the processor cannot compute a product in bf16; empty if it can, by instructions or in f32."""
        has_bf16 = self.target.machine.bf16 or not self.target.variant.bf16_requires
        if has_bf16 or not is_tiled_in_bf16(operation):
            return ""
        return f"{operation}: expected code for products in bf16, got some in f32: compile with precision bf16"

    def keeps(self, node: Node) -> bool:
        """Whether a kernel is declared, even if the bitcode does not define it; for halves, a kernel in f32.

        The same holds for weights that products read as they are stored.

        A node whose kernel has been forgotten is refused with the kernel's name: lowering it would hide that.
        """
        operation = Operation.of_node(node)
        kernel = self._computes(operation) or self._computes(in_f32(operation))
        return kernel or is_read_in_blocks(node)

    def _computes(self, operation: Operation) -> bool:
        """Whether there is a kernel, or will be once products are packed."""
        return self.kernels.declares(operation) or is_packed(operation) or is_cell(operation)

    def pipeline(self, default: Sequence[GraphPass]) -> Sequence[GraphPass]:
        """Convolutions read shuffled channels; with few output channels they fill the target's vectors.

        Transposed ones do so before they are lowered.
        """
        if self.target.machine.small:
            return default
        variant = self.target.variant
        return (
            *default,
            FoldShufflePass(),
            RaiseElementwisePass(),
            MergePhasesPass(variant),
            MergePixelsPass(variant),
        )

    def ir_passes(self) -> Sequence[IRPass]:
        """Products take no more scratch memory than there is room for."""
        return (FitScratchPass(),)

    def post_lowering(self) -> Sequence[GraphPass]:
        """Halves are computed with in f32; products get packed weights and register tiles for the target.

        Without floating point, stored integers are rounded in integers.
        """
        variant, small = self.target.variant, self.target.machine.small
        bf16 = self.options.precision == "bf16"
        packing = PackProductsPass(
            variant,
            small,
            self.options.exact,
            self.chooser,
            low_memory=self.options.low_memory,
            bf16=bf16,
        )
        tuner = self.chooser
        tuning = [TuneProductsPass(packing, tuner, self._trial)] if isinstance(tuner, Tuner) else []
        passes = (
            FuseRotaryPass(small),
            FuseAttentionPass(variant, small=small, rounds_halves=self.options.exact, bf16=bf16),
            WidenHalvesPass(self._computes),
            MergeProductsPass(small),
            FuseResizePass(),
            FuseNormPass(variant, small=small),
            *([] if small else [SplitPoolsPass(), BandDepthwisePass(variant)]),
            *([SplitSumsPass()] if self.options.exact else []),
            *tuning,
            packing,
            PoolPatchesPass(),
            *([RoundPartsPass(), ReadRoundedPass(variant.machine.second_cache)] if bf16 else []),
            PackRecurrencePass(variant, small=small),
        )
        return passes if variant.has_floats else (*passes, RoundInIntegersPass())

    def explained(self, program: Program) -> Iterator[Explanation]:
        """Yields the decisions about the products of a program that this backend has compiled."""
        tuner = self.chooser if isinstance(self.chooser, Tuner) else None
        return explain(
            program,
            self.target.variant.machine_for,
            exact=self.options.exact,
            low_memory=self.options.low_memory,
            measured=tuner.measured if tuner else (),
            tuned=tuner.changed if tuner else (),
        )

    def emit(self, program: Program, form: str) -> str:
        """The optimized LLVM IR (`llvm`) or the assembly (`asm`) of a program, for any target, or its decisions.

        Code has the plain entry point only. `strategy` says for people how products are tiled and why, `strategy-json`
        for programs.
        """
        if form in ("strategy", "strategy-json"):
            return explanations_text(self.explained(program), as_json=form == "strategy-json")
        (text,) = generate_llvm({entry_name(program): program}, self.target, self.kernels)
        kind: Form = "assembly" if form == "asm" else "optimized"
        code, _ = compile_whole(text, self.target.machine, self.kernels.bitcode, kind)
        return code.decode()

    def compile(self, program: Program, options: CompileOptions) -> Image:
        """Machine code for this machine, made of object files that are in the cache if they were made before.

        Raises UserError if the backend is bound to another machine.
        """
        self.check_host()
        objects = self._objects(program, options)
        block = block_of(program.plan, self.target.pointer_bits // 8)
        large = [program.constants[slot.name] for slot in block.large]
        weights = _weights(large, use_cache=options.cache)
        return Image(
            self.code_identity,
            entry_name(program),
            program.ports,
            program.plan.peak,
            tuple(program.ir.symbols.values()),
            tuple(slot.name for slot in program.plan.mutable.slots),
            tuple(constant.key for constant in weights),
            small_constants(block, program.constants),
            joined(objects),
            weights,
            self._probes(program, options, objects),
        )

    def _probes(
        self, program: Program, options: CompileOptions, objects: Sequence[bytes]
    ) -> Probes | None:
        """The reports that a program is to make about its runs; None for none."""
        watched = options.instrument or options.sanitize
        probes = Probes(
            program.ir if watched else None,
            program.ir if self.options.timed else None,
            self.options.timed,
            self._told(objects),
            NumberedRuns(program) if options.sanitize else None,
        )
        return None if probes == Probes() else probes

    def _objects(self, program: Program, options: CompileOptions) -> Sequence[bytes]:
        """The object files of a program, which is called by the table of addresses."""
        settings, name = self.options, entry_name(program)
        entry = EntryOptions(
            bound=True,
            instrument="table" if options.instrument or options.sanitize else "",
            runs=options.sanitize,
            parallel=True,
            timed=counter_of(self.target, settings.timed),
        )
        code_options = CodeOptions(
            entry,
            self._debugged(name, program),
            separate=True,
            visible=settings.perf_map or bool(settings.jitdump),
        )
        texts = generate_llvm({name: program}, self.target, self.kernels, code_options)
        libraries, use_cache = self.kernels.bitcode, options.cache
        stock = self._stock(libraries)
        return compile_objects(
            texts, self.target.machine, libraries, use_cache=use_cache, stock=stock
        )

    def _stock(self, libraries: Sequence[bytes]) -> Stock | None:
        """The code that an installation brings; none where code is for a processor, or features, that were named."""
        settings = self.options
        if settings.target or settings.features or settings.cpu not in ("", "native"):
            return None
        machine = portable_machine(self.target)
        return open_stock(STOCK_FOLDER, self.target.variant.name, machine, libraries)

    def _debugged(self, name: str, program: Program) -> tuple[str, str] | None:
        """The file that debuggers show, which is written, and its folder; None if there is to be none."""
        folder = self.options.debug
        if not folder:
            return None
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{name}.ir").write_text(ir_text({name: program}), encoding="utf-8")
        return f"{name}.ir", str(Path(folder).resolve())

    def _told(self, objects: Sequence[bytes]) -> Functions | None:
        """The code, loaded by LLVM, of which debuggers and profilers are told; None if none has asked."""
        settings = self.options
        if not (settings.debug or settings.perf_map or settings.jitdump):
            return None
        code = load_objects(self.target.machine, objects)
        if settings.perf_map:
            write_perf_map(code, objects)
        if settings.jitdump:
            write_jitdump(code, objects, Path(settings.jitdump))
        return code

    def _tuner(self, seconds: float) -> Tuner:
        """Creates the tuner that measures products. Raises UserError where there can be none, and for bad `seconds`."""
        if not seconds >= 0:
            raise UserError(f"tune: expected at least 0 seconds, got {seconds:g}")
        if self.options.target:
            raise UserError(
                f"cannot measure code for '{self.options.target}' here",
                note="leave out --tune, or the target to compile for this machine",
            )
        self.check_host()
        kernels = [library.identity(self.target.variant) for library in self.kernels.libraries]
        target = (self.target.variant.name, *map(str, astuple(self.target.machine)))
        makers = package_identity(), LLVM_VERSION, processor_name()
        return Tuner(seconds, [*makers, *target, *kernels])

    def _trial(
        self, network: Module, chooser: Chooser, ctx: PassContext, between: int
    ) -> Callable[[], float]:
        """A network compiled for one thread, with products as the chooser says; see `timed_runs`."""
        options = self.options
        twin = self._backend_of(
            CpuOptions(
                cpu=options.cpu,
                features=options.features,
                exact=options.exact,
                low_memory=options.low_memory,
                precision=options.precision,
            )
        )
        twin.compiler.chooser = chooser
        stages = Compilation(network.main, twin, CompileOptions(cache=False), ctx)
        return timed_runs(stages.compiled, between)

    def check_host(self) -> None:
        """Raises UserError if this process cannot run code for the target."""
        if self.options.target:
            raise UserError(
                f"cannot run code for '{self.options.target}' here",
                note="leave the target out, or dump its assembly",
            )
        lacking = ", ".join(sorted(self.target.variant.requires - host_features()))
        if lacking:
            raise UserError(
                f"cannot run code for {self.target.machine.cpu} here: this processor lacks {lacking}",
                note="leave cpu and features out to compile for this machine",
            )


def _weights(tensors: Sequence[Tensor], *, use_cache: bool) -> list[Weights]:
    """Large constants in memory."""
    weights: list[Weights] = []
    for tensor in tensors:
        report("weights", len(weights), len(tensors))
        weights.append(weights_of(tensor, use_cache=use_cache))
    report("weights", len(weights), len(tensors))
    return weights


def counter_of(target: CpuTarget, timed: Timed) -> Counter:
    """Returns the counter that tells the time: for the wall clock, one that costs a few cycles to read.

    Raises UserError for a processor that has no counter for programs, and a system without clocks of threads.
    """
    if not timed:
        return ""
    if timed == "cpu":
        if not hasattr(time, "CLOCK_THREAD_CPUTIME_ID"):
            raise UserError(
                "cannot time instructions by the processor's time on this system",
                note="time them by the wall",
            )
        return "clock_gettime"
    counters: dict[str, Counter] = {
        "x86_64": "readcyclecounter",
        "aarch64": "readsteadycounter",
    }
    if target.variant.family not in counters:
        raise UserError(
            f"cannot time instructions on '{target.variant.family}': expected {' or '.join(counters)}",
            note="leave out timed; glowpy bench without --layers and --trace times the whole",
        )
    return counters[target.variant.family]
