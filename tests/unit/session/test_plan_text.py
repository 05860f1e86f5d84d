"""Plans of what a session computes come back from JSON as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.importer.host_plan import HostPlan, HostStep, Segment
from glowpy.importer.model import Model
from glowpy.importer.value_types import (
    HostInfo,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
)
from glowpy.session.plan_text import (
    NoTextError,
    Place,
    info_fields,
    info_of,
    plan_fields,
    plan_of,
    segment_at,
)
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

TEXTS = np.array(["", "a", "\N{GREEK SMALL LETTER OMEGA}"], object).reshape(1, 3)
FLOATS = TensorType("float", ("N", 3, None))
SEQUENCE = SequenceType(OptionalType(TensorType("string")))


@dataclass(frozen=True)
class NamedSegment(Segment):
    name: str

    def model(self) -> Model:
        raise AssertionError(self.name)


def segment(name: str) -> NamedSegment:
    return NamedSegment(("x",), ("y", "z"), frozenset({"z", "x"}), name)


def plan(*steps: Segment | HostStep) -> HostPlan:
    return HostPlan(
        ("x", "s"),
        ("y",),
        (FLOATS, SEQUENCE),
        (MapType("int64", TensorType("float")), None)[:1],
        ("around",),
        {"texts": TEXTS, "half": np.array([1.5, 2], ml_dtypes.bfloat16), "one": np.array(1)},
        steps,
        frozenset({ElemKind.F32, ElemKind.I64}),
    )


STEP = HostStep(
    "LabelEncoder",
    {
        "axis": 1,
        "alpha": 0.1,
        "name": "text",
        "keys": ("a", "b"),
        "sizes": (1, 2),
        "values": (float("inf"), 1.0),
        "table": TEXTS,
        "numbers": np.arange(6, dtype=np.int8).reshape(2, 3),
    },
    ("x", ""),
    ("y",),
    (FLOATS, None),
    {},
    Loc("net.onnx", node="n", index=2, operator="LabelEncoder"),
)
WHOLE = plan(
    segment("first"),
    STEP,
    replace(STEP, bodies={"then": plan(STEP, segment("inner")), "else": plan()}),
)


def again(fields: Sequence[Any], place: Place) -> Segment:
    inputs, outputs, strings, name = fields
    made = NamedSegment(tuple(inputs), tuple(outputs), frozenset(strings), name)
    assert segment_at(WHOLE, place) == made
    return made


def assert_same(one: Any, other: Any) -> None:
    """Whether values are equal, where arrays are compared as such."""
    assert type(one) is type(other)
    match one:
        case np.ndarray():
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tolist() == other.tolist()
        case dict():
            assert [*one] == [*other]
            for name in one:
                assert_same(one[name], other[name])
        case tuple():
            assert len(one) == len(other)
            for pair in zip(one, other, strict=True):
                assert_same(*pair)
        case HostPlan() | HostStep():
            assert_same(vars(one), vars(other))
        case _:
            assert one == other


def test_a_plan_comes_back() -> None:
    fields = plan_fields(WHOLE, lambda segment: vars(segment)["name"])
    assert_same(plan_of(json.loads(json.dumps(fields)), again), WHOLE)


def test_there_is_no_segment_elsewhere() -> None:
    for place in ((1,), (3,), (1, "then", 0), (2, "then", 0), (2, "then", 7), (2, "body", 0)):
        assert segment_at(WHOLE, place) is None
    assert segment_at(WHOLE, (2, "then", 1)) == segment("inner")


def test_wrong_nodes_have_no_form() -> None:
    wrong = replace(STEP, problem=UserError("it is wrong"))
    with pytest.raises(NoTextError):
        plan_fields(plan(wrong), vars)
    with pytest.raises(NoTextError):
        plan_fields(plan(replace(STEP, bodies={"then": plan(wrong)})), vars)


@pytest.mark.parametrize("type", [FLOATS, SEQUENCE, MapType("string", TensorType("double", ()))])
def test_inputs_come_back(type: Any) -> None:
    info = HostInfo("x", type)
    assert info_of(json.loads(json.dumps(info_fields(info)))) == info


@pytest.mark.parametrize("texts", [np.array(["a", "bc"]), np.array([b"a"])])
def test_texts_of_one_width_have_no_form(texts: Any) -> None:
    with pytest.raises(NoTextError):
        plan_fields(replace(plan(), constants={"texts": texts}), vars)
    with pytest.raises(NoTextError):
        plan_fields(plan(replace(STEP, attributes={"table": texts})), vars)
