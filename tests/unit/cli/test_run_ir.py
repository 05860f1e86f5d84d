"""`glowpy run` of IR functions as text: what a dump says is what a model computes, on every backend."""

import io
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from glowpy.cli.main import run

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
MODELS = {
    "chain": "g (float[2, 3] x) => (float[2, 3] y) <float[3] c = {1, -2, 3}>"
    " { s = Add(x, c) r = Relu(s) y = Exp(r) }",
    "product": "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) <float[4, 4] w ="
    " {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> { p = MatMul(x, w) y = Softmax(p) z = Neg(x) }",
    "loop": "g (float[3] x) => (float[3] y) <int64 k = {4}, bool t = {1}>"
    " { y = Loop <body = b (int64 i, bool go, float[3] a) => (bool on, float[3] d)"
    " { on = Identity(go) d = Add(a, x) }> (k, t, x) }",
    "unread": "g (float[3] x, float[2] u) => (float[3] y) { y = Neg(x) }",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*argv: str, status: int = 0) -> str:
    out = io.StringIO()
    assert run(argv, io.StringIO(), out) == status, out.getvalue()
    return out.getvalue()


def dumped(name: str, backend: str, *options: str) -> None:
    onnx.save(onnx.parser.parse_model(f"{HEADER} {MODELS[name]}"), "m.onnx")
    words = ["m.onnx", "--stage", "ir", "--backend", backend, "-o", "m.ir", *options]
    command("dump", *words, "--save-constants", "m.npz")


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", MODELS)
def test_the_text_of_a_model_computes_what_the_model_does(name: str, backend: str) -> None:
    options = ["--shape", "n=1..5"] if name == "product" else []
    dumped(name, backend, *options)
    outputs = []
    for model, more in (("m.onnx", options), ("m.ir", ["--constants", "m.npz"])):
        folder = f"of_{model}"
        check = ["--check-with", "interpreter"] if model == "m.ir" else []
        command("run", model, *more, *check, "--backend", backend, "--output", folder)
        files = sorted(Path(folder).glob("*.npy"))
        outputs.append([np.load(file) for file in files])
    assert len(outputs[0]) == len(outputs[1]) > 0
    for one, other in zip(*outputs, strict=True):
        assert one.tobytes() == other.tobytes()


def test_changed_text_computes_something_else() -> None:
    dumped("chain", "interpreter")
    Path("m.ir").write_text(Path("m.ir").read_text().replace(" exp ", " neg "))
    np.save("x.npy", np.zeros((2, 3), np.float32))
    options = ["--input", "x=x.npy", "--backend", "interpreter", "--output", "out"]
    command("run", "m.ir", "--constants", "m.npz", *options)
    (file,) = Path("out").iterdir()
    assert np.load(file).tolist() == [[-1, 0, -3]] * 2


def test_an_input_that_is_computed_in_its_place() -> None:
    Path("m.ir").write_text(
        "irfunction @main {\n declare\n  %x = weight f32[2] mutable\n"
        " program\n  neg @out %x, @in %x\n}\n"
    )
    np.save("x.npy", np.array([1, -2], np.float32))
    for backend in ("interpreter", "cpu"):
        command("run", "m.ir", "--input", "x=x.npy", "--backend", backend, "--output", "out")
        assert np.load("out/x.npy").tolist() == [-1, 2]
    assert np.load("x.npy").tolist() == [1, -2]


def test_what_is_wrong_is_said() -> None:
    dumped("product", "cpu", "--shape", "n=2")
    assert "expected 256 bytes for f32[1x4x16], got none" in command("run", "m.ir", status=1)
    text = command("run", "m.ir", "--constants", "m.npz", "--backend", "interpreter", status=1)
    assert "the interpreter backend: no instruction cpu_" in text
    text = command("run", "m.ir", "--constants", "m.npz", "--shape", "n=2", status=1)
    assert "--shape: an IR function has all of that in its text" in text
    command("dump", "m.onnx", "--shape", "n=2", "--save-constants", "graph.npz", "-o", "m.glow")
    text = command("run", "m.ir", "--constants", "graph.npz", status=1)
    assert "expected the constants of an IR function by their names" in text
    Path("m.ir").write_text(Path("m.ir").read_text().replace("softmax", "softmx"))
    text = command("run", "m.ir", "--constants", "m.npz", status=1)
    assert "unknown instruction 'softmx'" in text
    assert text.rstrip().endswith("note: did you mean softmax?")
    assert "glowpy run and glowpy opt read it" in command("bench", "m.ir", status=1)
