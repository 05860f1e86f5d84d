"""Functions with gradients beside the functions they are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import glowpy
from glowpy import ElemKind, Function, Module, Type
from glowpy.core.tensor import Array
from glowpy.support.symbolic import symbol
from glowpy.training.optimizers import SGD, Adam, Muon
from tests.forward import check_adjoint

F32 = ElemKind.F32
WEIGHTS = np.arange(6, dtype=np.float32).reshape(3, 2)


def _regression(rows: object = 5) -> Function:
    """The mean square of a product by a variable, with a bias that is a constant."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(F32, (rows, 3)))  # type: ignore[arg-type]
    w = module.create_variable("weights.0", Type(F32, (3, 2)), initial=WEIGHTS)
    product = f.create_mat_mul("product", x, w)
    y = f.create_add("y", product, module.create_constant("bias", np.ones(2, np.float32)))
    loss = f.create_reduce_mean("mean", f.create_mul("square", y, y), (0, 1))
    for name, node in (("y", y), ("loss", loss)):
        f.create_save(f"save_{name}", node, module.create_placeholder(name, node.type))
    return f


def _run(f: Function, x: np.ndarray, backend: str = "interpreter") -> dict[str, np.ndarray]:
    network = glowpy.compile(f, backend)
    state = network.state() if f.variables else None
    return dict(network({"x": x}, state=state))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("rows", [5, symbol("n", 1, 9)], ids=["static", "open"])
def test_gradients_of_all_kinds_of_storage(backend: str, rows: object) -> None:
    f = _regression(rows)
    g = glowpy.differentiate(f, "loss", wrt=["weights.0", "bias", "x"], name="training")
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    outputs = _run(g, x, backend)
    y = x @ WEIGHTS + 1
    np.testing.assert_allclose(outputs["y"], y, rtol=1e-5)
    np.testing.assert_allclose(outputs["loss"], np.mean(y * y, keepdims=True), rtol=1e-5)
    flow = 2 * y / y.size
    np.testing.assert_allclose(outputs["weights.0_grad"], x.T @ flow, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["bias_grad"], flow.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["x_grad"], flow @ WEIGHTS.T, rtol=1e-5, atol=1e-6)


def test_variables_are_what_is_trained_and_nothing_else_is_computed() -> None:
    f = _regression()
    before = str(f)
    g = glowpy.differentiate(f, "loss")
    assert g in f.module
    assert g.name == "main_gradients"
    assert [output.original for output in g.outputs] == ["y", "loss", "weights.0_grad"]
    assert str(f) == before
    unread = [
        node for node in g.nodes if node.results and not any(r.num_users for r in node.results)
    ]
    assert not unread
    assert glowpy.differentiate(f, "loss").name == "main_gradients_1"


def test_a_gradient_is_named_after_its_storage_alone() -> None:
    """A network may have an output of that name, and be differentiated twice."""
    f = _regression()
    g = glowpy.differentiate(f, "loss", wrt=["x"], name="once")
    twice = glowpy.differentiate(g, "loss", wrt=["x"], name="twice")
    assert [output.original for output in twice.outputs] == ["y", "loss", "x_grad", "x_grad_1"]


def test_what_the_loss_does_not_depend_on_has_the_gradient_0() -> None:
    f = _regression()
    unused = f.module.create_variable("unused", Type(F32, (2,)), initial=np.ones(2, np.float32))
    f.create_save("next", f.create_neg("n", unused), unused)
    g = glowpy.differentiate(f, "loss", wrt=["weights.0", "unused"])
    outputs = _run(g, np.ones((5, 3), np.float32))
    np.testing.assert_array_equal(outputs["unused_grad"], [0, 0])


@pytest.mark.parametrize(
    ("loss", "wrt", "message"),
    [
        ("losses", None, "loss: expected an output of 'main', got 'losses'"),
        ("y", None, r"loss: expected one floating-point number, got f32\[5x2\]"),
        ("loss", ["w"], "wrt: expected a variable, an input or a constant of 'main', got 'w'"),
    ],
)
def test_wrong_losses_and_names(loss: str, wrt: list[str] | None, message: str) -> None:
    f = _regression()
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.differentiate(f, loss, wrt=wrt)
    assert f.module.functions == [f]


def test_a_loss_of_another_function() -> None:
    f, other = _regression(), _regression()
    with pytest.raises(glowpy.UserError, match="loss: expected a value of 'main', got %mean"):
        glowpy.differentiate(f, next(n for n in other.nodes if n.name == "mean").result)


def test_integers_and_no_variables() -> None:
    f = Module().create_function("main")
    x = f.module.create_placeholder("x", Type(F32, (3,)))
    i = f.module.create_placeholder("i", Type(ElemKind.I64, (2,)))
    total = f.create_reduce_add("total", f.create_gather("g", x, i, 0), (0,))
    f.create_save("s", total, f.module.create_placeholder("total", total.type))
    with pytest.raises(glowpy.UserError, match="expected variables to differentiate by, got none"):
        glowpy.differentiate(f, "total")
    with pytest.raises(
        glowpy.UserError, match=r"expected floating-point numbers, got i64\[2\] 'i'"
    ):
        glowpy.differentiate(f, total.result, wrt=["i"])


