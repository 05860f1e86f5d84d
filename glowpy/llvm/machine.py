"""Processors, optimization, machine code: the only module that imports llvmlite, and imports nothing else of glowpy.

LLVM IR comes in as text; what goes out is optimized IR, assembly, an object file, or code loaded into this
process. Run as a program, it compiles modules from its standard input, one after the other; that is how several are
compiled at the same time, since llvmlite lets one thread of a process in at a time.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Literal, final

if __name__ == "__main__":  # see `worker_command`
    sys.path.append(sys.argv[1])

import llvmlite
import llvmlite.binding as binding

__all__ = [
    "CALLS_ONLY",
    "EXTERNAL",
    "LLVM_VERSION",
    "REFUSED",
    "Compiler",
    "Form",
    "InvalidIRError",
    "LoadedCode",
    "Machine",
    "UnknownTargetError",
    "declarations",
    "header",
    "host_cpu",
    "host_features",
    "host_triple",
    "needed_pieces",
    "own_lock",
    "read_result",
    "request",
    "use_lock",
    "worker_command",
]

REFUSED = 3
"""The exit status of this module run as a program where LLVM refuses a text."""

EXTERNAL = '"glowpy-external"'
"""The attribute of declared functions that neither the module nor a library defines."""

CALLS_ONLY = "; nothing but calls\n"
"""The first line of a text that has nothing to optimize: addresses and calls of functions in other texts."""

LLVM_VERSION = ".".join(map(str, binding.llvm_version_info)) + f" (llvmlite {llvmlite.__version__})"
"""The version of everything here; part of the key of cached code."""

Form = Literal["object_code", "measured", "assembly", "optimized", "unlinked"]
"""Forms of a compiled module: the names of Compiler's methods."""

_DECLARATION = re.compile(r"^declare .*$", re.MULTILINE)
_NAME = re.compile(r"@([\w.$]+)\(")
"""The name in a declaration."""

_LENGTH = struct.Struct("<Q")
"""Goes before each result of this module run as a program: its length in bytes."""


_SYMBOL_TABLE, _SYMBOL_BYTES = 2, 24
"""ELF: the type of the section, and the size of an entry."""

_ATTRIBUTES = re.compile(r"^attributes #[0-9]+ = \{", re.MULTILINE)
"""Pattern of the beginning of functions' attributes in the text of a module."""

_MEASURED = ' noredzone "warn-stack-size"="0"'
"""LLVM warns about frames of more than no bytes, and does not count what a function uses of the red zone."""

_SMALL = "libjit_small"
"""Global that tells kernels whether code is to be small."""

_BF16 = "libjit_bf16"
"""Global that tells kernels whether to use the processor's instructions for bf16."""

_CALLS_LIBRARY = "libjit_calls_library"
"""Global that tells kernels without floating point whether small code is to call the compiler's library."""

_FLOATS = re.compile(r" = f(?:add|sub|mul|div|cmp|neg|ptosi|ptoui|ptrunc|pext) | = [su]itofp ")
"""Instructions that LLVM turns into calls of the compiler's library where the processor has no floating point."""

_LOCK: AbstractContextManager[object] = threading.RLock()
"""LLVM's process-wide state (targets, contexts) is touched by one thread at a time."""

_MOST_KERNELS = 256
_KERNELS: dict[tuple[Machine, tuple[bytes, ...], tuple[str, ...]], bytes] = {}
"""Bitcode of what modules needed, the last used last; touched as LLVM's state is. Most networks need the same few."""


class UnknownTargetError(ValueError):
    """LLVM knows no target of that triple."""


class InvalidIRError(ValueError):
    """LLVM refuses the text, or it calls what nobody defines: a bug of whoever wrote it."""


def use_lock(lock: AbstractContextManager[object]) -> None:
    """Has another lock guard LLVM from now on, which a thread may take several times: before anything is compiled."""
    global _LOCK
    _LOCK = lock


def own_lock() -> AbstractContextManager[object]:
    """Llvmlite's lock, which is held during every call of LLVM, by finalizers too."""
    lock: AbstractContextManager[object] = binding.ffi.lib._lock
    return lock


