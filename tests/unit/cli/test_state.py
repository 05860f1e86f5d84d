"""`--state` and `--help-model`: what the command line keeps between runs, and how it is found."""

import io
import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from glowpy.cli.main import run

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, L, 4] x, float[B, P, 4] past_0, float[B, 4] h0)
=> (float[B, T, 4] present_0, float[B, 1, 4] y, float[B, 4] hn) {
    present_0 = Concat <axis = 1> (past_0, x)
    y = ReduceMean <axes = [1]> (present_0)
    flat = ReduceMean <axes = [1], keepdims = 0> (x)
    hn = Add (flat, h0)
}
"""
OPEN = ["--shape", "B=2", "--shape", "L=1..3", "--shape", "P=0..9"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    return str(path)


def printed(*argv: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    assert run([*argv], io.StringIO(), out, err) == 0, err.getvalue()
    return out.getvalue()


def refused(*argv: str) -> str:
    err = io.StringIO()
    assert run([*argv], io.StringIO(), io.StringIO(), err) == 1
    assert "Traceback" not in err.getvalue()
    return err.getvalue()


def test_help_says_what_a_model_takes_and_what_looks_like_state(model: str, tmp_path: Path) -> None:
    text = printed("run", model, "--help-model")
    assert "input    x           f32[B x L x 4]" in text
    assert "--shape L=1..64\n  --shape P=0..64\n" in text
    assert "--state past_0=present_0\n  --state h0=hn\n" in text
    report = json.loads(printed("run", model, "--help-model", "--json"))
    assert report["state"] == {"past_0": "present_0", "h0": "hn"}
    assert report["dimensions"] == ["B", "L", "P"]
    text = printed("dump", model, *OPEN, "--state", "auto", "-o", str(tmp_path / "net.glow"))
    report = json.loads(printed("run", str(tmp_path / "net.glow"), "--help-model", "--json"))
    assert report["variables"] == {"past_0": "f32[2 x P x 4]", "h0": "f32[2 x 4]"}
    assert report["inputs"] == {"x": "f32[2 x L x 4]"}


def test_help_says_how_dimensions_follow_from_others(tmp_path: Path) -> None:
    shapes: dict[str, list[str | int | None]] = {
        "x": ["L", 4],
        "past": ["P", 4],
        "m": ["T", 4],
        "n": ["P + L"],
    }
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=0),
        helper.make_node("Add", ["present", "m"], ["y"]),
        helper.make_node("Relu", ["n"], ["z"]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", 4]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["P + L"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opset = [helper.make_opsetid("", 17)]
    path = str(tmp_path / "net.onnx")
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    text = printed("run", path, "--help-model")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  --shape")]
    assert lines == ["--shape L=1..64", "--shape P=1..64", "--shape T=L+P"]
    argv = [word for line in lines for word in shlex.split(line)]
    assert "%m : f32[L+P x 4]" in printed("dump", path, *argv)


CACHES = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, n, 8] x, float[1, a, 8] past_key, float[1, b, 8] past_value)
=> (float[1, n, 8] y, float[1, c, 8] present_key, float[1, d, 8] present_value) {
    present_key = Concat <axis = 1> (past_key, x)
    present_value = Concat <axis = 1> (past_value, x)
    keys = Transpose <perm = [0, 2, 1]> (present_key)
    y = MatMul (scores, present_value)
    scores = MatMul (x, keys)
}
"""


def test_help_for_caches_whose_lengths_have_different_names(tmp_path: Path) -> None:
    path = str(tmp_path / "caches.onnx")
    onnx.save(parser.parse_model(CACHES), path)
    text = printed("run", path, "--help-model")
    lines = [line.strip() for line in text.splitlines() if line.startswith("  --shape")]
    assert lines == ["--shape n=1..64", "--shape a=b", "--shape b=0..64"]
    argv = [word for line in lines for word in shlex.split(line)]
    assert "%present_key_1 : f32[1 x b+n x 8]" in printed("dump", path, *argv)
    assert "variable %past_key : f32[1 x b x 8]" in printed("dump", path, *argv, "--state", "auto")
    ranges = ["--shape", "n=1..4", "--shape", "a=0..9", "--shape", "b=0..9"]
    assert "say what 'a' may be: --shape a=b\n" in refused("dump", path, *ranges)


def test_dimensions_whose_names_say_nothing_are_given_as_shapes(tmp_path: Path) -> None:
    model = parser.parse_model(CACHES)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "?"
    path = str(tmp_path / "caches.onnx")
    onnx.save(model, path)
    open_caches = ["--shape", "a=b", "--shape", "b=0..9"]
    assert "%x : f32[1x1x8]" in printed("dump", path, *open_caches)
    assert "%x : f32[1x3x8]" in printed("dump", path, *open_caches, "--shape", "x:1x3x8")


