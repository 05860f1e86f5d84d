"""`glowpy doctor`: what glowpy finds on this machine, and whether it works."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import click
import numpy as np

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.target import resolve_target
from glowpy.backends.cpu.variant import Variant
from glowpy.cli.verb import Verb
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import BACKENDS, backend_of, compile, unsupported
from glowpy.graph.function import Module
from glowpy.importer.formats import reader_packages
from glowpy.llvm.machine import LLVM_VERSION
from glowpy.plugins import missing_pieces, name_fault, operator_packages, plugins
from glowpy.support.cache import damaged_files
from glowpy.support.cache_folder import cache_files, cache_folder, cache_limit, why_off, write_fault
from glowpy.support.console import print_json, print_table
from glowpy.support.errors import GlowError, UserError

__all__ = ["doctor"]

_PACKAGES = ("glowpy", "numpy", "onnx", "onnxruntime", "ziglang")


@click.command(cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Show versions, processor, kernels and cache, and test every backend on this machine.

    The backends include those of other installed packages, whose operators and readers are listed as well.

    Exits with 1 if a self-test fails, or a package is broken.

    Examples:
      glowpy doctor
      glowpy doctor --json
    """
    figures = {**_versions(), **_processor(), **_cache()}
    names = dict.fromkeys([*BACKENDS, *(plugin.name for plugin in plugins())])
    figures |= {
        f"backend {plugin.name}": plugin.package
        for plugin in plugins()
        if plugin.name not in BACKENDS
    }
    tests = {name: _self_test(name) for name in names}
    tests |= {
        f"{plugin.name} of {plugin.package}": f"failed: {fault}"
        for plugin in plugins()
        if (fault := name_fault(plugin.name))
    }
    figures |= {f"self-test {name}": outcome for name, outcome in tests.items()}
    packages = operator_packages()
    figures |= {f"operators {domain}": package for domain, package in packages.items()}
    readers = reader_packages()
    figures |= {f"reader {name}": package for name, package in readers.items()}
    if as_json:
        print_json(figures)
    else:
        print_table("", ["what", "found"], list(figures.items()))
    outcomes = (*tests.values(), *packages.values(), *readers.values())
    if any(outcome.startswith("failed") for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _versions() -> dict[str, str]:
    versions = {package: _version(package) for package in _PACKAGES}
    return {"python": platform.python_version(), **versions, "llvm": LLVM_VERSION}


def _processor() -> dict[str, str]:
    """The host as LLVM sees it, and the kernels for it; the reason where there are none."""
    try:
        target = resolve_target(CpuOptions())
    except UserError as error:
        return {"processor": f"{platform.machine()}: {error}"}
    features = [name for name in target.machine.features.split(",") if name.startswith("+")]
    figures = {
        "target": target.machine.triple,
        "processor": target.machine.cpu,
        "features": " ".join(name.removeprefix("+") for name in features),
        "kernel variant": target.variant.name,
    }
    try:
        return {**figures, "kernel bitcode": _bitcode(target.variant)}
    except GlowError as error:
        return {**figures, "kernel bitcode": str(error)}


def _bitcode(variant: Variant) -> str:
    LIBJIT.bitcode(variant)  # compiles it where it is not there
    return LIBJIT.origin(variant)


def _cache() -> dict[str, str]:
    folder = cache_folder()
    if folder is None:
        return {"cache": why_off().diagnostics[0].message}
    if fault := write_fault(folder):
        return {"cache": str(folder), "cache fault": f"cannot be written: {fault}"}
    files = list(cache_files(folder))
    size = sum(file.size for file in files)
    damaged = ", ".join(file.path.name for file in damaged_files(folder))
    return {
        "cache": str(folder),
        "cache size": f"{size} bytes in {len(files)} files",
        "cache limit": f"{cache_limit()} bytes",
        "cache damage": f"{damaged}; `glowpy cache verify` deletes it" if damaged else "none",
    }


def _self_test(name: str) -> str:
    """`passed`, what went wrong when the backend compiled and ran an addition, or why it cannot."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (5,)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (5,)))
    f = module.create_function("self_test")
    total = f.create_add("sum", x, x)
    f.create_save("save", total, y)
    values = np.array([1, -2, 0.5, 1e30, 3], np.float32)
    try:
        backend = backend_of(name)
        if missing := missing_pieces(backend):
            return f"failed: {'; '.join(missing)}"
        if reasons := unsupported(total, backend):
            return f"not run: {'; '.join(reasons)}"
        outputs = compile(module, backend, CompileOptions(cache=False))({"x": values})
    except Exception as error:  # noqa: BLE001 - a backend of another package may raise anything
        return f"failed: {error if isinstance(error, GlowError) else repr(error)}"
    result = outputs["y"]
    return "passed" if np.array_equal(result, values + values) else f"failed: got {result.tolist()}"
