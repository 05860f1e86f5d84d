"""Operators of other packages: how they are found, what is said of broken ones, and that they run everywhere."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy import operators, plugins
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.backends.interpreter.interpret import interpret
from glowpy.cli.main import run
from glowpy.core.schema import NodeSchema
from glowpy.core.tensor import Array
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ReluNode
from glowpy.ir.insts_gen import MaxInst
from glowpy.operators import OperatorSet
from glowpy.support.errors import UnsupportedError, UserError

PACKAGE = Path(__file__).parents[1] / "plugin_operators"
DOMAIN = "com.example.series"

MODEL = """
<ir_version: 8, opset_import: ["": 17, "com.example.series": 1]>
series (float[2, N] x) => (float[2, N] up, float[2, N] down, float[2, N] depth) {
    up = com.example.series.Record (x)
    down = com.example.series.Record <reverse = 1> (x)
    positive = Relu (x)
    depth = com.example.series.Drawdown <scale = 0.5> (positive)
}
"""


class LonelyNode(Node):
    SCHEMA = NodeSchema("lonely_series", ("input",), (), ("result",), frozenset())


class TwinNode(Node):
    SCHEMA = ReluNode.SCHEMA


BROKEN = OperatorSet("com.example.broken", nodes=(LonelyNode, TwinNode), libraries=("none",))
MOVED = OperatorSet("com.example.elsewhere")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if packages were installed: one that works, and others that do not."""
    targets = {
        DOMAIN: "glowpy_series.operators:OPERATORS",
        "com.example.broken": f"{__name__}:BROKEN",
        "com.example.moved": f"{__name__}:MOVED",
        "com.example.text": f"{__name__}:MODEL",
        "com.example.lost": f"{__name__}:LOST",
    }
    group = plugins.OPERATORS_GROUP
    entries = [EntryPoint(name, target, group) for name, target in targets.items()]
    entries += [EntryPoint("com.example.twice", f"package_{i}:SET", group) for i in (1, 2)]
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(plugins, "_operator_entries", lambda: tuple(entries))
    monkeypatch.setattr(operators, "_SETS", {})
    monkeypatch.syspath_prepend(str(PACKAGE))


def model(domain: str = DOMAIN) -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL.replace(DOMAIN, domain))


X = np.array([[1, 3, 2, np.nan, 5], [-1, -3, -2, 0, -5]], np.float32)


def expected(x: Array) -> list[Array]:
    up = np.maximum.accumulate(x, -1)
    down = np.maximum.accumulate(x[:, ::-1], -1)[:, ::-1]
    positive = np.maximum(x, 0)
    return [up, down, (np.maximum.accumulate(positive, -1) - positive) / 2]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_session_computes_operators_of_a_package(backend: str) -> None:
    """The backend is made before the model says which operators there are."""
    session = glowpy.InferenceSession(model(), backend=backend)
    for got, right in zip(session.run(None, {"x": X}), expected(X), strict=True):
        np.testing.assert_array_equal(got, right)


def test_known_inputs_are_computed_while_importing() -> None:
    constant = "x = Constant <value = float[2, 2] {1.0, 0.0, 2.0, 3.0}> ()"
    text = MODEL.replace("float[2, N] x", "").replace("N", "2")
    text = text.replace("{\n    up", f"{{\n    {constant}\n    up", 1)
    f = glowpy.load(onnx.parser.parse_model(text)).main
    assert {node.SCHEMA.mnemonic for node in f.nodes} == {"save"}


def test_attributes_that_an_import_function_does_not_ask_for_are_refused() -> None:
    """In all nodes at once, with the ones that it asks for."""
    text = MODEL.replace("reverse = 1", "revers = 1").replace(
        "<scale = 0.5>", "<scal = 0.5, bias = 2>"
    )
    with pytest.raises(UnsupportedError) as caught:
        glowpy.load(onnx.parser.parse_model(text), dims={"N": 5})
    assert str(caught.value).splitlines() == [
        "series: node 'down' (#1): Record: attribute 'revers' is not supported",
        "note: its import function asks for 'reverse'",
        "series: node 'depth' (#3): Drawdown: attributes 'scal', 'bias' are not supported",
        "note: its import function asks for 'scale'",
    ]
    problems = glowpy.check(onnx.parser.parse_model(text)).problems
    assert [problem.loc.node for problem in problems] == ["down", "depth"]


def test_network_is_printed_read_and_checked(tmp_path: Path) -> None:
    module = glowpy.load(model(), dims={"N": 5})
    text = tmp_path / "net.glow"
    text.write_text(str(module))
    assert "series_record(%x) {reverse=true}" in text.read_text()
    out, err = io.StringIO(), io.StringIO()
    status = run(["run", str(text), "--check-with", "interpreter"], io.StringIO(), out, err)
    assert status == 0, err.getvalue()
    assert glowpy.check(model(), dims={"N": 5}).problems == ()


