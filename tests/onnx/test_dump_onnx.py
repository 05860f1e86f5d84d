"""`glowpy dump --format onnx`: valid files, which load back to the same function, and compute the same elsewhere."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glowpy
from glowpy.cli.main import run
from glowpy.engine import compilation
from glowpy.exporter import dump_onnx
from glowpy.graph.function import Function, Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.onnx_package.networks import packaged_network
from glowpy.recipe import Stage
from glowpy.support.dumped import DECLARATIONS, DOMAIN, NUMBERED
from tests.unit.networks import (
    RandomNetwork,
    SearchingNetwork,
    SymbolicNetwork,
    arrays_for,
    execute,
    same_numbers,
    unoptimized,
)

errors = ort.capi.onnxruntime_pybind11_state
STAGES = (Stage.GRAPH, Stage.OPTIMIZED, Stage.LOWERED, Stage.SCHEDULED)

NETWORK = """\
module {
  symbol n 1..8 likely 4
  placeholder %x : f32[n x 6]
  placeholder %m : bool[]
  placeholder %y : f32[n x 3]
  placeholder %q : i8[3](s=0.1,o=2)
  placeholder %z : f32[3]
  variable %h : f32[3] in f32[3]
  constant %w : f32[6x3] = splat 0.1
  constant %b : i8[3](s=0.1,o=2) = [1, 2, 3]
  constant %v : f64[1] = [0.1]
  function @main {
    %p = mat_mul(%x, %w) : f32[n x 3]
    %s = mul(%q, %b) : i8[3](s=0.3,o=0)
    %d = dequantize(%s) : f32[3]
    %t = add(%d, %h) : f32[3]
    %c = leaky_relu(%p) if %m {alpha=0.1} : f32[n x 3]
    %a = add(%c, %t) : f32[n x 3]
    save(%a, %y)
    save(%t, %h)
    save(%d, %z)
  }
}
"""


def read_constants(f: Function) -> str:
    """The text of the module, without constants that nothing reads: they are no part of the function."""
    module = f.module.clone()
    for constant in module.constants:
        if not constant.value.num_users:
            module.erase(constant)
    return print_module(module)


def survives(f: Function, path: Path) -> onnx.ModelProto:
    dump_onnx(f, path)
    assert print_module(glowpy.load(path)) == read_constants(f)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} <= {DOMAIN}
    return model


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_every_stage_survives(stage: Stage, backend: str, tmp_path: Path) -> None:
    """Symbols, a predicate, quantized types, state, and numbers that ONNX would round."""
    f = compilation(parse_module(NETWORK), backend).graph(stage)
    survives(f, tmp_path / "dumped.onnx")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.randoms(use_true_random=False),
    st.sampled_from((RandomNetwork, SymbolicNetwork, SearchingNetwork)),
    st.sampled_from(STAGES),
)
def test_random_network_survives(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random, cls: type, stage: Stage
) -> None:
    module: Module = cls(rng).module
    path = tmp_path_factory.getbasetemp() / "dumped.onnx"
    survives(compilation(module, "interpreter").graph(stage), path)


def on_onnxruntime(path: Path, module: Module) -> bool:
    """Whether the file computes there what the module does; False where it has no kernel."""
    arrays = arrays_for(module.placeholders, 3)
    expected = execute(unoptimized(module), arrays)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        feeds = {info.name: arrays[info.name] for info in session.get_inputs()}
        outputs = session.run(names, feeds)
    except (errors.NotImplemented, errors.Fail) as error:
        if not any(words in str(error) for words in ("NOT_IMPLEMENTED", "has no dimensions")):
            raise
        return False
    saves = {
        save.output.producer: name for save, name in zip(module.main.saves, names, strict=True)
    }
    got = dict(zip(names, outputs, strict=True))
    by_name = {p.name: got[saves[p]] for p in module.main.outputs}
    same_numbers(by_name, expected)
    return True


def test_bodies_compute_what_nodes_do(tmp_path: Path) -> None:
    """Of twenty random networks, most have a body for every node."""
    path, computed = tmp_path / "dumped.onnx", 0
    for seed in range(20):
        module = RandomNetwork(random.Random(seed)).module
        model = survives(module.main, path)
        if all(NUMBERED in node.op_type for node in model.graph.node):
            with np.errstate(all="ignore"):
                computed += on_onnxruntime(path, module)
    assert computed >= 10


def test_network_with_large_weights_runs_elsewhere(tmp_path: Path) -> None:
    module = glowpy.load(packaged_network("squeezenet"))
    model = survives(module.main, tmp_path / "dumped.onnx")
    assert all(NUMBERED in node.op_type for node in model.graph.node)
    kinds = {node.op_type for node in model.graph.node}
    assert len(model.functions) == len(kinds) < len(model.graph.node)


def test_session_runs_what_was_dumped(tmp_path: Path) -> None:
    """Variables are state of the session, unless it is told that they are inputs and outputs."""
    path = tmp_path / "dumped.onnx"
    text = re.sub(r"n x ", "2x", re.sub(r"  symbol.*\n", "", NETWORK))
    module = parse_module(text)
    dump_onnx(module.main, path)
    x, q, h = np.ones((2, 6), np.float32), np.array([3, 4, 5], np.int8), np.zeros(3, np.float32)
    feeds = {"x": x, "m": np.array(True), "q": q}
    session = glowpy.InferenceSession(path, state={})
    assert [info.name for info in session.get_inputs()] == ["x", "m", "q", "h"]
    assert [info.name for info in session.get_outputs()] == ["y", "h_next", "z"]
    _, following, z = session.run(None, {**feeds, "h": h})
    keepers = glowpy.InferenceSession(path), glowpy.InferenceSession(path, state="auto")
    for keeping in keepers:
        keeping.run(None, feeds)
        np.testing.assert_array_equal(keeping.get_state()["h"], following)
    compiled = glowpy.compile(module, "interpreter")
    np.testing.assert_allclose(compiled(feeds, state=compiled.state())["z"], z, rtol=1e-6)
    assert glowpy.check(path).problems == ()


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "dumped.onnx"
    dump_onnx(parse_module(NETWORK).main, path)
    with pytest.raises(glowpy.UserError, match="the shapes of a dumped graph are written in it"):
        glowpy.load(path, dims={"n": 3})
    for shapes in ({"nope": (3,)}, {"x": (1, 2, 3, 4, 5)}):
        with pytest.raises(glowpy.UserError, match=r"no input 'nope'|expected the shape"):
            glowpy.InferenceSession(path, shapes=shapes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.node[0].ClearField("metadata_props"), "expected 1 types of results"),
        (lambda g: setattr(g.node[0], "op_type", "nonsense"), "expected an operator of the domain"),
        (lambda g: setattr(g.node[0], "domain", ""), "expected an operator of the domain"),
        (lambda g: g.node[0].input.pop(), "expected 2 inputs"),
        (lambda g: g.node[4].attribute.pop(), "expected the attributes alpha, got none"),
        (lambda g: g.node[4].input.pop(), "is not computed|expected 1 inputs|predicate"),
        (lambda g: g.initializer.pop(0), "'w' is computed by no node"),
        (lambda g: setattr(g.node[0].metadata_props[0], "value", "f32[4x4]"), "f32.4x4."),
        (lambda g: setattr(g.metadata_props[0], "value", "function"), "glowpy.declarations"),
    ],
)
def test_damage_is_an_error(change: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dumped.onnx"
    dump_onnx(parse_module(NETWORK).main, path)
    model = onnx.load(path)
    assert callable(change)
    change(model.graph)
    onnx.save(model, path)
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(path)


def test_command_line_writes_stages(tmp_path: Path) -> None:
    path, out = tmp_path / "dumped.onnx", io.StringIO()
    text = NETWORK.replace("splat 0.1", "splat 0.25")
    argv = ["dump", "-", "--stage", "scheduled", "--format", "onnx"]
    assert run([*argv, "-o", str(path)], io.StringIO(text), out) == 0, out.getvalue()
    assert run(["dump", str(path)], io.StringIO(), out) == 0
    expected = io.StringIO()
    assert run(argv[:4], io.StringIO(text), expected) == 0
    assert out.getvalue() == expected.getvalue()
    assert DECLARATIONS in {entry.key for entry in onnx.load(path).graph.metadata_props}
    assert run(argv, io.StringIO(text), out) == 1
    assert "expected a file for --format onnx" in out.getvalue()
    assert (
        run(
            ["dump", "-", "--stage", "ir", "--format", "onnx", "-o", str(path)],
            io.StringIO(text),
            out,
        )
        == 1
    )
    assert "expected a stage that is a graph" in out.getvalue()
