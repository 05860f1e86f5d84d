"""Options about the model that many verbs share, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glowpy.cli.model import Source, choose_function, load_model
from glowpy.graph.function import Function, Module

__all__ = ["ModelOptions"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model that a verb works on, and what is said of it.

    Attributes:
        model: The file.
        shapes: The texts of --shape.
        values: The texts of --value.
        constants: The file of --constants.
        name: The function of --function.
    """

    model: str
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    constants: str
    name: str

    def module(self, backend: str = "cpu", state: tuple[str, ...] = ()) -> Module:
        """The module in the file. Raises as `load_model` does."""
        return load_model(self.model, self.shapes, self.constants, backend, state, self.values)

    def function(self, module: Module) -> Function:
        """The function of the module that --function names. Raises as `choose_function` does."""
        return choose_function(module, self.name)

    def source(self, backend: str, **others: Any) -> Source:
        """The model, which is read if something needs it; `others` are further fields of `Source`."""
        return Source(
            *(self.model, self.shapes, self.constants, self.name, backend),
            values=self.values,
            **others,
        )
