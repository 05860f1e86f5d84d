"""Compiles libjit, or kernels of another package, to LLVM bitcode, one file per variant of `variants.toml`.

    python libjit/compile.py --variant x86_64_v4 --output x86_64_v4.bc
    python libjit/compile.py --host --directory bitcode/
    python libjit/compile.py --root my_backend/kernels --host --directory bitcode/
    python libjit/compile.py --variant x86_64_v4 --output x86_64_v4.bc --parts parts/

A file `NAME.bc` has a piece for each C file: a line of JSON (what the piece `defines`, what it `uses` that it does not
define, its `size` in bytes), then so many bytes of bitcode. Who needs a kernel reads its piece, and those that this one
uses. Beside it lies `NAME.symbols`, the functions that all pieces define, one a line.

Stands alone: it needs ziglang (clang) and llvmlite, and nothing of glowpy. The wheel build calls it, and so
does an installed glowpy for a variant its wheel does not carry.

* Nothing is optimised that the dimensions have a say in: that comes after a kernel was inlined into a caller
  that knows them. What never depends on them (helpers to inline, locals to keep in registers, loops over the
  dimensions of a shape to unroll) is done here, once, and not for every kernel of every network: it takes two
  thirds off the time that LLVM needs for a specialised kernel.
  It is also nine tenths of the time that this script takes. So it is done for each file by itself, and a file of which
  clang makes the same for several variants, or made the same before (`--parts`), is simplified once.
* No function keeps a target attribute, so that any caller may inline it.
* The bytes depend on the sources, the flags and the two compilers' versions; never on a path, or the time.
* An output file is complete or absent; where the bitcode is, the symbols are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import select
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

ROOT = Path(__file__).resolve().parent

FLAGS = (
    "-std=c11",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fwrapv",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fomit-frame-pointer",
    "-g0",
    "-DNDEBUG",
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Wno-deprecated-altivec-src-compat",
    "-Xclang",
    "-disable-llvm-passes",
    "-emit-llvm",
)

# What ties a function to the processor it was compiled for, or to a caller compiled alike.
_TARGET_ATTRIBUTES = re.compile(
    r' "(?:target-cpu|target-features|tune-cpu|min-legal-vector-width|no-builtins|use-soft-float)"(?:="[^"]*")?'
    r"| noimplicitfloat| vscale_range\(\d+,\d+\)"
)
_LATE = b"inlinehint"
"""The attribute of LATE functions (libjit.h)."""
_ORIGIN = re.compile(r"^(?:source_filename = .*|!llvm\.ident = .*)\n", re.MULTILINE)
_MACHINE_FLAG = re.compile(
    r'^(!\d+) = (?:distinct )?!\{i32 \d+, !"(?:target-abi|riscv-isa)", .*\}\n', re.MULTILINE
)
_ISA = re.compile(r'^!\d+ = !\{!"rv\d+i.*\}\n', re.MULTILINE)
_TRIPLE = re.compile(r'^target triple = "[^"]*"$', re.MULTILINE)


class CompileError(Exception):
    """The library could not be compiled; the message is meant for whoever started the compilation."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the compiler needs to know of a variant."""

    name: str
    zig_target: str
    zig_cpu: str
    triple: str
    cpu: str


class CompilerError(CompileError):
    """The compilers that are installed cannot compile anything for us: nothing is wrong with the library."""


def read_targets(root: Path = ROOT) -> dict[str, Target]:
    """Every variant of `variants.toml`, by name."""
    table = tomllib.loads((root / "variants.toml").read_text(encoding="utf-8"))
    return {
        entry["name"]: Target(
            name=entry["name"],
            zig_target=entry["zig_target"],
            zig_cpu=entry["zig_cpu"],
            triple=entry["triple"],
            cpu=entry["cpu"],
        )
        for entry in table["variant"]
    }


def host_variants(machine: str, root: Path = ROOT) -> list[str]:
    """Names of the variants of a machine's family; empty where libjit has no such family."""
    table = tomllib.loads((root / "variants.toml").read_text(encoding="utf-8"))
    return [
        entry["name"]
        for entry in table["variant"]
        if machine.lower() in table["family"][entry["family"]]["arch"]
    ]


