"""`halve`: networks in f16 and bf16, what stays in f32, and what it costs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.helper
import onnx.parser
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConvertNode, FullyConnectedNode
from glowpy.quantization import halve, output_fidelities
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol

HALVES = [ElemKind.F16, ElemKind.BF16]
RNG = np.random.default_rng(0)


def constant(f: Function, name: str, array: Any) -> NodeValue:
    return f.module.create_constant(name, Tensor.of(np.asarray(array, np.float32))).value


def network() -> Function:
    """Two layers, an activation between them, and the place of the largest output."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (3, 8)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (3, 4)))
    best = module.create_placeholder("best", Type(ElemKind.I64, (3, 1)))
    weights = [constant(f, name, RNG.normal(size=(n, 8)).T) for name, n in (("v", 8), ("w", 4))]
    biases = [constant(f, f"b{n}", RNG.normal(size=n)) for n in (8, 4)]
    hidden = f.create_fully_connected("hidden", x, weights[0], biases[0])
    active = f.create_tanh("active", hidden)
    scores = f.create_fully_connected("scores", active, weights[1], biases[1])
    f.create_save("save", scores, y)
    place = f.create_arg_max("place", scores, 1, last=False)
    f.create_save("save_best", place, best)
    return f


def sample() -> dict[str, Any]:
    return {"x": RNG.normal(size=(3, 8)).astype(np.float32)}


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_outputs_are_near_and_constants_half_as_large(kind: ElemKind, backend: str) -> None:
    f = network()
    result = halve(f, kind, backend=backend)
    assert not result.floats
    assert result.bytes_after * 2 == result.bytes_before
    assert {c.type.kind for c in result.module.constants} == {kind}
    assert all(p.type.kind is not kind for p in result.module.placeholders)
    outputs = output_fidelities(f, result.module.main, [sample(), sample()], backend)
    low, high = {ElemKind.F16: (50, 90), ElemKind.BF16: (30, 60)}[kind]
    assert low < outputs["y"].decibels < high
    assert outputs["y"].count == 24


def test_the_original_is_as_it_was() -> None:
    f = network()
    text = str(f)
    halve(f, ElemKind.F16, ports=True)
    assert str(f) == text


@pytest.mark.parametrize("keep", ["%scores", "scores"])
def test_what_is_kept_reads_and_gives_f32(keep: str) -> None:
    result = halve(network(), ElemKind.F16, keep=(keep,))
    assert [(node.name, node.reason) for node in result.floats] == [
        ("scores", f"'{keep}' is to be kept"),
        ("place", "what it moves or chooses is f32"),
    ]
    nodes = result.module.main.topological()
    layers = [node for node in nodes if isinstance(node, FullyConnectedNode)]
    assert [layer.result.type.kind for layer in layers] == [ElemKind.F16, ElemKind.F32]
    assert all(value.type.kind is ElemKind.F32 for value in layers[1].inputs)


def test_kinds_of_nodes_are_kept() -> None:
    result = halve(network(), ElemKind.F16, keep=("fully_connected",))
    assert {node.kind for node in result.floats} == {"fully_connected", "arg_max"}


def test_what_is_kept_is_exact() -> None:
    """All that computes is kept, so nothing is rounded."""
    f = network()
    result = halve(f, ElemKind.F16, keep=("fully_connected", "tanh", "arg_max"))
    outputs = output_fidelities(f, result.module.main, [sample()], "interpreter")
    assert outputs["y"].noise == 0
    assert not [n for n in result.module.main.nodes if isinstance(n, ConvertNode)]


@pytest.mark.parametrize("kind", HALVES)
def test_ports(kind: ElemKind) -> None:
    f = network()
    result = halve(f, kind, ports=True)
    kinds = {p.name: p.type.kind for p in result.module.placeholders}
    assert kinds == {"x": kind, "y": kind, "best": ElemKind.I64}
    assert not [n for n in result.module.main.nodes if isinstance(n, ConvertNode)]
    assert output_fidelities(f, result.module.main, [sample()], "cpu")["y"].decibels > 30


def masked(kind: ElemKind) -> tuple[Function, Any]:
    """A softmax of scores, with a mask from integers: the lowest number where it is 0."""
    module = Module()
    f = module.create_function("main")
    ids = module.create_placeholder("ids", Type(ElemKind.I64, (2, 3)))
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 3)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (2, 3)))
    mask = f.create_convert("mask", Type(ElemKind.F32, (2, 3)), ids)
    hidden = f.create_sub("hidden", constant(f, "one", 1), mask)
    lowest = constant(f, "lowest", np.finfo(np.float32).min)
    total = f.create_add("total", x, f.create_mul("penalty", hidden, lowest))
    f.create_save("save", f.create_softmax("share", total, 1), y)
    return f, halve(f, kind)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("kind", HALVES)
