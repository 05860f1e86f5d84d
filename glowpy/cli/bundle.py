"""`glowpy bundle`: makes a bundle, or says whether one is up to date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.options import CpuOptions, Optimize
from glowpy.backends.cpu.target import FLOAT_ABIS, RELOCATIONS
from glowpy.bundling.make import bundle as make_bundle
from glowpy.bundling.make import outdated
from glowpy.bundling.options import Api, BundleOptions, Emit, WeightsPlace
from glowpy.bundling.read import read_bundle
from glowpy.bundling.report import SizeReport
from glowpy.bundling.write import Bundle
from glowpy.cli.backends import (
    backend_option,
    bound_backend,
    computing_options,
    option_group,
    target_options,
)
from glowpy.cli.completion import complete_file
from glowpy.cli.gathered import gathered
from glowpy.cli.model import constants_option, is_text, load_model, state_option
from glowpy.cli.pass_options import PassOptions, pass_options
from glowpy.cli.shapes import shape_option
from glowpy.cli.tuning import tuning_of, tuning_text
from glowpy.cli.values import value_option
from glowpy.cli.verb import Bytes, OptionalChoice, OutputFolder, Verb
from glowpy.graph.function import Module
from glowpy.measuring.tuned import Tuned
from glowpy.support.console import print_json, print_table, progress
from glowpy.support.errors import UserError
from glowpy.support.names import file_stem

__all__ = ["bundle"]

_SHOWN_INSTRUCTIONS = 8
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def _refuse_threads(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    del ctx, param
    if value is not None:
        note = "give --parallel for an entry point that shares its work among threads of yours"
        raise UserError("--threads: a bundle begins no threads", note=note)


@dataclass(frozen=True, kw_only=True)
class BundlingOptions:
    """Options of `glowpy bundle`, by the names of its parameters."""

    models: tuple[str, ...]
    output: Path | None
    check: Path | None
    name: str
    instrument_ir: bool
    instrument_debug: bool
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    state: tuple[str, ...]
    layouts: tuple[str, ...]
    constants: str
    as_json: bool
    backend: str
    cpu_options: CpuOptions
    passes: PassOptions
    api: Api
    emit: Emit
    weights: WeightsPlace
    selftest: int
    guard: bool
    sanitize: bool
    debug: bool
    parallel: bool
    max_ram: int | None
    max_flash: int | None
    integer_ports: bool

    def bundle_options(self) -> BundleOptions:
        """How the bundle is made. Raises UserError for options that do not go together."""
        if self.instrument_ir and self.instrument_debug:
            raise UserError("expected at most one of --instrument-ir and --instrument-debug")
        return BundleOptions(
            self.name or _identifier(self.models[0]),
            api=self.api,
            emit=self.emit,
            weights=self.weights,
            selftest=self.selftest,
            guard=self.guard,
            sanitize=self.sanitize,
            debug=self.debug,
            instrument="ir" if self.instrument_ir else "debug" if self.instrument_debug else "",
            parallel=self.parallel,
            channels_last=tuple(_with_channels_last(text) for text in self.layouts),
            integer_ports=self.integer_ports,
            max_ram=self.max_ram,
            max_flash=self.max_flash,
        )


@click.command(cls=Verb)
@click.argument("models", nargs=-1, required=True, shell_complete=complete_file)
@click.option("-o", "--output", type=OutputFolder(), help="The folder to write to.")
@click.option(
    "--check", type=click.Path(path_type=Path), help="Check whether the bundle there is up to date."
)
@click.option(
    "--name", default="", help="A C identifier; the name of the (first) model if left out."
)
@backend_option("cpu", "The backend to compile for, which makes bundles.")
@target_options()
@option_group(
    click.option(
        "--float-abi",
        default="",
        type=OptionalChoice(FLOAT_ABIS),
        help="The ABI for floats on Arm and RISC-V.",
    ),
    click.option(
        "--relocation",
        default="",
        type=OptionalChoice(RELOCATIONS),
        help="The relocation model of the code.",
    ),
    click.option("--code-model", default="", help="A code model of the target: small, medium, ..."),
    names=("float_abi", "relocation", "code_model"),
)
@computing_options()
@option_group(
    click.option(
        "--optimize",
        type=click.Choice(get_args(Optimize)),
        default="speed",
        show_default=True,
        help="Make the code fast, or small.",
    ),
    names=("optimize",),
)
@pass_options()
@click.option(
    "--api",
    type=click.Choice(get_args(Api)),
    default="static",
    show_default=True,
    help="Describe the network by macros, or also by a table in the code.",
)
@click.option(
    "--emit",
    type=click.Choice(get_args(Emit)),
    default="obj",
    show_default=True,
    help="The form of the code.",
)
@click.option(
    "--weights",
    type=click.Choice(get_args(WeightsPlace)),
    default="file",
    show_default=True,
    help="Write weights to a file of their own, into the code, or to a C header.",
)
@click.option("--selftest", default=0, metavar="N", help="Embed N runs and their results.")
@click.option("--guard", is_flag=True, help="Report overruns of the activations.")
@click.option(
    "--sanitize",
    is_flag=True,
    help="Let `glowpy verify` watch every access to memory; needs --emit shared.",
)
@click.option("--debug", is_flag=True, help="Add debug information, with the IR as source.")
@click.option(
    "--instrument-ir", is_flag=True, help="Call a function before and after every instruction."
)
@click.option("--instrument-debug", is_flag=True, help="Write every operand to a file.")
@click.option(
    "--parallel", is_flag=True, help="Add an entry point that takes a parallel_for of the caller's."
)
@click.option("--threads", hidden=True, expose_value=False, callback=_refuse_threads)
@click.option("--max-ram", type=Bytes(), help="Fail if the bundle needs more RAM: 65536, 64K, 1M.")
@click.option("--max-flash", type=Bytes(), help="Fail if the bundle needs more flash.")
@shape_option()
@value_option()
@state_option()
@click.option(
    "--layout", "layouts", multiple=True, help="NAME=nhwc: an input or output with channels last."
)
@click.option(
    "--integer-ports",
    is_flag=True,
    help="Pass the integers of a quantized model in place of floats.",
)
@constants_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@gathered(BundlingOptions)
def bundle(options: BundlingOptions) -> None:
    """Compile models ahead of time into a library for C and C++ without dependencies.

    MODELS are .onnx files or .glow text. The folder gets these files:

    NAME.o, NAME.h     the code, and its interface for C and C++
    NAME.weights.bin   the weights, unless they are embedded or a header
    NAME.json, NAME.ir the manifest, and the program as text
    main.c, CMakeLists.txt an example that runs at once

    Several models become one bundle with an entry point each, which share weights that are the same.
    Nothing is written with --check, which exits with 1 if the bundle is out of date.

    Examples:
      glowpy bundle model.onnx -o build
      glowpy bundle model.onnx -o build --target cortex-m7 --weights embedded --max-ram 256K
      glowpy bundle a.onnx b.onnx -o build --name both --emit shared --api dynamic
      glowpy bundle model.onnx --check build
    """
    output, passes = options.output, options.passes
    if (output is None) == (options.check is None):
        raise UserError("expected either -o FOLDER or --check FOLDER")
    with progress(f"reading {', '.join(options.models)}"):
        loaded = _load(options)
    if options.check is not None:
        _check(loaded, options.check, options.as_json)
        return
    settings = options.bundle_options()
    bound = bound_backend(options.backend, options.cpu_options)
    compiling = passes.on(CompileOptions())
    ctx = passes.context(compiling, bound)
    with progress(f"bundling {settings.name}"):
        written = make_bundle(
            loaded, output or Path(), settings, bound, ctx=ctx, compiling=compiling
        )
    passes.report(ctx)
    (_print_json if options.as_json else _print)(written, tuning_of(bound))


def _with_channels_last(text: str) -> str:
    """The input or output that --layout is about. Raises UserError for any other layout than nhwc."""
    name, _, layout = text.rpartition("=")
    if not name or layout != "nhwc":
        raise UserError(
            f"--layout: expected NAME=nhwc, got '{text}'",
            note="what is not named has the model's layout",
        )
    return name


def _identifier(path: str) -> str:
    """A C identifier out of a file's name."""
    stem = _ILLEGAL.sub("_", "model" if path == "-" else Path(path).stem)
    return file_stem(stem if stem[:1].isalpha() or stem.startswith("_") else f"_{stem}")


