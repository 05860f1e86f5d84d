"""Machine code in this process: loads the object files of an image and calls its entry point."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, final
from weakref import ReferenceType, ref

import numpy as np

from glowpy.backends.cpu.constants import Constants
from glowpy.backends.cpu.image import Image, Probes
from glowpy.backends.cpu.workers import Workers
from glowpy.core.extents import Extents
from glowpy.core.tensor import Array, address_of
from glowpy.llvm.code_image import Functions
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.host_memory import elements_at
from glowpy.runtime.state import State
from glowpy.runtime.weights import Weights
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import static

if TYPE_CHECKING:
    from glowpy.backends.cpu.rounds import RunRounds
    from glowpy.ir.inst import Instruction
    from glowpy.ir.value import Value
    from glowpy.rounds import RunsRounds, Wiring
    from glowpy.sanitizer import Moment, Watch

__all__ = ["JitFunction"]

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_NO_TEAM = 0, 0
"""Stand-ins for the function that computes units of work, and its context."""

_MAX_PROGRAMS = 8
"""The number of sets of extents for which instructions are kept."""

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)


@dataclass
class _ObservedRun:
    """A run that an observer sees.

    Attributes:
        instructions: Returns its instructions, with the extents of the run, as far as they are known by then.
        failure: The exception that the observer, or a signal meanwhile, has raised.
    """

    instructions: Callable[[], Sequence[Instruction]]
    failure: BaseException | None = None


@final
class JitFunction(CompiledFunction):
    """A network as machine code. All instances share the constants.

    Attributes:
        image: The image that it was made of.
    """

    def __init__(
        self,
        image: Image,
        weights: Sequence[Weights],
        code: Functions,
        workers: Workers | None = None,
        load_rounds: Callable[[], RunRounds] | None = None,
    ) -> None:
        """`load_rounds` gives the code that runs rounds of loops."""
        probes = image.probes or Probes()
        instrumented, timed, clock = probes.instrumented, probes.timed, probes.clock
        super().__init__(image.ports, image.arena_size)
        self.image = image
        self._code = code
        self._workers = workers
        address = code.address(f"{image.entry}_bound")
        if not address:
            raise InternalError(f"machine code lacks the function {image.entry}_bound")
        self._entry, self._entry_address = _ENTRY(address), address
        self._constants = Constants(image.block, weights)
        self._callbacks = self._make_callbacks() if instrumented is not None else ()
        self._observed = threading.local()
        self._lowest = [(symbol.name, symbol.low) for symbol in image.symbols]
        given = self.symbols
        names = enumerate(symbol.name for symbol in image.symbols)
        self._found = [(index, name) for index, name in names if name not in given]
        count = 0 if timed is None else len(timed.instructions) + 1
        self._stamps = np.zeros((count, 2) if clock == "cpu" else count, np.int64)
        self._pointers = [_address(callback) for callback in self._callbacks]
        if timed is not None:
            self._pointers.append(address_of(self._stamps))
        if clock == "cpu":
            self._pointers.append(_address(ctypes.CDLL(None).clock_gettime))
        slots = len(image.table) + bool(self._lowest) + 2 + len(self._pointers)
        self._table = Struct(f"{slots}P")
        self._extents_array = ctypes.c_size_t * len(self._lowest)
        self._no_numbers = self._extents_array()
        self._numbers: tuple[list[int], ctypes.Array[ctypes.c_size_t]] = [], self._no_numbers
        """The extents of the last run."""
        self._arena: tuple[ReferenceType[Array], int] | None = None
        """The working memory of the last run, and where it begins."""

        @lru_cache(maxsize=_MAX_PROGRAMS)
        def instructions_at(extents: tuple[tuple[str, int], ...]) -> list[Instruction]:
            if instrumented is None:
                return []
            functions = (instrumented, *instrumented.callees.values())
            return [inst for f in functions for inst in f.at(dict(extents)).instructions]

        self._instructions_at = instructions_at
        self._load_rounds = load_rounds

    @property
    def code_size(self) -> int:
        """Bytes of machine code."""
        return self.image.code_size

    @property
    def stamps(self) -> Array:
        """If the code is `timed`: when the last run began, and when the run of each instruction had ended.

        0 where nothing is called for an instruction; in ticks of the processor's counter, or nanoseconds of the thread.
        """
        return self._stamps if self._stamps.ndim == 1 else self._stamps @ (1_000_000_000, 1)

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Calls the entry point with pointers to the bound arrays; the interpreter lock is free meanwhile."""
        addresses = [address_of(bindings[name]) for name in self.image.table]
        return self._call(addresses, arena, extents)

    def execute_on(
        self, state: State, bindings: Mapping[str, Array], arena: Array, extents: Extents
    ) -> Extents:
        """Executes with pointers to variables, which are known."""
        known = state.addresses
        addresses = [
            known[name] if name in known else address_of(bindings[name])
            for name in self.image.table
        ]
        return self._call(addresses, arena, extents)

    def execute_watched(
        self, bindings: Mapping[str, Array], arena: Array, extents: Extents, watch: Watch
    ) -> Extents:
        """Executes code that calls around each of its runs, which `watch` sees."""
        self._observed.watch = watch
        try:
            return self.execute(bindings, arena, extents)
        finally:
            self._observed.watch = None

    def rounds(
        self, wiring: Wiring, networks: Sequence[Sequence[CompiledFunction]]
    ) -> RunsRounds | None:
        """Makes code for many rounds of a loop in one call; None if each round is looked at."""
        load = self._load_rounds
        if load is None:
            return None
        several = [[f for f in each if isinstance(f, JitFunction)] for each in networks]
        if not all(f.is_bare for each in several for f in each):
            return None
        from glowpy.backends.cpu.rounds import cpu_rounds  # noqa: PLC0415 - most have no rounds

        return cpu_rounds(wiring, several, load)

    @property
    def is_bare(self) -> bool:
        """Whether a call computes, and nothing looks at it or keeps something."""
        return not (self._pointers or self.state_ports or self.supposed)

    @property
    def num_others(self) -> int:
        """How many addresses the entry point is told beside those of arrays and extents."""
        return len(_NO_TEAM)

    def enter(self) -> tuple[tuple[int, int, int], Sequence[int], Array]:
        """Returns where the entry point, constants and working memory are, the other addresses, and that memory."""
        team = self._workers.team() if self._workers is not None else None
        others = team.arguments if team is not None else _NO_TEAM
        memory = self._taken_arena()
        areas = self._entry_address, self._constants.address, address_of(memory)
        return areas, others, memory

    def leave(self, memory: Array) -> None:
        """Takes working memory back."""
        self._arenas.append(memory)

    def _call(self, addresses: list[int], arena: Array, extents: Extents) -> Extents:
        numbers = self._no_numbers
        if self._lowest:
            # What the network finds is the lowest until it is found.
            given = [extents.get(name, low) for name, low in self._lowest]
            before, numbers = self._numbers
            if self._found or given != before:  # a run writes what it finds
                numbers = self._extents_array(*given)
                self._numbers = given, numbers
            addresses.append(ctypes.addressof(numbers))
        team = self._workers.team() if self._workers is not None else None
        addresses += team.arguments if team is not None else _NO_TEAM
        table = self._table.pack(*addresses, *self._pointers)
        latest = self._arena  # which another thread may replace
        if latest is None or latest[0]() is not arena:
            self._arena = latest = ref(arena), address_of(arena)
        areas = self._constants.address, table, latest[1]
        failure = None
        if self._callbacks:
            with self._observing(numbers) as run:
                code = self._entry(*areas)
                failure = run.failure
            del run  # which the traceback of an error would keep
        else:
            code = self._entry(*areas)
        del team
        if code:
            raise InternalError(f"compiled code returned {code}")
        if failure is not None:
            raise failure
        return {name: numbers[index] for index, name in self._found} if self._found else {}

    def _named(self, numbers: Iterable[int]) -> tuple[tuple[str, int], ...]:
        """Extents by the names of their symbols."""
        return tuple((name, n) for (name, _), n in zip(self._lowest, numbers, strict=True))

    @contextmanager
    def _observing(self, numbers: Iterable[int]) -> Iterator[_ObservedRun]:
        """Provides the observer's view of a run inside the `with`, during which the observer may run other code."""
        outer = getattr(self._observed, "run", None)
        run = _ObservedRun(lambda: self._instructions_at(self._named(numbers)))
        self._observed.run = run
        try:
            yield run
        finally:
            self._observed.run = outer

    def _make_callbacks(self) -> tuple[Callable[..., object], ...]:
        """C functions that hand an instruction and its operands to the observer."""

        def callback(moment: Moment) -> Callable[..., object]:
            def call(index: int, addresses: int) -> None:
                run: _ObservedRun = self._observed.run
                watch: Watch | None = getattr(self._observed, "watch", None)
                if (self.observer is None and watch is None) or run.failure is not None:
                    return
                try:
                    if watch is not None:
                        watch.see(moment, index, addresses, run.instructions())
                        return
                    assert self.observer is not None
                    inst = run.instructions()[index]
                    pointers = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_void_p))
                    operands = {
                        ref.name: _array_at(pointers[place] or 0, ref.value)
                        for place, ref in enumerate(inst.operands)
                    }
                    if moment == "before":
                        self.observer.before(inst, operands)
                    else:
                        self.observer.after(inst, operands)
                except BaseException as error:  # noqa: BLE001 - raised when machine code has returned
                    run.failure = error

            return _CALLBACK(call)

        return callback("before"), callback("after")


def _address(callback: Callable[..., object]) -> int:
    """The address of a callback's C function."""
    return ctypes.cast(callback, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _array_at(address: int, value: Value) -> Array:
    """The elements of a value at an address, not copied."""
    (span,) = static([value.span])
    if span == 0:
        return np.empty(value.type.extents, value.type.kind.dtype)
    raw = (ctypes.c_uint8 * span).from_address(address)
    return elements_at(np.ctypeslib.as_array(raw), 0, value)
