"""Random networks about symbolic extents: compiled once for each backend, they agree, and keep to their memory.

What a run may write, at its extents, are the elements of buffers and outputs. All other bytes, within the arena, after
it, and around outputs, hold canaries.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glowpy.backend import Backend, CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.extents import type_at
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.memory_check import check
from glowpy.passes import PassContext
from glowpy.recipe import Compilation
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.host_memory import aligned_array
from tests.unit.networks import arrays_for, execute, same_numbers, unoptimized
from tests.unit.open_networks import OpenNetwork

_MARGIN = 128
"""Bytes of canaries before and after each block."""


class Guarded:
    """Memory among canaries.

    Attributes:
        memory: The part that is not theirs.
    """

    def __init__(self, size: int) -> None:
        self._whole = aligned_array(size + 2 * _MARGIN)
        self._canaries = (np.arange(self._whole.size) % 251 + 1).astype(np.uint8)
        self._whole[...] = self._canaries
        self._free = np.ones(self._whole.size, bool)
        self.memory = self._whole[_MARGIN : _MARGIN + size]

    def use(self, start: int, size: int) -> None:
        """Lets some bytes of the memory be written."""
        self._free[_MARGIN + start : _MARGIN + start + size] = False

    def check(self, name: str) -> None:
        """Asserts that nobody wrote where nothing is."""
        written = np.flatnonzero((self._whole != self._canaries) & self._free) - _MARGIN
        assert not written.size, f"{name}: bytes {written[:8]} of {self.memory.size} were written"


def run_guarded(
    compiled: CompiledFunction,
    program: Program,
    inputs: Mapping[str, Array],
    extents: Mapping[str, int],
) -> dict[str, Array]:
    """The outputs of a run in an arena, and in arrays, among canaries."""
    types = {value.name: value.type for value in program.ir.values}
    arena = Guarded(program.plan.peak)
    for slot in program.plan.activations.slots:
        arena.use(slot.start, _size(types[slot.name], extents))
    guards: dict[str, Guarded] = {}
    outputs: dict[str, Array] = {}
    for port in compiled.output_ports:
        type = type_at(port.type, extents)
        size = _size(type, extents)
        guards[port.name] = Guarded(size)
        guards[port.name].use(0, size)
        array = guards[port.name].memory.view(type.kind.dtype).reshape(type.extents)
        outputs[port.name] = array
    bindings = {port.placeholder: outputs[port.name] for port in compiled.output_ports}
    for port in compiled.input_ports:  # some are outputs as well
        array = bindings.setdefault(port.placeholder, np.empty_like(inputs[port.name]))
        array[...] = inputs[port.name]
    compiled.execute(bindings, arena.memory, extents)
    arena.check("arena")
    for name, guard in guards.items():
        guard.check(name)
    return outputs


def _size(type: Type, extents: Mapping[str, int]) -> int:
    return math.prod(type_at(type, extents).extents) * type.kind.size


def compiled_for(backend: Backend, module: Module) -> tuple[CompiledFunction, Program]:
    """Verified after every pass; texts of the program are the same after they were read."""
    options = CompileOptions(verify_each=True, cache=False)
    compilation = Compilation(
        module.main, backend, options, PassContext(evaluate, verify_each=True)
    )
    program = compilation.program
    check(program.ir, program.plan)
    text = print_irfunction(program.ir)
    assert print_irfunction(parse_irfunction(text, extra=backend.instructions)) == text
    assert print_plan(parse_plan(print_plan(program.plan))) == print_plan(program.plan)
    return compilation.compiled, program


def check_network(module: Module, rng: random.Random) -> None:
    """Both backends against the interpreter on the network as it stands."""
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    reference = unoptimized(module)
    networks = [compiled_for(backend, module) for backend in (InterpreterBackend(), CpuBackend())]
    random_extents = {"m": rng.randint(1, 5), "n": rng.randint(0, 4)}
    for extents in ({"m": 1, "n": 0}, {"m": 5, "n": 4}, random_extents):
        inputs = arrays_for(module.placeholders, 3, extents)
        expected = execute(reference, inputs)
        for compiled, program in networks:
            same_numbers(run_guarded(compiled, program, inputs, extents), expected)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_random_networks_agree_and_keep_to_their_memory(rng: random.Random) -> None:
    check_network(OpenNetwork(rng).module, rng)


def test_canaries_notice_who_writes_too_far() -> None:
    guard = Guarded(64)
    guard.use(0, 16)
    guard.memory[:16] = 0
    guard.check("buffer")
    guard.memory[16] ^= 1
    with pytest.raises(AssertionError, match=r"buffer: bytes \[16\] of 64 were written"):
        guard.check("buffer")
