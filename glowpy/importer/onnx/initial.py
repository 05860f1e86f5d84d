"""Initial values of variables, as `exporter` writes them into ONNX files."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto

from glowpy.core.initial import Initializer, initializer
from glowpy.core.tensor import Tensor
from glowpy.graph.function import Module
from glowpy.support.dumped import INITIAL
from glowpy.support.text import Lexer

__all__ = ["set_initial_values"]


def set_initial_values(
    module: Module, graph: GraphProto, tensors: Mapping[str, Tensor], file: str
) -> None:
    """Gives variables the values that the list of a file names; that of an input which is no variable stays unused.

    Raises UserError for a list that is none, and for values that do not fit.
    """
    variables = {variable.original: variable for variable in module.variables}
    text = "\n".join(entry.value for entry in graph.metadata_props if entry.key == INITIAL)
    lexer = Lexer(text, f"{file}: {INITIAL}")
    while lexer.peek.kind != "end":
        at = lexer.peek
        name = lexer.attr()
        lexer.expect("=")
        initial = _read(lexer, tensors)
        if name in variables:
            variable = variables[str(name)]
            if isinstance(initial, Tensor) and initial.type.shape != variable.type.shape:
                raise lexer.error(f"expected {variable.type}, got {initial.type}", at)
            module.begin(variable, initial)


def _read(lexer: Lexer, tensors: Mapping[str, Tensor]) -> Initializer | Tensor:
    is_splat = lexer.accept("splat")
    at = lexer.peek
    if at.kind != "word":
        name = lexer.attr()
        if not isinstance(name, str) or name not in tensors:
            raise lexer.error("expected the name of a tensor that the file has", at)
        return tensors[name].compact() if is_splat else tensors[name]
    lexer.next()
    random = initializer(at.text, lexer.attrs())
    if random is None:
        raise lexer.error(f"expected a tensor, uniform or normal, got '{at.text}'", at)
    return random
