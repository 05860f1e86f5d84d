"""Options about passes: the same in every verb that compiles, on the real compilation."""

import io
import json
from pathlib import Path

import onnx
import pytest
from onnx import parser

from glowpy.backends.cpu.measuring import peaks as peaks_module
from glowpy.cli.main import run
from glowpy.cli.pass_options import PassOptions

TEXT = """\
module {
  placeholder %x : f32[2x3]
  placeholder %y : f32[3x2]
  function @main {
    %t = transpose(%x) {shuffle=[1,0]} : f32[3x2]
    %r = relu(%t) : f32[3x2]
    %back = transpose(%r) {shuffle=[1,0]} : f32[2x3]
    %e = exp(%back) : f32[2x3]
    %f = exp(%back) : f32[2x3]
    %s = add(%e, %f) : f32[2x3]
    %out = transpose(%s) {shuffle=[1,0]} : f32[3x2]
    save(%out, %y)
  }
}
"""

JOINED = """\
module {
  placeholder %x : f32[2x3]
  placeholder %y : f32[2x9]
  placeholder %z : f32[2x6]
  function @main {
    %e = exp(%x) : f32[2x3]
    %narrow = concat(%x, %e) {axis=1} : f32[2x6]
    %wide = concat(%narrow, %x) {axis=1} : f32[2x9]
    save(%wide, %y)
    save(%narrow, %z)
  }
}
"""

FLOATS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 6, 6] x) => (float[1, 4] y)
<float[4, 4, 3, 3] w = {WEIGHTS}, float[4] one = {1, 1, 1, 1}>
{
  conv = Conv (x, w)
  norm = BatchNormalization (conv, one, one, one, one)
  active = Relu (norm)
  pooled = AveragePool <kernel_shape = [2, 2]> (active)
  mean = GlobalAveragePool (pooled)
  flat = Flatten (mean)
  sum = Add (flat, one)
  line = LayerNormalization (sum, one, one)
  y = Softmax (line)
}
""".replace("WEIGHTS", ", ".join(["0.5"] * 144))

STRINGS = """
<ir_version: 8, opset_import: ["": 20]>
g (string[2] x) => (string[2] y) { y = StringConcat(x, x) }
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.glow"
    path.write_text(TEXT)
    return str(path)


