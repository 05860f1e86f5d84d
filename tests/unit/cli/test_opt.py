"""`glowpy opt`: streams, options, errors. What the passes do is in tests/filetests and tests/unit."""

import io
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.cli.files import write_constants
from glowpy.cli.main import run
from glowpy.core.tensor import Tensor
from glowpy.debugging.opt_driver import OptDriver
from glowpy.engine import BACKENDS, backend_of
from glowpy.graph.printer import print_module

TEXT = """\
module {
  placeholder %x : f32[4]
  placeholder %y : f32[4]
  function @main {
    %dead = exp(%x) : f32[4]
    %r = relu(%x) : f32[4]
    save(%r, %y)
  }
}
"""


def opt(*argv: str, text: str = TEXT) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(["opt", "-", *argv], io.StringIO(text), out, err), out.getvalue(), err.getvalue()


def test_no_passes_print_the_text() -> None:
    assert opt() == (0, TEXT, "")


def test_passes_run_in_order() -> None:
    status, text, _ = opt("-p", "dce, lower,irgen")
    assert status == 0
    assert text.startswith("irfunction @main {")
    assert "exp" not in text


def test_print_after_goes_to_standard_error() -> None:
    status, text, err = opt("-p", "dce,lower", "--print-after", "dce")
    assert status == 0
    assert err.startswith("// after dce\nmodule {")
    assert "relu(%x)" in err
    assert "relu(%x)" not in text


def test_print_after_says_when_nothing_changed() -> None:
    _, _, err = opt("-p", "cse", "--print-after", "cse")
    assert err.startswith("// after cse (no change)\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_list_names_every_pass(backend: str) -> None:
    out = io.StringIO()
    assert run(["opt", "--list", "--backend", backend], io.StringIO(), out) == 0
    listed = {
        line.split()[0]
        for line in out.getvalue().splitlines()
        if line.startswith("  ") and line.split()
    }
    assert set(OptDriver(backend_of(backend)).passes) <= listed


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-p", "nonsense"], "unknown pass 'nonsense'"),
        (["-p", "fold-transposes"], "did you mean fold-transpose?"),
        (["-p", "pack-products"], "add --backend cpu"),
        (["-p", "dce", "--print-after", "cse"], "got 'cse'"),
        (["-p", "irgen,runs", "--print-after", "runs"], "got 'runs'"),
        (["-p", "elide-copy"], "it works on IR functions; irgen makes one of a module"),
        (
            ["-p", "lower,irgen,dce"],
            "dce: expected text of another level\nnote: it works on modules",
        ),
    ],
)
def test_errors(argv: list[str], message: str) -> None:
    status, out, err = opt(*argv)
    assert (status, out) == (1, "")
    assert message in err


def test_what_is_not_lowered_is_refused_by_irgen() -> None:
    status, _, err = opt("-p", "irgen", text=TEXT.replace("relu(%x)", "elu(%x) {alpha = 1.0}"))
    assert status == 1
    assert "no instruction computes elu" in err
    assert "note: lower it first, as `glowpy opt -p lower,irgen` does" in err


def test_no_file() -> None:
    out = io.StringIO()
    assert run(["opt", "-p", "dce"], io.StringIO(), out) == 1
    assert "expected a file" in out.getvalue()


@pytest.mark.parametrize("stage", ["lowered", "ir"])
def test_reads_what_dump_writes_of_a_backends_own_operators(tmp_path: Path, stage: str) -> None:
    (tmp_path / "net.glow").write_text(
        """module {
          placeholder %x : f32[3x4]  placeholder %y : f32[3x4]
          constant %w : f32[4x4] = splat 0.5
          function @main { %p = mat_mul(%x, %w) : f32[3x4]  save(%p, %y) }
        }"""
    )
    dumped, again = io.StringIO(), io.StringIO()
    assert run(["dump", str(tmp_path / "net.glow"), "--stage", stage], io.StringIO(), dumped) == 0
    assert "cpu_matmul" in dumped.getvalue()
    assert run(["opt", "-"], io.StringIO(dumped.getvalue()), again) == 0
    assert again.getvalue() == dumped.getvalue()


def test_elements_of_constants_come_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that passes that compute with them have them, as in the text of a model with large weights."""
    monkeypatch.chdir(tmp_path)
    weights = np.arange(600, dtype=np.float32)
    module = glowpy.Module()
    f, y = module.create_function("main"), glowpy.parse_type("f32[600]")
    constant = module.create_constant("w", weights)
    f.create_save("save", f.create_neg("n", constant), module.create_placeholder("y", y))
    Path("net.glow").write_text(print_module(module))
    write_constants("net.npz", module.constants)
    passes = ["opt", "net.glow", "-p", "constant-fold"]
    out, err = io.StringIO(), io.StringIO()
    assert run([*passes, "--constants", "net.npz"], io.StringIO(), out, err) == 0
    assert "neg" not in out.getvalue()
    assert Tensor.of(-weights).digest() in out.getvalue()


def test_the_closest_word_is_named() -> None:
    text = "module {\n  placeholder %x : f32[2]\n  function @f { %y = rellu(%x) : f32[2] }\n}\n"
    out = io.StringIO()
    assert run(["opt", "-"], io.StringIO(text), out) == 1
    assert "unknown node 'rellu'" in out.getvalue()
    assert out.getvalue().rstrip().endswith("note: did you mean relu?")
