"""A format that a package reads, through everything that opens a model."""

from __future__ import annotations

import io
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
import glowpy.onnxruntime as drop_in
from glowpy.cli import doctor as doctor_module
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.importer import Model, ValueInfo, formats, open_model
from glowpy.onnxruntime.errors import InvalidProtobuf
from glowpy.support.errors import LoadError, UserError

PACKAGE = Path(__file__).parents[2] / "plugin_reader"
TEXT = "layers 1\ninput x batch 4\ndense 3 0.5\nrelu\nfirst 2\n"
WRONG: int = 1


def install(monkeypatch: pytest.MonkeyPatch, target: str = "glowpy_layers.reader:READER") -> None:
    entries = (EntryPoint("layers", target, formats.GROUP),)
    monkeypatch.setattr(formats, "_entries", lambda: entries)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.syspath_prepend(str(PACKAGE))
    formats._loaded.cache_clear()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a package that seems installed."""
    install(monkeypatch)
    file = tmp_path / "net.layers"
    file.write_text(TEXT)
    return file


def expected(x: Array) -> Array:
    rows = np.maximum(x @ np.full((4, 3), 0.5, np.float32), 0)
    return np.asarray(rows[:, :2])


def numbers(rows: int) -> Array:
    return np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)


def command(*argv: str) -> tuple[int, str]:
    out = io.StringIO()
    return run(argv, io.StringIO(), out, out), out.getvalue()


def test_the_drop_in_names_the_format_and_what_opens_it(path: Path) -> None:
    with pytest.raises(InvalidProtobuf, match=r"got a file of the format layers\n.*glowpy.Inf"):
        drop_in.InferenceSession(path)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_session_runs_it_for_every_batch(path: Path, backend: str) -> None:
    with glowpy.InferenceSession(path, backend=backend) as session:
        assert [str(info) for info in session.get_inputs()] == ["x f32[batch x 4]"]
        for rows in (2, 5, 1):
            x = numbers(rows)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-6)


def test_load_makes_a_module_of_it(path: Path) -> None:
    module = glowpy.load(path, shapes={"x": (3, 4)})
    function = glowpy.compile(module, backend="interpreter")
    np.testing.assert_allclose(function({"x": numbers(3)})["y"], expected(numbers(3)), rtol=1e-6)
    assert {(node.loc.file, node.loc.line) for node in module.main.nodes[:2]} == {
        ("net.layers", 3), ("net.layers", 4),
    }  # fmt: skip


class Place:
    """A path as other libraries have them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_anything_that_names_a_path_is_one(path: Path) -> None:
    text = path.with_name("net.glow")
    text.write_text("module {\n  placeholder %y : f32[1]\n  function @net {\n  }\n}\n")
    for file in (path, text):
        shown: Any = Place(file)
        assert open_model(shown).file == file.name


def test_check_says_what_it_needs(path: Path) -> None:
    checkup = glowpy.check(path, backend="interpreter")
    assert (checkup.problems, checkup.assumed, checkup.parameters) == ((), {"batch": 1}, 12)
    path.write_text(TEXT.replace("relu", "selu"))
    (problem,) = glowpy.check(path, backend="interpreter", dims={"batch": 2}).problems
    assert "expected dense, relu or first, got 'selu'" in str(problem)


@pytest.mark.parametrize(
    "verb",
    [
        ["run", "--backend", "interpreter"],
        ["check", "--backend", "interpreter"],
        ["dump"],
        ["bench", "--seconds", "0.01"],
        ["profile", "--backend", "interpreter", "--inputs", "x.npz"],
        ["quantize", "--dynamic", "--backend", "interpreter", "-o", "q.onnx"],
        ["convert", "--to", "f16", "--backend", "interpreter", "-o", "h.onnx"],
        ["export", "-o", "e.onnx"],
        ["bundle", "-o", "made"],
    ],
    ids=lambda verb: verb[0],
)
def test_every_verb_takes_it(path: Path, verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    np.savez("x.npz", x=numbers(2))
    status, out = command(verb[0], "net.layers", *verb[1:], "--shape", "batch=2")
    assert status == 0, out


def test_help_says_what_it_takes(path: Path) -> None:
    status, out = command("run", str(path), "--help-model")
    assert status == 0, out
    assert "batch" in out


def test_what_it_begins_with_comes_before_its_name(path: Path) -> None:
    other = path.with_suffix(".onnx")
    other.write_text(TEXT)
    assert [str(p.type) for p in glowpy.load(other, dims={"batch": 1}).placeholders] == [
        "f32[1x4]", "f32[1x2]",
    ]  # fmt: skip
    damaged = path.with_name("damaged.layers")
    damaged.write_text("dense")
    with pytest.raises(LoadError, match=r"damaged.layers: expected 'layers 1'"):
        glowpy.load(damaged)


def test_errors_name_the_line(path: Path) -> None:
    path.write_text(TEXT.replace("relu", "selu"))
    with pytest.raises(
        UserError, match=r"net\.layers:4.*: expected dense, relu or first, got 'selu'"
    ):
        glowpy.load(path, dims={"batch": 1})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("glowpy_layers.nothing:READER", "the reader 'layers' of the package glowpy_layers.nothing cannot be loaded"),
        (f"{__name__}:WRONG", "expected a Reader of glowpy.importer, got 1"),
    ],
)  # fmt: skip
def test_a_package_that_is_broken_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str
) -> None:
    install(monkeypatch, target)
    with pytest.raises(UserError, match=message):
        glowpy.load(path)


