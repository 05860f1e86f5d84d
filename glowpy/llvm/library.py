"""Libraries of kernels: which kernels there are, and where the bitcode of a variant lies.

* A package carries the bitcode of the variants it was built for, and the library's sources.
* Any other variant is compiled when it is first asked for, by libjit's `compile.py` in a process of its own, and
  kept in the cache. This needs ziglang, which `glowpy[cross]` brings.
* In a source checkout nothing is packaged and the sources change: every variant comes from the cache, but that of this
  machine from a file as well, which its installation has made: it is named as the entry of the cache is.
* What became of single files is in the cache as well: when one is edited, the others are not simplified again.
  Variants share the files that are the same for both.
* An entry of the cache is named after everything its bytes depend on, so it is never out of date.
* With `NAME.bc` comes `NAME.symbols`, the functions that the bitcode defines, one a line: what takes LLVM a tenth of a
  second to read need not be read to know what it holds. An entry has both, the symbols first, with a zero byte between.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import PIPE

from glowpy.llvm.kernel import KernelSpec
from glowpy.llvm.variant import LIBJIT_FOLDER, STOCK_FOLDER, KernelVariant
from glowpy.support.cache import Key, locked, read, write, write_all
from glowpy.support.cache_folder import cache_folder
from glowpy.support.children import child_environment
from glowpy.support.errors import InternalError, UserError
from glowpy.support.progress import report

__all__ = ["KernelLibrary", "compile_script"]

_REMEDY = (
    "pip install 'glowpy[cross]' brings the compiler for kernels that the wheel does not carry"
)
_COMPILERS_DO_NOT_FIT = 3  # compile.py's exit status


def compile_script() -> Path:
    """The program that compiles kernels: `python compile.py --root FOLDER --host --directory FOLDER/bitcode`."""
    return LIBJIT_FOLDER / "compile.py"


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """Kernels in C, compiled to bitcode for each variant.

    Attributes:
        name: The beginning of the kernels' symbols.
        folder: Where `src/*.c` and `include/*.h` are; libjit's headers are found as well.
        packaged: Where an installed package carries bitcode, which is used as it is; None in a checkout.
        specs: The kernels that instructions were declared with, by mnemonic.
    """

    name: str
    folder: Path
    packaged: Path | None
    specs: Mapping[str, KernelSpec]
    _contents: dict[KernelVariant, _Content] = field(default_factory=dict, repr=False)
    _identities: dict[KernelVariant, str] = field(default_factory=dict, repr=False)
    """Digests of the contents, as this process has read them: files may change later."""

    def bitcode(self, variant: KernelVariant) -> bytes:
        """The bitcode for a variant, compiled first if need be.

        Raises UserError if it has to be compiled, and the compiler is not installed or finds a mistake.
        """
        return self._content(variant).bitcode

    def symbols(self, variant: KernelVariant) -> frozenset[str]:
        """The functions that the bitcode for a variant defines. Raises UserError as `bitcode` does."""
        return self._content(variant).symbols

    def warnings(self, variant: KernelVariant) -> str:
        """Returns the compiler's warnings about the kernels for a variant; empty for those of a wheel."""
        return self._content(variant).warnings

    def identity(self, variant: KernelVariant) -> str:
        """Names the bitcode for a variant: the packaged file, or the entry of the cache, which there need not be."""
        digest = self._identities.get(variant)
        return digest or str(self._packaged_file(variant) or self._key(variant))

    def origin(self, variant: KernelVariant) -> str:
        """Describes where the bitcode for a variant is from: a packaged file, the cache, or this process."""
        if self._packaged_file(variant) is not None:
            return self.identity(variant)
        if cache_folder() is None:
            return "compiled for this process, as there is no cache"
        return f"{self.identity(variant)} of the cache"

    def write_content(self, variant: KernelVariant, folder: Path) -> None:
        """Writes what the cache would have for a variant, for `STOCK_FOLDER`. Raises UserError as `bitcode` does."""
        file = folder / str(self._key(variant))
        part = file.with_suffix(".part")
        part.write_bytes(self._content(variant).payload())
        part.replace(file)

    def _content(self, variant: KernelVariant) -> _Content:
        content = self._contents.get(variant)
        if content is None:
            packaged = self._packaged_file(variant)
            key = packaged or self._key(variant)
            content = _read_files(key) if isinstance(key, Path) else self._cached(variant, key)
            self._identities[variant] = str(key)
            self._contents[variant] = content
        return content

    def _packaged_file(self, variant: KernelVariant) -> Path | None:
        file = self.packaged and self.packaged / f"{variant.name}.bc"
        return file if file is not None and file.is_file() else None

    def _cached(self, variant: KernelVariant, key: Key) -> _Content:
        if (payload := read(key) or _brought(key)) is not None:
            return _Content.of(payload)
        with locked("bitcode"), tempfile.TemporaryDirectory() as scratch:
            if (payload := read(key)) is not None:  # another process was faster
                return _Content.of(payload)
            report("kernels")
            file = Path(scratch, f"{variant.name}.bc")
            warnings = self._compile(variant, file)
            content = replace(_read_files(file), warnings=warnings)
            write(key, content.payload())
            return content

    def _key(self, variant: KernelVariant) -> Key:
        """Names everything the bitcode depends on: the variant, the library's sources and the two compilers."""
        try:
            compilers = [f"{package} {version(package)}" for package in ("ziglang", "llvmlite")]
        except PackageNotFoundError as error:
            raise UserError(
                f"the kernels of {variant.name} have to be compiled, and {error.name} is not installed",
                note=_REMEDY,
            ) from error
        settings = [compile_script(), LIBJIT_FOLDER / "variants.toml"]
        headers = {*self.folder.glob("include/*.h"), *LIBJIT_FOLDER.glob("include/*.h")}
        files = [*settings, *sorted(headers), *sorted(self.folder.glob("src/*.c"))]
        sources = [part for file in files for part in (file.name, file.read_bytes())]
        return Key.of("bitcode", "with warnings", self.name, variant.name, *compilers, *sources)

    def _compile(self, variant: KernelVariant, path: Path) -> str:
        """Writes the bitcode; what the compiler said of it."""
        what = ["--root", str(self.folder), "--variant", variant.name, "--output", str(path)]
        status, messages = _run_script(what, path.parent)
        if status == _COMPILERS_DO_NOT_FIT:
            raise UserError(
                f"the kernels of {variant.name} cannot be compiled: {messages}", note=_REMEDY
            )
        if status:
            failure = f"the kernels of {self.name} do not compile for {variant.name}"
            if self.folder == LIBJIT_FOLDER:
                raise InternalError(f"{failure}:\n{messages}")
            raise UserError(failure, context=messages, note=f"mend them in {self.folder / 'src'}")
        return messages


