"""What long work reports: to a callback in Python, on a terminal, and to nobody."""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import glowpy
from glowpy.cli.main import run
from glowpy.core.tensor import LARGE
from glowpy.support.console import progress
from glowpy.support.progress import report, reporting
from tests.onnx.comparison import graph_model, info

pytestmark = pytest.mark.usefixtures("cache_folder")


def model() -> onnx.ModelProto:
    """y = relu(x w), with weights that count as large."""
    x, w = np.zeros((3, 64), np.float32), np.ones((64, LARGE // 64), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    net = graph_model(nodes, [info("x", x)], [info("y", x @ w)], 13)
    net.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return net


def test_stages_are_reported_in_order_and_to_their_end() -> None:
    stages: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    with glowpy.reporting(lambda stage, done, total: stages[stage].append((done, total))):
        glowpy.InferenceSession(model())
    assert stages["import"] == [(0, 2), (1, 2), (2, 2)]
    assert stages["weights"] == [(0, 1), (1, 1)]
    functions = stages["compile"][0][1]
    assert stages["compile"] == [(done, functions) for done in range(functions + 1)]
    order = list(stages)
    known = ["import", "lower", "schedule", "irgen", "memory", "cpu codegen", "compile", "weights"]
    assert [stage for stage in order if stage in known] == known
    assert "constant-fold" in order

    stages.clear()
    with glowpy.reporting(lambda stage, done, total: stages[stage].append((done, total))):
        glowpy.InferenceSession(model())
    assert dict(stages) == {"recall": [(1, 1)]}


def test_machine_code_that_the_cache_has_is_done_when_compiling_begins() -> None:
    module = glowpy.load(model())
    glowpy.compile(module)
    counts: list[tuple[int, int]] = []

    def tell(stage: str, done: int, total: int) -> None:
        if stage == "compile":
            counts.append((done, total))

    with glowpy.reporting(tell):
        glowpy.compile(module)
    ((done, total),) = counts
    assert done == total > 0


def test_the_innermost_listener_of_the_thread_is_told() -> None:
    outer: list[str] = []
    inner: list[str] = []
    report("nobody")
    with reporting(lambda stage, *_: outer.append(stage)):
        with reporting(lambda stage, *_: inner.append(stage)):
            report("a")
        thread = threading.Thread(target=report, args=("elsewhere",))
        thread.start()
        thread.join()
        report("b")
    report("nobody")
    assert (outer, inner) == (["b"], ["a"])


def test_what_a_listener_raises_ends_the_work() -> None:
    def refuse(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("import", 1):
            raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"), glowpy.reporting(refuse):
        glowpy.load(model())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with progress("compiling net.onnx [x]") as begun:
            report("compile", 3, 8)
            report("compile", 8, 8)
        assert begun == {"compile": (3, 8)}
        for word in ("compiling net.onnx [x]", "compile 8 of 8", "0:00:00"):
            assert (word in stream.getvalue()) is shown
        assert bool(stream.getvalue()) is shown


def test_run_says_what_the_cache_had(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "net.onnx")
    (tmp_path / "net.glow").write_text(str(glowpy.load(tmp_path / "net.onnx")))

    def said(*argv: str) -> str:
        out = io.StringIO()
        assert run(["run", *argv], io.StringIO(), out, io.StringIO()) == 0
        return out.getvalue().splitlines()[-1]

    net = str(tmp_path / "net.onnx")
    assert said(net).startswith("compiled in ")
    assert "cache" not in said(net, "--backend", "interpreter")
    assert said(net).startswith("taken from the cache in ")
    assert said(net, "--check-with", "interpreter").startswith("taken from the cache in ")
    assert " functions from the cache), run in " in said(str(tmp_path / "net.glow"))
    assert said(str(tmp_path / "net.glow")).startswith("taken from the cache in ")
    out = io.StringIO()
    assert run(["run", net, "--json"], io.StringIO(), out) == 0
    figures = json.loads(out.getvalue())
    assert (figures["recalled"], figures["functions"]) == (True, 0)


def test_a_wrong_option_is_refused_whatever_the_cache_has(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.zeros((2, 2), np.float32))
    net = str(tmp_path / "net.onnx")
    for _ in range(2):
        assert run(["run", net], io.StringIO(), io.StringIO()) == 0
        for option, message in (
            (("--constants", "c.npz"), "an ONNX file has its own"),
            (("--function", "other"), "other"),
            (("--input", f"x={tmp_path / 'x.npy'}"), "expected f32[3x64]"),
            (("--shape", "x=4x4"), "x"),
        ):
            out = io.StringIO()
            assert run(["run", net, *option], io.StringIO(), out) == 1
            assert message in out.getvalue()
