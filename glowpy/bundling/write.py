"""Makes bundles: programs in, a folder of files out, all of them or none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from glowpy.backend import Program
from glowpy.bundling.archive import archive
from glowpy.bundling.header import header_text
from glowpy.bundling.layout import Layout, lay_out
from glowpy.bundling.link import link_shared
from glowpy.bundling.manifest import manifest_text
from glowpy.bundling.options import BundleOptions
from glowpy.bundling.project import cmake_text, example_text, operand_dump_text
from glowpy.bundling.read import manifests
from glowpy.bundling.report import SizeReport, check_budgets, measure
from glowpy.bundling.sections import with_sections
from glowpy.bundling.support_code import Golden, support_texts
from glowpy.bundling.tolerance import tolerance_of
from glowpy.bundling.wasm_file import is_wasm, read_wasm_sections
from glowpy.bundling.weights import weights_header, weights_listing
from glowpy.core.extents import reach
from glowpy.ir.irfunction import dims_needed
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.llvm.debug_info import ir_text
from glowpy.llvm.machine import Form
from glowpy.llvm.object_file import embed, is_elf, read_sections
from glowpy.llvm.objects import compile_whole
from glowpy.llvm.stack_depth import stack_depths
from glowpy.llvm.target import Target
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.output_files import check_output_folder, make_output_folder
from glowpy.support.symbolic import Expr

__all__ = ["Bundle", "build_bundle"]


@dataclass(frozen=True)
class Bundle:
    """A finished bundle: its files, and the sizes where the object's format is known."""

    directory: Path
    files: tuple[str, ...]
    report: SizeReport | None


def build_bundle(
    programs: Mapping[str, Program],
    directory: Path,
    options: BundleOptions,
    backend: str,
    compiler: BundleCompiler,
    *,
    identity: Mapping[str, str],
    golden: Mapping[str, Sequence[Golden]],
    modules: Mapping[str, str] | None = None,
) -> Bundle:
    """Writes a bundle.

    Args:
        programs: The networks by the names of their entry points.
        directory: Where to; made if it is not there. An earlier bundle of this name is replaced there, links and
            all; files that are none of its stay.
        options: How to make the bundle.
        backend: The name of the backend that compiled the programs.
        compiler: What makes the code, for which machine.
        identity: glowpy's version and the fingerprint, for the manifest.
        golden: Runs for the self-test, by entry point; empty without one.
        modules: The module of each network, by entry point: those of one share its variables.

    Raises UserError if a budget is exceeded, an area or a dimension is too large for the target, the target cannot be
    linked for, the folder holds another bundle, or it cannot be written.
    """
    check_output_folder(str(directory))
    earlier = _earlier_files(directory, options.name)
    layout = lay_out(options.name, programs, guard=options.guard, modules=modules)
    _check_areas(layout, compiler.target)
    _check_dims(layout, compiler.target)
    files, report = _files(layout, options, backend, compiler, identity, golden)
    _check_places(files, directory)
    new_folders = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    make_output_folder(directory)
    try:
        _write(files, directory)
        for name in earlier - set(files):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        with suppress(OSError):
            for folder in new_folders:
                folder.rmdir()
        reason = error.strerror or str(error)
        raise UserError(f"cannot write the bundle: {reason}", loc=Loc(str(directory))) from error
    return Bundle(directory, tuple(files), report)


def _check_areas(layout: Layout, target: Target) -> None:
    """Raises UserError for an area beyond the numbers that code for the target computes places with."""
    largest = max(layout.constants.size, layout.mutable_size, layout.activations_size)
    if largest >= 1 << (target.pointer_bits - 1):
        raise UserError(
            f"expected areas that {target.pointer_bits}-bit code reaches all of, got one of {largest} bytes",
            note="lower the bounds of symbolic dimensions" if layout.is_open else "",
        )


def _check_dims(layout: Layout, target: Target) -> None:
    """Raises UserError for a dimension that is computed by way of numbers that the target does not have."""
    for entry in layout.entries:
        functions = (*entry.program.callees, entry.program)
        computed = [
            d for function in functions for i in function.ir.instructions for d in dims_needed(i)
        ]
        for dim in (*computed, *(port.type.size for port in entry.ports)):
            if isinstance(dim, Expr) and reach(dim) >= 1 << (target.pointer_bits - 1):
                raise UserError(
                    f"@{entry.name}: expected dimensions that {target.pointer_bits}-bit code computes, got {dim}",
                    note="lower the bounds of symbolic dimensions",
                )


def _earlier_files(directory: Path, name: str) -> set[str]:
    """The files of the bundle of this name that is there already. Raises UserError if another one is."""
    try:
        stored = manifests(directory)
    except LoadError:  # other people's JSON files
        return set()
    others = [path.stem for path in stored if path.stem != name]
    if others:
        raise UserError(
            f"the folder holds the bundle {', '.join(others)}",
            loc=Loc(str(directory)),
            note="give each bundle a folder of its own: they share names such as main.c",
        )
    return {
        file
        for fields in stored.values()
        for file in fields.get("files", ())
        if Path(file).name == file
    }