def test_masks_are_computed_in_f32_and_stay_finite(kind: ElemKind, backend: str) -> None:
    f, result = masked(kind)
    reasons = {node.name: node.reason for node in result.floats}
    assert set(reasons) == {"mask", "hidden", "penalty"}
    assert set(reasons.values()) == {"it computes positions or masks, from integers"}
    ids = np.array([[1, 0, 1], [0, 0, 0]])
    feeds = {"ids": ids, "x": np.array([[1, 2, 3], [-20, -30, -20]], np.float32)}
    share = glowpy.compile(result.module, backend)(feeds)["y"]
    np.testing.assert_allclose(share[0], glowpy.compile(f)(feeds)["y"][0], atol=4e-3)
    assert np.isfinite(share[1]).all()


@pytest.mark.parametrize("kind", HALVES)
def test_constants_stay_finite_and_other_than_zero(kind: ElemKind) -> None:
    numbers = [0.0, -0.0, 1e-44, -1e-10, 1e39 / 3, -3.4e38, np.inf, -np.inf, np.nan, 1.0]
    module = Module()
    f = module.create_function("main")
    y = module.create_placeholder("y", Type(ElemKind.F32, (len(numbers),)))
    x = module.create_placeholder("x", Type(ElemKind.F32, (len(numbers),)))
    f.create_save("save", f.create_mul("product", x, constant(f, "c", numbers)), y)
    (stored,) = halve(f, kind, ports=True).module.constants
    array = stored.tensor.array.astype(np.float64)
    info = ml_dtypes.finfo(kind.dtype)  # type: ignore[no-untyped-call]
    assert array[0] == array[1] == 0
    assert list(np.signbit(array[:2])) == [False, True]
    assert array[2] == float(info.smallest_subnormal)
    assert -1e-7 < array[3] < 0
    assert array[5] == float(info.min)
    assert np.isfinite(array[4])
    assert list(array[6:8]) == [np.inf, -np.inf]
    assert np.isnan(array[8])
    assert array[9] == 1


def test_what_takes_f32_alone_stays() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (4,)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (4,)))
    quantized = glowpy.parse_type("i8[4](s=0.5,o=0)")
    stored = f.create_quantize("q", quantized, f.create_exp("e", x))
    f.create_save("save", f.create_dequantize("d", y.type, stored), y)
    result = halve(f, ElemKind.F16)
    assert {node.name for node in result.floats} >= {"q"}
    assert "quantized" in result.floats[-1].reason
    assert glowpy.compile(result.module)({"x": np.zeros(4, np.float32)})["y"].tolist() == [1] * 4


def test_open_extents_stay_open() -> None:
    module = Module()
    f = module.create_function("main")
    n = symbol("n", 1, 9)
    x = module.create_placeholder("x", Type(ElemKind.F32, (n, 4)))
    y = module.create_placeholder("y", Type(ElemKind.F32, (n, 4)))
    f.create_save("save", f.create_softmax("s", f.create_exp("e", x), 1), y)
    half = halve(f, ElemKind.F16).module.main
    samples = [{"x": RNG.random((size, 4)).astype(np.float32)} for size in (1, 9)]
    assert output_fidelities(f, half, samples, "cpu")["y"].decibels > 50


LOOP = """
<ir_version: 8, opset_import: ["": 17]>
agraph (float[3] x, int64 n) => (float[3] y) {
  w = Sin(x)
  t = Constant <value: tensor = bool {1}> ()
  y = Loop (n, t, w) <body = b (int64 i, bool k, float[3] s) => (bool k2, float[3] s2) {
    k2 = Identity(k) s2 = Tanh(s) }>
}
"""


@pytest.mark.parametrize("ports", [False, True])
def test_functions_that_are_called_become_halves(ports: bool) -> None:
    f = glowpy.load(onnx.parser.parse_model(LOOP)).main
    result = halve(f, ElemKind.F16, ports=ports)
    assert {node.kind for node in result.nodes} == {"sin", "tanh"}
    assert result.floats == []
    feeds = {"x": np.array([1, 2, 3], np.float32), "n": np.array(4)}
    outputs = output_fidelities(f, result.module.function(f.name), [feeds], "cpu")
    assert 50 < outputs["y"].decibels < 100


@pytest.mark.parametrize("ports", [False, True])
def test_variables(ports: bool) -> None:
    module = Module()
    f = module.create_function("main")
    type_ = Type(ElemKind.F32, (4,))
    x, y = (module.create_placeholder(name, type_) for name in "xy")
    total = module.create_variable("total", type_)
    new = f.create_add("sum", total, f.create_exp("e", x))
    f.create_save("keep", new, total)
    f.create_save("save", new, y)
    result = halve(f, ElemKind.F16, ports=ports)
    (variable,) = result.module.variables
    assert variable.type.kind is variable.memory.kind is (ElemKind.F16 if ports else ElemKind.F32)
    network = glowpy.compile(result.module)
    state = network.state()
    for count in (1, 2):
        outputs = network({"x": np.zeros(4, network.inputs["x"].kind.dtype)}, state=state)
        assert outputs["y"].tolist() == [count] * 4


