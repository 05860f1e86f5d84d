"""Artifacts: what a backend makes of a program, as bytes that a device of another process loads."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import pytest

import glowpy
from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE, Array
from glowpy.core.type import Type
from glowpy.engine import compilation, compile_artifact
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.recall import compile_or_recall, maker_of
from glowpy.runtime.artifact import packed, unpacked
from glowpy.support.errors import LoadError, UserError
from tests.unit.networks import RandomNetwork, arrays_for
from tests.unit.opt.test_calls import module as looping
from tests.unit.runtime.test_copying import TEXT, DistantBackend, positions

BACKENDS: list[type[Backend]] = [CpuBackend, InterpreterBackend, DistantBackend]
ROOT = Path(__file__).parents[3]


def product(seed: int) -> Module:
    """A network with a large constant and a small one."""
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 64)))
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((64, 512)).astype(np.float32)
    assert weights.nbytes >= LARGE
    f = module.create_function("main")
    node = f.create_mat_mul("product", x, module.create_constant("w", weights))
    bias = module.create_constant("b", generator.standard_normal((2, 512)).astype(np.float32))
    total = f.create_add("total", node, bias)
    f.create_save("save", total, module.create_placeholder("y", total.type))
    return module


X: Array = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)


def loaded(backend: Backend, payload: bytes, *, use_cache: bool = False) -> glowpy.CompiledFunction:
    """The network that a device of another backend object makes of the bytes."""
    device = type(backend)().device
    function = device.load(device.parse(payload), use_cache=use_cache)
    assert function is not None
    return function


@pytest.mark.parametrize("cls", BACKENDS)
def test_bytes_are_loaded_with_constants_that_the_process_has(cls: type[Backend]) -> None:
    backend, options = cls(), CompileOptions(cache=False)
    artifact = compile_artifact(product(4), backend, options)
    assert len(artifact.digests) == 1
    payload = artifact.payload()
    assert len(payload) < LARGE, "large constants are elsewhere"
    expected = backend.load(artifact, options)
    again = loaded(backend, payload)
    assert again.ports == artifact.ports == expected.ports
    assert again.arena_size == expected.arena_size
    np.testing.assert_array_equal(again({"x": X})["y"], expected({"x": X})["y"])


@pytest.mark.parametrize("cls", BACKENDS)
def test_nothing_is_loaded_without_its_constants(cls: type[Backend]) -> None:
    backend = cls()
    payload = compile_artifact(product(5), backend, CompileOptions(cache=False)).payload()
    assert backend.device.load(backend.device.parse(payload), use_cache=False) is None


@pytest.mark.parametrize("cls", BACKENDS)
def test_variables_and_found_extents_are_in_the_bytes(cls: type[Backend]) -> None:
    backend = cls()
    again = loaded(backend, compile_artifact(parse_module(TEXT), backend).payload())
    network = glowpy.compile(parse_module(TEXT), "interpreter")
    states = network.state(), again.state()
    for rows in (1, 4):
        x = np.full((rows, 3), 0.5, np.float32)
        outputs = [n({"x": x}, state=s)["y"] for n, s in zip((network, again), states, strict=True)]
        np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-6)
    np.testing.assert_array_equal(states[0]["w"], states[1]["w"])
    search = loaded(backend, compile_artifact(positions(4), backend).payload())
    assert search({"x": np.array([0, 5, 0, 1], np.float32)})["where"].tolist() == [[1], [3]]


@pytest.mark.parametrize("cls", [CpuBackend, InterpreterBackend])
def test_functions_that_are_called_are_in_the_bytes(cls: type[Backend]) -> None:
    backend = cls()
    payload = compile_artifact(looping(), backend).payload()
    again, expected = loaded(backend, payload), glowpy.compile(looping(), "interpreter")
    feeds = {name: np.ones(t.extents, t.kind.dtype) for name, t in expected.inputs.items()}
    feeds["n"] = np.array(3)
    for name, array in expected(feeds).items():
        np.testing.assert_allclose(again(feeds)[name], array, 1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_programs_that_are_read_compute_the_same_bits(seed: int) -> None:
    module, backend = RandomNetwork(random.Random(seed), 8).module, InterpreterBackend()
    artifact = compile_artifact(module, backend)
    payload = artifact.payload()
    assert backend.device.parse(payload).payload() == payload
    inputs = arrays_for(module.placeholders, seed)
    expected, again = backend.load(artifact, CompileOptions()), loaded(backend, payload)
    given = {name: inputs[name] for name in expected.inputs}
    for name, array in expected(given).items():
        np.testing.assert_array_equal(again(given)[name], array)


CHILD = """
import sys
import numpy as np
from glowpy.backend_choice import backend_of

