"""The backend: what it adds to the CPU backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import glowpy_fused.rules  # noqa: F401 - fills the tables of rules
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.llvm.library import KernelLibrary
from glowpy.passes import GraphPass
from glowpy_fused.fuse_scale import FuseScalePass
from glowpy_fused.insts_gen import INSTS
from glowpy_fused.kernels_gen import KERNELS
from glowpy_fused.nodes_gen import NODES

__all__ = ["FusedBackend"]

_FOLDER = Path(__file__).parent / "kernels"


class FusedBackend(CpuBackend):
    """Machine code with a softmax that takes a scale, and a hard swish in one kernel."""

    name: ClassVar[str] = "fused"
    nodes: ClassVar[tuple[type[Node], ...]] = (*CpuBackend.nodes, *NODES)
    instructions: ClassVar[tuple[type[Instruction], ...]] = (*CpuBackend.instructions, *INSTS)
    libraries: ClassVar[tuple[KernelLibrary, ...]] = (
        *CpuBackend.libraries,
        KernelLibrary("fused", _FOLDER, _FOLDER / "bitcode", KERNELS),
    )

    def post_lowering(self) -> Sequence[GraphPass]:
        """Brings in the scaled softmax before the CPU backend packs products."""
        return (FuseScalePass(), *super().post_lowering())