def test_wrong_arguments() -> None:
    f = network()
    with pytest.raises(UserError, match="expected f16 or bf16 to convert to, got f64"):
        halve(f, ElemKind.F64)
    with pytest.raises(UserError, match="expected a name or a kind of a node to keep, got 'relu'"):
        halve(f, ElemKind.F16, keep=("relu",))
    with pytest.raises(UserError, match="expected inputs to compare on, got none"):
        output_fidelities(f, halve(f, ElemKind.F16).module.main, [])


def written(nodes: str, outputs: str = "float[4, 64] y", opset: int = 21) -> Function:
    """A model of these nodes, which read `x` and the vectors `g` and `b`."""
    text = f"""<ir_version: 10, opset_import: ["": {opset}]>
agraph (float[4, 64] x) => ({outputs}) <float[64] g = {{{", ".join(["1.5"] * 64)}}}> {{ {nodes} }}"""
    return glowpy.load(onnx.parser.parse_model(text)).main


MEAN_VARIANCE = """h = Unsqueeze <axes = [0]> (x) m = MeanVarianceNormalization <axes = [2]> (h)
  y = Squeeze <axes = [0]> (m)"""
BY_STEPS = """m = ReduceMean <axes = [1]> (x) c = Sub(x, m) q = Mul(c, c) v = ReduceMean <axes = [1]> (q)
  e = Constant <value_float = 0.00001> () w = Add(v, e) s = Sqrt(w) n = Div(c, s) y = Mul(n, g)"""


@pytest.mark.parametrize("scale", [300, 3e-4])
@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize(
    ("nodes", "opset"),
    [
        ("y = LayerNormalization(x, g)", 21),
        ("y = RMSNormalization(x, g)", 23),
        ("y = LpNormalization <p = 2> (x)", 22),
        (MEAN_VARIANCE, 9),
        (BY_STEPS, 17),
    ],
    ids=["layer", "rms", "lp", "mean variance", "steps"],
)
def test_norms_round_where_they_end(nodes: str, opset: int, kind: ElemKind, scale: float) -> None:
    """Squares of what is above 255 are no f16, and those of what is below a thousandth have few digits."""
    f = written(nodes, opset=opset)
    x = {"x": (RNG.normal(size=(4, 64)) * scale).astype(np.float32)}
    half = halve(f, kind).module.main
    assert output_fidelities(f, half, [x], "interpreter")["y"].decibels > (
        40 if kind is ElemKind.BF16 else 55
    )


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_sums_may_leave_the_range(backend: str) -> None:
    """As in norms that JAX writes; what a sum is multiplied with brings it back."""
    f = written(
        """q = Mul(x, x) a = Constant <value_ints = [1]> () t = ReduceSum(q, a)
        n = Constant <value_float = 0.015625> () m = Mul(t, n) s = Sqrt(m) y = Div(x, s)"""
    )
    x = {"x": (200 + RNG.normal(size=(4, 64))).astype(np.float32)}
    half = halve(f, ElemKind.F16, backend=backend).module.main
    assert output_fidelities(f, half, [x], backend)["y"].decibels > 55


def test_a_sum_that_is_an_output_keeps_its_range() -> None:
    f = written("a = Constant <value_ints = [1]> () y = ReduceSum(x, a)", "float[4, 1] y")
    half = halve(f, ElemKind.F16).module.main
    x = {"x": np.full((4, 64), 5000, np.float32)}
    assert output_fidelities(f, half, [x], "interpreter")["y"].decibels > 55


def test_what_leaves_the_range_on_samples_stays_in_f32() -> None:
    f = written("q = Mul(x, x) r = Relu(q) s = Sqrt(r) y = Mul(s, g)")
    samples = [{"x": (RNG.normal(size=(4, 64)) * 3000).astype(np.float32)}]
    blind = halve(f, ElemKind.F16)
    assert output_fidelities(f, blind.module.main, samples, "interpreter")["y"].decibels < 0
    result = halve(f, ElemKind.F16, samples=samples)
    assert output_fidelities(f, result.module.main, samples, "interpreter")["y"].decibels > 55
    assert {node.kind for node in result.floats} == {"mul", "relu", "sqrt"}
    assert "on the samples, which f16 does not hold well" in result.floats[0].reason
    assert not halve(f, ElemKind.BF16, samples=samples).floats


def test_weights_inside_of_operators_become_halves() -> None:
    """However many steps a recurrent layer has, it is its weights that take memory."""
    weights = numpy_helper.from_array(RNG.normal(size=(1, 256, 8)).astype(np.float32), "w")
    again = numpy_helper.from_array(RNG.normal(size=(1, 256, 64)).astype(np.float32) / 8, "r")
    node = onnx.helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [5, 2, 8]), ("y", [5, 1, 2, 64]))
    ]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], [weights, again])
    opset = onnx.helper.make_opsetid("", 17)
    f = glowpy.load(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)).main
    result = halve(f, ElemKind.F16)
    large = [c for c in result.module.constants if c.type.count > 1000]
    assert {c.type.kind for c in large} == {ElemKind.F16}
    x = {"x": RNG.normal(size=(5, 2, 8)).astype(np.float32)}
    assert output_fidelities(f, result.module.main, [x], "interpreter")["y"].decibels > 50
