"""glowpy: a neural-network compiler. Give it an ONNX file, get machine code.

Each public name is imported when it is first used: a program that only loads a bundle needs neither LLVM nor ONNX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import glowpy.support.forks  # noqa: F401 - a fork is safe from now on
from glowpy.support.rules import Rules

if TYPE_CHECKING:
    from glowpy.backend import Backend, CompileOptions
    from glowpy.backends.cpu.backend import CpuBackend
    from glowpy.backends.cpu.options import CpuOptions
    from glowpy.backends.interpreter.backend import InterpreterBackend
    from glowpy.bundling.load import load_bundle
    from glowpy.bundling.make import bundle
    from glowpy.bundling.options import BundleOptions
    from glowpy.core.elemkind import ElemKind
    from glowpy.core.tensor import Tensor
    from glowpy.core.type import Type, parse_type
    from glowpy.engine import compile
    from glowpy.exporter import save
    from glowpy.frontends.python.function import function
    from glowpy.graph.channels_last import channels_last
    from glowpy.graph.function import Function, Module
    from glowpy.graph.node import Constant, Node, NodeValue, Placeholder, Variable
    from glowpy.importer import load
    from glowpy.operators import OperatorSet
    from glowpy.plugins import register_operators
    from glowpy.quantization.integer_ports import integer_ports
    from glowpy.runtime.compiled import CompiledFunction
    from glowpy.runtime.instance import Instance
    from glowpy.runtime.state import State
    from glowpy.session.checkup import check
    from glowpy.session.session import InferenceSession
    from glowpy.support.errors import (
        GlowError,
        InternalError,
        LoadError,
        UnsupportedError,
        UserError,
        VerifyError,
    )
    from glowpy.support.progress import reporting
    from glowpy.training.differentiate import differentiate

    __version__: str

__all__ = [
    "Backend",
    "BundleOptions",
    "CompileOptions",
    "CompiledFunction",
    "Constant",
    "CpuBackend",
    "CpuOptions",
    "ElemKind",
    "Function",
    "GlowError",
    "InferenceSession",
    "Instance",
    "InternalError",
    "InterpreterBackend",
    "LoadError",
    "Module",
    "Node",
    "NodeValue",
    "OperatorSet",
    "Placeholder",
    "State",
    "Tensor",
    "Type",
    "UnsupportedError",
    "UserError",
    "Variable",
    "VerifyError",
    "bundle",
    "channels_last",
    "check",
    "compile",
    "differentiate",
    "function",
    "integer_ports",
    "load",
    "load_bundle",
    "parse_type",
    "register_operators",
    "reporting",
    "save",
]

_HOMES = {
    "glowpy.training.differentiate": ("differentiate",),
    "glowpy.backend": ("Backend", "CompileOptions"),
    "glowpy.runtime.compiled": ("CompiledFunction",),
    "glowpy.runtime.instance": ("Instance",),
    "glowpy.backends.cpu.backend": ("CpuBackend",),
    "glowpy.bundling.options": ("BundleOptions",),
    "glowpy.backends.cpu.options": ("CpuOptions",),
    "glowpy.backends.interpreter.backend": ("InterpreterBackend",),
    "glowpy.bundling.make": ("bundle",),
    "glowpy.session.checkup": ("check",),
    "glowpy.core.elemkind": ("ElemKind",),
    "glowpy.runtime.state": ("State",),
    "glowpy.core.tensor": ("Tensor",),
    "glowpy.core.type": ("Type", "parse_type"),
    "glowpy.engine": ("compile",),
    "glowpy.exporter": ("save",),
    "glowpy.graph.channels_last": ("channels_last",),
    "glowpy.graph.function": ("Function", "Module"),
    "glowpy.quantization.integer_ports": ("integer_ports",),
    "glowpy.graph.node": ("Constant", "Node", "NodeValue", "Placeholder", "Variable"),
    "glowpy.importer": ("load",),
    "glowpy.operators": ("OperatorSet",),
    "glowpy.plugins": ("register_operators",),
    "glowpy.frontends.python.function": ("function",),
    "glowpy.bundling.load": ("load_bundle",),
    "glowpy.session.session": ("InferenceSession",),
    "glowpy.support.errors": (
        "GlowError",
        "InternalError",
        "LoadError",
        "UnsupportedError",
        "UserError",
        "VerifyError",
    ),
    "glowpy.support.progress": ("reporting",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_RULES = "glowpy.ops"
"""Module that fills the tables of rules. The module of a backend imports the rules for the backend's own operators."""


def _version() -> str:
    """Returns the version of the installed package, or `0+unknown` for a checkout that is not installed."""
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version("glowpy"))
    except metadata.PackageNotFoundError:
        return "0+unknown"


def _fill() -> None:
    import_module(_RULES)
    Rules.fill = staticmethod(lambda: None)


Rules.fill = staticmethod(_fill)


if not TYPE_CHECKING:  # a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        """The public name, imported now and kept (PEP 562)."""
        if name == "__version__":
            return _version()
        if name not in _HOME_OF:
            raise AttributeError(f"module 'glowpy' has no attribute '{name}'")
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
