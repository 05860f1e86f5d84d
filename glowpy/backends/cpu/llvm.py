"""The seam to LLVM: the only module that imports llvmlite.

LLVM IR comes in as text; what goes out is optimized IR, assembly, an object file, or code loaded
into this process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import llvmlite
import llvmlite.binding as binding

from glowpy.support.errors import InternalError, UserError

__all__ = [
    "LLVM_VERSION",
    "LoadedCode",
    "Machine",
    "data_layout",
    "host_cpu",
    "host_features",
    "host_triple",
]

LLVM_VERSION = ".".join(map(str, binding.llvm_version_info)) + f" (llvmlite {llvmlite.__version__})"
"""The version of everything here; part of the key of cached code."""

_LOCK = threading.RLock()
"""LLVM's process-wide state (targets, contexts) is touched by one thread at a time."""


@cache
def _initialize() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmprinter()


def host_triple() -> str:
    """LLVM's name of the machine this process runs on."""
    return str(binding.get_process_triple())


def host_cpu() -> str:
    """LLVM's name of this machine's processor."""
    return str(binding.get_host_cpu_name())


def host_features() -> frozenset[str]:
    """LLVM's names of what this machine's processor has."""
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


@dataclass(frozen=True)
class Machine:
    """A processor to make code for: triple, LLVM cpu name, features such as `+avx2,-fma`."""

    triple: str
    cpu: str
    features: str

    def _create(self, *, jit: bool = False) -> Any:
        _initialize()
        try:
            target = binding.Target.from_triple(self.triple)
            model = "jitdefault" if jit else "small"
            return target.create_target_machine(
                cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel=model, jit=jit
            )
        except RuntimeError as error:
            raise UserError(
                f"unknown target '{self.triple}': {error}",
                note="write it as LLVM does: aarch64-linux-gnu",
            ) from None

    def optimize(self, text: str, library: Path) -> Any:
        """Links IR text with the kernel library, keeps what the text defines visible, and runs LLVM's O3."""
        with _LOCK:
            machine = self._create()
            try:
                module = binding.parse_assembly(text)
                module.verify()
                kernels = binding.parse_bitcode(library.read_bytes())
            except RuntimeError as error:
                raise InternalError(
                    f"the code generator wrote IR that LLVM refuses: {error}"
                ) from error
            module.triple = kernels.triple = self.triple
            module.data_layout = kernels.data_layout = str(machine.target_data)
            module.link_in(kernels)
            for function in module.functions:
                if str(function.linkage).endswith("linkonce_odr"):
                    function.linkage = "internal"
            options = binding.create_pipeline_tuning_options(speed_level=3)
            builder = binding.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            return module

    def object_code(self, text: str, library: Path) -> bytes:
        """An object file of the text linked with the library."""
        with _LOCK:
            return bytes(self._create().emit_object(self.optimize(text, library)))

    def assembly(self, text: str, library: Path) -> str:
        """The same as assembly text."""
        with _LOCK:
            return str(self._create().emit_assembly(self.optimize(text, library)))

    def optimized(self, text: str, library: Path) -> str:
        """The same as LLVM IR text."""
        with _LOCK:
            return str(self.optimize(text, library))


def data_layout(triple: str) -> str:
    """LLVM's description of sizes and alignments on a target. Raises UserError for an unknown triple."""
    with _LOCK:
        return str(Machine(triple, "", "")._create().target_data)


@final
class LoadedCode:
    """Object files loaded into this process; lives as long as any function of it may be called."""

    def __init__(self, machine: Machine, objects: list[bytes]) -> None:
        with _LOCK:
            module = binding.parse_assembly("")
            module.triple = machine.triple
            self._engine = binding.create_mcjit_compiler(module, machine._create(jit=True))
            for code in objects:
                self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where the function called `name` begins."""
        with _LOCK:
            found = int(self._engine.get_function_address(name))
        if not found:
            raise InternalError(f"machine code lacks the function {name}")
        return found
