"""What a session learns from one thread stays while another one prepares, or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import glowpy
from glowpy.recall import compile_or_recall
from glowpy.session import programs

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
net (float[n, 6] x, float[m, k] z) => (float[n, 6] y) { y = Add (x, z) }
"""


def open_session(on_compile: Callable[[glowpy.InferenceSession], None]) -> glowpy.InferenceSession:
    """A session that calls a function once, in the middle of compiling for the first time."""
    compilations: list[object] = []

    def listen(event: object) -> None:
        compilations.append(event)
        if len(compilations) == 1:
            on_compile(session)

    model = onnx.parser.parse_model(TEXT)
    session = glowpy.InferenceSession(model, backend="interpreter", on_compile=listen)
    return session


def call(session: glowpy.InferenceSession, n: int, m: int, k: int = 6) -> None:
    feeds = {"x": np.ones((n, 6), np.float32), "z": np.ones((m, k), np.float32)}
    assert (session.run(None, feeds)[0] == 2).all()


def in_thread(work: Callable[[], None]) -> None:
    """Runs in another thread, to the end."""
    errors: list[BaseException] = []

    def noting() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)

    thread = threading.Thread(target=noting)
    thread.start()
    thread.join()
    for error in errors:
        raise error


def test_what_is_learned_during_prepare_stays() -> None:
    session = open_session(lambda session: in_thread(lambda: call(session, 100, 100)))
    session.prepare(n="2..8", m="2..8", k=6)
    low, high = map(int, session.assumptions["n"].split(".."))
    assert low <= 2
    assert high >= 100
    assert session.assumptions["m"] == "n" or session.assumptions["n"] == "m"


def test_what_is_learned_during_a_call_that_fails_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what that call has changed is taken back."""
    session = open_session(lambda _: None)
    call(session, 4, 4)
    before = session.assumptions
    compile, asked = compile_or_recall, list[str]()

    def compiling(key: str, *rest: Any) -> Any:
        asked.append(key)
        if len(asked) == 1:
            in_thread(lambda: call(session, 3000, 3000))
        return compile(key, *rest)

    monkeypatch.setattr(programs, "compile_or_recall", compiling)
    with pytest.raises(glowpy.UserError):
        call(session, 100, 100, k=5)
    after = session.assumptions
    assert asked
    assert after["k"] == before["k"]
    name = "n" if ".." in after["n"] else "m"
    assert int(after[name].split("..")[1]) >= 3000
    assert int(before[name].split("..")[1]) < 100
