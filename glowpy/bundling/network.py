"""`Network`: one network of a bundle from outside, as its layout, its manifest, and what loads or verifies it see it.

The manifest has it as JSON, `fields`, from which `Network.of` makes an equal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast, get_args

from glowpy.core.extents import type_at
from glowpy.core.state import StatePort
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.ir.plan import ALIGNMENT
from glowpy.runtime.ports import Port, Ports
from glowpy.support import symbolic
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__ = ["Extent", "Network", "Role", "Symbol"]

Role = Literal["input", "output", "inout", "constant", "variable"]


@dataclass(frozen=True)
class Symbol:
    """A tensor a user of the bundle can see, and where it lies in its area.

    Attributes:
        name: The name in C: that in the model, made an identifier.
        original: Its name in the model.
        weight: The name in the IR.
        role: Whether it goes in or out, or stays.
        type: Element kind and dimensions; of a variable those of its memory.
        offset: Where it begins, in bytes.
        variable: The types that runs read and leave, of a variable.
        initial: Where the memory of a variable before the first run lies among the constants; None if that is zeros.
    """

    name: str
    original: str
    weight: str
    role: Role
    type: Type
    offset: int
    variable: StatePort | None = None
    initial: int | None = None

    @property
    def port(self) -> Port:
        """Its name and type."""
        return Port(self.original, self.weight, self.type)

    @property
    def fields(self) -> dict[str, Any]:
        """The symbol as JSON."""
        variable = self.variable
        variable_types = (
            {} if variable is None else {"reads": variable.type, "leaves": variable.following}
        )
        return {
            "name": self.name,
            "original": self.original,
            "weight": self.weight,
            "role": self.role,
            "type": str(self.type),
            "offset": self.offset,
            "size": self.type.room,
            **{what: str(type) for what, type in variable_types.items()},
            **({} if self.initial is None else {"initial": self.initial}),
        }

    @staticmethod
    def of(fields: Mapping[str, Any], dims: Mapping[str, Dim]) -> Symbol:
        """The symbol that `fields` are of, whose type depends on these dimensions."""
        type = parse_type(str(fields["type"]), dims)
        original, weight, role = (str(fields[name]) for name in ("original", "weight", "role"))
        if role not in get_args(Role):
            raise UserError(f"expected one of the roles {', '.join(get_args(Role))}, got '{role}'")
        variable = None
        if role == "variable":
            reads, leaves = (parse_type(str(fields[what]), dims) for what in ("reads", "leaves"))
            variable = StatePort(original, weight, reads, leaves, type)
        initial = int(fields["initial"]) if "initial" in fields else None
        place = int(fields["offset"])
        name, known_role = str(fields["name"]), cast("Role", role)
        return Symbol(name, original, weight, known_role, type, place, variable, initial)

    def elements(self, area: Array, extents: Mapping[str, int]) -> Array:
        """Its array in the area that it lies in, in a run with these extents; not copied."""
        type = type_at(self.type, extents)
        flat = area[self.offset : self.offset + type.room]
        return flat.view(type.kind.dtype).reshape(type.extents)

    def variable_on(self, constants: Array) -> StatePort:
        """The variable with its initial value, which lies among the constants."""
        assert self.variable is not None
        if self.initial is None:
            return self.variable
        memory = replace(self, offset=self.initial).elements(constants, {})
        part = memory[tuple(map(slice, self.variable.type.extents))]
        return replace(self.variable, initial=Tensor(self.variable.type, part))


@dataclass(frozen=True)
class Extent:
    """Extent of a network's dimension that a run is given, or finds: a symbol, and its name in C."""

    name: str
    symbol: symbolic.Symbol
    found: bool

    @property
    def fields(self) -> dict[str, Any]:
        """The extent as JSON."""
        return {
            **asdict(self.symbol),
            "name": self.name,
            "symbol": self.symbol.name,
            **({"found": True} if self.found else {}),
        }

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Extent:
        """The extent that `fields` are of."""
        bounds = (int(fields[name]) for name in ("low", "high", "likely"))
        symbol = symbolic.Symbol(str(fields["symbol"]), *bounds)
        return Extent(str(fields["name"]), symbol, bool(fields.get("found")))


@dataclass(frozen=True)
class Network:
    """One network.

    Attributes:
        name: The name of its entry point.
        symbols: Its memories that can be seen from outside.
        extents: The extents that its entry point takes beside them, in this order.
        mutable: Bytes of its inputs, outputs and variables.
        activations: Bytes of its working memory.
    """

    name: str
    symbols: tuple[Symbol, ...]
    extents: tuple[Extent, ...]
    mutable: int
    activations: int

    @property
    def ports(self) -> tuple[Symbol, ...]:
        """Inputs, outputs and variables, which lie in the mutable area."""
        return tuple(symbol for symbol in self.symbols if symbol.role != "constant")

    @property
    def inputs(self) -> tuple[Symbol, ...]:
        """Symbols of the memory that a caller writes."""
        return tuple(symbol for symbol in self.symbols if symbol.role in ("input", "inout"))

    @property
    def outputs(self) -> tuple[Symbol, ...]:
        """Symbols of the memory that a caller reads."""
        return tuple(symbol for symbol in self.symbols if symbol.role in ("output", "inout"))

    @property
    def variables(self) -> tuple[Symbol, ...]:
        """Symbols of the memory that outlives a run."""
        return tuple(symbol for symbol in self.symbols if symbol.role == "variable")

    @property
    def has_initial_values(self) -> bool:
        """Whether a variable begins as something else than zeros."""
        return any(symbol.initial is not None for symbol in self.variables)

    @property
    def constants(self) -> tuple[Symbol, ...]:
        """Symbols of what lies in the area of constants."""
        return tuple(symbol for symbol in self.symbols if symbol.role == "constant")

    def interface(self, constants: Array) -> Ports:
        """Inputs, outputs and variables of whatever runs it, with initial values that lie among these constants."""
        return Ports(
            tuple(symbol.port for symbol in self.inputs),
            tuple(symbol.port for symbol in self.outputs),
            tuple(symbol.variable_on(constants) for symbol in self.variables),
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The network as JSON."""
        fields: dict[str, Any] = {
            "name": self.name,
            "mutable": self.mutable,
            "activations": self.activations,
            "symbols": [symbol.fields for symbol in self.symbols],
        }
        if self.extents:
            fields["extents"] = [extent.fields for extent in self.extents]
        return fields

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Network:
        """The network that `fields` are of. Raises KeyError, TypeError, ValueError or UserError for others."""
        extents = tuple(Extent.of(extent) for extent in fields.get("extents", ()))
        symbols = (extent.symbol for extent in extents)
        dims = {s.name: symbolic.symbol(s.name, s.low, s.high, s.likely) for s in symbols}
        return Network(
            str(fields["name"]),
            tuple(Symbol.of(symbol, dims) for symbol in fields["symbols"]),
            extents,
            int(fields["mutable"]),
            int(fields["activations"]),
        )

    def check_places(self, areas: Mapping[str, int]) -> None:
        """Raises UserError unless all lies in areas of these sizes, by name: memory outside them is not ours."""
        for symbol in self.ports:
            places = {"mutable": symbol.offset}
            if symbol.initial is not None:
                places["constants"] = symbol.initial
            for area, offset in places.items():
                if offset < 0 or offset % ALIGNMENT or offset + symbol.type.room > areas[area]:
                    what = "the mutable area" if area == "mutable" else "the constants"
                    raise UserError(f"'{symbol.original}' does not lie in {what}")