def check_versions() -> None:
    """Raises CompilerError unless llvmlite reads the bitcode that clang writes.

    LLVM reads the bitcode of every older release, and of no newer one.
    """
    with tempfile.TemporaryDirectory(prefix="libjit-") as scratch:
        done = _zig(["cc", "--version"], Path(scratch))
    match = re.search(r"clang version (\d+)\.", done.stdout)
    if done.returncode or match is None:
        raise CompilerError(f"clang does not run: {(done.stderr or done.stdout).strip()}")
    clang, ours = int(match[1]), llvm.llvm_version_info[0]
    if clang > ours:
        raise CompilerError(
            f"clang {clang} is newer than llvmlite's LLVM: expected at most {ours}, got {clang}; "
            "install an older ziglang or a newer llvmlite"
        )


def compile_variant(
    target: Target,
    output: Path,
    root: Path = ROOT,
    jobs: int = 2,
    parts: Path | None = None,
    announce: Callable[[Sequence[str]], None] | None = None,
) -> None:
    """Compiles `root/src/*.c` for a target and writes bitcode and symbols to `output`.

    `parts` is a folder with what became of single files, under digests of what that follows from. What is there is
    taken, what is missing is added; `announce` is called with the digests before the folder is looked into.
    """
    sources = sorted((root / "src").glob("*.c"))
    if not sources:
        raise CompileError(f"no kernels to compile: expected C files in {root / 'src'}")
    with tempfile.TemporaryDirectory(prefix="libjit-") as scratch:
        with ThreadPoolExecutor(jobs) as pool:
            files = list(pool.map(lambda s: _compile(s, target, root, Path(scratch)), sources))
        baseline = _baseline(target)
        texts = [_portable(file.read_bytes(), baseline) for file in files]
    digests = [_digest(text, baseline) for text in texts]
    if announce is not None:
        announce(digests)
    pieces = [
        _part(text, baseline, parts and parts / digest)
        for text, digest in zip(texts, digests, strict=True)
    ]
    symbols = [f"{name}\n" for name in sorted(_defined(pieces))]
    output.parent.mkdir(parents=True, exist_ok=True)
    _write(output.with_suffix(".symbols"), "".join(symbols).encode())
    _write(output, b"".join(pieces))


