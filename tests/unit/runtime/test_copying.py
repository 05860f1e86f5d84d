"""A device apart: its buffers are numbers, and what they name is nobody's array."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from itertools import count
from typing import Any, final

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents, largest_at
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compile_artifact
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.program_artifact import ProgramArtifact, program_identity
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.copying import CopyingFunction
from glowpy.runtime.device import Device
from glowpy.runtime.executable import Executable
from glowpy.runtime.host_memory import aligned_array
from glowpy.runtime.memory import Content, Memory
from glowpy.support.errors import UserError
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


SIZES = """
module {
  symbol b 1..12
  placeholder %x : f32[b]
  placeholder %y : f32[b]
  function @main {
    %n = neg(%x) : f32[b]
    save(%n, %y)
  }
}
"""


@final
class DistantMemory(Memory[int]):
    """Buffers by number. It counts the bytes that are copied there and back."""

    def __init__(self) -> None:
        self.pieces: dict[int, Array] = {}
        self.copied = 0
        self._numbers = count(1)

    def allocate(self, size: int) -> int:
        number = next(self._numbers)
        self.pieces[number] = aligned_array(size)
        return number

    def size(self, buffer: int) -> int:
        return len(self.pieces[buffer])

    def write(self, buffer: int, content: Content, start: int = 0) -> None:
        self.copied += len(content)
        self.pieces[buffer][start : start + len(content)] = np.frombuffer(content, np.uint8)

    def read(self, buffer: int, start: int = 0, size: int | None = None) -> bytearray:
        end = None if size is None else start + size
        content = bytearray(self.pieces[buffer][start:end])
        self.copied += len(content)
        return content

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


class DistantBackend(Backend):
    """What the interpreter runs, on a device apart."""

    name = "distant"
    symbolic = True

    def unsupported(self, operation: Operation) -> str:
        return InterpreterBackend().unsupported(operation)

    device: DistantDevice

    def __init__(self, options: object | None = None) -> None:
        super().__init__(options)
        self.device = DistantDevice()

    def compile(self, program: Program, options: CompileOptions) -> ProgramArtifact:
        return ProgramArtifact(program, options)

    def artifact_key(self, options: CompileOptions) -> str:
        return program_identity()


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


def test_buffers_are_there_though_another_thread_drops_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when it happens between any two steps of looking them up."""

    class Dropping(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key, value)
            self.clear()

        def setdefault(self, key: Any, value: Any = None) -> Any:
            found = super().setdefault(key, value)
            self.clear()
            return found

    network = glowpy.compile(parse_module(SIZES), DistantBackend())
    assert isinstance(network, CopyingFunction)
    monkeypatch.setattr(network, "_areas", Dropping())
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(network({"x": x})["y"], -x)


def test_outputs_are_as_large_as_what_was_found() -> None:
    network = glowpy.compile(positions(4).main, DistantBackend())
    for numbers, where in (
        ([0, 5, 0, 1], [[1], [3]]),
        ([0, 0, 0, 0], []),
        ([1] * 4, [[0], [1], [2], [3]]),
    ):
        assert network({"x": np.array(numbers, np.float32)})["where"].tolist() == where


TWO = """
module {
  placeholder %x : f32[3]
  placeholder %y : f32[3]
  variable %w : f32[3] = normal {mean=1.0, deviation=0.5, seed=4}
  variable %steps : f32[]
  constant %one : f32[] = splat 1.0
  function @train {
    %sum = add(%x, %w) : f32[3]
    %more = add(%steps, %one) : f32[]
    save(%sum, %w)
    save(%more, %steps)
  }
  function @evaluate {
    %product = mul(%x, %w) : f32[3]
    save(%product, %y)
  }
}
"""
FED = np.array([1, 2, 4], np.float32)


def test_variables_stay_on_the_device() -> None:
    backend = DistantBackend()
    network, host = glowpy.compile(parse_module(TEXT), backend), networks()[0]
    memory, state, other = backend.device.memory, network.state(), host.state()
    assert state.memory is memory
    for index in range(4):
        copied, pieces = memory.copied, len(memory.pieces)
        expected = host({"x": X}, state=other)["y"]
        np.testing.assert_array_equal(network({"x": X}, state=state)["y"], expected)
        assert memory.copied == copied + 2 * X.nbytes, "inputs and outputs alone"
        assert index == 0 or len(memory.pieces) == pieces, "buffers are taken again"
    np.testing.assert_array_equal(state["w"], other["w"])
    state["w"] = FED
    assert state.contents()["w"].tolist() == FED.tolist()
    state.reset()
    np.testing.assert_array_equal(state["w"], host.state()["w"])


