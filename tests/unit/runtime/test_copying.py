"""A device apart: its buffers are numbers, and what they name is nobody's array."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import final

import numpy as np

import glowpy
from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents, largest_at
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.program_artifact import ProgramArtifact, program_identity
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.device import Device
from glowpy.runtime.executable import Executable
from glowpy.runtime.host_memory import aligned_array
from glowpy.runtime.memory import Content, Memory
from glowpy.support.symbolic import symbol

TEXT = """
module {
  symbol b 1..4
  placeholder %x : f32[b x 3]
  placeholder %y : f32[b x 3]
  variable %w : f32[3] = uniform {low=-1.0, high=1.0, seed=3}
  constant %half : f32[] = splat 0.5
  function @main {
    %sum = add(%x, %w) : f32[b x 3]
    %bent = tanh(%sum) : f32[b x 3]
    %decayed = mul(%w, %half) : f32[3]
    save(%bent, %y)
    save(%decayed, %w)
  }
}
"""


@final
class DistantMemory(Memory[int]):
    """Buffers by number."""

    def __init__(self) -> None:
        self.pieces: dict[int, Array] = {}
        self._numbers = count(1)

    def allocate(self, size: int) -> int:
        number = next(self._numbers)
        self.pieces[number] = aligned_array(size)
        return number

    def size(self, buffer: int) -> int:
        return len(self.pieces[buffer])

    def write(self, buffer: int, content: Content, start: int = 0) -> None:
        self.pieces[buffer][start : start + len(content)] = np.frombuffer(content, np.uint8)

    def read(self, buffer: int, start: int = 0, size: int | None = None) -> bytearray:
        end = None if size is None else start + size
        return bytearray(self.pieces[buffer][start:end])

    def copy(self, source: int, target: int) -> None:
        self.pieces[target][: self.size(source)] = self.pieces[source]

    def address(self, buffer: int) -> int:
        return buffer << 32


@final
class Distant(Executable[int]):
    """A program that is interpreted in such a memory."""

    def __init__(self, program: Program, memory: DistantMemory) -> None:
        super().__init__(memory, program.ports, program.plan.peak)
        self._distant = memory
        self._function = InterpreterBackend().function(program)

    def execute(self, bindings: Mapping[str, int], arena: int, extents: Extents) -> Extents:
        ports = (*self.input_ports, *self.output_ports)
        types = {port.placeholder: largest_at(port.type, extents) for port in ports}
        types |= {port.placeholder: port.memory for port in self.state_ports}
        arrays = {name: self._array(bindings[name], type) for name, type in types.items()}
        return self._function.execute(arrays, self._distant.pieces[arena], extents)

    def _array(self, buffer: int, type: Type) -> Array:
        return self._distant.pieces[buffer].view(type.kind.dtype).reshape(type.extents)


@final
class DistantDevice(Device[int, ProgramArtifact]):
    """A device apart with one memory for all that it has loaded."""

    memory: DistantMemory

    def __init__(self) -> None:
        self.memory = DistantMemory()

    def executable(self, artifact: ProgramArtifact, *, use_cache: bool = True) -> Distant | None:
        program = artifact.whole(use_cache=use_cache)
        return None if program is None else Distant(program, self.memory)

    def parse(self, payload: bytes) -> ProgramArtifact:
        return ProgramArtifact.parse(payload)


@final
class DistantBackend(Backend):
    """What the interpreter runs, on a device apart."""

    name = "distant"
    symbolic = True

    def unsupported(self, operation: Operation) -> str:
        return InterpreterBackend().unsupported(operation)

    def __init__(self, options: object | None = None) -> None:
        super().__init__(options)
        self.device = DistantDevice()

    def compile(self, program: Program, options: CompileOptions) -> ProgramArtifact:
        return ProgramArtifact(program, options)

    def artifact_key(self, options: CompileOptions) -> str:
        return program_identity() if options.cache and not options.instrument else ""


X = np.array([[1, 2, -1], [0.5, 0, 3]], np.float32)


def networks() -> list[CompiledFunction]:
    """The network on the interpreter, and on the device."""
    backends = InterpreterBackend(), DistantBackend()
    return [glowpy.compile(parse_module(TEXT, "text").main, backend) for backend in backends]


def test_calls_copy_there_and_back() -> None:
    host, distant = networks()
    states = host.state(), distant.state()
    for rows in (X, X[:1], np.tile(X, (2, 1))):
        expected, actual = (
            network({"x": rows}, state=state)
            for network, state in zip((host, distant), states, strict=True)
        )
        np.testing.assert_array_equal(actual["y"], expected["y"])
    assert states[0]["w"].tolist() == states[1]["w"].tolist() != distant.state()["w"].tolist()


def test_instances_and_given_outputs() -> None:
    host, distant = networks()
    out = np.zeros((2, 3), np.float32)
    distant({"x": X}, {"y": out}, state=distant.state())
    instance = distant.instance(b=2)
    instance.write("x", X)
    instance.run()
    expected = host({"x": X}, state=host.state())["y"]
    assert out.tolist() == instance["y"].tolist() == expected.tolist()


def test_inputs_stay_what_they_were() -> None:
    _, distant = networks()
    given = X.copy()
    given.flags.writeable = False
    distant({"x": given}, state=distant.state())
    assert given.tolist() == X.tolist()


def positions(length: int) -> Module:
    """Where a vector is not zero: an extent that the network finds."""
    module = Module()
    kept = symbol("kept", 0, length)
    x = module.create_placeholder("x", Type(ElemKind.F32, (length,)))
    f = module.create_function("main")
    search = f.create_non_zero("search", x)
    f.create_define("define", search.results[1], (kept,))
    places = f.create_slice("places", Type(ElemKind.I64, (kept, 1)), search, (0, 0), (1, 1))
    f.create_save("save", places, module.create_placeholder("where", places.result.type))
    return module


def test_outputs_are_as_large_as_what_was_found() -> None:
    network = glowpy.compile(positions(4).main, DistantBackend())
    for numbers, where in (
        ([0, 5, 0, 1], [[1], [3]]),
        ([0, 0, 0, 0], []),
        ([1] * 4, [[0], [1], [2], [3]]),
    ):
        assert network({"x": np.array(numbers, np.float32)})["where"].tolist() == where
