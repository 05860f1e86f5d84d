"""Schemas of nodes and instructions, as data, and the traits that passes ask for.

classgen writes one schema into each generated class. Cloning, equality, hashing, printing, parsing
and common verification are written once over schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Literal

from glowpy.core.algebra import NO_ALGEBRA, Algebra, Channels
from glowpy.core.type import Shape, Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Expr
from glowpy.support.text import Attr

__all__ = [
    "REST",
    "Access",
    "AttrKind",
    "AttrSpec",
    "InstSchema",
    "Layout",
    "NodeSchema",
    "OperandSpec",
    "Quantized",
    "Trait",
    "check_attrs",
]

AttrKind = Literal["int", "ints", "dim", "dims", "float", "flag", "text", "function"]


REST = "rest"
"""Repetition of an operand that takes all operands left over by the others."""


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
    DIMENSIONWISE = "dimensionwise"
    """Treats each dimension of its one input by itself: if the input is transposed, so is the result, and with it
    the attributes that have a number for each dimension."""
    MEMORY = "memory"
    """Says where memory is, and touches no element."""
    CODES = "codes"
    """Operands and results may be codes, floats of at most 8 bits: it moves elements, or codes are what it is about."""
    UNITS = "units"
    """The kernel computes a range of units of work, whose number follows from shapes and attributes."""
    EPILOGUE = "epilogue"
    """The kernel hands each finished tile to an epilogue, which runs element-wise instructions on it and stores it."""


class Quantized(StrEnum):
    """Meaning of an operator's quantized operands."""

    REFUSED = "refused"
    """No operand and no result may be quantized."""
    SAME = "same"
    """Every element of a result is an element of an operand: moved, repeated or chosen.

    Operands and results are all quantized, with equal parameters, or none is; the channel axis moves along.
    Scales are positive, so that the larger of two elements is the larger of the numbers they stand for.
    """
    NUMBERS = "numbers"
    """The operator computes on the numbers that the elements stand for, and rounds what comes out to the result's type.

    Which that is cannot be inferred. Data operands and the result are all quantized, or none is.
    """
    RULE = "rule"
    """The operator's own inference and verification decide."""


class Access(Enum):
    """Access of an instruction to an operand. The value is its spelling in the IR."""

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


class Layout(Enum):
    """Gaps that an operand of an instruction may have between its elements, the fewest first.

    The value is what a spec calls it. The kernel of an operand that may have any is told its strides.
    """

    DENSE = "dense"
    """No gaps at all."""
    ROWS = "rows"
    """Neighbours along the last dimension lie together: the kernel's inner loop runs over them."""
    STRIDED = "strided"
    """Any. The loops are about memory, and slow where no dimension's neighbours lie together."""
    TRANSPOSED = "transposed"
    """Any. The kernel is made for rows that lie apart as well, and takes the copy's place."""

    def takes(self, strides: Shape) -> bool:
        """Whether the elements of an operand, of at least one dimension, may have these strides between gaps."""
        return self in (Layout.STRIDED, Layout.TRANSPOSED) or (
            self is Layout.ROWS and strides[-1] == 1
        )


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """Name and kind of an attribute: int, ints, dim, dims, float, flag, text or function, where dims may be symbolic.

    A function is the name of one that the operator calls.
    Lists with `dimensions` have a number for each dimension of the input, or several lists of these. Those that are
    `optional` may be left out, which is the empty list, and are printed only where there are any.
    """

    name: str
    kind: AttrKind
    dimensions: bool = False
    optional: bool = False


