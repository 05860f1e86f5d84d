"""What a class of nodes or instructions looks like, as data: schemas, and the traits passes ask for.

classgen writes one schema into each generated class. Cloning, equality, hashing, printing, parsing
and common verification are written once over schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal

from glowpy.support.errors import UserError
from glowpy.support.text import Attr

__all__ = [
    "Access",
    "AttrKind",
    "AttrSpec",
    "InstSchema",
    "NodeSchema",
    "OperandSpec",
    "Quantized",
    "Trait",
    "check_attrs",
]

AttrKind = Literal["int", "ints", "float", "flag", "text"]


class Trait(StrEnum):
    """A fact about an operator that passes and backends may ask for."""

    ELEMENTWISE = "elementwise"
    """Each result element depends on the elements at the same place of the inputs, which broadcast as in numpy."""
    COMMUTATIVE = "commutative"
    """The first two inputs may be swapped."""
    BOOL_RESULT = "bool_result"
    """Element-wise with a bool result."""
    INPLACE = "inplace"
    """The result may share the memory of an input of the same type."""
    SIDE_EFFECT = "side_effect"
    """Must not be removed, even without users."""
    TYPED = "typed"
    """The result type is given, not inferred from the inputs."""
    SHAPE_ONLY = "shape_only"
    """Moves or repeats elements and computes nothing."""
    AXES = "axes"
    """The attribute `axis` or `axes` names dimensions of the data, which is the first input, or all
    inputs of a variadic node; the result has the data's rank, and other dimensions may be in any order."""
    EPILOGUE = "epilogue"
    """The kernel can run a chain of element-wise instructions on each finished tile."""


class Quantized(StrEnum):
    """What quantized operands of an operator mean."""

    REFUSED = "refused"
    """No operand and no result may be quantized."""
    SAME = "same"
    """Every element of a result is an element of an operand: moved, repeated or chosen.

    Operands and results are all quantized, with equal parameters, or none is; the channel axis moves along.
    Scales are positive, so that the larger of two elements is the larger of the numbers they stand for.
    """
    RULE = "rule"
    """What the operator's own inference and verification say."""


class Access(Enum):
    """What an instruction does with an operand. The value is its spelling in the IR."""

    OUT = "@out"
    IN = "@in"
    INOUT = "@inout"
    SCRATCH = "@scratch"

    reads: bool
    """Whether the content before the instruction matters."""
    writes: bool
    """Whether the content changes."""

    def __init__(self, spelling: str) -> None:
        self.reads = spelling in ("@in", "@inout")
        self.writes = spelling != "@in"


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """Name and kind of an attribute: int, ints, float, flag or text."""

    name: str
    kind: AttrKind


def check_attrs(specs: tuple[AttrSpec, ...], attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    """`attrs` in schema order. Raises UserError if one is missing, unknown, or not of its kind."""
    if set(attrs) != {spec.name for spec in specs}:
        expected = ", ".join(spec.name for spec in specs) or "none"
        raise UserError(f"expected the attributes {expected}, got {', '.join(attrs) or 'none'}")
    for spec in specs:
        if not _is_kind(attrs[spec.name], spec.kind):
            raise UserError(f"attribute {spec.name} must be of kind '{spec.kind}'")
    return {spec.name: attrs[spec.name] for spec in specs}


def _is_kind(value: Attr, kind: AttrKind) -> bool:
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "ints":
            return isinstance(value, tuple) and all(isinstance(item, int) for item in value)
        case "float":
            return isinstance(value, float)
        case "flag":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class NodeSchema:
    """Operands, attributes, results, traits of a node class; with `variadic` the input is any number.

    `quant` says what quantized operands mean; those named in `plain` hold no data (indices, conditions)
    and are never quantized.
    """

    mnemonic: str
    inputs: tuple[str, ...]
    attrs: tuple[AttrSpec, ...]
    results: tuple[str, ...]
    traits: frozenset[Trait]
    variadic: bool = False
    quant: Quantized = Quantized.REFUSED
    plain: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """Name and access of an instruction's operand."""

    name: str
    access: Access


@dataclass(frozen=True, slots=True)
class InstSchema:
    """Operands, attributes and traits of an instruction class. Operands stand in the order out, inout, in, scratch.

    `quant` and `plain` as in `NodeSchema`.
    """

    mnemonic: str
    operands: tuple[OperandSpec, ...]
    attrs: tuple[AttrSpec, ...]
    traits: frozenset[Trait]
    quant: Quantized = Quantized.REFUSED
    plain: frozenset[str] = frozenset()
