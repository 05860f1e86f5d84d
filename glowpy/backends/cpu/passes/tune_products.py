"""Measures how the products of a function are computed best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from glowpy.backends.cpu.measuring.tuning import Collector, Tuner
from glowpy.backends.cpu.passes.pack_products import PackProductsPass
from glowpy.backends.cpu.strategy.ways import Chooser
from glowpy.graph.function import Function, Module
from glowpy.passes import GraphPass, PassContext

__all__ = ["Trial", "TuneProductsPass"]

Trial = Callable[[Module, Chooser, PassContext, int], Callable[[], float]]
"""Type of functions like `Prepare`, with the context to compile in and the bytes to read between two runs."""


@dataclass(frozen=True)
class TuneProductsPass(GraphPass):
    """Lets a tuner measure what `pack-products` will ask it, which a copy of the function is packed to find out.

    The function stays as it is. There is no such pass unless `CpuOptions.tune` is set.
    """

    packing: PackProductsPass
    tuner: Tuner
    trial: Trial
    name: ClassVar[str] = "tune-products"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Measures products; changes nothing."""
        collector = Collector(self.tuner.identity)
        copy = f.module.clone().function(f.name)
        quiet = PassContext(ctx.evaluate)
        replace(self.packing, chooser=collector).run(copy, quiet)
        weights = sum(constant.type.room for constant in f.module.constants)

        def prepare(network: Module, chooser: Chooser) -> Callable[[], float]:
            return self.trial(network, chooser, PassContext(ctx.evaluate), weights)

        self.tuner.measure(collector, prepare)
        return False