def _load(options: BundlingOptions) -> Module | dict[str, Module]:
    """One module, or several by the names of their files."""
    models, constants, backend = options.models, options.constants, options.backend
    if len(models) == 1:
        return load_model(
            *(models[0], options.shapes, constants, backend, options.state, options.values)
        )
    loaded: dict[str, Module] = {}
    for path in models:
        key = _identifier(path)
        if key in loaded:
            raise UserError(f"expected models with different names, got '{key}' twice")
        said = (options.shapes, options.state, options.values)
        bound, kept, known = ((), (), ()) if is_text(path) else said
        loaded[key] = load_model(path, bound, constants, backend, kept, known)
    return loaded


def _check(models: Module | dict[str, Module], directory: Path, as_json: bool) -> None:
    name = read_bundle(directory).name
    reasons = outdated(models, directory)
    if as_json:
        print_json({"name": name, "up_to_date": not reasons, "reasons": reasons})
    else:
        for line in reasons or [f"{name} is up to date"]:
            click.echo(line)
    if reasons:
        raise click.exceptions.Exit(1)


def _print_json(written: Bundle, tuned: Sequence[Tuned] | None) -> None:
    target = read_bundle(written.directory).manifest["target"]
    tuning = {} if tuned is None else {"tuning": [product.figures for product in tuned]}
    print_json(
        {
            "directory": str(written.directory),
            "files": list(written.files),
            "target": target,
            "sizes": written.report.as_json() if written.report is not None else None,
            **tuning,
        }
    )