@pytest.mark.parametrize(("package", "status"), [("glowpy_series", 1), ("glowpy", 2)])
def test_a_fault_of_a_kernel_is_one_line_without_a_traceback(
    package: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glowpy.load(model(), dims={"N": 5})
    series = importlib.import_module("glowpy_series.insts_gen")
    insts = {"glowpy_series": series.SeriesRecordInst, "glowpy": MaxInst}
    monkeypatch.setitem(interpret._rules, insts[package], lambda *args, **attrs: None)
    onnx.save(model(), tmp_path / "net.onnx")
    words = ["run", str(tmp_path / "net.onnx"), "--sanitize", "--backend", "interpreter"]
    out, err = io.StringIO(), io.StringIO()
    assert run([*words, "--shape", "N=5"], io.StringIO(), out, err) == status
    first, *others = err.getvalue().splitlines()
    assert re.match(r"error: %.*: it leaves elements unwritten", first)
    own = package == "glowpy"
    assert ("of the package glowpy_series" in first, len(others)) == (not own, int(own))


def test_bundle_has_the_kernels(tmp_path: Path) -> None:
    options = glowpy.BundleOptions("net", emit="shared")
    glowpy.bundle(glowpy.load(model(), dims={"N": 5}), tmp_path, options)
    outputs = glowpy.load_bundle(tmp_path)({"x": X})
    for name, right in zip(("up", "down", "depth"), expected(X), strict=True):
        np.testing.assert_array_equal(outputs[name], right)


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("com.example.nobody", "com.example.nobody.Record .opset 1. is not supported"),
        ("com.example.broken", "LonelyNode has no 'infer' rule; .*libraries: expected KernelLib"),
        ("com.example.broken", "TwinNode: the mnemonic relu is taken by glowpy.graph"),
        ("com.example.moved", "the set is of the domain 'com.example.elsewhere'"),
        ("com.example.text", "expected an OperatorSet, got "),
        ("com.example.lost", "cannot be loaded: AttributeError"),
        ("com.example.twice", "package_1 and package_2 both have operators"),
    ],
)
def test_broken_package_is_an_error_for_who_uses_its_domain(domain: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        glowpy.load(model(domain), dims={"N": 5})


def test_operator_that_the_package_of_a_domain_lacks_is_named_with_those_it_has() -> None:
    text = MODEL.replace("series.Record (x)", "series.Rekord (x)")
    with pytest.raises(UnsupportedError) as caught:
        glowpy.load(onnx.parser.parse_model(text), dims={"N": 5})
    assert caught.value.diagnostics[0].note == (
        f"the package glowpy_series has no such operator of '{DOMAIN}': there are Drawdown, Record"
    )
    contrib = text.replace(DOMAIN, "com.microsoft").replace('": 17', '": 21')
    with pytest.raises(UnsupportedError, match=r"a package can bring the operators of 'com\.micro"):
        glowpy.load(onnx.parser.parse_model(contrib), dims={"N": 5})


def test_operators_of_another_opset_import_are_not_looked_for() -> None:
    """A model that does not import the domain does not have the package loaded."""
    text = MODEL.replace(f', "{DOMAIN}": 1', "")
    with pytest.raises(UnsupportedError, match=f"imports no opset of the domain '{DOMAIN}'"):
        glowpy.load(onnx.parser.parse_model(text), dims={"N": 5})
    assert operators.operator_sets() == ()


def test_doctor_names_packages_and_what_is_wrong_with_them() -> None:
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 1
    figures = json.loads(out.getvalue())
    assert figures[f"operators {DOMAIN}"] == "glowpy_series.operators"
    assert figures["operators com.example.text"].startswith("failed: the operators of")


def test_domain_that_is_taken_is_refused() -> None:
    own = OperatorSet("com.example.mine")
    glowpy.register_operators(own)
    glowpy.register_operators(own)
    with pytest.raises(UserError, match="the domain is taken"):
        glowpy.register_operators(OperatorSet("com.example.mine", libraries=(LIBJIT,)))
    with pytest.raises(UserError, match="the domain is taken"):
        glowpy.register_operators(OperatorSet("ai.onnx"))


def test_compiled_network_is_out_of_date_when_a_file_of_the_package_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What nobody can tell the version of is never taken from the cache."""
    read = glowpy.importer.read_model(model())
    before = read.digest
    assert glowpy.importer.read_model(model()).digest == before
    monkeypatch.setattr(operators, "files_identity", lambda folders: "another")
    assert read.digest != before
    unknown = OperatorSet("com.example.mine")
    assert unknown.identity != OperatorSet("com.example.mine").identity


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, "-m", "classgen", "--check", "--package", "glowpy_series"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parents[1])}
    done = subprocess.run(
        command, cwd=PACKAGE, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_documentation_shows_the_package_as_it_is() -> None:
    page = (PACKAGE.parents[1] / "docs" / "operators.md").read_text()
    blocks = re.findall(r"^```(?:py|c|toml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = [
        file.read_text() for file in PACKAGE.rglob("*") if file.suffix in (".py", ".c", ".toml")
    ]
    assert len(blocks) == 6
    for block in blocks:
        parts = [part.strip("\n") for part in block.split("\n\n")]
        assert any(all(part in text for part in parts) for text in files), block