device = backend_of(sys.argv[1]).device
function = device.load(device.parse(open(sys.argv[2], "rb").read()))
y = function({"x": np.load(sys.argv[3])})["y"]
np.save(sys.argv[3], y)
for name in ("glowpy.recipe", "glowpy.importer", "llvmlite"):
    assert name not in sys.modules or sys.argv[1] == "interpreter", name
"""


@pytest.mark.parametrize("name", ["cpu", "interpreter"])
def test_another_process_loads_bytes_with_constants_from_the_cache(
    name: str, tmp_path: Path, cache_folder: Path
) -> None:
    artifact = compile_artifact(product(6), name)
    payload, array = tmp_path / "network", tmp_path / "x.npy"
    payload.write_bytes(artifact.payload())
    assert cache_folder.exists()
    np.save(array, X)
    subprocess.run([sys.executable, "-c", CHILD, name, payload, array], check=True, cwd=ROOT)
    expected = glowpy.compile(product(6), name)({"x": X})["y"]
    np.testing.assert_array_equal(np.load(array), expected)


@pytest.mark.parametrize("cls", BACKENDS)
def test_other_bytes_are_refused(cls: type[Backend]) -> None:
    backend = cls()
    payload = compile_artifact(positions(4), backend).payload()
    for wrong in (b"", b"{}", b"[1]\n", payload[1:], payload[:40]):
        with pytest.raises(LoadError, match="expected a compiled network, got other bytes"):
            backend.device.parse(wrong)
    damaged = bytearray(payload)
    damaged[-3] ^= 1
    with pytest.raises(LoadError, match="the compiled network is damaged"):
        backend.device.parse(bytes(damaged))
    other = InterpreterBackend() if cls is CpuBackend else CpuBackend()
    with pytest.raises(LoadError, match="got one of another"):
        other.device.parse(payload)


@pytest.mark.parametrize("cls", [CpuBackend, InterpreterBackend])
@pytest.mark.parametrize(
    "options", [CompileOptions(instrument=True), CompileOptions(sanitize=True)]
)
def test_what_tells_of_its_runs_has_no_bytes(cls: type[Backend], options: CompileOptions) -> None:
    backend = cls()
    artifact = compile_artifact(positions(4), backend, options)
    with pytest.raises(UserError, match="cannot write a network as bytes that tells of its runs"):
        artifact.payload()
    assert not backend.artifact_key(options)


def test_the_cache_keeps_artifacts_of_any_backend_that_says_so(cache_folder: Path) -> None:
    built: list[Module] = []

    def build() -> Module:
        built.append(product(7))
        return built[-1]

    def opened(backend: Backend, options: CompileOptions) -> Array:
        return compile_or_recall("a product", build, backend, options)({"x": X})["y"]

    first = opened(DistantBackend(), CompileOptions())
    assert len([*cache_folder.glob("program-*")]) == 1
    np.testing.assert_array_equal(opened(DistantBackend(), CompileOptions()), first)
    assert len(built) == 1
    opened(DistantBackend(), CompileOptions(cache=False))
    opened(InterpreterBackend(), CompileOptions())
    opened(CpuBackend(), CompileOptions())
    assert len(built) == 4
    for file in cache_folder.glob("weights-*"):
        file.unlink()
    opened(DistantBackend(), CompileOptions())
    assert len(built) == 5, "one of its constants is nowhere"


TOLD = {
    "instrument": CompileOptions(instrument=True),
    "sanitize": CompileOptions(sanitize=True),
}


class Other(DistantBackend):
    """A backend of another class with the same `artifact_key`."""


class Watching(DistantBackend):
    """Says that it honours everything, and has a key whatever the options are."""

    probes = frozenset({"instrument", "sanitize"})


def test_backends_with_one_key_do_not_get_each_others_artifacts(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = CompileOptions()
    assert Other().artifact_key(plain) == DistantBackend().artifact_key(plain)
    built: list[Module] = []

    def build() -> Module:
        built.append(product(7))
        return built[-1]

    for count, cls in enumerate((DistantBackend, Other, Watching), 1):
        for _ in range(2):
            compile_or_recall("a product", build, cls(), plain)
            assert len(built) == len([*cache_folder.glob("program-*")]) == count
    monkeypatch.setattr("glowpy.recall.package_of", lambda _: "distant 2.0")
    compile_or_recall("a product", build, DistantBackend(), plain)
    assert len(built) == 4, "the package of another version may lower in another way"
    assert len(maker_of(DistantBackend(), plain)) == 4
    assert not maker_of(InterpreterBackend(), plain)


@pytest.mark.parametrize("option", TOLD)
def test_what_tells_of_its_runs_is_not_recalled(option: str, cache_folder: Path) -> None:
    built: list[Module] = []

    def build() -> Module:
        built.append(product(7))
        return built[-1]

    plain, told = CompileOptions(), TOLD[option]
    assert Watching().artifact_key(told)
    for options in (told, plain, told, plain, CompileOptions(cache=False)):
        compile_or_recall("a product", build, Watching(), options)
    assert len(built) == 4, "all but the second plain one"
    assert len([*cache_folder.glob("program-*")]) == 1


@pytest.mark.parametrize("option", TOLD)
def test_backends_refuse_what_they_do_not_honour(option: str) -> None:
    message = f"^{option}: the distant backend does not tell of its runs"
    backend, options = DistantBackend(), TOLD[option]
    program = compilation(positions(4), backend).program
    with pytest.raises(UserError, match=message):
        glowpy.compile(positions(4), backend, options)
    with pytest.raises(UserError, match=message):
        backend.function(program, options)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, ir_version=9)
    glowpy.InferenceSession(model, backend=backend).run(None, {"x": np.ones(2, np.float32)})
    with pytest.raises(UserError, match=message):
        glowpy.InferenceSession(model, backend=backend, options=options)


@pytest.mark.parametrize("cls", BACKENDS)
def test_damaged_heads_are_refused(cls: type[Backend]) -> None:
    backend = cls()
    payload = compile_artifact(product(8), backend, CompileOptions(cache=False)).payload()
    line, _, content = payload.partition(b"\n")
    head = json.loads(line)
    for name in head:
        rest = {key: value for key, value in head.items() if key != name}
        for changed in (rest, {**head, name: None}, {**head, name: 0}, {**head, name: []}):
            damaged = json.dumps(changed).encode() + b"\n" + content
            if changed != head:
                with pytest.raises(LoadError):
                    backend.device.parse(damaged)
    more = json.dumps({**head, "more": 1}).encode() + b"\n" + content
    with pytest.raises(LoadError, match="the compiled network is damaged"):
        backend.device.parse(more)


def test_parts_are_what_was_packed() -> None:
    head, parts = unpacked(packed("me", {"n": 3}, [b"", b"ab\n", b"{}"]), "me")
    assert (head["n"], [*parts]) == (3, [b"", b"ab\n", b"{}"])
