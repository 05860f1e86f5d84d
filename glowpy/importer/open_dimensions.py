"""`Unsaid`: the dimensions of a model that nobody gives a size, and what they are taken to be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from glowpy.core.type import Shape
from glowpy.importer.declared import ValueInfo, computed_dims
from glowpy.support.symbolic import Dim

__all__ = ["ASSUMED", "Unsaid"]

ASSUMED = 1
"""The size assumed for a dimension that nobody gives one."""


@dataclass(frozen=True)
class Unsaid:
    """The dimensions of some inputs that shapes and sizes leave open.

    Attributes:
        infos: The inputs; none of a dump, which has no shapes but its own.
        shapes: Whole shapes by input, as for `load`.
        dims: Sizes by symbolic dimension, as for `load`.
        seen: Shapes of arrays for inputs, which say what nobody gives.
    """

    infos: Sequence[ValueInfo]
    shapes: Mapping[str, Shape]
    dims: Mapping[str, Dim]
    seen: Mapping[str, Shape] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The symbolic dimensions that nobody gives, and that follow from no others."""
        bound = _bound(self.infos, self.shapes) | dict(self.dims)
        symbols = [d for info in self.infos for d in info.shape or () if isinstance(d, str)]
        unbound = [name for name in dict.fromkeys(symbols) if name not in bound]
        plain: dict[str, Dim] = {name: ASSUMED for name in unbound if name.isidentifier()}
        computed = computed_dims(unbound, bound | plain)
        return [name for name in unbound if name in plain or name not in computed]

    @cached_property
    def unnamed(self) -> list[ValueInfo]:
        """The inputs with dimensions that have neither a size nor a name, and whose shapes are not given."""
        return [
            info
            for info in self.infos
            if None in (info.shape or ()) and info.name not in self.shapes
        ]

    @property
    def summary(self) -> dict[str, Dim]:
        """Assumed sizes by name: `N`, or `x[0]` if the model has no name for it; without those that arrays decide."""
        bound = _bound(self.infos, self._fitting)
        named = {name: ASSUMED for name in self.names if name not in bound}
        unnamed = {
            f"{info.name}[{axis}]": ASSUMED
            for info in self.unnamed
            for axis, dim in enumerate(info.shape or ())
            if dim is None and info.name not in self._fitting
        }
        return {**named, **unnamed}

    def said(self, size: int = ASSUMED) -> tuple[dict[str, Shape], dict[str, Dim]]:
        """Shapes and sizes with nothing left open: what nobody gives has the size that arrays have, else this one."""
        bound = _bound(self.infos, self._fitting)
        dims = {**self.dims, **{name: bound.get(name, size) for name in self.names}}
        sizes = {**_bound(self.infos, self.shapes), **dims}
        shapes = {info.name: self._whole(info, sizes, size) for info in self.unnamed}
        return {**shapes, **self.shapes}, dims

    @property
    def options(self) -> str:
        """The assumed sizes as options of a command line."""
        shapes, _ = self.said()
        texts = [f"{name}={ASSUMED}" for name in self.names]
        texts += [f"{info.name}:{'x'.join(map(str, shapes[info.name]))}" for info in self.unnamed]
        return " ".join(shlex.join(["--shape", text]) for text in texts)

    @cached_property
    def _fitting(self) -> dict[str, Shape]:
        """The shapes of arrays that the model admits; about the others, whoever reads them complains."""
        infos = {info.name: info for info in self.infos}
        return {
            name: shape
            for name, shape in self.seen.items()
            if name in infos and infos[name].admits(shape)
        }

    def _whole(self, info: ValueInfo, sizes: Mapping[str, Dim], size: int) -> Shape:
        seen = self._fitting.get(info.name, (size,) * len(info.shape or ()))
        return tuple(
            dim if isinstance(dim, int) else sizes.get(dim, other) if dim else other
            for dim, other in zip(info.shape or (), seen, strict=True)
        )


def _bound(infos: Sequence[ValueInfo], shapes: Mapping[str, Shape]) -> dict[str, Dim]:
    """The symbolic dimensions that whole shapes say."""
    return {
        dim: size
        for info in infos
        for dim, size in zip(info.shape or (), shapes.get(info.name, ()), strict=False)
        if isinstance(dim, str)
    }
