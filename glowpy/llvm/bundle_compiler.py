"""`BundleCompiler`: the part of a backend that makes code to be kept in files, for C programs to call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from glowpy.backend import Program
from glowpy.llvm.code_options import CodeOptions
from glowpy.llvm.target import Target

__all__ = ["BundleCompiler"]


class BundleCompiler(ABC):
    """Compiler of the code of bundles, for one target.

    Its entry points are those of `glowpy.llvm.entry`, and what the modules have around them is for `glowpy.bundling`.
    """

    @property
    @abstractmethod
    def target(self) -> Target:
        """The target."""

    @property
    @abstractmethod
    def bitcode(self) -> Sequence[bytes]:
        """Libraries that code is linked with."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """Options that make an equal backend, as values of JSON."""

    @property
    @abstractmethod
    def identity(self) -> Sequence[str]:
        """Texts of all that code depends on beside the target and the libraries."""

    @abstractmethod
    def code(self, programs: Mapping[str, Program], options: CodeOptions) -> str:
        """Returns programs, by the names of their entry points, as one module of LLVM IR."""
