"""Which variant of the kernel library a target runs, and where the bitcode of it lies.

- A wheel carries the bitcode of the family it was built on, and the library's sources.
- Any other variant is compiled when it is first asked for, by `libjit/compile.py` in a process of its own, into the
  user's cache folder. This needs ziglang, which `glowpy[cross]` brings.
- In a source checkout nothing is packaged and the sources change: every variant comes from the cache.
- A cached file is named after everything its bytes depend on, so it is never out of date.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from glowpy.support.errors import InternalError, UnsupportedError, UserError

__all__ = [
    "VARIANTS",
    "Variant",
    "baseline_variant",
    "bitcode_path",
    "select_variant",
    "variant_named",
]

_PACKAGED = Path(__file__).parent / "bitcode"
_INSTALLED_LIBRARY = Path(__file__).parent / "libjit"
_CHECKOUT_LIBRARY = Path(__file__).parents[3] / "libjit"
_IS_CHECKOUT = not _INSTALLED_LIBRARY.is_dir()
_LIBRARY = _CHECKOUT_LIBRARY if _IS_CHECKOUT else _INSTALLED_LIBRARY

_REMEDY = (
    "pip install 'glowpy[cross]' brings the compiler for kernels that the wheel does not carry"
)
_KEPT_PER_VARIANT = 8
_COMPILERS_DO_NOT_FIT = 3  # compile.py's exit status


@dataclass(frozen=True, slots=True)
class Variant:
    """One vector width and instruction set that libjit is compiled for."""

    name: str
    family: str
    triple: str
    """LLVM's name of the target the bitcode says it is for."""
    cpu: str
    """LLVM's name of a processor that has what the variant assumes, once `requires` is added to it."""
    requires: frozenset[str]
    """LLVM's names of the features the target must have."""
    cpus: frozenset[str]
    """LLVM's names of other processors that have what the variant requires."""
    vector_bytes: int
    vector_registers: int
    """How many vectors fit into registers at a time."""

    @property
    def lanes(self) -> int:
        """How many f32 a vector holds: LANES in libjit.h."""
        return self.vector_bytes // 4


def _read_variants() -> tuple[tuple[Variant, ...], dict[str, str]]:
    table = tomllib.loads((_LIBRARY / "variants.toml").read_text(encoding="utf-8"))
    variants = tuple(
        Variant(
            name=entry["name"],
            family=entry["family"],
            triple=entry["triple"],
            cpu=entry["cpu"],
            requires=frozenset(entry["requires"]),
            cpus=frozenset(entry.get("cpus", ())),
            vector_bytes=entry["vector_bytes"],
            vector_registers=entry["vector_registers"],
        )
        for entry in table["variant"]
    )
    families = {arch: name for name, entry in table["family"].items() for arch in entry["arch"]}
    return variants, families


VARIANTS, _FAMILY_OF = _read_variants()
"""Every variant. Within a family a later one is better."""


def variant_named(name: str) -> Variant:
    """The variant of that name; UserError with the names there are if there is none."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    names = ", ".join(variant.name for variant in VARIANTS)
    raise UserError(f"no kernel variant {name!r}: expected one of {names}")


def select_variant(triple: str, features: Collection[str]) -> Variant:
    """The best variant that a target can run.

    Args:
        triple: LLVM's name of the target; only the architecture, its first part, matters.
        features: LLVM's names of what the processor has, those implied by its generation included.

    Raises:
        UnsupportedError: libjit has no variant for the architecture, or none for so few features.
    """
    members = _family_members(triple)
    for variant in reversed(members):
        if variant.requires <= set(features):
            return variant
    baseline = members[0]
    lacking = ", ".join(sorted(baseline.requires - set(features)))
    raise UnsupportedError(
        f"no kernels for so old a processor: expected {baseline.family} with {lacking} "
        f"(variant {baseline.name})",
        note="the interpreter backend runs everywhere",
    )


def baseline_variant(triple: str, cpu: str = "") -> Variant:
    """The variant for a target of which only this is known; what it `requires` is then assumed.

    That is the one made for the processor; the first of the architecture where no variant speaks of the processor.

    Raises UnsupportedError for an architecture without kernels.
    """
    members = _family_members(triple)
    named = (variant for variant in members if cpu == variant.cpu or cpu in variant.cpus)
    return next(named, members[0])


def _family_members(triple: str) -> list[Variant]:
    arch = triple.split("-", 1)[0].lower()
    family = _FAMILY_OF.get(arch)
    if family is None:
        known = ", ".join(sorted(set(_FAMILY_OF.values())))
        raise UnsupportedError(
            f"no kernels for {triple!r}: expected an architecture of {known}, got {arch!r}",
            note="the interpreter backend runs everywhere",
        )
    return [variant for variant in VARIANTS if variant.family == family]


@cache
def bitcode_path(variant: Variant) -> Path:
    """A file with the bitcode of a variant, compiled first if need be.

    Raises:
        UserError: it has to be compiled, and the compiler is not installed.
    """
    packaged = _PACKAGED / f"{variant.name}.bc"
    if not _IS_CHECKOUT and packaged.is_file():
        return packaged
    folder = user_cache_path("glowpy", appauthor=False) / "bitcode"
    path = folder / f"{variant.name}-{_digest(variant)}.bc"
    if path.is_file():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the kernels of {variant.name} have to be compiled, and the cache folder cannot be made: "
            f"{error}"
        ) from error
    with FileLock(folder / f"{variant.name}.lock"):
        if not path.is_file():
            _compile(variant, path)
            _forget_old(variant, folder)
    return path


def _digest(variant: Variant) -> str:
    """Names everything the bitcode depends on: the library's sources and the two compilers."""
    try:
        compilers = [f"{package} {version(package)}" for package in ("ziglang", "llvmlite")]
    except PackageNotFoundError as error:
        raise UserError(
            f"the kernels of {variant.name} have to be compiled, and {error.name} is not installed",
            note=_REMEDY,
        ) from error
    digest = hashlib.sha256("\n".join(compilers).encode())
    settings = [_LIBRARY / "compile.py", _LIBRARY / "variants.toml"]
    for file in [
        *settings,
        *sorted(_LIBRARY.glob("include/*.h")),
        *sorted(_LIBRARY.glob("src/*.c")),
    ]:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"\n{file.name} {content}".encode())
    return digest.hexdigest()[:16]


def _compile(variant: Variant, path: Path) -> None:
    script = _LIBRARY / "compile.py"
    command = [sys.executable, str(script), "--variant", variant.name, "--output", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == _COMPILERS_DO_NOT_FIT:
        raise UserError(
            f"the kernels of {variant.name} cannot be compiled: {done.stderr.strip()}", note=_REMEDY
        )
    if done.returncode:
        raise InternalError(f"libjit does not compile for {variant.name}:\n{done.stderr.strip()}")


def _forget_old(variant: Variant, folder: Path) -> None:
    """Deletes all but the latest few files of a variant: a checkout makes one for each change of a kernel."""
    names = f"{variant.name}-" + "[0-9a-f]" * 16 + ".bc"
    newest_first = sorted(folder.glob(names), key=lambda f: f.stat().st_mtime, reverse=True)
    for file in newest_first[_KEPT_PER_VARIANT:]:
        file.unlink(missing_ok=True)
