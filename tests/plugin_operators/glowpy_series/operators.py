"""What glowpy is told of this package."""

from __future__ import annotations

from pathlib import Path

import glowpy_series.rules  # noqa: F401 - fills the tables of rules
from glowpy.llvm.library import KernelLibrary
from glowpy.operators import OperatorSet
from glowpy_series.importer import DOMAIN
from glowpy_series.insts_gen import INSTS
from glowpy_series.kernels_gen import KERNELS
from glowpy_series.nodes_gen import NODES

__all__ = ["OPERATORS"]

_FOLDER = Path(__file__).parent / "kernels"

OPERATORS = OperatorSet(
    DOMAIN,
    package="glowpy_series",
    nodes=NODES,
    instructions=INSTS,
    libraries=(KernelLibrary("series", _FOLDER, _FOLDER / "bitcode", KERNELS),),
)
