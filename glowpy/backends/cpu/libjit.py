"""The library of kernels that comes with glowpy, as CPUs use it."""

from __future__ import annotations

from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.scalars_gen import SCALARS
from glowpy.llvm.variant import LIBJIT_FOLDER, PACKAGED_BITCODE

__all__ = ["LIBJIT", "LIBRARIES"]

LIBJIT = KernelLibrary("libjit", LIBJIT_FOLDER, PACKAGED_BITCODE, {**KERNELS, **SCALARS})
"""The kernels of the operators that every backend knows, and of the CPU backend's own."""

LIBRARIES = (LIBJIT,)
"""Kernel libraries of the CPU backend."""
