"""How libjit is compiled: its sources, and the instruction sets that it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["IS_INSTALLED", "LIBJIT_FOLDER", "PACKAGED_BITCODE", "STOCK_FOLDER", "KernelVariant"]

_INSTALLED = Path(__file__).parent / "libjit"
_CHECKOUT = Path(__file__).parents[2] / "libjit"

IS_INSTALLED = _INSTALLED.is_dir()
"""Whether this is an installed package, not a checkout."""

LIBJIT_FOLDER = _INSTALLED if IS_INSTALLED else _CHECKOUT
"""The sources of libjit, with the list of variants and the program that compiles kernels: a wheel carries them."""

PACKAGED_BITCODE = Path(__file__).parent / "bitcode" if IS_INSTALLED else None
"""The folder where a wheel carries libjit's bitcode; None in a checkout."""

STOCK_FOLDER = Path(__file__).parent / "stock" if IS_INSTALLED else _CHECKOUT.parent / "build/stock"
"""The folder of what an installation brings ready to run: see `stock` and `library`."""


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """One vector width and instruction set that kernels are compiled for."""

    name: str
    family: str
    triple: str
    """LLVM's name of the target the bitcode says it is for."""
    cpu: str
    """LLVM's name of a processor that has what the variant assumes, once `requires` is added to it."""
    requires: frozenset[str]
    """LLVM's names of the features the target must have."""
    cpus: frozenset[str]
    """LLVM's names of other processors that have what the variant requires."""
    vector_bytes: int
    """VECTOR_BYTES of libjit.h."""
    has_floats: bool
    """Whether its processors compute with floats; elsewhere the compiler's library does."""