def _brought(key: Key) -> bytes | None:
    """The entry that the installation of a checkout has made; None where its kernels are others by now."""
    try:
        return (STOCK_FOLDER / str(key)).read_bytes()
    except OSError:
        return None


def _run_script(what: Sequence[str], folder: Path) -> tuple[int, str]:
    """Runs the script; returns its exit status and messages. Its results for single files are kept in the cache."""
    parts = folder / "parts"
    parts.mkdir()
    command = [sys.executable, str(compile_script()), *what, "--parts", str(parts)]
    # Its temporary files are in our folder: they go with it, whatever ends the script.
    environment = child_environment(command, TMPDIR=str(folder))
    with (
        (folder / "said").open("w+", encoding="utf-8") as said,
        subprocess.Popen(
            command, env=environment, stdin=PIPE, stdout=PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            missing = _bring_parts(process, parts)
            process.communicate("\n")
        except BaseException:
            process.kill()
            raise
        said.seek(0)
        text = said.read().strip()
    files = {key: parts / digest for digest, key in missing.items() if (parts / digest).is_file()}
    write_all({key: file.read_bytes() for key, file in files.items()})
    return process.returncode, text


def _bring_parts(process: subprocess.Popen[str], parts: Path) -> dict[str, Key]:
    """Writes the parts that the script asks for and the cache has; returns the keys of the others, by digest."""
    assert process.stdout is not None
    missing = {}
    for digest in process.stdout.readline().split():
        key = _part_key(digest)
        if (payload := read(key)) is None:
            missing[digest] = key
        else:
            (parts / digest).write_bytes(payload)
    return missing


def _part_key(digest: str) -> Key:
    """Names what the script makes of one file."""
    return Key.of("bitcode", "part", version("llvmlite"), compile_script().read_bytes(), digest)


@dataclass(frozen=True)
class _Content:
    """Bitcode, the functions it defines, and what the compiler said of it."""

    bitcode: bytes
    symbols: frozenset[str]
    warnings: str = ""

    @classmethod
    def of(cls, payload: bytes) -> _Content:
        """Reads an entry of the cache."""
        symbols, warnings, bitcode = payload.split(b"\0", 2)
        return cls(bitcode, frozenset(symbols.decode().split()), warnings.decode())

    def payload(self) -> bytes:
        """The entry of the cache."""
        texts = "\n".join(sorted(self.symbols)), self.warnings.replace("\0", "")
        return b"\0".join([*(text.encode() for text in texts), self.bitcode])


def _read_files(file: Path) -> _Content:
    """Reads the files that `compile.py` wrote."""
    symbols = file.with_suffix(".symbols").read_text(encoding="utf-8")
    return _Content(file.read_bytes(), frozenset(symbols.split()))
