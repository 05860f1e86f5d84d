"""What quantization costs, layer by layer, and which layers a budget of accuracy keeps in floats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.tensor import Array
from glowpy.quantization import (
    AtRunTime,
    ByProfile,
    Method,
    Options,
    Profile,
    SearchState,
    WeightsOnly,
    search,
)
from glowpy.quantization.convert import convert
from glowpy.quantization.fidelity import Fidelity, Model, fidelities
from glowpy.quantization.report import report
from glowpy.quantization.report_page import report_page
from glowpy.support.errors import UserError
from tests.unit.quantization.digits import accuracy, cnn, digits, mlp

BATCH = 100
DEAD = 6
"""A channel of the first layer that few digits need."""


@cache
def damaged() -> glowpy.Module:
    """The digits' network, whose second layer has huge weights for a channel that is always 0.

    In floats they have no effect. As integers they leave no steps to the other weights of an output.
    """
    module = cnn(BATCH).clone()
    for constant in list(module.constants):
        array = constant.array.copy()
        if constant.name in ("filter0", "bias0"):
            array[DEAD] = 0
        elif constant.name == "filter1":
            array[..., DEAD] = 1e4
        other = module.create_constant(f"{constant.name}_damaged", array)
        constant.value.replace_all_uses_with(other.value)
    return module


@cache
def samples() -> list[dict[str, Array]]:
    known, _ = digits()
    return [{"x": known.images[start : start + BATCH]} for start in range(0, 3 * BATCH, BATCH)]


@cache
def profile() -> Profile:
    return quantization.profile(damaged(), samples())


def method(options: Options | None = None) -> ByProfile:
    return ByProfile(profile(), options or Options())


def score(model: Model) -> float:
    """Per cent of the digits to test with."""
    _, unseen = digits()
    batches = np.split(unseen.images, len(unseen.images) // BATCH)
    return accuracy(np.concatenate([model({"x": batch})["y"] for batch in batches]))


def counting(limit: float = math.inf) -> tuple[Callable[[Model], float], list[float]]:
    """The metric, which is interrupted after so many calls; and what it said."""
    said: list[float] = []

    def metric(model: Model) -> float:
        if len(said) >= limit:
            raise KeyboardInterrupt
        said.append(score(model))
        return said[-1]

    return metric, said


def test_finds_the_damaged_layer() -> None:
    result = search(damaged(), method(), score, 0.3)
    assert result.in_floats > 90
    assert result.decisions[0].score < 50
    assert next(iter(result.sensitivity)) == "conv1"
    assert result.layers == ("conv1",)
    assert result.score >= result.in_floats - 0.3
    reasons = {node.name: node.reason for node in result.conversion.nodes}
    assert reasons["conv1"] == "'%conv1' is to be kept"
    assert reasons["conv0"] == reasons["dense2"] == ""
    page = report_page("digits", report(damaged(), method(), samples(), result))
    ranked = page[page.index("the most sensitive first") :]
    assert ranked.index("conv1") < min(ranked.index("conv0"), ranked.index("dense2"))
    assert "more than 0.3" in page


def test_a_network_within_the_budget_is_quantized_whole() -> None:
    metric, said = counting()
    result = search(damaged(), method(), metric, 100)
    assert (result.layers, result.sensitivity, len(said)) == ((), {}, 2)


def test_a_drop_as_large_as_the_budget_is_within_it() -> None:
    scores = iter([1.0, 0.0, 0.75])
    result = search(damaged(), method(), lambda model: next(scores), 0.25, inputs=samples())
    assert (len(result.layers), result.score) == (1, 0.75)


def test_gives_back_what_is_not_needed() -> None:
    """The metric wants the second layer in floats: the first goes back in vain, and becomes integer again."""
    scores = iter([1.0, 0.0, 0.5, 1.0, 0.9])
    kept = method(Options(keep=("%conv1",)))
    result = search(damaged(), kept, lambda model: next(scores), 0.2, inputs=samples())
    first, second = result.sensitivity
    assert (result.layers, result.score) == ((second,), 0.9)
    decisions = [(decision.layer, decision.keeps, decision.score) for decision in result.decisions]
    expected = [("", False, 0.0), (first, True, 0.5), (second, True, 1.0), (first, False, 0.9)]
    assert decisions == expected
    assert result.decisions[-1].reason.startswith("integer again: without it the drop is 0.1")
    assert isinstance(result.method, ByProfile)
    assert result.method.options.keep == ("%conv1", f"%{second}")


def test_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    whole = search(damaged(), method(), score, 0.3, inputs=samples())
    metric, said = counting(limit=2)
    state = SearchState.open(file, "digits")
    with pytest.raises(KeyboardInterrupt):
        search(damaged(), method(), metric, 0.3, inputs=samples(), state=state)
    assert len(said) == 2
    (known,) = json.loads(file.read_text())["searches"].values()
    assert len(known["scores"]) == 2
    assert known["sensitivity"].keys() == {"conv0", "conv1", "dense2"}
    metric, said = counting()
    state = SearchState.open(file, "digits")
    again = search(damaged(), method(), metric, 0.3, inputs=samples(), state=state)
    assert len(said) == 1
    assert (again.layers, again.decisions) == (whole.layers, whole.decisions)


def test_a_file_holds_several_searches(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for name, score in (("one", 1.0), ("other", 2.0)):
        state = SearchState.open(file, name)
        assert (state.scores, state.sensitivity) == ({}, {})
        state.scores["floats"] = score
        state.note("layer", 10 * score)
    again = SearchState.open(file, "one")
    assert (again.scores, again.sensitivity) == ({"floats": 1.0}, {"layer": 10.0})
    again.note("layer", 5.0)
    assert SearchState.open(file, "other").sensitivity == {"layer": 20.0}


def test_refuses_what_is_no_state(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    odd = '{"searches": {"one": {"scores": [], "sensitivity": {}}}}'
    for text in ("[]", "{", "{}", '{"searches": []}', odd):
        file.write_text(text)
        with pytest.raises(UserError, match=r"state.json: not the state of a search"):
            SearchState.open(file, "one")


@pytest.mark.parametrize(
    ("metric", "drop", "message"),
    [
        (lambda model: math.nan, 1.0, "expected a finite number from the metric, got nan"),
        (lambda model: "good", 1.0, "expected a finite number from the metric, got 'good'"),
        (score, -1.0, "expected a drop of 0 or more, got -1.0"),
        (score, math.nan, "expected a drop of 0 or more, got nan"),
    ],
)
def test_refuses(metric: Callable[[Model], float], drop: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        search(damaged(), method(), metric, drop)


def test_refuses_a_profile_instead_of_a_method() -> None:
    message = r"method: expected a Method, such as ByProfile\(profile\) .*, got Profile"
    with pytest.raises(UserError, match=message):
        search(damaged(), profile(), score, 1.0)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        report(damaged(), profile(), samples())  # type: ignore[arg-type]


def test_refuses_a_metric_that_runs_nothing() -> None:
    numbers = iter([1.0, 0.0, 0.0])
    with pytest.raises(UserError, match="expected a metric that runs the network"):
        search(damaged(), method(), lambda model: next(numbers), 0.5)


def test_values_are_compared_by_their_names() -> None:
    """What is shown of the quantized network is what it computes: outputs with and without are the same bits."""
    known = fidelities(damaged(), method(Options(keep=("%conv1",))), samples())
    assert {"x", "pool0", "pool1", "dense2", "output y"} <= known.keys()
    assert all(fidelity.decibels > 25 for fidelity in known.values())
    ruined = fidelities(damaged(), method(), samples())
    assert ruined["pool0"].decibels > 25 > 1 > ruined["pool1"].decibels
    plain = convert(damaged(), profile()).module
    shown = convert(damaged(), profile(), watched=True).module
    outputs = [glowpy.compile(module)(samples()[0])["y"] for module in (plain, shown)]
    assert outputs[0].tobytes() == outputs[1].tobytes()


def test_elements_outside_the_range_are_counted() -> None:
    options = Options(calibration=quantization.Percentile(90))
    known = fidelities(damaged(), method(options), samples())
    assert 0.01 < known["pool0"].saturation < 0.2
    exact = fidelities(damaged(), method(), samples())
    assert exact["pool0"].saturation == 0


def test_what_is_rounded_to_an_end_of_the_range_is_not_outside() -> None:
    numbers = np.array([-0.3, -0.2, 0, 127.5, 127.7, 127.8], np.float32)
    type = glowpy.parse_type("u8[6](s=0.5,o=0)")
    assert Fidelity().plus(numbers, numbers, type).outside == 2


def test_decibels() -> None:
    numbers = np.array([3, 4, math.inf, math.nan], np.float32)
    known = Fidelity().plus(numbers, numbers * np.float32(1.1), None)
    assert known.count == 2
    assert known.decibels == pytest.approx(20, abs=1e-4)
    assert Fidelity().decibels == math.inf
    for signal, noise in ((0.0, 1.0), (1.0, math.inf), (1.0, math.nan)):
        assert Fidelity(1, signal, noise).decibels == -math.inf


@pytest.mark.parametrize("way", [AtRunTime(), WeightsOnly(bits=4, block=32)], ids=["range", "bits"])
def test_what_needs_no_profile_is_compared_by_product(way: Method) -> None:
    inputs = [{"x": digits()[0].images[start : start + BATCH]} for start in range(0, 300, BATCH)]
    known = report(mlp(BATCH), way, inputs)
    rows = {row.name: row for row in known.rows}
    assert rows.keys() == known.ranking.keys() == {"dense0", "dense1"}
    low, high = sorted(known.ranking.values())
    assert 10 < known.outputs["y"].decibels < low <= high < 60
    for row in rows.values():
        assert row.fidelity is not None
        assert 10 < row.fidelity.decibels < 60
        assert row.statistics is None
    page = report_page("digits", known)
    assert "2 of 2 nodes are quantized" in page
    scores = iter([1.0, 0.0, 1.0])
    found = search(mlp(BATCH), way, lambda model: next(scores), 0.2, inputs=inputs)
    assert found.layers == (next(iter(known.ranking)),)
    assert [node.name for node in found.conversion.floats] == list(found.layers)
