"""`Options`: what of a network is quantized, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from glowpy.backend import Backend
from glowpy.core.elemkind import ElemKind
from glowpy.quantization.calibration import Calibration, MinMax
from glowpy.quantization.schema import Schema
from glowpy.support.errors import UserError, expect_type

__all__ = ["Options"]

_ACTIVATIONS = (ElemKind.U8, ElemKind.I8, ElemKind.I16)
_BIASES = (ElemKind.I8, ElemKind.I16, ElemKind.I32, ElemKind.F32)


@dataclass(frozen=True)
class Options:
    """Options that choose what of a network is quantized, and how.

    Attributes:
        schema: How integers stand for the range of an activation. Weights are symmetric, with scales that are powers of
            two if the schema says so.
        activations: The kind of the integers that values are computed in: u8, i8 or i16. Products of i16 with i8 are
            two products of bytes.
        per_channel: Whether each output channel of the weights has a scale of its own; else a tensor has one.
        bias: i32: in steps of the sums that it is added to. i8, i16: rounded to a scale of its own before that. f32: it
            is added in floats.
        tables: The bits of the tables that rows are gathered from: 8, with a scale for each row; 4, with
            one for each 32 neighbours; None for floats. What is gathered is computed with as any other value.
        calibration: How the range of an activation follows from its profile.
        calibrations: Other ways for some values, by their names in the profile.
        norms: Whether layer norms are computed on integers; None: if activations are i16, for 8
            bits lose accuracy.
        keep: Nodes that stay in floats: their names in the optimized graph or in the user's model, or their kinds;
            `%NAME` is the one node with this name in the graph.
        skip_first: Whether the first layer stays in floats: the first matrix product or convolution.
        skip_last: Whether the last one does.
        assert_all: Whether a node that stays in floats is an error.
        backend: The backend that is to run the network: a name, or a backend with options. Nodes that it
            cannot run stay in floats.

    Raises UserError for what is of another type, and for kinds other than these.
    """

    schema: Schema = Schema.ASYMMETRIC
    activations: ElemKind = ElemKind.U8
    per_channel: bool = True
    bias: ElemKind = ElemKind.I32
    tables: int | None = 8
    calibration: Calibration = field(default_factory=MinMax)
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    norms: bool | None = None
    keep: tuple[str, ...] = ()
    skip_first: bool = False
    skip_last: bool = False
    assert_all: bool = False
    backend: str | Backend = "cpu"

    def __post_init__(self) -> None:
        self._check_types()
        for what, kind, kinds in (
            ("activations", self.activations, _ACTIVATIONS),
            ("biases", self.bias, _BIASES),
        ):
            if kind not in kinds:
                expected = ", ".join(allowed_kind.value for allowed_kind in kinds)
                raise UserError(f"expected {what} of kind {expected}, got {kind.value}")
        if self.tables not in (4, 8, None):
            raise UserError(f"expected tables of 4 or 8 bits, got {self.tables}")

    def _check_types(self) -> None:
        """A string, as the command line has it, would not fail everywhere: unlike a schema it means another one."""
        for name, kind, example in (
            ("schema", Schema, "a Schema, such as Schema.ASYMMETRIC"),
            ("activations", ElemKind, "an ElemKind, such as ElemKind.U8"),
            ("bias", ElemKind, "an ElemKind, such as ElemKind.I32"),
            ("calibration", Calibration, "a Calibration, such as MinMax()"),
            ("calibrations", Mapping, "a dict of names and calibrations"),
            ("keep", tuple | list, "a tuple of names"),
        ):
            expect_type(f"Options.{name}", getattr(self, name), kind, example)
        for name in self.keep:
            if not isinstance(name, str):
                raise UserError(
                    f"Options.keep: expected a tuple of names, got a name of type {type(name).__name__}"
                )
        for name, way in self.calibrations.items():
            expect_type(f"Options.calibrations['{name}']", way, Calibration, "a Calibration")

    @property
    def integer_norms(self) -> bool:
        """Whether layer norms are computed on integers."""
        return self.activations is ElemKind.I16 if self.norms is None else self.norms

    @property
    def weights_schema(self) -> Schema:
        """How integers stand for weights: zero is 0, so that sums need no correction."""
        power = self.schema is Schema.POWER_OF_TWO
        return Schema.POWER_OF_TWO if power else Schema.SYMMETRIC