@pytest.mark.parametrize("checker", ["interpreter", "reference"])
def test_runs_begin_with_what_files_hold(model: str, tmp_path: Path, checker: str) -> None:
    rng = np.random.default_rng(0)
    past = rng.standard_normal((2, 5, 4)).astype(np.float32)
    np.save(tmp_path / "past.npy", past)
    out = tmp_path / "out"
    argv = ["run", model, *OPEN, "--state", "auto", "--repeat", "3", "--check-with", checker]
    report = json.loads(printed(*argv, "--json"))
    assert all(difference["within"] for difference in report["differences"])
    argv += ["--input", f"past_0={tmp_path / 'past.npy'}", "--output", str(out), "--json"]
    report = json.loads(printed(*argv))
    assert [output["name"] for output in report["outputs"]] == ["y"]
    names = [difference["name"] for difference in report["differences"]]
    assert names == (["y"] if checker == "interpreter" else ["present_0", "y", "hn"])
    assert all(difference["within"] for difference in report["differences"])
    x = np.random.default_rng(0).random((2, 3, 4)).astype(np.float32)
    expected = np.concatenate([past, x], axis=1).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(out / "y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_state_that_grows_together_is_given_together(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", [f"past_{k}", "x"], [f"present_{k}"], axis=0) for k in "kv"]
    shapes: dict[str, list[str | int | None]] = {"past_k": ["P"], "past_v": ["P"], "x": ["L"]}
    shapes |= {"present_k": ["T"], "present_v": ["T"]}
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(nodes, "g", infos[:3], infos[3:])
    opset = [helper.make_opsetid("", 17)]
    path, past = tmp_path / "net.onnx", tmp_path / "past.npy"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    np.save(past, np.ones(5, np.float32))
    argv = ["run", str(path), "--shape", "P=0..8", "--shape", "L=1..4", "--state", "auto"]
    argv += ["--backend", "interpreter", "--input", f"past_k={past}"]
    assert "state that is as long as that which is given for 'past_v'" in refused(*argv)
    printed(*argv, "--input", f"past_v={past}")


def test_dumps_show_variables(model: str) -> None:
    pair = ["--state", "past_0=present_0"]
    text = printed("dump", model, *OPEN, *pair)
    assert "variable %past_0 : f32[2 x P x 4] in f32[2x12x4]" in text
    assert "placeholder %h0 : f32[2x4]" in text
    text = printed("dump", model, *OPEN, *pair, "--stage", "ir")
    assert "insert_tensor @inout %present_0, @in %x {offsets=[0,P,0]}" in text
    assert text.count("insert_tensor") == 1


def test_what_is_no_state_is_refused(model: str, tmp_path: Path) -> None:
    for texts, message in {
        ("past_0",): "--state: expected INPUT=OUTPUT or auto, got 'past_0'",
        ("auto", "h0=hn"): "--state: 'h0' is given twice",
        ("h0=hm",): "state: expected one of the outputs 'present_0', 'y', 'hn', got 'hm'",
        ("h0=hn", "x=hn"): "state: 'hn' is the output of 2 inputs",
        ("h0=y",): "which the output 'y', f32[B x 1 x 4], cannot become",
    }.items():
        options = [option for text in texts for option in ("--state", text)]
        assert message in refused("run", model, *OPEN, *options)
    plain = tmp_path / "plain.onnx"
    text = MODEL.replace("past_0", "before").replace("h0", "hidden")
    onnx.save(parser.parse_model(text), str(plain))
    assert "no input and output look like state" in refused("run", str(plain), "--state", "auto")
    printed("dump", str(plain), *OPEN, "-o", str(tmp_path / "net.glow"))
    message = refused("dump", str(tmp_path / "net.glow"), "--state", "auto")
    assert "no input and output look like state" in message
    message = refused("dump", str(tmp_path / "net.glow"), "--state", "hidden=hm")
    assert "state: expected one of the outputs 'present_1', 'y_1', 'hn_1', got 'hm'" in message


def test_state_of_text(model: str, tmp_path: Path) -> None:
    """The variables of text are state if nothing is said; --state says what is, also of its inputs and outputs."""
    text = str(tmp_path / "net.glow")
    printed("dump", model, *OPEN, "--state", "past_0=present_0", "-o", text)
    for said, kept in (
        ([], ["past_0"]),
        (["--state", "auto"], ["past_0"]),
        (["--state", "auto", "--state", "h0=hn_1"], ["past_0", "h0"]),
        (["--state", "h0=hn_1"], ["h0"]),
    ):
        lines = printed("dump", text, *said).splitlines()
        words = [line.split()[1] for line in lines if line.startswith("  variable")]
        assert sorted(words) == sorted(f"%{name}" for name in kept)
        printed("run", text, *said, "--backend", "interpreter")


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


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_variables_begin_with_their_initial_values(backend: str, tmp_path: Path) -> None:
    text, saved, dumped = (str(tmp_path / name) for name in ("a.glow", "b.onnx", "c.onnx"))
    Path(text).write_text(BEGUN)
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    printed("export", text, "-o", saved)
    printed("dump", text, "--format", "onnx", "-o", dumped)
    feeds = ["--backend", backend, "--input", f"x={tmp_path / 'x.npy'}"]
    for model in ([text], [text, "--state", "auto"], [saved, "--state", "auto"], [dumped]):
        for _ in range(2):  # what is in the cache begins alike
            folder = str(tmp_path / "out")
            printed("run", *model, *feeds, "--output", folder, "--check-with", "interpreter")
            assert np.load(tmp_path / "out" / "y.npy").tolist() == [3, 2.5, 2]