def check_attrs(specs: tuple[AttrSpec, ...], attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    """`attrs` in schema order. Raises UserError if one is missing, unknown, or not of its kind."""
    left_out: dict[str, Attr] = {
        spec.name: () for spec in specs if spec.optional and spec.name not in attrs
    }
    attrs = {**left_out, **attrs}
    if set(attrs) != {spec.name for spec in specs}:
        expected = ", ".join(spec.name for spec in specs) or "none"
        raise UserError(f"expected the attributes {expected}, got {', '.join(attrs) or 'none'}")
    for spec in specs:
        if not _is_kind(attrs[spec.name], spec.kind):
            raise UserError(f"attribute {spec.name} must be of kind '{spec.kind}'")
    return {spec.name: attrs[spec.name] for spec in specs}


def _functions(attrs: tuple[AttrSpec, ...]) -> tuple[str, ...]:
    return tuple(spec.name for spec in attrs if spec.kind == "function")


def _is_kind(value: Attr, kind: AttrKind) -> bool:
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "ints":
            return isinstance(value, tuple) and all(isinstance(item, int) for item in value)
        case "dim":
            return isinstance(value, int | Expr) and not isinstance(value, bool)
        case "dims":
            return isinstance(value, tuple) and all(isinstance(item, int | Expr) for item in value)
        case "float":
            return isinstance(value, float)
        case "flag":
            return isinstance(value, bool)
        case "text" | "function":
            return isinstance(value, str)


def _check_codes(schema: NodeSchema | InstSchema, types: Iterable[Type]) -> None:
    """Raises UserError unless there are no codes, or the schema allows them."""
    if Trait.CODES not in schema.traits:
        for type in types:
            if type.kind.is_code:
                raise UserError(
                    f"expected operands of kinds to compute with, got {type}", note=_DECODE
                )


def _check_quantized(schema: NodeSchema | InstSchema, operands: Sequence[tuple[str, Type]]) -> None:
    """Raises UserError unless operands and results, some of them quantized, are so as `schema.quant` allows.

    Where the channel axis is, if there is one, is not asked here: inference knows how it moves.
    """
    quantized = [(name, type) for name, type in operands if type.quant is not None]
    if schema.quant is Quantized.REFUSED:
        raise UserError(
            f"expected operands that are not quantized, got {_named(quantized)}", note=_REMEDY
        )
    plain = [(name, type) for name, type in quantized if name in schema.plain]
    if plain:
        raise UserError(f"expected {plain[0][0]} not quantized, got {plain[0][1]}")
    data = [(name, type) for name, type in operands if name not in schema.plain]
    if schema.quant is Quantized.RULE:
        return
    if len(quantized) < len(data):
        raise UserError(
            f"expected operands that are all quantized or none of them, got {_named(data)}"
        )
    if schema.quant is Quantized.NUMBERS:
        return
    have_no_axis = all(type.quant is not None and type.quant.axis is None for _, type in data)
    if have_no_axis and len({type.quant for _, type in data}) > 1:
        raise UserError(f"expected equal quantization parameters, got {_named(data)}")


_REMEDY = "only operators that move or choose elements take quantized ones; compute on floats"
_DECODE = "decode makes floats of 32 bits of codes, and encode makes codes of these"


def _named(operands: Sequence[tuple[str, Type]]) -> str:
    return ", ".join(f"{name} {type}" for name, type in operands)


@dataclass(frozen=True, slots=True)
class NodeSchema:
    """Operands, attributes, results, traits of a node class; with `variadic` the input is any number.

    With `many_results` there are as many as inference says, all but the first of which are numbered.

    `quant` says what quantized operands mean; those named in `plain` hold no data (indices, conditions)
    and are never quantized. `algebra` and `channels` are facts that passes ask for. `no_derivative` is the
    reason why none can be taken; empty where there is a rule.
    """

    mnemonic: str
    inputs: tuple[str, ...]
    attrs: tuple[AttrSpec, ...]
    results: tuple[str, ...]
    traits: frozenset[Trait]
    variadic: bool = False
    quant: Quantized = Quantized.REFUSED
    plain: frozenset[str] = frozenset()
    algebra: Algebra = NO_ALGEBRA
    channels: Channels | None = None
    no_derivative: str = ""
    many_results: bool = False

    @property
    def functions(self) -> tuple[str, ...]:
        """The attributes that name functions which the operator calls."""
        return _functions(self.attrs)

    def result_name(self, index: int) -> str:
        """Returns the name of result `index`."""
        return str(index) if self.many_results and index else self.results[index]

    def check_stored(self, inputs: Sequence[Type], results: Sequence[Type] = ()) -> None:
        """Raises UserError that names the operands unless these types are quantized, or codes, as the schema allows."""
        _check_codes(self, (*inputs, *results))
        if any(type.quant is not None for type in (*inputs, *results)):
            names = self.inputs * len(inputs) if self.variadic else self.inputs
            operands = [
                *zip(names, inputs, strict=False),
                *zip(self.results, results, strict=False),
            ]
            _check_quantized(self, operands)


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """Name and access of an instruction's operand, and which gaps there may be between its elements.

    An operand with `times` occurs as often as the attribute of that name says, numbered; of `REST` there are as many as
    all others leave.
    """

    name: str
    access: Access
    layout: Layout = Layout.DENSE
    times: str = ""


def _times(spec: OperandSpec, attrs: Mapping[str, Attr]) -> int:
    """How often an operand occurs, but for the rest."""
    if not spec.times:
        return 1
    times = 0 if spec.times == REST else attrs[spec.times]
    assert isinstance(times, int)
    if times < 0:
        raise UserError(f"expected {spec.times} of at least 0, got {times}")
    return times


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

    @property
    def functions(self) -> tuple[str, ...]:
        """The attributes that name functions which the instruction calls."""
        return _functions(self.attrs)

    @property
    def variadic(self) -> bool:
        """Whether attributes say how many operands there are."""
        return any(spec.times for spec in self.operands)

    def operands_of(self, count: int, attrs: Mapping[str, Attr]) -> tuple[OperandSpec, ...]:
        """Returns the specification of each of `count` operands. Raises UserError for a number that cannot be."""
        if not self.variadic:
            specs = list(self.operands)
        else:
            times = {spec: _times(spec, attrs) for spec in self.operands}
            rest = count - sum(times.values())
            if rest < 0:
                raise UserError(f"expected {sum(times.values())} operands, got {count}")
            specs = [
                replace(spec, name=f"{spec.name}{index}") if spec.times else spec
                for spec in self.operands
                for index in range(rest if spec.times == REST else times[spec])
            ]
        if len(specs) != count:
            raise UserError(f"expected {len(specs)} operands, got {count}")
        return tuple(specs)

    def check_stored(self, types: Sequence[Type]) -> None:
        """Raises UserError that names the operands unless these types are quantized, or codes, as the schema allows."""
        _check_codes(self, types)
        if any(type.quant is not None for type in types):
            names = (spec.name for spec in self.operands)
            _check_quantized(self, list(zip(names, types, strict=not self.variadic)))
