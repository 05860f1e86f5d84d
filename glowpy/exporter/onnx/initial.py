"""Initial values of variables in ONNX files: tensors that no node reads, and a list of whose values they are."""

from __future__ import annotations

from collections.abc import Container, Iterable

from glowpy.core.initial import Initializer
from glowpy.core.tensor import Tensor
from glowpy.graph.node import Variable
from glowpy.support.text import print_attr, print_attrs

__all__ = ["initial_values"]


def initial_values(
    variables: Iterable[Variable], taken: Container[str]
) -> tuple[str, dict[str, Tensor]]:
    """The list, and the tensors by names that are not `taken`. Raises UserError for elements that nobody knows."""
    lines: list[str] = []
    tensors: dict[str, Tensor] = {}
    for variable in variables:
        initial = variable.initial
        if initial is None:
            continue
        if isinstance(initial, Initializer):
            spelled = f"{initial.distribution}{print_attrs(initial.attrs)}"
        else:
            name = f"{variable.original}_initial"
            while name in taken or name in tensors:
                name += "_"
            tensors[name] = initial.tensor
            splat = "splat " if initial.tensor.splat_value is not None else ""
            spelled = f"{splat}{print_attr(name)}"
        lines.append(f"{print_attr(variable.original)} = {spelled}")
    return "\n".join(lines), tensors
