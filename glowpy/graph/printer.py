"""The text of a module; `parser` reads it back.

Nodes are printed in topological order, constants of up to 16 elements in full, splats by their
value, others by the SHA-256 of their elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from glowpy.core.elemkind import ElemKind
from glowpy.core.initial import Initializer
from glowpy.graph.node import Constant, Node, Variable
from glowpy.support.text import print_attrs, print_float, print_symbol

if TYPE_CHECKING:
    from glowpy.graph.function import Function, Module

__all__ = ["print_function", "print_module", "print_node"]

_INLINE = 16
"""Constants of at most so many elements are printed in full."""


def print_node(node: Node) -> str:
    """One node: `%r = add(%a, %b) if %p {...} : f32[4]`."""
    text = f"{node.SCHEMA.mnemonic}({', '.join(f'%{value.name}' for value in node.inputs)})"
    if node.predicate is not None:
        text += f" if %{node.predicate.name}"
    text += print_attrs(node.attrs)
    if node.results:
        names = ", ".join(f"%{result.name}" for result in node.results)
        text = f"{names} = {text} : {', '.join(str(result.type) for result in node.results)}"
    return text


def print_function(f: Function, indent: str = "") -> str:
    """One function without its storage."""
    lines = [f"{indent}function @{f.name}{_ports(f)} {{"]
    lines += [f"{indent}  {print_node(node)}" for node in f.topological()]
    return "\n".join([*lines, f"{indent}}}"]) + "\n"


def _ports(f: Function) -> str:
    """Formats the ports that a called function takes and gives."""
    if not f.is_called:
        return ""
    takes, gives = (", ".join(f"%{s.name}" for s in ports) for ports in (f.takes, f.gives))
    return f"({takes}) -> ({gives})"


def print_module(module: Module) -> str:
    """The whole module. Deterministic; `parse_module` of it prints the same."""
    lines = ["module {"]
    lines += [f"  {print_symbol(extent)}" for extent in module.symbols.values()]
    lines += [f"  placeholder %{p.name} : {p.type}" for p in module.placeholders]
    lines += [f"  variable %{v.name} : {_variable_type(v)}" for v in module.variables]
    lines += [f"  constant %{c.name} : {c.type} = {_elements(c)}" for c in module.constants]
    functions = "".join(print_function(f, "  ") for f in module.functions)
    return "\n".join(lines) + "\n" + functions + "}\n"


def _variable_type(variable: Variable) -> str:
    """Formats the type, that of the memory if it has more room, and the initial value if that is not zeros."""
    memory = "" if variable.memory == variable.type else f" in {variable.memory}"
    match variable.initial:
        case None:
            initial = ""
        case Constant() as constant:
            initial = f" = {_elements(constant)}"
        case Initializer() as random:
            initial = f" = {random.distribution}{print_attrs(random.attrs)}"
    return f"{variable.type}{memory}{initial}"


def _elements(constant: Constant) -> str:
    if constant.has_elements:
        tensor = constant.tensor
        splat = tensor.splat_value
        if splat is not None:
            return f"splat {_number(splat, tensor.type.kind)}"
        if tensor.array.size <= _INLINE:
            items = tensor.array.reshape(-1).tolist()
            return f"[{', '.join(_number(item, tensor.type.kind) for item in items)}]"
    return f'blob "sha256:{constant.digest}"'


def _number(value: float | int, kind: ElemKind) -> str:
    """The shortest text that reads back as the same element."""
    if not kind.has_fractions:
        return str(int(value))
    short = kind in (ElemKind.F16, ElemKind.F32)  # numpy knows the shortest text of these
    return print_float(float(str(kind.dtype.type(value))) if short else float(value))