def _write(output: Path, content: bytes) -> None:
    """Writes a file as a whole, or not at all."""
    handle, unfinished = tempfile.mkstemp(dir=output.parent, prefix=output.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(unfinished).chmod(0o644)
        Path(unfinished).replace(output)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _compile(source: Path, target: Target, root: Path, scratch: Path) -> Path:
    """Bitcode of one C file."""
    result = scratch / f"{source.stem}.bc"
    machine = ["-target", target.zig_target, f"-mcpu={target.zig_cpu}"]
    folders = dict.fromkeys([str(root / "include"), str(ROOT / "include")])
    include = [option for folder in folders for option in ("-I", folder)]
    files = [*include, "-c", str(source), "-o", str(result)]
    done = _zig(["cc", *machine, *FLAGS, *files], scratch)
    if done.returncode:
        raise CompileError(f"{source.name} does not compile for {target.name}:\n{done.stderr}")
    if done.stderr:
        sys.stderr.write(done.stderr)
    return result


def _zig(arguments: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    # zig refuses to run where it has no home to put its cache into. A kernel compiles in a fraction of a
    # second, so that nothing is lost by a cache that lives no longer than the compilation.
    environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(scratch / "cache"))
    environment.setdefault("ZIG_LOCAL_CACHE_DIR", environment["ZIG_GLOBAL_CACHE_DIR"])
    command = [sys.executable, "-m", "ziglang", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _baseline(target: Target) -> Target:
    """The first variant of the same architecture: files are simplified for it, so that variants share them."""
    name = llvm.Target.from_triple(target.triple).name
    return next(
        t for t in read_targets().values() if llvm.Target.from_triple(t.triple).name == name
    )


def _portable(bitcode: bytes, baseline: Target) -> str:
    """The text of a module, free of everything that names a processor, a file or a compiler."""
    # Types have names, which a context makes unique among all its modules.
    text = str(llvm.parse_bitcode(bitcode, llvm.create_context()))
    text = _without_machine_flags(_ORIGIN.sub("", _TARGET_ATTRIBUTES.sub("", text)))
    return _TRIPLE.sub(f'target triple = "{baseline.triple}"', text)


def _digest(text: str, baseline: Target) -> str:
    """Names everything that the simplified module depends on, but the compiler."""
    return hashlib.sha256(f"{baseline.cpu}\n{text}".encode()).hexdigest()


def _part(text: str, baseline: Target, file: Path | None) -> bytes:
    """The piece of one C file; what is in `file`, if it is there."""
    if file is not None and file.is_file():
        return file.read_bytes()
    content = _simplified(text, baseline)
    if file is not None:
        _write(file, content)
    return content


def _simplified(text: str, baseline: Target) -> bytes:
    """A piece: the module of a file, simplified, after a line that says what it defines and uses."""
    module = llvm.parse_assembly(text, llvm.create_context())
    _simplify(module, baseline)
    defined, used = [], []
    for function in module.functions:
        if not function.is_declaration and function.linkage is llvm.Linkage.external:
            # Linking a network's module against the piece then takes only what it calls.
            function.linkage = "linkonce_odr"
            defined.append(function.name)
        elif function.is_declaration and not function.name.startswith("llvm."):
            used.append(function.name)
    module.verify()
    bitcode = bytes(module.as_bitcode())
    contents = {"defines": sorted(defined), "uses": sorted(used), "size": len(bitcode)}
    return json.dumps(contents).encode() + b"\n" + bitcode


def _defined(pieces: Sequence[bytes]) -> set[str]:
    """The functions that pieces define. Raises CompileError for one that two of them define."""
    names: set[str] = set()
    for piece in pieces:
        own = json.loads(piece[: piece.index(b"\n")])["defines"]
        if twice := names.intersection(own):
            raise CompileError(f"two files define {', '.join(sorted(twice))}")
        names.update(own)
    return names


def _without_machine_flags(text: str) -> str:
    """Without what RISC-V's modules say of ABI and extensions: the module that is linked with the library says it."""
    for flag in _MACHINE_FLAG.findall(text):
        text = re.sub(rf"(?<=[{{ ]){flag}(?:, |(?=\}}))", "", text)
    return _MACHINE_FLAG.sub("", _ISA.sub("", text)).replace(", }", "}")


def _simplify(module: llvm.ModuleRef, baseline: Target) -> None:
    """Inlines the helpers into the kernels, but for LATE ones, and simplifies.

    LLVM's first level unrolls loops of a known number of rounds. It vectorises nothing and duplicates no other loop: so
    what a processor has beyond the oldest one has no say in it.
    """
    machine = llvm.Target.from_triple(baseline.triple).create_target_machine(
        cpu=baseline.cpu, opt=3
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    simplification = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            simplification.run(function, builder)
            if any(_LATE in kinds for kinds in function.attributes):
                function.add_function_attribute("alwaysinline")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles what the command line asks for; 1 if the library is wrong, 3 if the compilers are."""
    parser = argparse.ArgumentParser(description="Compile libjit to LLVM bitcode.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--variant", help="one variant of variants.toml")
    what.add_argument("--host", action="store_true", help="every variant of this machine's family")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--output", type=Path, help="the file to write (with --variant)")
    where.add_argument("--directory", type=Path, help="the folder to write VARIANT.bc into")
    parser.add_argument(
        "--root",
        type=Path,
        default=ROOT,
        help="folder with src/ and include/; libjit's headers are found as well",
    )
    parser.add_argument(
        "--parts",
        type=Path,
        help="(with --variant) a folder for what becomes of single files: prints their names in it on a line, waits "
        "for a line, takes what is there, and adds what is not",
    )
    parser.add_argument("--jobs", type=int, default=2, help="files compiled at a time")
    options = parser.parse_args(arguments)
    if options.host and (options.output or options.parts):
        parser.error("--host writes many files: expected --directory alone")
    targets = read_targets()
    names = host_variants(platform.machine()) if options.host else [options.variant]
    if unknown := [name for name in names if name not in targets]:
        parser.error(f"no variant {unknown[0]!r}: expected one of {', '.join(targets)}")
    llvm.initialize_all_targets()
    try:
        check_versions()
        with tempfile.TemporaryDirectory(prefix="libjit-") as scratch:
            parts = options.parts or Path(scratch)
            announce = _ask if options.parts else None
            for name in names:
                output = options.output or options.directory / f"{name}.bc"
                compile_variant(targets[name], output, options.root, options.jobs, parts, announce)
    except CompileError as error:
        sys.stderr.write(f"{error}\n")
        return 3 if isinstance(error, CompilerError) else 1
    return 0


def _ask(digests: Sequence[str]) -> None:
    """Says which parts are needed, and waits until whoever started this has brought those that it knows."""
    sys.stdout.write(" ".join(digests) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()


def _end_with_parent() -> None:
    """Ends this process as soon as nobody is left to read its standard output, if that is a pipe."""
    readers = select.poll()
    readers.register(sys.stdout.fileno(), 0)  # that the other end is closed is always told
    readers.poll()
    os._exit(1)


if __name__ == "__main__":
    if hasattr(select, "poll"):
        threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main())