class Late(Model):
    """A model that finds out what is wrong as it is built."""

    file = digest = "late"
    inputs: ClassVar[list[ValueInfo]] = []
    outputs: ClassVar[list[ValueInfo]] = []

    def module(self, types: Any, values: Any, supposed: Any) -> Any:
        raise KeyError("row")


def early(path: Path) -> Any:
    return float(path.read_text())


EARLY = formats.Reader("early", early, starts=(b"layers",))
LATE = formats.Reader("late", lambda path: Late(), starts=(b"layers",))
NOTHING = formats.Reader("nothing", lambda path: None, starts=(b"layers",))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ("EARLY", "cannot read the file: ValueError: could not convert string to float"),
        ("LATE", "cannot read the file: KeyError: 'row'"),
        ("NOTHING", "expected a Model, got None"),
    ],
)
def test_errors_of_a_reader_are_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, message: str
) -> None:
    install(monkeypatch, f"{__name__}:{reader}")
    where = f"the reader 'layers' of the package {__name__}"
    with pytest.raises(UserError, match=message) as caught:
        glowpy.load(path)
    assert where in str(caught.value)
    with pytest.raises(UserError, match=message):
        glowpy.InferenceSession(path, backend="interpreter").run(None, {})
    status, out = command("run", str(path), "--backend", "interpreter")
    assert (status, where in out, "Traceback" in out) == (1, True, False)


def test_doctor_lists_readers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_self_test", lambda backend: "passed")
    status, out = command("doctor", "--json")
    assert (status, json.loads(out)["reader layers"]) == (0, "glowpy_layers.reader")
    install(monkeypatch, "glowpy_layers.nothing:READER")
    status, out = command("doctor", "--json")
    assert (status, json.loads(out)["reader layers"][:8]) == (1, "failed: ")


def test_nobody_asks_packages_about_an_onnx_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_entries", lambda: pytest.fail("asked"))
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    )
    onnx.save(model, path.with_suffix(".onnx"))
    glowpy.load(path.with_suffix(".onnx"))


@pytest.mark.parametrize("name", ["net", "net.bin", "net.layers", "net.glow"])
def test_an_onnx_file_is_known_by_its_first_byte(path: Path, name: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    other = path.with_name(name)
    onnx.save(model, other)
    options = ["--backend", "interpreter", "--shape", "n=3"]
    status, out = command("run", str(other), *options, "--check-with", "reference")
    assert status == 0, out
    status, out = command("check", str(other), *options)
    assert status == 0, out
    (y,) = glowpy.InferenceSession(other, backend="interpreter").run(None, {"x": -numbers(1)[0]})
    np.testing.assert_array_equal(y, np.maximum(-numbers(1)[0], 0))


def test_bundles_of_several_take_shapes_of_any_format(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    Path("other.layers").write_text(TEXT)
    status, out = command(
        "bundle", "net.layers", "other.layers", "-o", "made", "--shape", "batch=2"
    )
    assert status == 0, out
    assert "note:" not in out


def test_other_sizes_are_refused_where_the_reader_has_none(path: Path) -> None:
    wanted = r"^net\.layers: input 'x': expected the shape \[batch x 4\], got \[4x3\]$"
    for face in (glowpy.InferenceSession, glowpy.load):
        with pytest.raises(UserError, match=wanted):
            face(path, shapes={"x": (4, 3)})
        with pytest.raises(UserError, match=r"the model has no input 'nope', expected one of: 'x'"):
            face(path, shapes={"nope": (3,)})
    with pytest.raises(UserError, match=wanted):
        glowpy.InferenceSession(path, backend="interpreter").run(
            None, {"x": np.ones((4, 3), np.float32)}
        )
    code, text = command("run", str(path), "--shape", "x:4x3")
    assert (code, "note: to change" in text, "shape [batch x 4]" in text) == (1, False, True)
    assert glowpy.InferenceSession(path, shapes={"x": (2, 4)}).get_inputs()[0].shape == ["batch", 4]
