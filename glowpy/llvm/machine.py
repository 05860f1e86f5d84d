"""Processors, optimization, machine code: the only module that imports llvmlite, and imports nothing else of glowpy.

LLVM IR comes in as text; what goes out is optimized IR, assembly, an object file, or code loaded into this
process. Run as a program, it compiles one module from its standard input; that is how several modules are
compiled at the same time, since LLVM holds the interpreter's lock.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, final

import llvmlite
import llvmlite.binding as binding

__all__ = [
    "EXTERNAL",
    "LLVM_VERSION",
    "Form",
    "InvalidIRError",
    "LoadedCode",
    "Machine",
    "UnknownTargetError",
    "host_cpu",
    "host_features",
    "host_triple",
]

EXTERNAL = '"glowpy-external"'
"""The attribute of declared functions that neither the module nor a library defines."""

LLVM_VERSION = ".".join(map(str, binding.llvm_version_info)) + f" (llvmlite {llvmlite.__version__})"
"""The version of everything here; part of the key of cached code."""

Form = Literal["object_code", "assembly", "optimized", "unlinked"]
"""What a module can be made into: the names of Machine's methods."""

_SYMBOL_TABLE, _SYMBOL_BYTES = 2, 24
"""ELF: the type of the section, and the size of an entry."""

_LOCK = threading.RLock()
"""LLVM's process-wide state (targets, contexts) is touched by one thread at a time."""


class UnknownTargetError(ValueError):
    """LLVM knows no target of that triple."""


class InvalidIRError(ValueError):
    """LLVM refuses the text, or it calls what nobody defines: a bug of whoever wrote it."""


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
    """A processor to make code for: triple, LLVM cpu name, features such as `+avx2,-fma`, RISC-V ABI."""

    triple: str
    cpu: str
    features: str
    relocation: str = "pic"
    code_model: str = "small"
    abi: str = ""

    def _create(self, *, jit: bool = False) -> Any:
        _initialize()
        try:
            target = binding.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise UnknownTargetError(f"unknown target '{self.triple}': {error}") from None
        model = "jitdefault" if jit else self.code_model
        return target.create_target_machine(
            cpu=self.cpu,
            features=self.features,
            opt=3,
            reloc=self.relocation,
            codemodel=model,
            jit=jit,
            abiname=self.abi,
        )

    def check(self) -> None:
        """Raises UnknownTargetError if LLVM does not know the triple."""
        with _LOCK:
            self._create()

    def problem(self) -> str:
        """What LLVM has against the processor or its features; empty if it knows them.

        It says so on standard error at best, and ends the process at worst, so this starts one.
        """
        done = subprocess.run(
            [sys.executable, "-I", str(Path(__file__))],
            input=self.request("define void @f() { ret void }", (), "unlinked"),
            capture_output=True,
            check=False,
        )
        said = done.stderr.decode(errors="replace").strip()
        return said.splitlines()[0] if said else ""

    def unlinked(self, text: str, libraries: Sequence[Path]) -> str:
        """Assembly of the text alone."""
        del libraries
        with _LOCK:
            return str(self._create().emit_assembly(binding.parse_assembly(text)))

    def _optimize(self, text: str, libraries: Sequence[Path]) -> tuple[Any, Any]:
        """Links the text with what it needs of the libraries and runs LLVM's O3: (machine, module)."""
        machine = self._create()
        try:
            module = binding.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise InvalidIRError(str(error)) from error
        module.triple, module.data_layout = self.triple, str(machine.target_data)
        for library in libraries:
            kernels = binding.parse_bitcode(library.read_bytes())
            kernels.triple, kernels.data_layout = module.triple, module.data_layout
            module.link_in(kernels)
        _check_defined(module)
        for function in module.functions:
            if function.linkage is binding.Linkage.linkonce_odr:
                function.linkage = "internal"
        options = binding.create_pipeline_tuning_options(speed_level=3)
        builder = binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return machine, module

    def object_code(self, text: str, libraries: Sequence[Path]) -> bytes:
        """An object file of the text linked with libraries of bitcode. Raises InvalidIRError."""
        with _LOCK:
            machine, module = self._optimize(text, libraries)
            return bytes(machine.emit_object(module))

    def assembly(self, text: str, libraries: Sequence[Path]) -> str:
        """The same as assembly text."""
        with _LOCK:
            machine, module = self._optimize(text, libraries)
            return str(machine.emit_assembly(module))

    def optimized(self, text: str, libraries: Sequence[Path]) -> str:
        """The same as LLVM IR text."""
        with _LOCK:
            return str(self._optimize(text, libraries)[1])

    def request(self, text: str, libraries: Sequence[Path], form: Form = "object_code") -> bytes:
        """What this module, run as a program, takes on its standard input; it answers with the method's result."""
        paths = [str(library) for library in libraries]
        fields = {"machine": asdict(self), "libraries": paths, "form": form, "text": text}
        return json.dumps(fields).encode()


