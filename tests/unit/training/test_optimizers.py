"""Optimizers against PyTorch's, step by step; those that it does not have against their papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import ElemKind, Type
from glowpy.core.tensor import Array
from glowpy.training import optimizers as ours

torch = pytest.importorskip("torch")

STEPS = 100
RNG = np.random.default_rng(5)
FIRST = {"matrix": RNG.normal(size=(5, 3)), "vector": RNG.normal(size=4)}
FLOWS = {name: RNG.normal(size=(STEPS, *array.shape)) for name, array in FIRST.items()}


def _trained(
    optimizer: ours.Optimizer, names: list[str], steps: int = STEPS
) -> list[dict[str, Array]]:
    """The weights after each step of a loss whose gradients are given."""
    module = glowpy.Module()
    f = module.create_function("main")
    total = None
    for name in names:
        first = FIRST[name].astype(np.float32)
        weight = module.create_variable(name, Type(ElemKind.F32, first.shape), initial=first)
        flow = module.create_placeholder(f"{name}_flow", weight.type)
        axes = tuple(range(first.ndim))
        part = f.create_reduce_add("part", f.create_mul("product", weight, flow), axes)
        number = f.create_reshape("number", Type(ElemKind.F32, ()), part).result
        total = number if total is None else f.create_add("total", total, number).result
    assert total is not None
    f.create_save("loss", total, module.create_placeholder("loss", total.type))
    network = glowpy.compile(glowpy.differentiate(f, "loss", optimizer=optimizer), "interpreter")
    state = network.state()
    after = []
    for step in range(steps):
        network({f"{n}_flow": FLOWS[n][step].astype(np.float32) for n in names}, state=state)
        after.append({name: np.array(state[name]) for name in names})
    assert int(state["step"]) == steps
    return after


def _expected(make: Callable[[list[Any]], Any], names: list[str]) -> list[dict[str, Array]]:
    weights = {n: torch.nn.Parameter(torch.tensor(FIRST[n], dtype=torch.float32)) for n in names}
    optimizer = make(list(weights.values()))
    after = []
    for step in range(STEPS):
        for name, weight in weights.items():
            weight.grad = torch.tensor(FLOWS[name][step], dtype=torch.float32)
        optimizer.step()
        after.append({name: weight.detach().numpy().copy() for name, weight in weights.items()})
    return after


PAIRS: dict[str, tuple[ours.Optimizer, Callable[[list[Any]], Any]]] = {
    "sgd": (ours.SGD(0.1), lambda w: torch.optim.SGD(w, 0.1)),
    "momentum": (
        ours.SGD(0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
        lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.01),
    ),
    "nesterov": (
        ours.SGD(0.1, momentum=0.9, nesterov=True),
        lambda w: torch.optim.SGD(w, 0.1, momentum=0.9, nesterov=True),
    ),
    "adam": (
        ours.Adam(0.01, weight_decay=0.1),
        lambda w: torch.optim.Adam(w, 0.01, weight_decay=0.1),
    ),
    "adamw": (
        ours.Adam(0.01, weight_decay=0.1, decoupled=True),
        lambda w: torch.optim.AdamW(w, 0.01, weight_decay=0.1),
    ),
    "amsgrad": (ours.Adam(0.01, amsgrad=True), lambda w: torch.optim.Adam(w, 0.01, amsgrad=True)),
    "nadam": (
        ours.NAdam(weight_decay=0.1, decoupled=True),
        lambda w: torch.optim.NAdam(w, weight_decay=0.1, decoupled_weight_decay=True),
    ),
    "radam": (ours.RAdam(0.01), lambda w: torch.optim.RAdam(w, 0.01)),
    "adamax": (ours.Adamax(weight_decay=0.1), lambda w: torch.optim.Adamax(w, weight_decay=0.1)),
    "rmsprop": (ours.RMSprop(), lambda w: torch.optim.RMSprop(w)),
    "centered": (
        ours.RMSprop(momentum=0.9, centered=True, weight_decay=0.1),
        lambda w: torch.optim.RMSprop(w, momentum=0.9, centered=True, weight_decay=0.1),
    ),
    "adagrad": (
        ours.Adagrad(rate_decay=0.1, initial=0.5, weight_decay=0.1),
        lambda w: torch.optim.Adagrad(
            w, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.1
        ),
    ),
    "adadelta": (ours.Adadelta(), lambda w: torch.optim.Adadelta(w)),
    "adafactor": (
        ours.Adafactor(weight_decay=0.1),
        lambda w: torch.optim.Adafactor(w, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_as_pytorch_has_it(name: str) -> None:
    """Within 2 units in the last place of the largest element, for each step."""
    optimizer, make = PAIRS[name]
    names = list(FIRST)
    for step, (actual, expected) in enumerate(
        zip(_trained(optimizer, names), _expected(make, names), strict=True), 1
    ):
        for weight in names:
            error = np.abs(actual[weight] - expected[weight]).max()
            unit = np.spacing(np.abs(expected[weight]).max())
            assert error <= 2 * step * unit, (step, weight, error / unit)


def test_muon() -> None:
    """PyTorch rounds to bf16, whose errors the iteration multiplies."""
    names = ["matrix"]
    torchs = _expected(lambda w: torch.optim.Muon(w, 0.01), names)
    weight, momentum = FIRST["matrix"].copy(), np.zeros((5, 3))
    actual = _trained(ours.Muon(0.01), names, 10)
    for step, flow in enumerate(FLOWS["matrix"][:10]):
        momentum = 0.95 * momentum + 0.05 * flow
        value = (0.05 * flow + 0.95 * momentum).T
        value = value / np.linalg.norm(value)
        for _ in range(5):
            gram = value @ value.T
            value = 3.4445 * value + (-4.775 * gram + 2.0315 * gram @ gram) @ value
        weight = weight * (1 - 0.01 * 0.1) - 0.01 * np.sqrt(5 / 3) * value.T
        np.testing.assert_allclose(actual[step]["matrix"], weight, rtol=1e-5, atol=1e-5)
        assert np.abs(torchs[step]["matrix"] - weight).max() <= 0.1 * 0.01 * (step + 1)


def test_muon_is_for_matrices() -> None:
    with pytest.raises(glowpy.UserError, match=r"Muon: expected weights of rank 2, .* 'vector'"):
        _trained(ours.Muon(), ["vector"], 1)


def test_lion() -> None:
    rule = ours.Lion(0.01, weight_decay=0.1)
    weight, mean = FIRST["matrix"].copy(), np.zeros((5, 3))
    actual = _trained(rule, ["matrix"], 20)
    for step, flow in enumerate(FLOWS["matrix"][:20]):
        weight = weight * (1 - 0.01 * 0.1) - 0.01 * np.sign(0.9 * mean + 0.1 * flow)
        mean = 0.99 * mean + 0.01 * flow
        np.testing.assert_allclose(actual[step]["matrix"], weight, rtol=1e-5, atol=1e-6)


def test_lamb() -> None:
    rule = ours.Lamb(0.01, weight_decay=0.1)
    weight, mean, square = FIRST["matrix"].copy(), np.zeros((5, 3)), np.zeros((5, 3))
    actual = _trained(rule, ["matrix"], 20)
    for step, flow in enumerate(FLOWS["matrix"][:20], 1):
        mean, square = 0.9 * mean + 0.1 * flow, 0.999 * square + 0.001 * flow * flow
        root = np.sqrt(square / (1 - 0.999**step)) + 1e-6
        move = mean / (1 - 0.9**step) / root + 0.1 * weight
        weight = weight - 0.01 * np.linalg.norm(weight) / np.linalg.norm(move) * move
        np.testing.assert_allclose(actual[step - 1]["matrix"], weight, rtol=1e-4, atol=1e-5)