def glowpy(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run([*argv], io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("last", [0, 1, 3, 99])
def test_run_stops_and_is_right(net: str, last: int) -> None:
    argv = ("run", net, "--backend", "interpreter", "--check-with", "interpreter", "--json")
    status, out, _ = glowpy(*argv, "--stop-after", str(last))
    assert status == 0
    assert json.loads(out)["differences"][0]["within"]


@pytest.mark.parametrize("stage", ["optimized", "lowered", "ir"])
def test_dump_shows_what_is_stopped(net: str, stage: str) -> None:
    argv = ("dump", net, "--stage", stage, "--backend", "interpreter")
    _, whole, _ = glowpy(*argv)
    status, stopped, _ = glowpy(*argv, "--stop-after", "0")
    assert status == 0
    assert whole.count("exp") == 1
    assert stopped.count("exp") == 2
    assert glowpy(*argv, "--disable-pass", "cse")[1].count("exp") == 2


def test_passes_are_printed_before_and_after(net: str) -> None:
    argv = ("run", net, "--backend", "interpreter")
    _, _, err = glowpy(*argv, "--print-before", "cse", "--print-after", "cse")
    before, after = err.index("// before cse\nmodule {"), err.index("// after cse\nmodule {")
    assert before < after
    assert err[before:after].count("exp") == 2
    assert err[after:].split("// ")[1].count("exp") == 1


def test_all_are_printed_where_they_changed_something(net: str) -> None:
    _, _, err = glowpy("run", net, "--backend", "interpreter", "--print-after", "all")
    assert "// after fold-calls (no change)\n//" in err
    assert "// after rewrite\nmodule {" in err
    assert "// after shrink-lifetimes (no change)\n" in err


def test_irgen_is_printed_as_passes_are(net: str) -> None:
    argv = ("run", net, "--backend", "interpreter")
    _, _, err = glowpy(*argv, "--print-before", "irgen", "--print-after", "irgen")
    before, after = err.index("// before irgen\nmodule {"), err.index("// after irgen\nirfunction")
    assert before < after
    status, _, err = glowpy(*argv, "--disable-pass", "irgen")
    assert (status, "the pass irgen cannot be disabled" in err) == (1, True)
    status, _, err = glowpy(*argv, "--print-after", "memory")
    assert (status, "glowpy dump --stage memory shows what this stage makes" in err) == (1, True)
    status, _, err = glowpy("opt", net, "-p", "lower,irgen", "--print-after", "irgen")
    assert (status, err.startswith("// after irgen\nirfunction")) == (0, True)


def test_each_rewrite_of_a_pass_is_printed(net: str) -> None:
    _, _, err = glowpy("run", net, "--backend", "interpreter", "--print-after", "sink-transpose")
    assert err.startswith("// after sink-transpose of %")


def test_a_recalled_network_is_compiled_where_passes_are_shown(net: str) -> None:
    for _ in range(2):
        _, _, err = glowpy("run", net, "--time-passes")
        assert "cse" in err
        assert "codegen" in err
        assert err.splitlines()[-1].startswith("total")


def test_verify_each_and_explain_reach_the_compilation(net: str, tmp_path: Path) -> None:
    joined = tmp_path / "joined.glow"
    joined.write_text(JOINED)
    status, out, err = glowpy("bundle", str(joined), "-o", str(tmp_path / "b"), "--explain")
    assert status == 0, err
    refusal = "%wide: %narrow has other users, and its elements would be copied twice (fold-concat)"
    assert err.splitlines().count(refusal) == 1  # although the pass runs several times
    assert "RAM" in out
    assert glowpy("run", net, "--verify-each")[0] == 0


def test_networks_of_floats_are_not_refused_what_is_for_integers(tmp_path: Path) -> None:
    path = str(tmp_path / "floats.onnx")
    onnx.save(parser.parse_model(FLOATS), path)
    status, _, err = glowpy("run", path, "--explain", "--backend", "interpreter")
    assert (status, err) == (0, "")


def test_a_bundle_knows_what_was_left_out(net: str, tmp_path: Path) -> None:
    for folder, options in (("a", ()), ("b", ("--disable-pass", "cse", "--stop-after", "0"))):
        assert glowpy("bundle", net, "-o", str(tmp_path / folder), *options)[0] == 0
        assert glowpy("bundle", net, "--check", str(tmp_path / folder))[0] == 0
    manifests = [json.loads((tmp_path / name / "net.json").read_text()) for name in "ab"]
    assert [*manifests[1].keys() - manifests[0].keys()] == ["left_out"]
    assert manifests[0]["fingerprint"] != manifests[1]["fingerprint"]


def test_bench_times_what_is_stopped(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks_module, "_SIZES", (1 << 14, 1 << 16))
    monkeypatch.setattr(peaks_module, "_SECONDS", 0.0)
    monkeypatch.setattr(peaks_module, "_SWEEPS", 1)
    argv = ("bench", net, "--seconds", "0", "--repeat", "1", "--stop-after", "0")
    status, _, err = glowpy(*argv, "--print-after", "lower", "--verify-each")
    assert status == 0, err
    assert "// after lower" in err


def test_opt_takes_them_for_the_passes_that_are_named(net: str) -> None:
    _, whole, _ = glowpy("opt", net, "-p", "sink-transpose,cse")
    _, stopped, err = glowpy(
        *("opt", net, "-p", "sink-transpose,cse", "--stop-after", "0", "--print-before", "cse")
    )
    assert stopped == TEXT
    assert err == ""  # it did not run
    assert whole != TEXT


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--disable-pass", "lower"], "the pass lower cannot be disabled"),
        (["--disable-pass", "csee"], "did you mean cse?"),
        (["--print-after", "csee"], "did you mean cse?"),
        (["--print-before", "fold-concat"], "fold-concat runs with others as one pass"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "dump"])
def test_wrong_names(net: str, verb: str, argv: list[str], message: str) -> None:
    status, out, err = glowpy(verb, net, *argv)
    assert (status, out) == (1, "")
    assert message in err


def test_what_has_no_passes_refuses_them(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(STRINGS), tmp_path / "s.onnx")
    status, _, err = glowpy("run", str(tmp_path / "s.onnx"), "--print-after", "all")
    assert status == 1
    assert "--print-after: expected one network, got a model that is compiled in parts" in err
    (tmp_path / "f.ir").write_text("irfunction @f {\n  declare\n  program\n}\n")
    status, _, err = glowpy("run", str(tmp_path / "f.ir"), "--stop-after", "1")
    assert status == 1
    assert "--stop-after: an IR function has all of that in its text" in err


def test_no_step_at_all_is_an_option_that_is_given() -> None:
    assert PassOptions(stop_after=0).given["--stop-after"]
    assert not PassOptions().given["--stop-after"]
