"""The ways to quantize a network, as what reports, searches and estimates of them have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, get_args

from glowpy.backend import Backend
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import GatherNode
from glowpy.opt.products import Product
from glowpy.quantization.conversion import Conversion
from glowpy.quantization.convert import WATCHED, convert
from glowpy.quantization.dynamic import quantize_dynamic
from glowpy.quantization.optimized import optimized
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile
from glowpy.quantization.weights import quantize_weights
from glowpy.support.errors import expect_type

__all__ = [
    "AtRunTime",
    "ByProfile",
    "Method",
    "Shown",
    "WeightsOnly",
    "WithoutProfile",
    "expect_method",
]

_PRODUCTS = frozenset(cls.SCHEMA.mnemonic for cls in get_args(Product))


@dataclass(frozen=True)
class Shown:
    """A network in floats, and the quantized one, both with outputs that show their values.

    Attributes:
        floats: The network in floats.
        quantized: The other.
        types: The types of the values that are stored integers, by the names of their outputs.
    """

    floats: Function
    quantized: Function
    types: Mapping[str, Type]


class Method(ABC):
    """A way to quantize a network."""

    kinds: ClassVar[frozenset[str]] = _PRODUCTS
    """The mnemonics of layers: what is compared, and kept in floats, one by one."""

    @property
    @abstractmethod
    def backend(self) -> str | Backend:
        """The backend that is to run the network: a name, or a backend with options."""

    @abstractmethod
    def convert(self, model: Module | Function) -> Conversion:
        """The quantized network, and what became of each node."""

    @abstractmethod
    def keeping(self, layers: Sequence[str], *, trial: bool = False) -> Self:
        """The same, but for more nodes that stay in floats, which are no error in a trial."""

    def layers(self, conversion: Conversion) -> list[str]:
        """The names of the quantized layers in the optimized graph, without those of called functions.

        Outputs can show nothing of functions that are called.
        """
        nodes = [node for node in conversion.nodes if not node.function]
        return [node.name for node in nodes if node.kind in self.kinds and not node.reason]

    def shown(self, original: Function) -> Shown:
        """Both networks with outputs for the results of layers, named after them with `WATCHED`."""
        floats = optimized(original)
        _show(floats, [WATCHED + name for name in self.layers(self.convert(original))])
        return Shown(floats, self.convert(floats).module.main, {})


@dataclass(frozen=True)
class ByProfile(Method):
    """Integers everywhere, with the ranges of a profile.

    Attributes:
        profile: The profile of the network.
        options: The options: what is quantized, and how.
    """

    profile: Profile
    options: Options = field(default_factory=Options)

    @property
    def backend(self) -> str | Backend:
        """The backend of the options."""
        return self.options.backend

    def convert(self, model: Module | Function) -> Conversion:
        """Raises as `quantization.convert` does."""
        return convert(model, self.profile, self.options)

    def keeping(self, layers: Sequence[str], *, trial: bool = False) -> Self:
        """Returns a copy with these layers among the options' nodes to keep."""
        options = self.options
        keep, strict = (*options.keep, *layers), options.assert_all and not trial
        return replace(self, options=replace(options, keep=keep, assert_all=strict))

    def shown(self, original: Function) -> Shown:
        """Shows all values that are rounded to integers, and those that are computed in floats."""
        floats = optimized(original)
        quantized = convert(original, self.profile, self.options, watched=True)
        outputs = {p.original for p in original.outputs}
        f = quantized.module.main
        _show(floats, [p.original for p in f.outputs if p.original not in outputs])
        types = {WATCHED + name: type for name, type in quantized.types.items()}
        return Shown(floats, f, types)


@dataclass(frozen=True)
class WithoutProfile(Method):
    """A way that needs to know nothing but the network.

    Attributes:
        keep: Nodes that stay in floats: their names in the optimized graph or in the user's model, or their kinds.
        backend: The backend that is to run the network.
    """

    keep: tuple[str, ...] = ()
    backend: str | Backend = "cpu"

    def keeping(self, layers: Sequence[str], *, trial: bool = False) -> Self:
        """Returns a copy with these layers among the nodes to keep."""
        del trial
        return replace(self, keep=(*self.keep, *layers))


@dataclass(frozen=True)
class AtRunTime(WithoutProfile):
    """Matrix products on integers, with the ranges that values have when the network runs."""

    def convert(self, model: Module | Function) -> Conversion:
        """Raises as `quantize_dynamic` does."""
        return quantize_dynamic(model, keep=self.keep)


@dataclass(frozen=True)
class WeightsOnly(WithoutProfile):
    """Weights of few bits, and computation in floats.

    Attributes:
        bits: The bits of a weight: 4 or 8.
        block: How many neighbours have a scale in common.
        symmetric: Whether zero is stored as 0.
    """

    kinds: ClassVar[frozenset[str]] = _PRODUCTS | {GatherNode.SCHEMA.mnemonic}

    bits: int = 4
    block: int = 32
    symmetric: bool = True

    def convert(self, model: Module | Function) -> Conversion:
        """Raises as `quantize_weights` does."""
        return quantize_weights(
            model, bits=self.bits, block=self.block, symmetric=self.symmetric, keep=self.keep
        )


def expect_method(method: object) -> None:
    """Raises UserError for what is no way to quantize, such as a profile alone."""
    expect_type("method", method, Method, "a Method, such as ByProfile(profile) or WeightsOnly()")


def _show(f: Function, names: Sequence[str]) -> None:
    """Gives a function outputs with these names that show its values."""
    values: dict[str, NodeValue] = {p.name: p.value for p in (*f.inputs, *f.variables)}
    values |= {value.name: value for node in f.nodes for value in node.results}
    for name in names:
        value = values[name.removeprefix(WATCHED)]
        f.create_save("save", value, f.module.create_placeholder(name, value.type))