def _write(files: Mapping[str, bytes], directory: Path) -> None:
    """Writes all files, or none where there is no room for them; the manifest is the last to get its name."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".") as scratch:
        for name, content in files.items():
            Path(scratch, name).write_bytes(content)
        for name in files:
            Path(scratch, name).replace(directory / name)


def _check_places(names: Iterable[str], directory: Path) -> None:
    """Raises UserError where something that is no file has the name of one: a folder, a device."""
    for name in names:
        place = directory / name
        if place.exists() and not place.is_file():
            raise UserError(
                "cannot write the bundle: expected a file or nothing there", loc=Loc(str(place))
            )


def _files(
    layout: Layout,
    options: BundleOptions,
    backend: str,
    compiler: BundleCompiler,
    identity: Mapping[str, str],
    golden: Mapping[str, Sequence[Golden]],
) -> tuple[dict[str, bytes], SizeReport | None]:
    name, target, libraries = options.name, compiler.target, compiler.bitcode
    programs = {entry.name: entry.program for entry in layout.entries}
    tolerance = tolerance_of(bf16=target.machine.bf16)
    code_options = CodeOptions(
        EntryOptions(
            checks=options.guard or not target.machine.small,
            guard=options.guard,
            instrument="hooks" if options.sanitize else "symbols" if options.instrument else "",
            runs=options.sanitize,
            bundle=name,
            parallel=options.parallel,
        ),
        # GNU as takes no folder beside the file.
        (f"{name}.ir", "" if options.emit == "asm" else ".") if options.debug else None,
        support=lambda module: support_texts(layout, options, module, golden, tolerance),
    )
    text = compiler.code(programs, code_options)
    placed = with_sections(text, target.machine)
    files = {
        f"{name}.h": header_text(layout, options, target.variant.family).encode(),
        f"{name}.ir": ir_text(programs).encode(),
    }
    report = None
    if options.emit in ("asm", "llvm"):
        form: Form = "assembly" if options.emit == "asm" else "optimized"
        suffix = "s" if options.emit == "asm" else "ll"
        files[f"{name}.{suffix}"], _ = compile_whole(placed, target.machine, libraries, form)
    else:
        code, frames = compile_whole(placed, target.machine, libraries, "measured")
        if options.weights == "embedded":
            code = embed(code, layout.constants)
        if is_elf(code) or is_wasm(code):
            sections = read_sections(code) if is_elf(code) else read_wasm_sections(code)
            address = 8 if target.variant.family == "x86_64" else 0
            depths = stack_depths(text, frames, address)
            report = measure(layout, options, target, sections, depths)
            check_budgets(report, layout, options)
        elif options.has_budget:
            raise UserError(
                f"cannot measure object files for '{target.machine.triple}'",
                note="leave the budgets out",
            )
        library = _library(layout, code, options, target)
        files |= library
        if options.instrument == "debug":
            files[f"{name}.debug.c"] = operand_dump_text(options).encode()
        files["main.c"] = example_text(layout, options).encode()
        files["CMakeLists.txt"] = cmake_text(options, next(iter(library))).encode()
    files |= _weights(layout, options)
    manifest = manifest_text(layout, options, backend, compiler, report, files, identity)
    files[f"{name}.json"] = manifest.encode()
    return files, report


def _library(
    layout: Layout, code: bytes, options: BundleOptions, target: Target
) -> dict[str, bytes]:
    """The object file, or the library made of it."""
    name = options.name
    if options.emit == "lib":
        symbols = [*(entry.name for entry in layout.entries), f"{name}_check_weights"]
        symbols += [f"{entry.name}_parallel" for entry in layout.entries if options.parallel]
        symbols += [f"{name}_selftest"] if options.selftest else []
        symbols += [f"{name}_constants"] if options.weights == "embedded" else []
        symbols += [f"{name}_config"] if options.api == "dynamic" else []
        return {f"lib{name}.a": archive(f"{name}.o"[-15:], code, symbols)}
    if options.emit == "shared":
        return {f"lib{name}.so": link_shared(code, f"lib{name}.so", target)}
    return {f"{name}.o": code}


def _weights(layout: Layout, options: BundleOptions) -> dict[str, bytes]:
    name = options.name
    listing = {f"{name}.weights.txt": weights_listing(layout).encode()}
    if options.weights == "file":
        return {f"{name}.weights.bin": layout.constants.tobytes(), **listing}
    if options.weights == "header":
        return {f"{name}.weights.h": weights_header(name, layout).encode(), **listing}
    return listing
