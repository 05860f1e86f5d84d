"""`glowpy dump` of networks whose nodes call functions, or loop over steps: bodies are in every form of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import compilation
from glowpy.exporter import dump_onnx
from glowpy.graph.dot import print_dot
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import CallNode
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.recipe import Stage
from glowpy.support.dumped import CONSTANTS
from tests.onnx.calls_models import COUNTING, decoder, model_of
from tests.ops.test_call import TEXT

STAGES = (Stage.GRAPH, Stage.OPTIMIZED, Stage.LOWERED, Stage.SCHEDULED)

BRANCHES = """
net (bool up, bool far, float[3] x, float[3] y) => (float[3] z, float[3] u) {
    z, u = If (up) <
        then_branch = a () => (float[3] p, float[3] q) { p = Add (x, y) t = Mul (x, y) q = MatMul (t, w) },
        else_branch = b () => (float[3] r, float[3] s) {
            r = Sub (x, y)
            s = If (far) <
                then_branch = c () => (float[3] v) { v = MatMul (x, w) },
                else_branch = d () => (float[3] n) { n = Neg (y) }
            >
        }
    >
}
"""
"""Branches that read what is around them, one of which has branches itself, and weights that both read."""

SCANNED = """
net (float[40, 3] x, float[3] y) => (float[3] last, float[40, 3] rows) {
    last, rows = Scan <num_scan_inputs = 1, body = step (float[3] before, float[3] row)
        => (float[3] after, float[3] out) {
            sum = Add (before, row) t = Tanh (sum) after = MatMul (t, w) out = Neg (after)
        }
    > (y, x)
}
"""
"""A loop that stacks what its rounds give."""

UNTIL = """
net (int64 n, float[3] x, float[1] most) => (float[3] last, float[3] same) {
    true = Constant <value = bool {1}> ()
    last, same = Loop (n, true, x, x) <
        body = step (int64 i, bool c, float[3] before, float[3] kept)
            => (bool more, float[3] after, float[3] kept) {
            number = Cast <to = 1> (i)
            sum = Add (before, kept)
            after = Add (sum, number)
            top = ReduceMax <keepdims = 0> (after)
            bound = Squeeze (most)
            more = Less (top, bound)
        }
    >
}
"""
"""A loop that ends itself, and carries what stays as it is."""


def weighted(text: str) -> onnx.ModelProto:
    model = model_of(text)
    weights = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


MODELS = {
    "branches": weighted(BRANCHES),
    "scanned": weighted(SCANNED),
    "until": model_of(UNTIL),
    "counting": model_of(COUNTING),
    "decoder": decoder(),
}


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return {name: glowpy.load(model) for name, model in MODELS.items()}


def survives(module: Module, stage: Stage, backend: str, path: Path) -> onnx.ModelProto:
    """The file, which is valid and gives the same text."""
    f = compilation(module, backend).graph(stage)
    dump_onnx(f, path)
    expected = f.module.clone()
    for constant in expected.constants:
        if not constant.value.num_users:
            expected.erase(constant)
    assert print_module(glowpy.load(path)) == print_module(expected)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", MODELS)
def test_every_stage_survives(
    name: str, stage: Stage, modules: dict[str, Module], tmp_path: Path
) -> None:
    backend = "cpu" if stage is Stage.SCHEDULED else "interpreter"
    survives(modules[name], stage, backend, tmp_path / "dumped.onnx")


def test_plain_calls_are_functions_of_the_file(tmp_path: Path) -> None:
    """Which other runtimes call; `save` writes what they compute in their place."""
    module, path, saved = parse_module(TEXT), tmp_path / "dumped.onnx", tmp_path / "saved.onnx"
    model = survives(module, Stage.GRAPH, "interpreter", path)
    assert {"@both", "@grow"} < {function.name for function in model.functions}
    glowpy.save(module, saved)
    assert not onnx.load(saved).functions
    feeds = {"x": np.array([1, 2, 3], np.float32), "z": np.array([4, -1, 0.5], np.float32)}
    agree(path, onnx.load(saved), feeds)
    assert any(isinstance(node, CallNode) for node in module.main.nodes)


def agree(path: Path, model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """onnxruntime, the reference evaluator and a session compute of the file what onnxruntime does of the model."""
    provider = ["CPUExecutionProvider"]
    expected = ort.InferenceSession(model.SerializeToString(), providers=provider).run(None, feeds)
    got = [
        ort.InferenceSession(path, providers=provider).run(None, feeds),
        ReferenceEvaluator(str(path)).run(None, feeds),
        glowpy.InferenceSession(path, backend="interpreter").run(None, feeds),
    ]
    for outputs in got:
        for array, output in zip(expected, outputs, strict=True):
            np.testing.assert_allclose(output, array, atol=1e-5)


FEEDS: dict[str, list[dict[str, Array]]] = {
    "branches": [
        {"up": np.array(up), "far": np.array(far)} for up, far in ((1, 0), (0, 1), (0, 0))
    ],
    "scanned": [{"x": np.linspace(-1, 1, 120, dtype=np.float32).reshape(40, 3)}],
    "until": [
        {"n": np.array(n), "most": np.array([most], np.float32)}
        for n, most in ((3, 99), (9, 4), (0, 9))
    ],
}


@pytest.mark.parametrize("name", FEEDS)
def test_other_runtimes_run_the_file(name: str, modules: dict[str, Module], tmp_path: Path) -> None:
    """What has room for stacked rows has all of it, whatever the rounds."""
    path = tmp_path / "dumped.onnx"
    model = survives(modules[name], Stage.OPTIMIZED, "interpreter", path)
    row, other = np.array([[1, -2, 0.5], [0.25, 2, -1]], np.float32)
    for feeds in FEEDS[name]:
        inputs = {"x": row, "y": other} | feeds
        names = {info.name for info in model.graph.input}
        kinds = {
            key: array.astype(bool) if key in ("up", "far") else array
            for key, array in inputs.items()
        }
        agree(path, MODELS[name], {key: array for key, array in kinds.items() if key in names})


@pytest.mark.parametrize(
    ("op_type", "gates", "attributes"),
    [
        ("LSTM", 4, {}),
        ("GRU", 3, {"linear_before_reset": 1}),
        (
            "RNN",
            1,
            {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.25]},
        ),
    ],
)
def test_cells_have_bodies(
    op_type: str, gates: int, attributes: dict[str, Any], tmp_path: Path
) -> None:
    """ONNX has to know the coefficients of their activations, which are constants of ours."""
    rng = np.random.default_rng(1)
    shapes = {"w": (1, gates * 4, 3), "r": (1, gates * 4, 4), "b": (1, gates * 8)}
    weights = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *weights], ["y", "h"], hidden_size=4, **attributes)],
        "cell",
        [helper.make_tensor_value_info("x", 1, [5, 2, 3])],
        [
            helper.make_tensor_value_info("y", 1, [5, 1, 2, 4]),
            helper.make_tensor_value_info("h", 1, [1, 2, 4]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "dumped.onnx"
    survives(glowpy.load(model), Stage.LOWERED, "interpreter", path)
    agree(path, model, {"x": rng.standard_normal((5, 2, 3)).astype(np.float32)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.ClearField("metadata_props"), "'round' is not computed before"),
        (lambda p: setattr(p.metadata_props[0], "value", "nothing"), "storages that the file has"),
        (lambda p: p.node.pop(0), "is not computed before"),
        (lambda p: setattr(p, "name", "@other"), "expected one of the functions"),
    ],
)
def test_damage_of_a_called_function_is_an_error(
    change: object, message: str, modules: dict[str, Module], tmp_path: Path
) -> None:
    path = tmp_path / "dumped.onnx"
    dump_onnx(modules["until"].main, path)
    model = onnx.load(path)
    assert callable(change)
    change(next(proto for proto in model.functions if proto.name.startswith("@")))
    onnx.save(model, path)
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(path)


@pytest.mark.parametrize("count", ["9" * 5000, "²", "-1", "0"])
def test_damaged_number_of_constants_is_an_error(
    count: str, modules: dict[str, Module], tmp_path: Path
) -> None:
    path = tmp_path / "dumped.onnx"
    dump_onnx(modules["scanned"].main, path)
    model = onnx.load(path)
    entries = [entry for node in model.graph.node for entry in node.metadata_props]
    next(entry for entry in entries if entry.key == CONSTANTS).value = count
    onnx.save(model, path)
    with pytest.raises(glowpy.UserError):
        glowpy.load(path)


def test_decisions_about_products_in_bodies_are_shown(modules: dict[str, Module]) -> None:
    stages = compilation(modules["decoder"], "cpu")
    assert "= cpu_matmul in @tokens_body: " in stages.text("strategy")
    assert '"function": "tokens_body"' in stages.backend.emit(stages.program, "strategy-json")


def test_drawings_have_bodies_in_frames(modules: dict[str, Module]) -> None:
    source = print_dot(modules["branches"].main)
    assert source.count("subgraph cluster") == 4
    assert 'label="@z_then";' in source
    assert source.count("mat_mul") == 2
