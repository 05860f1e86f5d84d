"""Builds and runs the example of a bundle, and rebuilds the programs it was made of from its own IR."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glowpy.backend import Program
from glowpy.bundling.link import (
    SANITIZERS,
    MissingToolError,
    c_compiler,
    can_sanitize,
    is_native,
    runner,
)
from glowpy.bundling.network import Extent, Network, Symbol
from glowpy.bundling.read import StoredBundle
from glowpy.core.extents import Extents, symbols_of_types, type_at
from glowpy.core.tensor import Array, Tensor
from glowpy.ir.inst import Instruction
from glowpy.ir.parser import read_irfunction
from glowpy.recipe import plan_all
from glowpy.runtime.ports import Port, Ports
from glowpy.support import symbolic
from glowpy.support.children import child_environment
from glowpy.support.errors import UserError
from glowpy.support.names import file_stem
from glowpy.support.text import Lexer

__all__ = ["Example", "build_examples", "stored_extents", "stored_ports", "stored_programs"]

_WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror")

_WASI = """\
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';
const [program, ...args] = process.argv.slice(2);
const wasi = new WASI({ version: 'preview1', args: [program, ...args], preopens: { '.': '.' }, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exitCode = wasi.start(instance);
"""
"""Runs a program for WASI under Node, with its folder as the only one it sees."""


@dataclass(frozen=True)
class Example:
    """`main.c` of a bundle, compiled and linked.

    Attributes:
        bundle: The bundle.
        label: How it was built, for people.
        command: Runs it.
        folder: Where it runs, and where its files go.
    """

    bundle: StoredBundle
    label: str
    command: tuple[str, ...]
    folder: Path

    def run(
        self, inputs: Mapping[str, Mapping[str, Array]], extents: Mapping[str, Extents]
    ) -> dict[str, dict[str, Array]]:
        """The outputs of every network by placeholder, from inputs by network and placeholder, for extents by network.

        Variables that are not among the inputs begin as the network does.

        An output whose shape depends on extents that the network finds is a vector.

        Raises UserError if the program fails.
        """
        networks = self.bundle.networks
        arguments = ["constants=constants.bin"]
        for network in networks:
            for extent in network.extents:
                if not extent.found:
                    number = extents[network.name][extent.symbol.name]
                    arguments.append(f"--{_argument(networks, network, extent)}={number}")
            for symbol in network.ports:
                file = self._file(network, symbol)
                arguments.append(f"{_argument(networks, network, symbol)}={file.name}")
                given = inputs[network.name].get(symbol.weight)
                file.unlink(missing_ok=True)
                if given is not None:
                    file.write_bytes(given.tobytes())
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, capture_output=True, check=False
        )
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()
            raise UserError(
                f"the example of {self.bundle.name}, built with {self.label}, ends with {done.returncode}: {message}"
            )
        return {
            network.name: {
                symbol.weight: self._read(network, symbol, extents[network.name])
                for symbol in network.ports
                if symbol.role != "input"
            }
            for network in networks
        }

    @property
    def constants(self) -> Array:
        """The weights as the program that ran has them."""
        return np.fromfile(self.folder / "constants.bin", np.uint8)

    def _file(self, network: Network, symbol: Symbol) -> Path:
        return self.folder / f"{file_stem(network.name + '.' + symbol.name)}.bin"

    def _read(self, network: Network, symbol: Symbol, extents: Extents) -> Array:
        type, counts = symbol.type, {e.symbol.name for e in network.extents if e.found}
        file = self._file(network, symbol)
        # What has no elements is not written.
        elements = np.frombuffer(file.read_bytes() if file.exists() else b"", type.kind.dtype)
        if symbols_of_types([type]).keys() & counts:
            return elements
        return elements.reshape(type_at(type, extents).extents)


def build_examples(bundle: StoredBundle, folder: Path, *, system: bool = True) -> Iterator[Example]:
    """The example by the best compiler there is, and again with sanitizers where they run.

    Args:
        bundle: The bundle.
        folder: Where to build and run.
        system: Whether compilers of the system may be taken.

    Raises MissingToolError without compiler or emulator, and for bundles without an example of their own; UserError if
    main.c does not compile without warnings, or the linker refuses.
    """
    options, triple = bundle.options, bundle.triple
    if options.emit not in ("obj", "lib", "shared"):
        raise MissingToolError(
            f"there is no example in a bundle of --emit {options.emit}",
            note="--emit obj, lib or shared",
        )
    if options.instrument == "ir":
        raise MissingToolError("the callbacks of --instrument-ir are yours to define")
    native = is_native(triple)
    if options.emit == "shared" and not native:
        raise MissingToolError(
            f"a shared library for {triple} needs that system's loader", note="--emit obj or lib"
        )
    compiler, emulator = c_compiler(triple, system=system), runner(triple)
    label = "zig cc" if "ziglang" in compiler else Path(compiler[0]).name
    if options.weights == "file":
        weights = f"{bundle.name}.weights.bin"
        (folder / weights).write_bytes((bundle.directory / weights).read_bytes())
    yield _build(bundle, compiler, emulator, folder, label)
    if native and can_sanitize(compiler):
        command = [*compiler, *SANITIZERS]
        yield _build(bundle, command, emulator, folder, f"{label} with ASan and UBSan")


def _build(
    bundle: StoredBundle, compiler: Sequence[str], emulator: list[str], folder: Path, label: str
) -> Example:
    name, options = bundle.name, bundle.options
    native = is_native(bundle.triple)
    wasm = bundle.triple.startswith("wasm")
    directory = bundle.directory.resolve()
    library = {"obj": f"{name}.o", "lib": f"lib{name}.a", "shared": f"lib{name}.so"}[options.emit]
    sources = [directory / "main.c", directory / library]
    if options.instrument == "debug":
        sources.insert(1, directory / f"{name}.debug.c")
    flags = [*_WARNINGS, f"-I{directory}"]
    flags += ["-static"] if not native and not wasm else []
    flags += [f"-Wl,-rpath,{directory}"] if options.emit == "shared" else []
    flags += ["-no-pie"] if native and bundle.manifest["target"]["relocation"] == "static" else []
    program = "example.wasm" if wasm else "example"
    command = [*compiler, *flags, *map(str, sources), "-o", program]
    done = subprocess.run(
        command,
        cwd=folder,
        env=child_environment(command),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or done.stderr.strip():
        raise UserError(f"main.c cannot be built with {label}:\n{done.stderr.strip()}")
    if wasm:
        (folder / "run.mjs").write_text(_WASI)
        return Example(bundle, label, (*emulator, "run.mjs", program), folder)
    return Example(bundle, label, (*emulator, f"./{program}"), folder)


def stored_ports(bundle: StoredBundle) -> dict[str, tuple[tuple[Port, ...], tuple[Port, ...]]]:
    """The inputs and outputs of every network; variables are both, of the type of their memory."""
    return {
        network.name: (
            tuple(symbol.port for symbol in network.ports if symbol.role != "output"),
            tuple(symbol.port for symbol in network.ports if symbol.role != "input"),
        )
        for network in bundle.networks
    }


def stored_extents(bundle: StoredBundle) -> list[dict[str, Extents]]:
    """Extents of every network to try: the highest, the lowest, and the mean of both; one of none without symbols."""
    networks = {
        network.name: [extent.symbol for extent in network.extents if not extent.found]
        for network in bundle.networks
    }
    choices: list[Callable[[symbolic.Symbol], int]] = [lambda one: one.high]
    if any(networks.values()):
        choices += [lambda one: one.low, lambda one: (one.low + one.high) // 2]
    return [
        {name: {one.name: extent(one) for one in symbols} for name, symbols in networks.items()}
        for extent in choices
    ]


def stored_programs(
    bundle: StoredBundle, instructions: tuple[type[Instruction], ...], constants: Array
) -> dict[str, Program]:
    """The programs in NAME.ir, by entry point, with the constants that lie where the manifest says.

    `instructions` are the classes that only the backend of the bundle knows.
    """
    file = bundle.directory / f"{bundle.name}.ir"
    lexer = Lexer(file.read_text(encoding="utf-8"), str(file))
    programs = {}
    for network in bundle.networks:
        ir = read_irfunction(lexer, instructions)
        tensors = {symbol.weight: _tensor(symbol, constants) for symbol in network.constants}
        plans = plan_all(ir)
        callees = (Program(g, plans[g.name], tensors, Ports()) for g in ir.callees.values())
        ports = network.interface(constants)
        programs[network.name] = Program(ir, plans[ir.name], tensors, ports, tuple(callees))
    return programs


def _tensor(symbol: Symbol, constants: Array) -> Tensor:
    data = constants[symbol.offset : symbol.offset + symbol.type.size]
    return Tensor(symbol.type, data.view(symbol.type.kind.dtype).reshape(symbol.type.extents))


def _argument(networks: Sequence[Network], network: Network, named: Symbol | Extent) -> str:
    """How main.c calls an input, output or extent: with its network's name if there are several."""
    prefix = f"{network.name}." if len(networks) > 1 else ""
    return f"{prefix}{named.name}"
