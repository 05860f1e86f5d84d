"""Builds and runs the example of a bundle, and rebuilds the programs it was made of from its own IR."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from glowpy.bundling.read import StoredBundle, found_symbols, stored_dims, stored_symbols
from glowpy.core.extents import Extents, symbols_of_types, type_at
from glowpy.core.state import StatePort
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import parse_type
from glowpy.ir.inst import Instruction
from glowpy.ir.parser import read_irfunction
from glowpy.recipe import plan_all
from glowpy.runtime.ports import Port, Ports
from glowpy.support.children import child_environment
from glowpy.support.errors import UserError
from glowpy.support.names import file_stem
from glowpy.support.symbolic import Symbol
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

        An output whose shape depends on extents that the network finds is a vector.

        Raises UserError if the program fails.
        """
        networks = self.bundle.manifest["networks"]
        arguments = ["constants=constants.bin"]
        for network in networks:
            for extent in network.get("extents", ()):
                if extent.get("found"):
                    continue
                number = extents[network["name"]][extent["symbol"]]
                arguments.append(f"--{_argument(networks, network, extent)}={number}")
            for symbol in _ports(network):
                file = self._file(network, symbol)
                arguments.append(f"{_argument(networks, network, symbol)}={file.name}")
                is_input = symbol["role"] != "output"
                data = inputs[network["name"]][symbol["weight"]].tobytes() if is_input else b""
                file.write_bytes(data)
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, capture_output=True, check=False
        )
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()
            raise UserError(
                f"the example of {self.bundle.name}, built with {self.label}, ends with {done.returncode}: {message}"
            )
        return {
            network["name"]: {
                symbol["weight"]: self._read(network, symbol, extents[network["name"]])
                for symbol in _ports(network)
                if symbol["role"] != "input"
            }
            for network in networks
        }

    @property
    def constants(self) -> Array:
        """The weights as the program that ran has them."""
        return np.fromfile(self.folder / "constants.bin", np.uint8)

    def _file(self, network: Mapping[str, Any], symbol: Mapping[str, Any]) -> Path:
        return self.folder / f"{file_stem(network['name'] + '.' + symbol['name'])}.bin"

    def _read(
        self, network: Mapping[str, Any], symbol: Mapping[str, Any], extents: Extents
    ) -> Array:
        type = parse_type(symbol["type"], stored_dims(network))
        elements = np.frombuffer(self._file(network, symbol).read_bytes(), type.kind.dtype)
        if symbols_of_types([type]).keys() & found_symbols(network):
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

    def of(network: Mapping[str, Any], role: str) -> tuple[Port, ...]:
        dims = stored_dims(network)
        return tuple(
            Port(symbol["original"], symbol["weight"], parse_type(symbol["type"], dims))
            for symbol in _ports(network)
            if symbol["role"] in (role, "inout", "variable")
        )

    return {
        network["name"]: (of(network, "input"), of(network, "output"))
        for network in bundle.manifest["networks"]
    }


def stored_extents(bundle: StoredBundle) -> list[dict[str, Extents]]:
    """Extents of every network to try: the highest, the lowest, and the mean of both; one of none without symbols."""
    networks = {
        n["name"]: [
            extent_symbol
            for extent_symbol in stored_symbols(n)
            if extent_symbol.name not in found_symbols(n)
        ]
        for n in bundle.manifest["networks"]
    }
    choices: list[Callable[[Symbol], int]] = [lambda one: one.high]
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
    programs, ports = {}, stored_ports(bundle)
    for network in bundle.manifest["networks"]:
        ir = read_irfunction(lexer, instructions)
        tensors = {
            symbol["weight"]: _tensor(symbol, constants)
            for symbol in network["symbols"]
            if symbol["role"] == "constant"
        }
        inputs, outputs = ports[network["name"]]
        state = _state(network)
        placeholders = {port.placeholder for port in state}
        inputs, outputs = (
            tuple(port for port in ports if port.placeholder not in placeholders)
            for ports in (inputs, outputs)
        )
        plans = plan_all(ir)
        callees = (Program(g, plans[g.name], tensors, Ports()) for g in ir.callees.values())
        programs[network["name"]] = Program(
            ir, plans[ir.name], tensors, Ports(inputs, outputs, state), tuple(callees)
        )
    return programs


def _state(network: Mapping[str, Any]) -> tuple[StatePort, ...]:
    dims = stored_dims(network)
    ports = []
    for symbol in network["symbols"]:
        if symbol["role"] == "variable":
            reads, leaves, memory = (
                parse_type(symbol[what], dims) for what in ("reads", "leaves", "type")
            )
            ports.append(StatePort(symbol["original"], symbol["weight"], reads, leaves, memory))
    return tuple(ports)


def _tensor(symbol: Mapping[str, Any], constants: Array) -> Tensor:
    type = parse_type(symbol["type"])
    data = constants[symbol["offset"] : symbol["offset"] + type.size]
    return Tensor(type, data.view(type.kind.dtype).reshape(type.extents))


def _ports(network: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [symbol for symbol in network["symbols"] if symbol["role"] != "constant"]


def _argument(
    networks: Sequence[Mapping[str, Any]], network: Mapping[str, Any], symbol: Mapping[str, Any]
) -> str:
    """How main.c calls an input, output or extent: with its network's name if there are several."""
    prefix = f"{network['name']}." if len(networks) > 1 else ""
    return f"{prefix}{symbol['name']}"
