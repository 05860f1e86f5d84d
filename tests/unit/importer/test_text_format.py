"""The text of graphs as a format like any other, and models of plain data whose parts a session computes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import glowpy
from glowpy.cli.files import write_network
from glowpy.cli.main import run
from glowpy.exporter.onnx.dump import dump_onnx
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.importer import HostedModel, Reader, formats, open_model
from glowpy.importer.host_plan import HostPlan, HostStep
from glowpy.importer.text_model import TextModel
from glowpy.importer.value_types import HostInfo, TensorType
from glowpy.support.errors import LoadError, UnsupportedError, UserError
from glowpy.support.loc import Loc

TEXT = """module {
  placeholder %x : f32[2x3]
  placeholder %y : f32[2x3]
  constant %w : f32[3] = [1.0, -2.0, 3.0]
  function @net {
    %1 = add(%x, %w) : f32[2x3]
    %2 = relu(%1) : f32[2x3]
    save(%2, %y)
  }
}
"""
STEPS = """module {
  symbol n 1..8
  placeholder %x : f32[n x 3]
  placeholder %y : f32[n x 3]
  function @net {
    %1 = relu(%x) : f32[n x 3]
    save(%1, %y)
  }
}
"""
X = np.array([[-1, 1, 2], [0, 3, -4]], np.float32)
Y = np.maximum(X + np.array([1, -2, 3], np.float32), 0)


@pytest.mark.parametrize("name", ["net.glow", "net.txt", "net.onnx", "net"])
def test_its_first_word_tells_it_everywhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXT)
    for model in (path, str(path), TEXT.encode()):
        with glowpy.InferenceSession(model, backend="interpreter") as session:
            assert [str(info) for info in session.get_inputs()] == ["x f32[2x3]"]
            np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)
        compiled = glowpy.compile(glowpy.load(model), backend="interpreter")
        np.testing.assert_array_equal(compiled({"x": X})["y"], Y)
        assert glowpy.check(model, backend="interpreter").problems == ()
    out = io.StringIO()
    assert run(["run", str(path), "--backend", "interpreter"], io.StringIO(), out, out) == 0
    assert run(["check", str(path), "--backend", "interpreter"], io.StringIO(), out, out) == 0


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.glow"
    path.write_text(TEXT)
    assert glowpy.load(path, shapes={"x": (2, 3)}).main.nodes
    for given in ({"shapes": {"x": (4, 3)}}, {"dims": {"n": 2}}, {"values": {"x": X}}):
        with pytest.raises(UserError, match=r"net\.glow: the shapes of a graph as text"):
            glowpy.load(path, **given)
    for open_text in (glowpy.InferenceSession, glowpy.load):
        with pytest.raises(UserError, match=r"net\.glow: the model has no input 'nope'"):
            open_text(path, shapes={"nope": (3,)})
    with pytest.raises(UserError, match=r"net\.glow: the shapes of a graph as text"):
        glowpy.InferenceSession(path, shapes={"x": (4, 3)})
    with pytest.raises(UserError, match="expected the shape") as caught:
        glowpy.InferenceSession(path, backend="interpreter").run(None, {"x": X.T})
    assert not caught.value.diagnostics[0].note
    path.write_text(STEPS)
    with pytest.raises(UserError, match=r"net\.glow: the shapes of a graph as text"):
        glowpy.InferenceSession(path, backend="interpreter").run(None, {"x": X})


def test_variables_are_state_of_a_session(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] past) => (float[2] y, float[2] present)'
        " { y = Add(x, past) present = Identity(y) }"
    )
    path = tmp_path / "net.glow"
    write_network(glowpy.load(model, state={"past": "present"}), str(path), str(tmp_path / "c.npz"))
    session = glowpy.InferenceSession(path, backend="interpreter", state="auto")
    assert [info.name for info in session.get_inputs()] == ["x"]
    for total in (1, 2, 3):
        assert session.run(["y_1"], {"x": np.array([1, 1], np.float32)})[0].tolist() == [
            total,
            total,
        ]


BEGUN = """module {
  placeholder %x : f32[3]
  placeholder %y : f32[3]
  variable %w : f32[3] = [0.5, 0.25, 0.0]
  variable %still : f32[3] = splat 2.0
  function @main {
    %t = add(%w, %x) : f32[3]
    %p = mul(%t, %still) : f32[3]
    save(%t, %w)
    save(%p, %y)
  }
}
"""


@pytest.mark.parametrize("suffix", ["glow", "onnx"])
def test_variables_begin_as_text_and_dumps_say(suffix: str, tmp_path: Path) -> None:
    path, x = tmp_path / f"net.{suffix}", np.ones(3, np.float32)
    if suffix == "glow":
        path.write_text(BEGUN)
    else:
        dump_onnx(parse_module(BEGUN).main, path)
        assert print_module(glowpy.load(path)) == BEGUN
    for options in ({}, {"state": "auto"}, {"state": {"w": "w_next", "still": "still_next"}}):
        session = glowpy.InferenceSession(path, backend="interpreter", **options)
        assert [info.name for info in session.get_inputs()] == ["x"]
        for _ in range(2):
            assert session.run(None, {"x": x})[0].tolist() == [3, 2.5, 2]
            now, still = session.run(["w_next", "still_next"], {"x": x})
            assert (now.tolist(), still.tolist()) == ([2.5, 2.25, 2], [2, 2, 2])
            session.reset_state()
        session.set_state({"w": x, "still": x})
        assert session.run(None, {"x": x})[0].tolist() == [2, 2, 2]
    session = glowpy.InferenceSession(path, backend="interpreter", state={"w": "w_next"})
    assert session.run(None, {"x": x, "still": x})[0].tolist() == [1.5, 1.25, 1]
    session = glowpy.InferenceSession(path, backend="interpreter", state={})
    assert session.run(["y"], {"x": x, "w": x, "still": x})[0].tolist() == [2, 2, 2]


def test_variables_of_a_dump_keep_clear_of_other_names(tmp_path: Path) -> None:
    """The outputs that they are in the next run are those of the file, whatever names are taken."""
    text = BEGUN.replace("%t", "%w_next").replace("%y", "%still_next").replace("%p", "%w_next_next")
    path, x = tmp_path / "net.onnx", np.ones(3, np.float32)
    dump_onnx(parse_module(text).main, path)
    assert print_module(glowpy.load(path)) == text
    session = glowpy.InferenceSession(path, backend="interpreter")
    for _ in range(2):
        assert [info.name for info in session.get_inputs()] == ["x"]
        assert [info.name for info in session.get_outputs()] == ["still_next"]
        assert session.run(None, {"x": x})[0].tolist() == [3, 2.5, 2]
        assert session.run(None, {"x": x})[0].tolist() == [5, 4.5, 4]
        session = glowpy.InferenceSession(path, backend="interpreter", state="auto")


def test_constants_are_in_the_file_beside_it(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).random((40, 40), np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2,40] x) => (float[2,40] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path, x = tmp_path / "net.glow", np.ones((2, 40), np.float32)
    write_network(glowpy.load(model), str(path), str(tmp_path / "net.npz"))
    assert "blob" in path.read_text()
    session = glowpy.InferenceSession(path, backend="interpreter")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights, rtol=1e-5)
    (tmp_path / "net.npz").write_bytes(b"PK\3\4 damaged")
    with pytest.raises(UserError, match="constant"):
        glowpy.InferenceSession(path, backend="interpreter")


def test_what_is_no_model_says_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text("irfunction @net {\n}\n")
    with pytest.raises(
        LoadError, match="got the text of an IR function of glowpy\nnote: glowpy run"
    ):
        glowpy.load(path)


def test_formats_of_glowpy_come_before_those_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader("other", lambda path: pytest.fail(str(path)), (b"module {",), (".onnx",))
    monkeypatch.setattr(formats, "_entries", lambda: ("other",))
    monkeypatch.setattr(formats, "_loaded", lambda entry: reader)
    path = tmp_path / "net.onnx"
    path.write_text(TEXT)
    assert isinstance(open_model(path), TextModel)
    path.write_bytes(b"\0\0\0")
    with pytest.raises(LoadError, match="expected an ONNX model"):
        glowpy.load(path)


class Sentences(HostedModel):
    """A model whose only step splits texts into words."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def inputs(self) -> list[HostInfo]:
        return [HostInfo("text", TensorType("string", ("n",)))]

    @property
    def outputs(self) -> list[HostInfo]:
        return [HostInfo("words", TensorType("string", ("n", None)))]

    @property
    def plan(self) -> HostPlan:
        types = (TensorType("string"),)
        attributes = {"delimiter": self.path.read_text().split("\n")[1]}
        step = HostStep(
            "StringSplit", attributes, ("text",), ("words", ""), types, {}, Loc(self.file)
        )
        return HostPlan(("text",), ("words",), types, types, (), {}, (step,), frozenset())

    @property
    def has_host_steps(self) -> bool:
        return True


def test_a_package_may_have_models_that_a_session_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_entries", lambda: ("split",))
    monkeypatch.setattr(formats, "_loaded", lambda entry: Reader("split", Sentences, (b"split",)))
    path = tmp_path / "net.split"
    path.write_text("split\n-")
    session = glowpy.InferenceSession(path, backend="interpreter")
    assert str(session.get_inputs()[0]) == "text string[n]"
    (words,) = session.run(None, {"text": np.array(["a-b", "c"], object)})
    assert words.tolist() == [["a", "b"], ["c", ""]]
    with pytest.raises(UnsupportedError, match=r"net\.split: the model has parts that no machine"):
        glowpy.load(path)
    lines, out = tmp_path / "lines.txt", io.StringIO()
    lines.write_text("a-b\nc\n")
    options = [
        "--backend",
        "interpreter",
        "--input",
        f"text={lines}",
        "--check-with",
        "interpreter",
    ]
    assert run(["run", str(path), *options], io.StringIO(), out, out) == 0, out.getvalue()
    assert run(["run", str(path), "--help-model"], io.StringIO(), out, out) == 0
    assert run(["check", str(path)], io.StringIO(), out, out) == 1
    assert "the model has parts that no machine code computes" in out.getvalue()
