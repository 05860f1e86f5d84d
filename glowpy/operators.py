"""Operators of other packages, which every backend of glowpy's own then knows.

A package names its `OperatorSet` in its metadata, under the domain that its operators have in ONNX models:

```toml
[project.entry-points."glowpy.operators"]
"com.example.series" = "glowpy_series:OPERATORS"
```

`glowpy.plugins` finds it when a model imports that domain, checks it, and registers it here. A program registers a set
of its own by `glowpy.register_operators`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from glowpy.support.identity import files_identity

if TYPE_CHECKING:
    from glowpy.graph.node import Node
    from glowpy.ir.inst import Instruction

__all__ = ["OperatorSet", "add_operators", "known_identity", "operator_sets"]


@dataclass(frozen=True, eq=False)
class OperatorSet:
    """The operators of one domain. Import functions, and rules of its own classes, register themselves.

    Attributes:
        domain: The name of the domain in ONNX models.
        package: The Python package they come from, whose files say whether compiled networks are out of date. Without
            one, no network of the domain is kept compiled.
        nodes: Classes of nodes, written by classgen; none where the import functions need only those that there are.
        instructions: Classes of instructions.
        libraries: The kernels of the instructions for the CPU backend, each a `KernelLibrary`.
    """

    domain: str
    package: str = ""
    nodes: tuple[type[Node], ...] = ()
    instructions: tuple[type[Instruction], ...] = ()
    libraries: tuple[object, ...] = ()
    _token: str = field(default_factory=lambda: os.urandom(16).hex(), repr=False)

    @property
    def identity(self) -> str:
        """Identity of the set, the same as long as no file of the package has changed."""
        module = sys.modules.get(self.package)
        if module is None or not module.__file__:
            return self._token
        return files_identity([str(Path(module.__file__).parent)])


_SETS: dict[str, OperatorSet] = {}

_UNKNOWN = os.urandom(16).hex()


def add_operators(operators: OperatorSet) -> None:
    """Makes all backends know a set that was checked."""
    _SETS[operators.domain] = operators


def operator_sets() -> Sequence[OperatorSet]:
    """All that are registered, in that order."""
    return tuple(_SETS.values())


def known_identity(domain: str) -> str:
    """Returns the identity that a set gives a domain's operators; where none does, it is new in every process."""
    return _SETS[domain].identity if domain in _SETS else _UNKNOWN
