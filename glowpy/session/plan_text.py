"""Plans of what a session computes itself as JSON, and back: types, attributes and constants as plain data.

What stands for a segment, a model of its own, is the business of who keeps the plan.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.host_plan import Attribute, HostPlan, HostStep, Segment
from glowpy.importer.value_types import (
    HostInfo,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from glowpy.support.loc import Loc

__all__ = [
    "Fields",
    "NoTextError",
    "Place",
    "info_fields",
    "info_of",
    "plan_fields",
    "plan_of",
    "segment_at",
]

Fields: TypeAlias = Mapping[str, Any]
"""An object of JSON."""

Place: TypeAlias = tuple[int | str, ...]
"""Where a segment is in a plan: the number of a step, and the name of a graph of it for those within."""


class NoTextError(Exception):
    """A plan has no form in JSON."""


def plan_fields(plan: HostPlan, segment_fields: Callable[[Segment], Any]) -> Fields:
    """The plan, with what `segment_fields` says of its segments. Raises NoTextError where it has none."""
    steps: list[Fields] = []
    for step in plan.steps:
        if isinstance(step, Segment):
            sides = step.inputs, step.outputs, sorted(step.strings)
            steps.append({"segment": [*sides, segment_fields(step)]})
        else:
            bodies = {name: plan_fields(body, segment_fields) for name, body in step.bodies.items()}
            steps.append(_step_fields(step, bodies))
    return {
        "inputs": plan.inputs,
        "outputs": plan.outputs,
        "input_types": [_type_fields(type) for type in plan.input_types],
        "output_types": [_type_fields(type) for type in plan.output_types],
        "outer": plan.outer,
        "constants": {name: _array_fields(array) for name, array in plan.constants.items()},
        "steps": steps,
        "kinds": sorted(kind.value for kind in plan.kinds),
    }


def plan_of(
    fields: Fields,
    segment_of: Callable[[Sequence[Any], Place], Segment],
    place: Place = (),
) -> HostPlan:
    """The plan again; `segment_of` makes a segment of its inputs, outputs, strings and the rest, and its place."""
    steps: list[Segment | HostStep] = []
    for number, step in enumerate(fields["steps"]):
        if "segment" in step:
            steps.append(segment_of(step["segment"], (*place, number)))
            continue
        bodies = {
            name: plan_of(body, segment_of, (*place, number, name))
            for name, body in step["bodies"].items()
        }
        steps.append(_step_of(step, bodies))
    return HostPlan(
        tuple(fields["inputs"]),
        tuple(fields["outputs"]),
        tuple(_type_of(type) for type in fields["input_types"]),
        tuple(_type_of(type) for type in fields["output_types"]),
        tuple(fields["outer"]),
        {name: _array_of(array) for name, array in fields["constants"].items()},
        tuple(steps),
        frozenset(ElemKind(kind) for kind in fields["kinds"]),
    )


def segment_at(plan: HostPlan, place: Place) -> Segment | None:
    """The segment at a place of a plan; None where there is none."""
    for number, name in zip(place[:-1:2], place[1::2], strict=True):
        step = plan.steps[int(number)] if int(number) < len(plan.steps) else None
        if not isinstance(step, HostStep) or name not in step.bodies:
            return None
        plan = step.bodies[str(name)]
    number = int(place[-1])
    step = plan.steps[number] if number < len(plan.steps) else None
    return step if isinstance(step, Segment) else None


def _step_fields(step: HostStep, bodies: Mapping[str, Fields]) -> Fields:
    if step.problem is not None:
        raise NoTextError
    loc = step.loc
    return {
        "operator": step.operator,
        "attributes": {name: _attribute_fields(value) for name, value in step.attributes.items()},
        "inputs": step.inputs,
        "outputs": step.outputs,
        "input_types": [_type_fields(type) for type in step.input_types],
        "bodies": bodies,
        "loc": [loc.file, loc.line, loc.column, loc.node, loc.index, loc.operator],
    }


def _step_of(fields: Fields, bodies: Mapping[str, HostPlan]) -> HostStep:
    return HostStep(
        fields["operator"],
        {name: _attribute_of(value) for name, value in fields["attributes"].items()},
        tuple(fields["inputs"]),
        tuple(fields["outputs"]),
        tuple(_type_of(type) for type in fields["input_types"]),
        bodies,
        Loc(*fields["loc"]),
    )


def _attribute_fields(value: Attribute) -> Any:
    return _array_fields(value) if isinstance(value, np.ndarray) else value


def _attribute_of(fields: Any) -> Attribute:
    match fields:
        case dict():
            return _array_of(fields)
        case list():
            return tuple(fields)
        case _:
            value: int | float | str = fields
            return value


def _array_fields(array: Array) -> Fields:
    """An array: its elements as texts if they are any, and else their bytes.

    Raises NoTextError for texts of one width, whose kinds have no names that numpy reads.
    """
    if array.dtype.kind in "US":
        raise NoTextError
    if array.dtype == object:
        return {"shape": array.shape, "texts": array.reshape(-1).tolist()}
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"shape": array.shape, "dtype": array.dtype.name, "bytes": content}


def _array_of(fields: Fields) -> Array:
    if "texts" in fields:
        array = np.empty(len(fields["texts"]), object)
        array[:] = fields["texts"]
    else:
        array = np.frombuffer(base64.b64decode(fields["bytes"]), np.dtype(fields["dtype"])).copy()
    return array.reshape(fields["shape"])


def info_fields(info: HostInfo) -> Any:
    """An input or output."""
    return info.name, _type_fields(info.declared)


def info_of(fields: Sequence[Any]) -> HostInfo:
    """The input or output again."""
    name, declared = fields
    type = _type_of(declared)
    assert type is not None
    return HostInfo(name, type)


def _type_fields(type: ValueType | None) -> Any:
    match type:
        case TensorType():
            return "tensor", type.element, type.dims
        case SequenceType():
            return "sequence", _type_fields(type.item)
        case OptionalType():
            return "optional", _type_fields(type.item)
        case MapType():
            return "map", type.key, _type_fields(type.item)
        case None:
            return None


def _type_of(fields: Any) -> ValueType | None:
    match fields:
        case None:
            return None
        case ["tensor", element, dims]:
            return TensorType(element, None if dims is None else tuple(dims))
        case ["sequence", item]:
            return SequenceType(_item(item))
        case ["optional", item]:
            return OptionalType(_item(item))
        case ["map", key, item]:
            return MapType(key, _item(item))
        case _:
            raise ValueError(f"no type: {fields!r}")


def _item(fields: Any) -> ValueType:
    type = _type_of(fields)
    assert type is not None
    return type
