"""Sessions that were opened before: program, weights and code come from the cache, and only if they are the same."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import glowpy
from glowpy import engine
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.jit import JitFunction
from glowpy.core.tensor import Array
from glowpy.importer import storage
from glowpy.llvm.code_image import LinkedCode, is_loadable
from glowpy.runtime.artifact import Artifact
from glowpy.runtime.weights import _shared as shared_weights
from glowpy.support.cache import Key, read, write
from tests.onnx.comparison import graph_model, info
from tests.onnx.session_models import programs_of

WEIGHTS = np.random.default_rng(7).standard_normal((150, 200)).astype(np.float32)
pytestmark = pytest.mark.usefixtures("cache_folder")

X = np.random.default_rng(8).standard_normal((3, 150)).astype(np.float32)


def product(weights: Array = WEIGHTS) -> onnx.ModelProto:
    """y = relu(x w) of n x 150, for any n."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    y = np.zeros((3, 200), np.float32)
    model = graph_model(nodes, [info("x", X, ["n", 150])], [info("y", y, ["n", 200])], 13)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of everything that is compiled and not recalled."""
    texts: list[str] = []

    def counting(module: glowpy.Module, *args: Any, **kwargs: Any) -> Artifact:
        texts.append(str(module.placeholders[0].type))
        return real(module, *args, **kwargs)

    real = engine.compile_artifact
    monkeypatch.setattr(engine, "compile_artifact", counting)
    return texts


def run(model: Any, x: Array = X, **options: Any) -> Array:
    return glowpy.InferenceSession(model, **options).run(None, {"x": x})[0]


@pytest.mark.skipif(not is_loadable(), reason="code is loaded by LLVM here")
def test_damaged_code_is_made_anew(compiled: list[str], cache_folder: Path) -> None:
    first = run(product(), threads=2)
    keys = [Key("program", path.name[8:]) for path in cache_folder.glob("program-*")]
    assert len(keys) == 2  # the network's, and that of the threads
    payloads = {key: read(key) or b"" for key in keys}
    for key, payload in payloads.items():
        if b'"entry"' in payload.partition(b"\n")[0]:
            image = CpuBackend().device.parse(payload)
            assert isinstance(image.code, LinkedCode)
            write(key, replace(image, code=misplaced(image.code)).payload())
        else:
            write(key, misplaced(LinkedCode.parse(payload)).payload())
    for count in (2, 2):
        np.testing.assert_array_equal(run(product(), threads=2), first)
        assert len(compiled) == count
    assert {key: read(key) for key in keys} == payloads


def misplaced(code: LinkedCode) -> LinkedCode:
    """The image with functions after its end."""
    return replace(code, functions=dict.fromkeys(code.functions, 1 << 40))


def test_what_was_compiled_is_recalled(compiled: list[str]) -> None:
    first = run(product())
    np.testing.assert_allclose(first, np.maximum(X @ WEIGHTS, 0), rtol=1e-4, atol=1e-4)
    assert compiled == ["f32[n x 150]"]
    assert run(product()).tobytes() == first.tobytes()
    assert compiled == ["f32[n x 150]"]
    assert run(product(), X[:1]).tobytes() == first[:1].tobytes()
    assert compiled == ["f32[n x 150]", "f32[1x150]"]


def test_other_models_and_options_are_compiled(compiled: list[str]) -> None:
    other = WEIGHTS.copy()
    other[-1, -1] += 1
    run(product())
    np.testing.assert_allclose(run(product(other)), np.maximum(X @ other, 0), rtol=1e-4, atol=1e-4)
    assert len(compiled) == 2
    run(product(), options=glowpy.CompileOptions(instrument=True))
    run(product(), options=glowpy.CompileOptions(cache=False))
    assert len(compiled) == 4
    plain = glowpy.CompileOptions()
    other_machine = glowpy.CpuBackend(glowpy.CpuOptions(cpu="x86-64-v2"))
    assert other_machine.artifact_key(plain) != glowpy.CpuBackend().artifact_key(plain)


def test_nothing_is_kept_without_a_cache(cache_folder: Path, compiled: list[str]) -> None:
    for _ in range(2):
        run(product(), options=glowpy.CompileOptions(cache=False))
    assert len(compiled) == 2
    assert not cache_folder.exists()


@pytest.mark.parametrize("kind", ["program", "weights", "code"])
def test_damage_is_made_good(kind: str, cache_folder: Path, compiled: list[str]) -> None:
    first = run(product())
    for path in cache_folder.glob(f"{kind}-*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert run(product()).tobytes() == first.tobytes()
    assert len(compiled) == (1 if kind == "code" else 2), "an image has its code"
    assert run(product()).tobytes() == first.tobytes()
    assert len(compiled) == (1 if kind == "code" else 2)


def test_recalled_weights_are_mapped_and_shared(cache_folder: Path) -> None:
    run(product())
    sessions = [glowpy.InferenceSession(product()) for _ in range(2)]
    for session in sessions:
        session.run(None, {"x": X})
    (weights,) = shared_weights.values()
    assert not weights.memory.flags.writeable
    (file,) = cache_folder.glob("weights-*")
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert maps.read_text().count(str(file)) == 1
    for size in (8, 9, 12, 40):
        sessions[0].run(None, {"x": np.zeros((size, 150), np.float32)})
    assert len(shared_weights) <= 2, "few rows may have a layout of their own"


def test_a_digest_is_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    read = []
    digest = storage.Storage.digest

    def counting(own: storage.Storage, start: int, count: int) -> str:
        read.append(count)
        return digest(own, start, count)

    monkeypatch.setattr(storage.Storage, "digest", counting)
    path = tmp_path / "model.onnx"
    onnx.save(product(), path)
    first = run(path)
    assert sum(read) >= path.stat().st_size
    read.clear()
    assert run(path).tobytes() == first.tobytes()
    assert not read
    status = path.stat()
    other = -WEIGHTS
    onnx.save(product(other), path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    np.testing.assert_allclose(run(path), np.maximum(X @ other, 0), rtol=1e-4, atol=1e-4)
    assert len(compiled) == 2


def test_external_data_counts(tmp_path: Path, compiled: list[str]) -> None:
    path = tmp_path / "model.onnx"
    for sign in (1, -1):
        onnx.save(product(sign * WEIGHTS), path, save_as_external_data=True, location="w.bin")
        expected = np.maximum(sign * X @ WEIGHTS, 0)
        np.testing.assert_allclose(run(path), expected, rtol=1e-4, atol=1e-4)
        (tmp_path / "w.bin").unlink()
    assert len(compiled) == 2


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_a_session_goes_with_its_last_reference(backend: str) -> None:
    """What it compiled and what it recalled, and all that it has of the model, without the collector."""
    content = product().SerializeToString()
    references = sys.getrefcount(content)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            session = glowpy.InferenceSession(content, backend=backend)
            session.run(None, {"x": X})
            session.run(None, {"x": X[:2]})
            assert len(shared_weights) == (backend == "cpu")
            del session
            assert not shared_weights
            assert sys.getrefcount(content) == references
    finally:
        gc.enable()


def test_an_image_is_what_its_payload_says() -> None:
    session = glowpy.InferenceSession(product())
    session.run(None, {"x": X})
    (function,) = programs_of(session).specialisations.functions
    assert isinstance(function, JitFunction)
    assert CpuBackend().device.parse(function.image.payload()) == function.image