@final
class LoadedCode:
    """Object files loaded into this process; lives as long as any function of it may be called.

    Raises InvalidIRError if they want functions that neither they nor this process have; this is known of 64-bit
    little-endian ELF only, as on Linux.
    """

    def __init__(self, machine: Machine, objects: list[bytes]) -> None:
        with _LOCK:
            module = binding.parse_assembly("")
            module.triple = machine.triple
            self._engine = binding.create_mcjit_compiler(module, machine._create(jit=True))
            _check_available(objects)
            for code in objects:
                self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where the function called `name` begins; 0 if there is none."""
        with _LOCK:
            return int(self._engine.get_function_address(name))


def _check_defined(module: Any) -> None:
    """Raises InvalidIRError if a linked module calls functions that it does not have; code would jump to address 0."""
    missing = [
        function.name
        for function in module.functions
        if function.is_declaration
        and not function.name.startswith("llvm.")
        and EXTERNAL.encode() not in function.attributes
    ]
    if missing:
        defined = [function for function in module.functions if not function.is_declaration]
        callers = [f.name for f in defined if any(f"@{name}(" in str(f) for name in missing)]
        raise InvalidIRError(
            f"no library defines {', '.join(missing)}, called by {', '.join(callers)}"
        )


def _check_available(objects: Sequence[bytes]) -> None:
    """Raises InvalidIRError for symbols that LLVM would take to be at address 0. It knows the process's by now.

    Of objects that are no 64-bit little-endian ELF, such as those of macOS and Windows, nothing is known here.
    `_check_defined` has been through them all the same: only functions declared with EXTERNAL are in question.
    """
    tables = [_elf_symbols(code) for code in objects]
    defined = {name for own, _ in tables for name in own}
    used = {name for _, others in tables for name in others} - defined
    missing = sorted(name for name in used if binding.address_of_symbol(name) is None)
    if missing:
        raise InvalidIRError(
            f"this process does not have {', '.join(missing)}, which the code calls"
        )


def _elf_symbols(code: bytes) -> tuple[set[str], set[str]]:
    """The functions and variables that a 64-bit ELF object file defines, and those it wants from elsewhere."""
    defined: set[str] = set()
    used: set[str] = set()
    if not code.startswith(b"\x7fELF\x02\x01"):
        return defined, used
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    headers = [
        struct.unpack_from("<IIQQQQII", code, start + index * size) for index in range(count)
    ]
    for _, kind, _, _, offset, length, link, _ in headers:
        if kind != _SYMBOL_TABLE:
            continue
        names = headers[link][4]
        for at in range(offset + _SYMBOL_BYTES, offset + length, _SYMBOL_BYTES):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            begin = names + name
            text = code[begin : code.index(b"\0", begin)].decode()
            (defined if section else used).add(text)
    return defined, used - {"_GLOBAL_OFFSET_TABLE_"}


def _main() -> None:
    request = json.load(sys.stdin.buffer)
    machine = Machine(**request["machine"])
    libraries = [Path(library) for library in request["libraries"]]
    try:
        result = getattr(machine, request["form"])(request["text"], libraries)
    except InvalidIRError as error:
        sys.exit(str(error))
    sys.stdout.buffer.write(result if isinstance(result, bytes) else result.encode())


if __name__ == "__main__":
    _main()