@cache
def _initialize() -> None:
    # Arguments of calls lie in the frame, not pushed beneath it: what is reported of a frame is all of it.
    binding.set_option("glowpy", "-no-x86-call-frame-opt")
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
    """A processor to make code for: triple, LLVM cpu name, features such as `+avx2,-fma`, RISC-V ABI.

    Code is `small`, or fast. With `bf16` it uses the processor's instructions for numbers in bf16.
    """

    triple: str
    cpu: str
    features: str
    relocation: str = "pic"
    code_model: str = "small"
    abi: str = ""
    small: bool = False
    bf16: bool = False

    def _create(self, *, jit: bool = False, quick: bool = False) -> Any:
        """LLVM's machine; a `quick` one writes code as it comes."""
        _initialize()
        try:
            target = binding.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise UnknownTargetError(f"unknown target '{self.triple}': {error}") from None
        model = "jitdefault" if jit else self.code_model
        return target.create_target_machine(
            cpu=self.cpu,
            features=self.features,
            opt=0 if quick else 2 if self.small else 3,
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
        """Returns LLVM's complaint about the processor or its features; empty if it knows them.

        It says so on standard error at best, and ends the process at worst, so this starts one.
        """
        done = subprocess.run(
            worker_command(),
            input=header(self, (), "unlinked", ()) + request("define void @f() { ret void }"),
            capture_output=True,
            check=False,
        )
        messages = done.stderr.decode(errors="replace").strip()
        return messages.splitlines()[0] if messages else ""


def worker_command() -> list[str]:
    """Returns the command that starts this module as a program, which speaks `header`, `request` and `read_result`.

    It is isolated: no file in the current folder is taken for one of Python's own modules. So it is told where this
    process has found LLVM, which may be on a path that the environment or the program has added. That comes after
    Python's own modules, for which packages beside LLVM may have names too, and in place of the usual packages (-S).
    """
    isolated = ["-I"] if "PYTHONHOME" not in os.environ else ["-s", "-P"]  # -I would ignore it
    home = Path(llvmlite.__file__).parent.parent
    return [sys.executable, "-S", *isolated, __file__, str(home)]


def declarations(texts: Iterable[str]) -> list[str]:
    """Returns the declarations of modules that libraries are to define."""
    lines = {line: None for text in texts for line in _DECLARATION.findall(text)}
    return [line for line in lines if EXTERNAL not in line]


def needed_pieces(libraries: Iterable[bytes], needed: Iterable[str]) -> list[bytes]:
    """The modules of some libraries that have what is declared, and what those use in turn; in a library's own order.

    A library is what libjit/compile.py writes. What a piece uses is in its own library, or in one that follows.
    """
    names = {name for line in needed for name in _NAME.findall(line)}
    return [module for library in libraries for module in _chosen(library, names)]


def _chosen(library: bytes, names: set[str]) -> list[bytes]:
    """The modules of one library that define some of the names, to which those that they use are added."""
    pieces, at = [], 0
    while at < len(library):
        begin = library.index(b"\n", at) + 1
        contents = json.loads(library[at:begin])
        at = begin + contents["size"]
        pieces.append((contents, library[begin:at]))
    numbers: set[int] = set()
    while True:
        more = [
            index
            for index, (contents, _) in enumerate(pieces)
            if index not in numbers and not names.isdisjoint(contents["defines"])
        ]
        if not more:
            return [pieces[index][1] for index in sorted(numbers)]
        numbers.update(more)
        names.update(name for index in more for name in pieces[index][0]["uses"])


@final
class Compiler:
    """Makes code of modules that use the same libraries of bitcode.

    `needed` holds the declarations of all that the modules call. To read what a library has of it, which linking uses
    up, may take longer than to compile a simple loop: so that is done once, and what a module needs is kept for others
    like it, of other networks as well.
    """

    def __init__(self, machine: Machine, libraries: Sequence[bytes], needed: Sequence[str]) -> None:
        self._machine, self._libraries, self._needed = machine, tuple(libraries), needed
        with _LOCK:
            self._target = machine._create()

    @cached_property
    def _quick(self) -> Any:
        return self._machine._create(quick=True)

    @cached_property
    def _all(self) -> bytes:
        """Links the parts of the libraries that any module needs."""
        return self._linked(self._needed, needed_pieces(self._libraries, self._needed))

    def _kernels(self, needed: tuple[str, ...]) -> bytes:
        """Links the parts of the libraries that one module needs."""
        key = (self._machine, self._libraries, needed)
        kernels = _KERNELS.pop(key, None) or self._linked(needed, [self._all])
        _KERNELS[key] = kernels
        if len(_KERNELS) > _MOST_KERNELS:
            del _KERNELS[next(iter(_KERNELS))]
        return kernels

    def _linked(self, needed: Sequence[str], modules: Sequence[bytes]) -> bytes:
        """Bitcode of what is declared, as far as the modules define it."""
        whole = self._placed(binding.parse_assembly("\n".join(needed)))
        for module in modules:
            whole.link_in(self._placed(binding.parse_bitcode(module)))
        return bytes(whole.as_bitcode())

    def unlinked(self, text: str) -> str:
        """Assembly of the text alone."""
        with _LOCK:
            return str(self._target.emit_assembly(binding.parse_assembly(text)))

    def object_code(self, text: str) -> bytes:
        """An object file of the text linked with the libraries. Raises InvalidIRError."""
        with _LOCK:
            if text.startswith(CALLS_ONLY):
                module = self._placed(_parsed(text))
                _check_defined(module)
                return bytes(self._quick.emit_object(module))
            return bytes(self._target.emit_object(self._optimize(text)))

    def measured(self, text: str) -> bytes:
        """Compiles to an object file, while LLVM writes the stack frame of every function to standard error."""
        with _LOCK:
            return bytes(self._target.emit_object(self._optimize(text, _MEASURED)))

    def assembly(self, text: str) -> str:
        """Assembly of the text linked with the libraries. Raises InvalidIRError."""
        with _LOCK:
            return str(self._target.emit_assembly(self._optimize(text)))

    def optimized(self, text: str) -> str:
        """Compiles to optimized LLVM IR text."""
        with _LOCK:
            return str(self._optimize(text))

    def _placed(self, module: Any) -> Any:
        """The module, said to be for the machine."""
        module.triple, module.data_layout = self._machine.triple, str(self._target.target_data)
        return module

    def _optimize(self, text: str, attributes: str = "") -> Any:
        """Links the text with what it needs of the libraries and runs LLVM's O3, or a pipeline for small code.

        All functions, those of the libraries too, get these attributes. Small code for a processor without floating
        point computes in floats by itself if that is all it needs, else by calls alone.
        """
        module, has_choice = self._optimized(text, attributes, calls_library=False)
        if has_choice and _FLOATS.search(str(module)):
            module, _ = self._optimized(text, attributes, calls_library=True)
        return module

    def _optimized(self, text: str, attributes: str, *, calls_library: bool) -> tuple[Any, bool]:
        """The module, and whether small code asked how to compute in floats."""
        module = _parsed(
            f"{text}\n@{_SMALL} = constant i8 {self._machine.small:d}\n"
            f"@{_CALLS_LIBRARY} = constant i8 {calls_library:d}\n"
            f"@{_BF16} = constant i8 {self._machine.bf16:d}\n"
        )
        kernels = self._kernels(tuple(declarations([text])))
        self._placed(module).link_in(binding.parse_bitcode(kernels))
        _check_defined(module)
        for function in module.functions:
            if function.linkage is binding.Linkage.linkonce_odr:
                function.linkage = "internal"
        for name in (_SMALL, _CALLS_LIBRARY, _BF16):
            module.get_global_variable(name).linkage = "internal"
        has_choice = self._machine.small and str(module).count(f"@{_CALLS_LIBRARY}") > 1
        attributes += " minsize optsize" if self._machine.small else ""
        if attributes:
            module = binding.parse_assembly(_ATTRIBUTES.sub(rf"\g<0>{attributes}", str(module)))
        options = binding.create_pipeline_tuning_options(speed_level=3)
        if self._machine.small:
            options = binding.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = binding.create_pass_builder(self._target, options)
        builder.getModulePassManager().run(module, builder)
        return module, has_choice


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
        """Returns the address of the function called `name`; 0 if there is none."""
        with _LOCK:
            return int(self._engine.get_function_address(name))


def _parsed(text: str) -> Any:
    """The module with a text. Raises InvalidIRError."""
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InvalidIRError(str(error)) from error
    return module


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


def header(
    machine: Machine, libraries: Sequence[bytes], form: Form, needed: Sequence[str]
) -> bytes:
    """Encodes what this module, run as a program, reads first: a Compiler's arguments, and the form of all results."""
    sizes = [len(library) for library in libraries]
    line = _line(
        {"machine": asdict(machine), "libraries": sizes, "form": form, "needed": list(needed)}
    )
    return b"".join([line, *libraries])


def request(text: str) -> bytes:
    """Encodes a text for this module, run as a program, to compile."""
    return _line(text)


def _line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


def read_result(stream: IO[bytes]) -> bytes | None:
    """The next result of this module run as a program; None where the process has ended."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    result = stream.read(size)
    return result if len(result) == size else None


def _end_with_parent() -> None:
    """Ends this process as soon as nobody is left to read its results, even in the middle of a compilation."""
    results = select.poll()
    results.register(sys.stdout.fileno(), 0)  # that the other end is closed is always told
    results.poll()
    os._exit(1)


def _main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the parent, which ends this process
    if hasattr(select, "poll"):
        threading.Thread(target=_end_with_parent, daemon=True).start()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    fields = json.loads(asked.readline())
    libraries = [asked.read(size) for size in fields["libraries"]]
    try:
        compiler = Compiler(Machine(**fields["machine"]), libraries, fields["needed"])
        for line in asked:
            result = getattr(compiler, fields["form"])(json.loads(line))
            content = result if isinstance(result, bytes) else result.encode()
            answers.write(_LENGTH.pack(len(content)) + content)
            answers.flush()
    except InvalidIRError as error:
        sys.stderr.write(str(error))
        sys.exit(REFUSED)


if __name__ == "__main__":
    _main()
