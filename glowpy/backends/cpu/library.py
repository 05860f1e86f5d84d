"""Libraries of kernels: which kernels there are, and where the bitcode of a variant lies.

* A package carries the bitcode of the variants it was built for, and the library's sources.
* Any other variant is compiled when it is first asked for, by libjit's `compile.py` in a process of its own, into the
  user's cache folder. This needs ziglang, which `glowpy[cross]` brings.
* In a source checkout nothing is packaged and the sources change: every variant comes from the cache.
* A cached file is named after everything its bytes depend on, so it is never out of date.
* Beside `NAME.bc` lies `NAME.symbols`, the functions that the bitcode defines, one a line: a file that takes LLVM a
  tenth of a second to read need not be read to know what it holds.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from glowpy.backends.cpu.kernels_gen import KERNELS, SCALARS
from glowpy.backends.cpu.variant import IS_INSTALLED, LIBJIT_FOLDER, Variant
from glowpy.llvm.kernel import KernelSpec
from glowpy.support.errors import InternalError, UserError

__all__ = ["LIBJIT", "KernelLibrary", "compile_script"]

_REMEDY = (
    "pip install 'glowpy[cross]' brings the compiler for kernels that the wheel does not carry"
)
_KEPT_PER_VARIANT = 8
_COMPILERS_DO_NOT_FIT = 3  # compile.py's exit status


def compile_script() -> Path:
    """The program that compiles kernels: `python compile.py --root FOLDER --host --directory FOLDER/bitcode`."""
    return LIBJIT_FOLDER / "compile.py"


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """Kernels in C, compiled to bitcode for each variant.

    Attributes:
        name: What the kernels' symbols begin with.
        folder: Where `src/*.c` and `include/*.h` are; libjit's headers are found as well.
        packaged: Where an installed package carries bitcode, which is used as it is; None in a checkout.
        specs: The kernels that instructions were declared with, by mnemonic.
    """

    name: str
    folder: Path
    packaged: Path | None
    specs: Mapping[str, KernelSpec]
    _bitcode: dict[Variant, Path] = field(default_factory=dict, repr=False)

    def bitcode(self, variant: Variant) -> Path:
        """A file with the bitcode for a variant, compiled first if need be.

        Raises UserError if it has to be compiled, and the compiler is not installed or finds a mistake.
        """
        if variant not in self._bitcode:
            packaged = self.packaged and self.packaged / f"{variant.name}.bc"
            known = packaged if packaged is not None and packaged.is_file() else None
            self._bitcode[variant] = known or self._cached(variant)
        return self._bitcode[variant]

    def symbols(self, variant: Variant) -> frozenset[str]:
        """The functions that the bitcode for a variant defines. Raises UserError as `bitcode` does."""
        return _read_symbols(self.bitcode(variant).with_suffix(".symbols"))

    def _cached(self, variant: Variant) -> Path:
        folder = user_cache_path("glowpy", appauthor=False) / "bitcode"
        path = folder / f"{self.name}-{variant.name}-{self._digest(variant)}.bc"
        if path.is_file():
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the kernels of {variant.name} have to be compiled, and the cache folder cannot be made: "
                f"{error}"
            ) from error
        with FileLock(folder / f"{self.name}-{variant.name}.lock"):
            if not path.is_file():
                self._compile(variant, path)
                self._forget_old(variant, folder)
        return path

    def _digest(self, variant: Variant) -> str:
        """Names everything the bitcode depends on: the library's sources and the two compilers."""
        try:
            compilers = [f"{package} {version(package)}" for package in ("ziglang", "llvmlite")]
        except PackageNotFoundError as error:
            raise UserError(
                f"the kernels of {variant.name} have to be compiled, and {error.name} is not installed",
                note=_REMEDY,
            ) from error
        digest = hashlib.sha256("\n".join(compilers).encode())
        settings = [compile_script(), LIBJIT_FOLDER / "variants.toml"]
        headers = {*self.folder.glob("include/*.h"), *LIBJIT_FOLDER.glob("include/*.h")}
        for file in [*settings, *sorted(headers), *sorted(self.folder.glob("src/*.c"))]:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"\n{file.name} {content}".encode())
        return digest.hexdigest()[:16]

    def _compile(self, variant: Variant, path: Path) -> None:
        what = ["--root", str(self.folder), "--variant", variant.name, "--output", str(path)]
        command = [sys.executable, str(compile_script()), *what]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == _COMPILERS_DO_NOT_FIT:
            raise UserError(
                f"the kernels of {variant.name} cannot be compiled: {done.stderr.strip()}",
                note=_REMEDY,
            )
        if done.returncode:
            failure = f"the kernels of {self.name} do not compile for {variant.name}"
            if self.folder == LIBJIT_FOLDER:
                raise InternalError(f"{failure}:\n{done.stderr.strip()}")
            raise UserError(
                failure, context=done.stderr.strip(), note=f"mend them in {self.folder / 'src'}"
            )

    def _forget_old(self, variant: Variant, folder: Path) -> None:
        """Deletes all but the latest few files of a variant: a checkout makes one for each change of a kernel."""
        names = f"{self.name}-{variant.name}-" + "[0-9a-f]" * 16 + ".bc"
        newest_first = sorted(folder.glob(names), key=lambda f: f.stat().st_mtime, reverse=True)
        for file in newest_first[_KEPT_PER_VARIANT:]:
            file.unlink(missing_ok=True)
            file.with_suffix(".symbols").unlink(missing_ok=True)


@cache
def _read_symbols(path: Path) -> frozenset[str]:
    return frozenset(path.read_text(encoding="utf-8").split())


_PACKAGED = Path(__file__).parent / "bitcode" if IS_INSTALLED else None

LIBJIT = KernelLibrary("libjit", LIBJIT_FOLDER, _PACKAGED, {**KERNELS, **SCALARS})
"""The kernels of the operators that every backend knows, and of the CPU backend's own."""