_LAST_STATE = """<ir_version: 10, opset_import: ["" : 22]>
g (double[4,1,2] x, double[1,9,2] w, double[1,9,3] r) => (double loss) {
  _, last = GRU <hidden_size = 3> (x, w, r)
  loss = ReduceSum <keepdims = 0> (last)
}"""


def test_no_result_of_several_is_passed_over(tmp_path: Path) -> None:
    """A gradient may reach only a later result of a node."""
    onnx.save(onnx.parser.parse_model(_LAST_STATE), tmp_path / "gru.onnx")
    f = glowpy.load(tmp_path / "gru.onnx").main
    rng = np.random.default_rng(4)
    shapes = {"x": (4, 1, 2), "w": (1, 9, 2), "r": (1, 9, 3)}
    check_adjoint(f, {name: rng.normal(size=shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_training_step_changes_variables(backend: str) -> None:
    f = _regression()
    g = glowpy.differentiate(f, "loss", optimizer=SGD(0.5))
    assert g.name == "main_training"
    network = glowpy.compile(g, backend)
    state = network.state()
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    weights: Array = WEIGHTS
    for rate in (0.5, 0.5, 0.125):
        state["learning_rate"] = np.array(rate)
        outputs = network({"x": x}, state=state)
        flow = 2 * (x @ weights + 1) / 10
        weights = weights - np.float32(rate) * (x.T @ flow)
        np.testing.assert_allclose(state["weights.0"], weights, rtol=1e-5, atol=1e-6)
    assert set(outputs) == {"y", "loss"}
    assert state["step"] == 3


def test_an_optimizer_changes_variables_alone() -> None:
    f = _regression()
    with pytest.raises(glowpy.UserError, match="expected variables for an optimizer, got 'bias'"):
        glowpy.differentiate(f, "loss", wrt=["bias"], optimizer=SGD())
    with pytest.raises(glowpy.UserError, match=r"each variable once, got 'weights\.0' twice"):
        glowpy.differentiate(f, "loss", wrt=["weights.0"] * 2, optimizer=SGD())
    saved = f.variables[0]
    f.create_save("save", f.create_neg("negated", saved), saved)
    with pytest.raises(
        glowpy.UserError, match=r"'weights\.0' is a variable that the function itself"
    ):
        glowpy.differentiate(f, "loss", wrt="weights.0", optimizer=SGD())
    with pytest.raises(glowpy.UserError, match="expected a learning rate of at least 0, got -1"):
        SGD(-1.0)


@pytest.mark.parametrize("name", ["step", "learning_rate"])
def test_variables_are_not_called_as_those_of_an_optimizer(name: str) -> None:
    module = Module()
    f = module.create_function("main")
    w = module.create_variable(name, Type(F32, (3,)))
    loss = f.create_reduce_add("loss", f.create_mul("square", w, w), (0,)).result
    with pytest.raises(glowpy.UserError, match=f"expected no variable '{name}' in 'main'"):
        glowpy.differentiate(f, loss, optimizer=SGD())
    glowpy.differentiate(f, loss)


def test_an_optimizer_that_refuses_a_weight_leaves_no_function_behind() -> None:
    module = Module()
    f = module.create_function("main")
    w = module.create_variable("vector", Type(F32, (3,)))
    loss = f.create_reduce_add("loss", f.create_mul("square", w, w), (0,)).result
    with pytest.raises(glowpy.UserError, match="Muon: expected weights of rank 2"):
        glowpy.differentiate(f, loss, optimizer=Muon())
    assert [function.name for function in module.functions] == ["main"]


@pytest.mark.parametrize("taken", ["step", "learning_rate", "weights.0.mean"])
def test_names_of_an_optimizer_are_its_own(taken: str) -> None:
    f = _regression()
    other = f.module.create_variable(taken, Type(F32, (2,)))
    f.create_save("next", f.create_neg("n", other), other)
    before = list(f.module.variables)
    with pytest.raises(glowpy.UserError, match=f"expected no variable '{taken}'"):
        glowpy.differentiate(f, "loss", wrt="weights.0", optimizer=Adam())
    assert f.module.functions == [f]
    assert f.module.variables == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Adam(betas=(0.9, 1.0)), "betas: expected shares from 0 to below 1, got 1.0"),
        (lambda: SGD(momentum=-0.5), "momentum: expected shares from 0 to below 1, got -0.5"),
    ],
)
def test_shares_are_below_1(make: Callable[[], object], message: str) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        make()


def test_one_name_and_none() -> None:
    f = _regression()
    assert [o.original for o in glowpy.differentiate(f, "loss", wrt="x").outputs][-1] == "x_grad"
    with pytest.raises(glowpy.UserError, match="wrt: expected at least one name, got none"):
        glowpy.differentiate(f, "loss", wrt=[])