def _print(written: Bundle, tuned: Sequence[Tuned] | None) -> None:
    stored = read_bundle(written.directory)
    manifest = stored.manifest
    target = manifest["target"]
    title = (
        f"{manifest['name']} for {target['triple']} ({target['cpu']}, kernels {target['variant']})"
    )
    click.echo(title)
    if written.report is None:
        areas = {
            "weights": "constants",
            "inputs and outputs": "mutable",
            "activations": "activations",
        }
        rows = [[what, f"{manifest['areas'][area]:,}", ""] for what, area in areas.items()]
        print_table("", ["bytes of", ">", ""], rows)
    else:
        print_table("", ["bytes of", ">", ""], _sizes(written.report))
        largest = written.report.instructions[:_SHOWN_INSTRUCTIONS]
        rows = [
            [instruction.name, f"{instruction.text:,}", f"{instruction.stack:,}"]
            for instruction in largest
        ]
        if rows:
            print_table("Most code", ["instruction", ">code", ">stack"], rows)
    for network in stored.networks:
        ranges = [
            f"{extent.symbol.name} = {extent.symbol.low}..{extent.symbol.high}{' (found)' * extent.found}"
            for extent in network.extents
        ]
        if ranges:
            click.echo(f"{network.name}: {', '.join(ranges)}; memory is for the highest")
    if tuned is not None:
        click.echo(tuning_text(tuned))
    click.echo(f"{written.directory}: {', '.join(written.files)}")


def _sizes(report: SizeReport) -> list[list[str]]:
    """The rows of the table of sizes."""
    return [
        ["text", f"{report.text:,}", "flash"],
        ["rodata", f"{report.rodata:,}", "flash"],
        ["weights", f"{report.weights:,}", "flash"],
        ["inputs and outputs", f"{report.mutable:,}", "RAM"],
        ["activations", f"{report.arena:,}", "RAM"],
        ["stack", f"{report.stack:,}", "RAM"],
        ["data", f"{report.data:,}", "RAM"],
        ["all flash", f"{report.flash:,}", ""],
        ["all RAM", f"{report.ram:,}", ""],
    ]
