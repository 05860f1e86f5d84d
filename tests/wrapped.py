"""A backend that is no CPU backend, but has one: what may be asked of it is what every backend may be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import ClassVar
from unittest.mock import patch

from glowpy import CpuBackend, CpuOptions, plugins
from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.measuring.meter import Meter
from glowpy.measuring.tuned import Tuning
from glowpy.passes import GraphPass
from glowpy.runtime.artifact import Artifact

__all__ = ["Wrapped", "installed"]


class Wrapped(Backend):
    """Makes bundles unless `bundles` says otherwise, and can be measured and tuned."""

    name: ClassVar[str] = "wrapped"
    stacks: ClassVar[bool] = True
    probes: ClassVar[frozenset[str]] = CpuBackend.probes
    nodes: ClassVar[tuple[type[Node], ...]] = CpuBackend.nodes
    instructions: ClassVar[tuple[type[Instruction], ...]] = CpuBackend.instructions
    options_type: ClassVar[type | None] = CpuOptions
    bundles: ClassVar[bool] = True

    def __init__(self, options: CpuOptions | None = None) -> None:
        super().__init__()
        self.inner = CpuBackend(options)
        self.device = self.inner.device

    @property
    def bundle_compiler(self) -> BundleCompiler | None:
        """The CPU backend's."""
        return self.inner.bundle_compiler if self.bundles else None

    @property
    def meter(self) -> Meter:
        """The CPU backend's."""
        return self.inner.meter

    @property
    def tuning(self) -> Tuning | None:
        """The CPU backend's."""
        return self.inner.tuning

    def keeps(self, node: Node) -> bool:
        """As the CPU backend."""
        return self.inner.keeps(node)

    def pipeline(self, default: Sequence[GraphPass]) -> Sequence[GraphPass]:
        """As the CPU backend."""
        return self.inner.pipeline(default)

    def post_lowering(self) -> Sequence[GraphPass]:
        """As the CPU backend."""
        return self.inner.post_lowering()

    def unsupported(self, operation: Operation) -> str:
        """As the CPU backend."""
        return self.inner.unsupported(operation)

    def compile(self, program: Program, options: CompileOptions) -> Artifact:
        """As the CPU backend."""
        return self.inner.compile(program, options)


@contextmanager
def installed() -> Iterator[None]:
    """As if a package with it were the only one that is installed."""
    entries = [EntryPoint("wrapped", f"{__name__}:Wrapped", plugins.GROUP)]
    plugins.plugins.cache_clear()
    with patch.object(plugins, "entry_points", lambda *, group: entries):
        yield
    plugins.plugins.cache_clear()
