"""No memory, threads, processes or open files: errors in words wherever users call, and no bugs."""

import errno
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
import glowpy.onnxruntime as ort
from glowpy.cli.main import VERBS, run
from glowpy.importer.onnx import source
from glowpy.onnxruntime.errors import RuntimeException
from glowpy.support.errors import ResourceError
from glowpy.support.limits import of_limits

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Add(x, x) }'
FAULTS = [
    (MemoryError("Unable to allocate 8.00 GiB"), "not enough memory: unable to allocate 8.00 GiB"),
    (MemoryError(), "there is not enough memory"),
    (RuntimeError("can't start new thread"), "not enough threads: can't start new thread"),
    (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "not enough processes or threads"),
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "not enough files that may be open"),
]


def failing(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(("error", "text"), FAULTS)
def test_what_a_limit_is_called(error: Exception, text: str) -> None:
    assert text in str(of_limits(error))


@pytest.mark.parametrize("error", [RuntimeError("another"), OSError(errno.EIO, "x"), KeyError()])
def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(source, "_serialized", failing(error))
    with pytest.raises(type(error)):
        glowpy.load(onnx.parser.parse_model(MODEL))


@pytest.mark.parametrize(("error", "text"), FAULTS)
def test_faces_say_so(monkeypatch: pytest.MonkeyPatch, error: Exception, text: str) -> None:
    model = onnx.parser.parse_model(MODEL)
    session = glowpy.InferenceSession(model, backend="interpreter")
    dropped_in = ort.InferenceSession(model.SerializeToString())
    module = glowpy.load(model, dims={"n": 3})
    monkeypatch.setattr("glowpy.runtime.host_call.extents_of", failing(error))
    monkeypatch.setattr("glowpy.recipe.Compilation.program", property(failing(error)))
    monkeypatch.setattr(source, "_serialized", failing(error))
    feeds = {"x": np.zeros(3, np.float32)}
    for call in (
        lambda: session.run(None, feeds),
        lambda: glowpy.compile(module, "interpreter"),
        lambda: glowpy.load(model),
        lambda: glowpy.check(model),
        lambda: glowpy.InferenceSession(model),
    ):
        with pytest.raises(ResourceError, match=text):
            call()
    with pytest.raises(RuntimeException, match=text):
        dropped_in.run(None, feeds)
    monkeypatch.setattr(source, "_parse", failing(error))
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")  # which has what was opened before
    with pytest.raises(RuntimeException, match=text):
        ort.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize(("error", "text"), FAULTS[1:3])
def test_verbs_say_so(
    monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception, text: str
) -> None:
    monkeypatch.setattr(VERBS[verb], "make_context", failing(error))
    out = io.StringIO()
    assert run([verb], io.StringIO(), out) == 1
    assert out.getvalue().startswith(f"error: there {'is' if 'memory' in text else 'are'} not")


def test_a_machine_without_threads(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    del cache_folder
    module = glowpy.load(onnx.parser.parse_model(MODEL), dims={"n": 3})
    monkeypatch.setattr(threading.Thread, "start", failing(RuntimeError("can't start new thread")))
    with pytest.raises(ResourceError, match="can't start new thread"):
        glowpy.compile(module)
