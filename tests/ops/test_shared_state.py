"""Networks of one module that share its variables: each uses those that it names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping

import numpy as np
import pytest

import glowpy
from glowpy import State, UserError
from glowpy.backend import Backend
from glowpy.core.tensor import Array
from glowpy.engine import BACKENDS
from glowpy.graph.parser import parse_module
from glowpy.runtime.host_call import HostCall
from tests.unit.runtime.test_copying import DistantBackend

TEXT = """
module {
  symbol n 0..7
  placeholder %x : f32[3]
  placeholder %y : f32[3]
  placeholder %z : f32[3]
  placeholder %total : f32[1x3]
  placeholder %far : f32[3]
  variable %m : f32[3]
  variable %w : f32[3]
  variable %log : f32[n x 3] in f32[8x3]
  constant %half : f32[] = splat 0.5
  function @train {
    %decayed = mul(%m, %half) : f32[3]
    %moment = add(%decayed, %x) : f32[3]
    %stepped = add(%w, %moment) : f32[3]
    %row = reshape(%stepped) : f32[1x3]
    %longer = concat(%log, %row) {axis=0} : f32[n+1 x 3]
    save(%stepped, %y)
    save(%moment, %m)
    save(%stepped, %w)
    save(%longer, %log)
  }
  function @evaluate {
    %product = mul(%x, %w) : f32[3]
    save(%product, %z)
  }
  function @summed {
    %sums = reduce_add(%log) {axes=[0]} : f32[1x3]
    save(%sums, %total)
  }
  function @plain {
    %minus = neg(%x) : f32[3]
    save(%minus, %far)
  }
}
"""
"""Training on three variables, and networks that read some of them, or none."""

STEPS = np.array([[1, 2, 3], [0.5, -1, 4], [2, 2, -6]], np.float32)


class Expected:
    """The same in numpy."""

    def __init__(self) -> None:
        self.m: Array = np.zeros(3, np.float32)
        self.w: Array = self.m
        self.log: Array = np.zeros((0, 3), np.float32)

    def train(self, x: Array) -> Array:
        self.m = self.m / 2 + x
        self.w = self.w + self.m
        self.log = np.concatenate([self.log, [self.w]])
        return self.w


def check_sharing(networks: Mapping[str, HostCall], state: State) -> None:
    """Runs of each by turns see what the others left."""
    expected, x = Expected(), np.array([1, -2, 4], np.float32)
    for step in STEPS:
        outputs = networks["train"]({"x": step}, state=state)
        np.testing.assert_array_equal(outputs["y"], expected.train(step))
        outputs = networks["evaluate"]({"x": x}, state=state)
        np.testing.assert_array_equal(outputs["z"], x * expected.w)
        outputs = networks["summed"]({}, state=state)
        np.testing.assert_array_equal(outputs["total"], expected.log.sum(0, keepdims=True))
        np.testing.assert_array_equal(networks["plain"]({"x": x}, state=state)["far"], -x)
        for name in ("m", "w", "log"):
            np.testing.assert_array_equal(state[name], getattr(expected, name))


def compiled(backend: str | Backend) -> dict[str, glowpy.CompiledFunction]:
    return {f.name: glowpy.compile(f, backend) for f in parse_module(TEXT).functions}


@pytest.mark.parametrize("backend", [*BACKENDS, DistantBackend()])
def test_networks_share_the_state_of_one_of_them(backend: str | Backend) -> None:
    networks = compiled(backend)
    check_sharing(networks, networks["train"].state())


def test_a_state_may_be_shared_by_networks_of_which_none_names_all() -> None:
    networks = compiled("interpreter")
    evaluate, summed, train = (networks[name] for name in ("evaluate", "summed", "train"))
    state = evaluate.state(summed)
    assert [port.name for port in state.ports] == ["w", "log"]
    state["w"] = np.array([1, 2, 3], np.float32)
    assert evaluate({"x": STEPS[0]}, state=state)["z"].tolist() == [1, 4, 9]
    state["log"] = STEPS
    assert summed({}, state=state)["total"].tolist() == [STEPS.sum(0).tolist()]
    with pytest.raises(UserError, match=r"got one without 'm' in f32\[3\]"):
        train({"x": STEPS[0]}, state=state)
    check_sharing(networks, summed.state(train, evaluate))


def test_instances_share_a_state() -> None:
    networks = compiled("cpu")
    state, expected = networks["train"].state(), Expected()
    train, evaluate = (networks[name].instance(state) for name in ("train", "evaluate"))
    for step in STEPS:
        train.write("x", step)
        train.run()
        evaluate.write("x", step)
        evaluate.run()
        np.testing.assert_array_equal(evaluate["z"], step * expected.train(step))
    evaluate.reset()
    assert state["m"].tolist() == [0, 0, 0]
    assert state.shape("log") == (0, 3)
    train.run()
    assert train["y"].tolist() == STEPS[-1].tolist()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copied_state_is_shared_anew(copied: Callable[[State], State]) -> None:
    networks = compiled("interpreter")
    state = networks["train"].state()
    networks["evaluate"]({"x": STEPS[0]}, state=state)
    check_sharing(networks, copied(state))
    assert state["w"].tolist() == [0, 0, 0]


def test_variables_of_one_name_are_of_one_type() -> None:
    train = compiled("interpreter")["train"]
    other = parse_module(
        TEXT.replace("f32[3]", "f32[4]").replace("x 3]", "x 4]").replace("x3]", "x4]")
    )
    evaluate = glowpy.compile(other.function("evaluate"), "interpreter")
    with pytest.raises(UserError, match=r"one variable 'w', got f32\[3\] in f32\[3\] and f32\[4\]"):
        train.state(evaluate)
    with pytest.raises(UserError, match=r"got one without 'w' in f32\[4\]"):
        evaluate({"x": np.ones(4, np.float32)}, state=train.state())


def test_room_is_that_of_the_network_that_needs_it() -> None:
    """Reading eight rows is one more than training goes on from."""
    networks = compiled("interpreter")
    state = networks["train"].state()
    for _ in range(8):
        networks["train"]({"x": STEPS[0]}, state=state)
    assert state.shape("log") == (8, 3)
    for name, inputs in (("train", {"x": STEPS[0]}), ("summed", {})):
        with pytest.raises(UserError, match="'log' is full"):
            networks[name](inputs, state=state)
    networks["evaluate"]({"x": STEPS[0]}, state=state)