def test_instances_keep_variables_there_as_well() -> None:
    backend = DistantBackend()
    instance = glowpy.compile(parse_module(TEXT), backend).instance(b=2)
    copied = backend.device.memory.copied
    for _ in range(3):
        instance.write("x", X)
        instance.run()
    assert backend.device.memory.copied == copied + 6 * X.nbytes
    twin = networks()[0].instance(b=2)
    for _ in range(3):
        twin.write("x", X)
        twin.run()
    np.testing.assert_array_equal(instance["y"], twin["y"])
    np.testing.assert_array_equal(instance.state["w"], twin.state["w"])


def test_networks_of_one_device_share_a_state() -> None:
    backend, module = DistantBackend(), parse_module(TWO)
    train, evaluate = (glowpy.compile(module.function(n), backend) for n in ("train", "evaluate"))
    state = evaluate.state(train)
    weights = state["w"].copy()
    for _ in range(2):
        train({"x": FED}, state=state)
        weights += FED
        y = evaluate({"x": FED}, state=state)["y"]
        np.testing.assert_array_equal(y, weights * FED)
    assert state["steps"] == 2
    moved = state.moved_to(train.state_ports)
    train({"x": FED}, state=moved)
    assert [float(s["steps"]) for s in (moved, state)] == [3, 3], "in the same memory"


def test_a_copied_state_has_memory_of_its_own_there() -> None:
    backend = DistantBackend()
    train = glowpy.compile(parse_module(TWO).function("train"), backend)
    state = train.state()
    train({"x": FED}, state=state)
    twin = copy.deepcopy(state)
    train({"x": FED}, state=state)
    assert [float(s["steps"]) for s in (twin, state)] == [1, 2]
    train({"x": FED}, state=twin)
    np.testing.assert_array_equal(twin["w"], state["w"])
    with pytest.raises(UserError, match="cannot pickle a state on a device apart"):
        pickle.dumps(state)


def test_a_state_of_another_memory_is_refused() -> None:
    artifact = compile_artifact(parse_module(TWO).function("train"), "interpreter")
    backends = InterpreterBackend(), DistantBackend(), DistantBackend()
    functions = [backend.load(artifact, CompileOptions()) for backend in backends]
    for function in functions:
        for other in functions:
            if other is function:
                function({"x": FED}, state=other.state())
                continue
            with pytest.raises(UserError, match="expected a state in the memory in which"):
                function({"x": FED}, state=other.state())
            with pytest.raises(UserError, match="expected a state in the memory in which"):
                function.instance(other.state())


def test_outputs_of_any_order_have_buffers_of_their_own() -> None:
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (3,)))
    f = module.create_function("main")
    wide = f.create_concat("wide", [x, x], 0)
    f.create_save("first", f.create_tanh("t", x), module.create_placeholder("t", x.type))
    f.create_save("second", wide, module.create_placeholder("w", wide.type))
    network = glowpy.compile(module, DistantBackend())
    expected = network({"x": FED})
    out = {"w": np.zeros(6, np.float32), "t": np.zeros(3, np.float32)}
    network({"x": FED}, out)
    for name, array in expected.items():
        np.testing.assert_array_equal(out[name], array)


CACHE = """
<ir_version: 8, opset_import: ["": 17]>
net (float[past, 2] past, float[n, 2] x) => (float[all, 2] present, float[n, 2] y) {
  present = Concat <axis = 0> (past, x)
  sum = ReduceSum <keepdims = 0> (present)
  y = Mul (x, sum)
}
"""


def test_a_session_keeps_its_state_there() -> None:
    model = onnx.parser.parse_model(CACHE)
    sessions = [
        glowpy.InferenceSession(model, backend=backend, state={"past": "present"})
        for backend in (DistantBackend(), InterpreterBackend())
    ]
    for length in (1, 3, 2):
        x = np.full((length, 2), length, np.float32)
        outputs = [session.run(["present", "y"], {"x": x}) for session in sessions]
        for array, expected in zip(*outputs, strict=True):
            np.testing.assert_array_equal(array, expected)
    distant, expected = (session.get_state()["past"] for session in sessions)
    assert len(expected) == 6
    np.testing.assert_array_equal(distant, expected)
