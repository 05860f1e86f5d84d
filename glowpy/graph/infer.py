"""Type inference: the result types of a node from the types of its inputs and its attributes.

A rule takes the input types in schema order (a list for a variadic node), then the attributes as
keywords, and returns one type or a tuple of types. Element-wise nodes need no rule: their inputs
broadcast, and the result has the last input's kind and parameters, or bool for those with that trait.
What the spec says of quantized operands is checked before a rule is asked, and of what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glowpy.core.channel_axis import broadcast
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import NodeSchema, Quantized, Trait
from glowpy.core.shape import broadcast_shapes
from glowpy.core.type import Type, spelled
from glowpy.graph.node import Node
from glowpy.support.errors import UserError
from glowpy.support.rules import Rules

__all__ = ["Ports", "infer", "infer_types"]

infer: Rules[Callable[..., Type | tuple[Type, ...]]] = Rules("infer")


@dataclass(frozen=True)
class Ports:
    """Ports of a function that is called: its name, and the types of what it takes and gives, in order."""

    name: str
    takes: Sequence[Type]
    gives: Sequence[Type]


def _unknown(name: str) -> Ports:
    raise UserError(f"there is no function @{name} here")


def infer_types(
    cls: type[Node],
    inputs: Sequence[Type],
    attrs: Mapping[str, Any],
    result_type: Type | None = None,
    ports: Callable[[str], Ports] = _unknown,
) -> tuple[Type, ...]:
    """The result types of a `cls` node. `ports` tells those of the functions that it calls, which rules get for names.

    Raises UserError if the inputs do not fit together, or if the class is typed (its result type
    cannot be inferred) and none is given.
    """
    schema = cls.SCHEMA
    schema.check_stored(inputs)
    attrs = {**attrs, **{name: ports(attrs[name]) for name in schema.functions}}
    types = _inferred(cls, inputs, attrs, result_type) if schema.results else ()
    schema.check_stored(inputs, types)
    return types


def _inferred(
    cls: type[Node], inputs: Sequence[Type], attrs: Mapping[str, Any], result_type: Type | None
) -> tuple[Type, ...]:
    schema = cls.SCHEMA
    if Trait.TYPED in schema.traits:
        if result_type is None:
            raise UserError("a result type is required")
        return (result_type,)
    if schema.quant is Quantized.NUMBERS and any(type.quant is not None for type in inputs):
        return (_of_numbers(cls, inputs, attrs, result_type),)
    if Trait.ELEMENTWISE in schema.traits:
        inferred: Type | tuple[Type, ...] = _elementwise(schema, inputs)
    elif schema.variadic:
        inferred = infer[cls](list(inputs), **attrs)
    else:
        inferred = infer[cls](*inputs, **attrs)
    types = inferred if isinstance(inferred, tuple) else (inferred,)
    return types if result_type is None else (result_type, *types[1:])


def _of_numbers(
    cls: type[Node], inputs: Sequence[Type], attrs: Mapping[str, Any], result_type: Type | None
) -> Type:
    """`result_type`, if it has the shape that the operator gives numbers."""
    if result_type is None or result_type.quant is None:
        raise UserError("expected the quantized type of the result, which its inputs do not tell")
    numbers = [Type(ElemKind.F32, type.shape) if type.quant else type for type in inputs]
    (expected,) = _inferred(cls, numbers, attrs, None)
    if result_type.shape != expected.shape:
        raise UserError(f"expected a result of shape {spelled(expected.shape)}, got {result_type}")
    return result_type


def _elementwise(schema: NodeSchema, inputs: Sequence[Type]) -> Type:
    """The inputs are of one kind; the first of three is a condition."""
    same = inputs[1:] if len(inputs) == 3 else inputs
    if len({type.kind for type in same}) > 1:
        raise UserError(f"expected inputs of one element kind, got {', '.join(map(str, inputs))}")
    if len(inputs) == 3 and inputs[0].kind is not ElemKind.BOOL:
        raise UserError(f"expected a condition of kind bool, got {inputs[0]}")
    shape = broadcast_shapes(*(type.shape for type in inputs))
    if Trait.BOOL_RESULT in schema.traits:
        return Type(ElemKind.BOOL, shape)
    if inputs[-1].quant is None:
        return Type(inputs[-1].kind, shape)
    named = zip(schema.inputs, inputs, strict=True)
    return broadcast([type for name, type in named if name not in schema.plain], shape)
