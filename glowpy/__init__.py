"""glowpy: a neural-network compiler. Give it an ONNX file, get machine code."""

import glowpy.ops  # noqa: F401 - fills the rule tables
from glowpy.backend import CompiledFunction, CompileOptions, Instance
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import compile
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue, Placeholder
from glowpy.importer import load
from glowpy.session import InferenceSession
from glowpy.support.errors import (
    GlowError,
    InternalError,
    LoadError,
    UnsupportedError,
    UserError,
    VerifyError,
)

__all__ = [
    "CompileOptions",
    "CompiledFunction",
    "Constant",
    "ElemKind",
    "Function",
    "GlowError",
    "InferenceSession",
    "Instance",
    "InternalError",
    "LoadError",
    "Module",
    "Node",
    "NodeValue",
    "Placeholder",
    "Tensor",
    "Type",
    "UnsupportedError",
    "UserError",
    "VerifyError",
    "compile",
    "load",
    "parse_type",
]
