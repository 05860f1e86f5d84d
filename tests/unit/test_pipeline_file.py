"""Pipelines as YAML: written, read back, changed, and refused where a network could not be compiled."""

import io
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions
from glowpy.cli.main import run
from glowpy.engine import backend_of, compilation
from glowpy.opt.graph.constant_fold import ConstantFoldPass
from glowpy.pipeline_file import parse_recipe, print_recipe
from glowpy.recipe import recipe_of
from glowpy.support.errors import UserError
from tests.unit.test_step_log import FEEDS, network

SHORT = """\
calls: []
graph:
- repeat:
  - constant-fold: {small: 64}
  - rewrite: [sink-transpose, fold-batch-norm]
  - widen-sums
- split-products
- lower-quantized
- lower
ir: [share-buffers]
"""


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_what_is_written_is_read_back(backend: str) -> None:
    own = recipe_of(backend_of(backend))
    text = print_recipe(own)
    again = parse_recipe(text, own, backend)
    assert print_recipe(again) == text
    assert [*again.passes.items()] == [*own.passes.items()]
    bound = CompileOptions(recorded=True, pipeline=text)
    stages = [compilation(network(), backend, o) for o in (bound, CompileOptions(recorded=True))]
    texts = [stage.text("memory") for stage in stages]
    assert texts[0] == texts[1]
    assert stages[0].ctx.steps.log == stages[1].ctx.steps.log


def test_what_is_left_out_does_not_run() -> None:
    options = CompileOptions(recorded=True, pipeline=SHORT, verify_each=True)
    stages = compilation(network(), "interpreter", options)
    expected = glowpy.compile(network(), "interpreter")(FEEDS)["y"]
    np.testing.assert_allclose(stages.compiled(FEEDS)["y"], expected, 1e-4, 1e-5)
    names = {step.name for step in stages.ctx.steps.log}
    assert "fold-batch-norm" in names
    assert names.isdisjoint({"dce", "cse", "elide-copy"})


def test_passes_have_options() -> None:
    recipe = parse_recipe(SHORT, recipe_of(backend_of("interpreter")), "interpreter")
    assert recipe.passes["constant-fold"] == ConstantFoldPass(small=64)
    assert "- constant-fold: {small: 64}\n" in print_recipe(recipe)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- lower\n", "", "graph: expected the pass lower: without it"),
        (
            "- lower-quantized\n- lower\n",
            "- lower\n- lower-quantized\n",
            "lower-quantized before lower",
        ),
        ("share-buffers", "cse", "expected a pass of this part, got 'cse'"),
        ("sink-transpose", "constant-fold", "made of rules, got 'constant-fold'"),
        (
            "small: 64",
            "smal: 64",
            "p.yaml:4: constant-fold has no option 'smal'\nnote: did you mean small",
        ),
        ("small: 64", "name: zzz", r"no option 'name'\nnote: it has growth, small$"),
        (
            "- widen-sums",
            "- widen-sum",
            "p.yaml:6: graph: expected a pass .* 'widen-sum'\nnote: did you mean widen-sums",
        ),
        (
            "graph:",
            "grpah:",
            "p.yaml:2: .* calls, graph, ir of a pipeline, got 'grpah'\nnote: did you mean graph",
        ),
        (
            "ir: [share-buffers]",
            "",
            "got none called 'ir'\nnote: .* --list --yaml --backend interpreter writes",
        ),
        ("small: 64", "small: many", "expected small of type int, got 'many'"),
        ("{small: 64}", "[64]", r"constant-fold: expected options, got \[64\]"),
        ("calls: []\n", "", "expected the parts calls, graph, ir"),
        ("calls: []", "calls: fold-calls", "calls: expected a list of passes, got 'fold-calls'"),
        ("calls: []", "calls: [}", "expected a pipeline as YAML"),
        ("calls: []", "calls: &a [{repeat: *a}]", "expected passes to repeat, got another"),
        (
            "rewrite: [sink-transpose, fold-batch-norm]",
            "rewrite: &a [rewrite: *a]",
            "made of rules, got .rewrite.",
        ),
    ],
)
def test_what_cannot_be_compiled_with_is_refused(old: str, new: str, message: str) -> None:
    assert old in SHORT
    with pytest.raises(UserError, match=message):
        parse_recipe(
            SHORT.replace(old, new), recipe_of(backend_of("interpreter")), "interpreter", "p.yaml"
        )


def test_the_command_line_writes_and_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.glow").write_text(str(network()))
    glowpy.save(network(), "net.onnx")
    out = io.StringIO()
    assert run(["opt", "--list", "--yaml"], io.StringIO(), out) == 0
    Path("whole.yaml").write_text(out.getvalue())
    Path("short.yaml").write_text(SHORT)
    texts = []
    for file in ("whole.yaml", "short.yaml"):
        out = io.StringIO()
        argv = ["dump", "net.onnx", "--stage", "ir", "--backend", "interpreter", "--pipeline", file]
        assert run(argv, io.StringIO(), out) == 0
        texts.append(out.getvalue())
    assert "copy" not in texts[0]
    assert "copy" in texts[1]
    out = io.StringIO()
    Path("wrong.yaml").write_text(SHORT.replace("- lower\n", ""))
    argv = ["run", "net.onnx", "--backend", "interpreter", "--pipeline", "wrong.yaml"]
    assert run(argv, io.StringIO(), out) == 1
    assert "error: wrong.yaml: graph: expected the pass lower" in out.getvalue()
    out = io.StringIO()
    assert run(["opt", "net.glow", "--pipeline", "whole.yaml"], io.StringIO(), out) == 1
    assert "opt runs the passes that -p names" in out.getvalue()


def test_the_cache_tells_pipelines_apart() -> None:
    keys = {CompileOptions(pipeline=text).code_key for text in ("", SHORT, SHORT + "\n")}
    assert len(keys) == 3
