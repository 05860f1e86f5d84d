"""Sanitized bundles: runs what was made with `--emit shared --sanitize`, and watches its memory.

See `glowpy.sanitizer`. The code of a run is that of any bundle; around it, the library calls what NAME_hooks points to.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

from glowpy.bundling.example import stored_programs
from glowpy.bundling.load import LoadedBundle, LoadedNetwork, load_bundle
from glowpy.bundling.make import random_inputs
from glowpy.bundling.read import read_bundle
from glowpy.core.extents import Extents, type_at
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import backend_class, known_instructions
from glowpy.runtime.host_call import HostCall
from glowpy.sanitizer import Area, Moment, NumberedRuns, Watch, sanitized
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Symbol

__all__ = ["SanitizedNetwork", "extents_to_try", "load_sanitized", "run_sanitized"]

_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)

_watching = threading.Lock()
"""A library has one pair of hooks."""


def load_sanitized(directory: Path | str) -> dict[str, SanitizedNetwork]:
    """The networks of a sanitized bundle, by the names of their entry points.

    Raises LoadError as `load_bundle` does, UserError for a bundle that was made without `--sanitize`.
    """
    stored = read_bundle(Path(directory))
    if not stored.options.sanitize:
        raise UserError(
            f"bundle '{stored.name}' calls nobody around its runs",
            note="bundle it with --emit shared --sanitize",
        )
    bundle = load_bundle(directory)
    instructions = known_instructions(backend_class(stored.backend))
    programs = stored_programs(stored, instructions, bundle.constants)
    return {
        name: SanitizedNetwork(bundle, network, NumberedRuns(programs[name]))
        for name, network in bundle.networks.items()
    }


def extents_to_try(symbols: Mapping[str, Symbol], rng: random.Random) -> Iterator[Extents]:
    """The lowest extents, 1, 2, three times random ones, and the highest, each once."""

    def within(one: Symbol, extent: int) -> int:
        return min(max(extent, one.low), one.high)

    def some(one: Symbol) -> int:
        return rng.choice((one.low, *(rng.randint(one.low, one.high) for _ in range(2))))

    choices = [
        {name: one.low for name, one in symbols.items()},
        *({name: within(one, n) for name, one in symbols.items()} for n in (1, 2)),
        *({name: some(one) for name, one in symbols.items()} for _ in range(3)),
        {name: one.high for name, one in symbols.items()},
    ]
    for index, extents in enumerate(choices):
        if extents not in choices[:index]:
            yield extents


def run_sanitized(directory: Path | str, seed: int = 0) -> int:
    """Runs every network of a sanitized bundle on random inputs, at all `extents_to_try`; returns how often.

    Raises AccessError for the first run of instructions that touches what it should not.
    """
    count = 0
    for network in load_sanitized(directory).values():
        for extents in extents_to_try(network.symbols, random.Random(seed)):
            arrays = random_inputs(network.input_ports, seed, extents)
            inputs = {port.name: arrays[port.placeholder] for port in network.input_ports}
            network(inputs, state=network.state() if network.state_ports else None)
            count += 1
    return count


@final
class SanitizedNetwork(HostCall):
    """A network of a bundle whose every run is checked. Raises AccessError for the first fault."""

    def __init__(
        self,
        bundle: LoadedBundle,
        network: LoadedNetwork,
        runs: NumberedRuns,
    ) -> None:
        super().__init__(network.ports, 0)
        self._bundle = bundle
        self._network = network
        self._runs = runs

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs in areas of its own, of which the results are copied."""
        del arena
        copies: dict[str, Array] = {}

        def areas() -> tuple[list[Area], Mapping[str, tuple[Area, int]]]:
            copies.update({name: array.copy() for name, array in bindings.items()})
            mutable, activations = self._bundle.area_sizes
            memory = [Area("the activations", activations), Area("the mutable area", mutable)]
            places = {}
            for symbol in self._network.described.ports:
                places[symbol.weight] = memory[1], symbol.offset
                if symbol.role != "output":
                    size = self._type(symbol.weight, extents).size
                    memory[1].known[symbol.offset : symbol.offset + size] = True
            return memory, places

        def execute(memory: Sequence[Area], watch: Watch) -> Extents:
            activations, mutable = (area.elements for area in memory)
            numbers = self._network.numbers(extents)
            with self._watched(watch, numbers):
                return self._network.execute_in(copies, mutable, activations, numbers, extents)

        _, found = sanitized(self._runs, areas, execute)
        for name, array in bindings.items():
            if array.flags.writeable:
                array[...] = copies[name]
        return found

    def _type(self, weight: str, extents: Extents) -> Type:
        return type_at(self._runs.program.ir.weights[weight].type, extents)

    @contextmanager
    def _watched(self, watch: Watch, numbers: ctypes.Array[ctypes.c_size_t]) -> Iterator[None]:
        """Has the library tell the watch of its runs; raises what that has raised when the network has returned."""
        failures: list[BaseException] = []
        names = [*self._runs.program.ir.symbols]

        def hook(moment: Moment) -> Callable[[int, int], None]:
            def call(index: int, operands: int) -> None:
                try:
                    if not failures:
                        extents = dict(zip(names, numbers, strict=True))
                        watch.see(moment, index, operands, self._runs.instructions(extents))
                except BaseException as error:  # noqa: BLE001 - raised when machine code has returned
                    failures.append(error)

            return call

        callbacks = [_HOOK(hook("before")), _HOOK(hook("after"))]
        with _watching:
            hooks = self._bundle.hooks()
            before = list(hooks)
            hooks[:] = [ctypes.cast(callback, ctypes.c_void_p).value for callback in callbacks]
            try:
                yield
            finally:
                hooks[:] = before
        if failures:
            raise failures[0]
