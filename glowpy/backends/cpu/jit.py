"""Machine code in this process: loads the object files of an image and calls its entry point."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, final

import numpy as np

from glowpy.backend import CompiledFunction, address_of, elements_at
from glowpy.backends.cpu.constants import Constants, Weights
from glowpy.backends.cpu.image import Image
from glowpy.backends.cpu.workers import Workers
from glowpy.core.extents import Extents
from glowpy.core.tensor import Array
from glowpy.ir.inst import Instruction
from glowpy.ir.value import Value
from glowpy.llvm.machine import LoadedCode
from glowpy.support.errors import InternalError
from glowpy.support.symbolic import static

__all__ = ["JitFunction"]

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

Moment = Literal["before", "after"]
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)


@final
class JitFunction(CompiledFunction):
    """A network as machine code. All instances share the constants.

    Attributes:
        image: What it was made of.
    """

    def __init__(
        self,
        image: Image,
        weights: Sequence[Weights],
        code: LoadedCode,
        workers: Workers | None = None,
        instrumented: Sequence[Instruction] = (),
    ) -> None:
        """`instrumented` are the instructions that observers are told of; none where the code does not call them."""
        super().__init__(image.inputs, image.outputs, image.arena_size, image.state)
        self.image = image
        self._code = code
        self._workers = workers
        address = code.address(f"{image.entry}_bound")
        if not address:
            raise InternalError(f"machine code lacks the function {image.entry}_bound")
        self._entry = _ENTRY(address)
        self._constants = Constants(image.block, weights)
        self._callbacks = self._make_callbacks(instrumented) if instrumented else ()
        self._callback_addresses = [_address(callback) for callback in self._callbacks]
        self._observed = threading.local()
        self._symbols = tuple(symbol.name for symbol in image.symbols)
        slots = len(image.table) + bool(self._symbols) + 2 + len(self._callbacks)
        self._table = ctypes.c_void_p * slots
        self._extents_array = ctypes.c_size_t * len(self._symbols)

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> None:
        """Calls the entry point with pointers to the bound arrays; the interpreter lock is free meanwhile."""
        addresses = [address_of(bindings[name]) for name in self.image.table]
        if self._symbols:
            numbers = self._extents_array(*(extents[name] for name in self._symbols))
            addresses.append(ctypes.addressof(numbers))
        team = self._workers.team() if self._workers is not None else None
        addresses += team.arguments if team is not None else (0, 0)
        table = self._table(*addresses, *self._callback_addresses)
        observed = self._callbacks and self._observed
        if observed:
            observed.failure = None
        code = self._entry(self._constants.address, ctypes.addressof(table), address_of(arena))
        del team  # which the traceback of an error would keep
        if code:
            raise InternalError(f"compiled code returned {code}")
        if observed and observed.failure is not None:
            raise observed.failure

    def _make_callbacks(
        self, instructions: Sequence[Instruction]
    ) -> tuple[Callable[..., object], ...]:
        """C functions that hand an instruction and its operands to the observer."""

        def callback(moment: Moment) -> Callable[..., object]:
            def call(index: int, addresses: ctypes.c_void_p) -> None:
                if self.observer is None or self._observed.failure is not None:
                    return
                inst = instructions[index]
                pointers = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_void_p))
                operands = {
                    ref.name: _array_at(pointers[place] or 0, ref.value)
                    for place, ref in enumerate(inst.operands)
                }
                try:
                    if moment == "before":
                        self.observer.before(inst, operands)
                    else:
                        self.observer.after(inst, operands)
                except BaseException as error:  # noqa: BLE001 - raised when the machine code has returned
                    self._observed.failure = error

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
